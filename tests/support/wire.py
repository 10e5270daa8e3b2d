"""Packets of either family as they are on the wire, right to the last checksum, from the words of a network engineer.

    wire.tcp("c", "SA", seq=5000, ack=1001, options="mss1460 ws7").packets(4)

Hosts: ``c`` client, ``s`` server, ``r`` a router between them, ``d`` another client and ``w`` another server; ``n`` and
``m`` are addresses that clients are translated to, ``v`` one that servers are reached by.  A datagram may be cut into
fragments.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

import naive_checksum
from segments import FLAGS, options_bytes

HOSTS = {
    "c": {4: "192.0.2.1", 6: "2001:db8::1"},
    "s": {4: "198.51.100.1", 6: "2001:db8:1::1"},
    "r": {4: "203.0.113.1", 6: "2001:db8:2::1"},
    "d": {4: "192.0.2.2", 6: "2001:db8::2"},
    "n": {4: "203.0.113.200", 6: "2001:db8:2::200"},
    "m": {4: "203.0.113.201", 6: "2001:db8:2::201"},
    "v": {4: "203.0.113.80", 6: "2001:db8:2::80"},
    "w": {4: "198.51.100.2", 6: "2001:db8:1::2"},
}
ICMP, TCP, UDP, GRE, ICMPV6, SCTP = 1, 6, 17, 47, 58, 132
CHECKSUM_AT = {ICMP: 2, TCP: 16, UDP: 6, ICMPV6: 2}
ERRORS = {
    "unreachable": {4: (3, 1), 6: (1, 0)},
    "port-unreachable": {4: (3, 3), 6: (1, 4)},
    "too-big": {4: (3, 4), 6: (2, 0)},
    "exceeded": {4: (11, 0), 6: (3, 0)},
    "bad-header": {4: (12, 0), 6: (4, 0)},
    "redirect": {4: (5, 1), 6: (137, 0)},
}
"""Type and code of what routers say, by family."""
QUERIES = {"echo": {4: 8, 6: 128}, "echo-reply": {4: 0, 6: 129}}
CHUNKS = {
    "data": 0,
    "init": 1,
    "init-ack": 2,
    "sack": 3,
    "heartbeat": 4,
    "heartbeat-ack": 5,
    "abort": 6,
    "shutdown": 7,
    "shutdown-ack": 8,
    "error": 9,
    "cookie-echo": 10,
    "cookie-ack": 11,
    "shutdown-complete": 14,
}


def address(host: str, family: int) -> bytes:
    """Return a host's address."""
    return ipaddress.ip_address(HOSTS[host][family]).packed


class Datagram(NamedTuple):
    """What goes from one host to another, above IP."""

    source: str
    destination: str
    protocol: int
    body: bytes

    def sealed(self, family: int) -> bytes:
        """Return the body with its checksum."""
        protocol = ICMPV6 if self.protocol == ICMP and family == 6 else self.protocol
        if protocol == SCTP:
            return self.body[:8] + crc32c(self.body).to_bytes(4, "little") + self.body[12:]
        if protocol not in CHECKSUM_AT:
            return self.body
        ends = address(self.source, family), address(self.destination, family)
        pseudo = b"" if protocol == ICMP else naive_checksum.pseudo_header(*ends, protocol, len(self.body))
        at = CHECKSUM_AT[protocol]
        checksum = naive_checksum.checksum(pseudo + self.body) or 0xFFFF
        return self.body[:at] + checksum.to_bytes(2, "big") + self.body[at + 2 :]

    def packet(self, family: int, part: tuple[int, int] | None = None, number: int = 1) -> bytes:
        """Return the packet, or the fragment of it that carries these bytes.

        Args:
            family: 4 or 6.
            part: first byte and the one after the last; None for all.
            number: of the datagram, the same in all its fragments.
        """
        protocol = ICMPV6 if self.protocol == ICMP and family == 6 else self.protocol
        body = self.sealed(family)
        first, last = part or (0, len(body))
        word = first | (last < len(body) if part else 0)
        body = body[first:last]
        ends = address(self.source, family) + address(self.destination, family)
        if family == 6:
            if part:
                body = struct.pack("!BBHI", protocol, 0, word, number) + body
                protocol = 44
            return struct.pack("!IHBB", 6 << 28, len(body), protocol, 64) + ends + body
        word = first >> 3 | (word & 1) << 13
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), number, word, 64, protocol, 0) + ends
        return head[:10] + naive_checksum.checksum(head).to_bytes(2, "big") + head[12:] + body


def other(side: str) -> str:
    """Return the host that a side talks to."""
    return "s" if side == "c" else "c"


def tcp(side: str, ports: tuple[int, int], flags: str, seq: int, ack: int, win: int, options: str, payload: bytes):
    """Return a TCP segment; ports are the sender's, the receiver's."""
    wire = options_bytes(options)
    bits = sum(FLAGS[flag] for flag in flags)
    offset = (20 + len(wire)) // 4 << 12
    head = struct.pack("!HHIIHHHH", *ports, seq % 2**32, ack % 2**32, offset | bits, win, 0, 0)
    return Datagram(side, other(side), TCP, head + wire + payload)


def udp(side: str, ports: tuple[int, int], payload: bytes):
    """Return a UDP datagram."""
    return Datagram(side, other(side), UDP, struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload)


def query(side: str, kind: int, code: int, identifier: int, payload: bytes):
    """Return an ICMP message with an identifier."""
    return Datagram(side, other(side), ICMP, struct.pack("!BBHHH", kind, code, 0, identifier, 1) + payload)


def error(source: str, destination: str, kind: int, code: int, quoted: bytes):
    """Return an ICMP error about the packet whose beginning it quotes."""
    return Datagram(source, destination, ICMP, struct.pack("!BBHI", kind, code, 0, 0) + quoted)


def other_protocol(side: str, protocol: int, payload: bytes):
    """Return a packet of a protocol of which nothing is known but its number."""
    return Datagram(side, other(side), protocol, payload)


def sctp(side: str, ports: tuple[int, int], tag: int, chunk: str, initiate_tag: int):
    """Return an SCTP packet of one chunk (RFC 9260 3)."""
    kind = CHUNKS[chunk]
    if chunk in ("init", "init-ack"):
        value = struct.pack("!IIHHI", initiate_tag, 65535, 1, 1, 1)
    elif chunk == "data":
        value = struct.pack("!IHHI", 1, 0, 0, 0) + b"data"
    elif chunk == "sack":
        value = struct.pack("!IIHH", 1, 65535, 0, 0)
    elif chunk == "shutdown":
        value = struct.pack("!I", 1)
    elif chunk in ("heartbeat", "heartbeat-ack"):
        value = struct.pack("!HHI", 1, 8, 0)
    elif chunk == "cookie-echo":
        value = b"cookie.."
    else:
        value = b""
    head = struct.pack("!HHII", *ports, tag, 0)
    return Datagram(
        side, other(side), SCTP, head + struct.pack("!BBH", kind, 3 if chunk == "data" else 0, 4 + len(value)) + value
    )


def crc32c(data: bytes) -> int:
    """Return the checksum of an SCTP packet, bit by bit (RFC 9260, appendix A)."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF
