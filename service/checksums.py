"""Checksums of a packet that was refused for one: what it has, and what it should have."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
AT = {TCP: 16, UDP: 6, ICMP: 2, ICMPV6: 2}
"""Where the checksum stands in a transport header."""
IPV4_HEADER_BYTES, IPV6_HEADER_BYTES = 20, 40
IPV4_AT = 10


class Sums(NamedTuple):
    """A checksum as it was found, and as it is right."""

    found: int
    expected: int


def internet_sum(data: bytes) -> int:
    """Return the ones-complement of the sum of 16-bit words (RFC 1071)."""
    words = np.frombuffer(data + b"\0" * (len(data) % 2), ">u2")
    total = int(words.astype(np.uint64).sum())
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _held(data: bytes, at: int, pseudo: bytes = b"") -> Sums:
    without = data[:at] + b"\0\0" + data[at + 2 :]
    return Sums(int.from_bytes(data[at : at + 2], "big"), internet_sum(pseudo + without))


def of_ipv4(packet: bytes) -> Sums | None:
    """Return the checksum of an IPv4 header; None where it is not whole."""
    header = packet[: 4 * (packet[0] & 0xF)] if packet else b""
    whole = len(header) >= IPV4_HEADER_BYTES and len(header) == 4 * (packet[0] & 0xF)
    return _held(header, IPV4_AT) if whole else None


def of_transport(packet: bytes) -> Sums | None:
    """Return the checksum of a transport header; None where the packet is not whole, or has extension headers.

    Source:
        RFC 9293 3.1, 768, 792; RFC 8200 8.1 and RFC 4443 2.3 for IPv6.
    """
    if len(packet) < IPV4_HEADER_BYTES or packet[0] >> 4 not in (4, 6):
        return None
    if packet[0] >> 4 == 4:
        begin, end, protocol = 4 * (packet[0] & 0xF), int.from_bytes(packet[2:4], "big"), packet[9]
        addresses = packet[12:20]
    else:
        begin, end, protocol = IPV6_HEADER_BYTES, IPV6_HEADER_BYTES + int.from_bytes(packet[4:6], "big"), packet[6]
        addresses = packet[8:40]
    segment = packet[begin:end]
    if protocol not in AT or len(packet) < end or len(segment) < AT[protocol] + 2:
        return None
    pseudo = b"" if protocol == ICMP else addresses + struct.pack(">II", len(segment), protocol)
    sums = _held(segment, AT[protocol], pseudo)
    return sums._replace(expected=0xFFFF) if protocol == UDP and not sums.expected else sums
