"""A small conversation as a capture file: one of each kind of thing that a connection tracker tells apart.

    python -m zonetrack.clients.conversation FILE

For a first look, and for trying an installation: what comes out is always the same, in documentation addresses.
Nothing here shares code with the tracker, and checksums are summed the slow way, so that one can be held against the
other.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from .errors import Exit

ETHERTYPE_IPV4, ETHERTYPE_IPV6 = 0x0800, 0x86DD
ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
FIN, SYN, PSH, ACK = 0x01, 0x02, 0x08, 0x10
STARTED_S = 1_767_225_600  # 2026-01-01 00:00 UTC
LINKTYPE_ETHERNET = 1

Address = IPv4Address | IPv6Address


class Host(NamedTuple):
    """One end of a packet: an address, and a port where the protocol has ports."""

    address: Address
    port: int = 0


def host(address: str, port: int = 0) -> Host:
    """Return the end at ``address``, written as people write it."""
    return Host(ip_address(address), port)


def checksum(data: bytes) -> int:
    """Return the ones' complement sum of ``data`` (RFC 1071)."""
    words = struct.unpack(f"!{-(-len(data) // 2)}H", data + b"\0" * (len(data) % 2))
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def with_checksum(segment: bytes, at: int, pseudo_header: bytes) -> bytes:
    """Return ``segment`` with its checksum, over ``pseudo_header`` too, stored at offset ``at``."""
    return segment[:at] + struct.pack("!H", checksum(pseudo_header + segment)) + segment[at + 2 :]


def pseudo_header(src: Host, dst: Host, protocol: int, size: int) -> bytes:
    """Return what transport checksums cover of the IP header (RFC 9293 3.1, RFC 8200 8.1)."""
    form = "!BBH" if src.address.version == 4 else "!IxxxB"
    numbers = (0, protocol, size) if src.address.version == 4 else (size, protocol)
    return src.address.packed + dst.address.packed + struct.pack(form, *numbers)


def ip_packet(src: Host, dst: Host, protocol: int, payload: bytes) -> bytes:
    """Return an IP packet, of the version of its addresses."""
    ends = src.address.packed + dst.address.packed
    if src.address.version == 6:
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + ends + payload
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0) + ends
    return with_checksum(header, 10, b"") + payload


def tcp(src: Host, dst: Host, flags: int, seq: int, ack: int = 0, data: bytes = b"") -> bytes:
    """Return an IP packet with a TCP segment."""
    segment = struct.pack("!HHIIBBHHH", src.port, dst.port, seq, ack, 5 << 4, flags, 65535, 0, 0) + data
    return ip_packet(src, dst, TCP, with_checksum(segment, 16, pseudo_header(src, dst, TCP, len(segment))))


def udp(src: Host, dst: Host, data: bytes) -> bytes:
    """Return an IP packet with a UDP datagram."""
    datagram = struct.pack("!HHHH", src.port, dst.port, 8 + len(data), 0) + data
    return ip_packet(src, dst, UDP, with_checksum(datagram, 6, pseudo_header(src, dst, UDP, len(datagram))))


def icmp(src: Host, dst: Host, kind: int, code: int, rest: int, data: bytes) -> bytes:
    """Return an IP packet with an ICMP or ICMPv6 message; ``rest`` is the second word of its header."""
    message = struct.pack("!BBHI", kind, code, 0, rest) + data
    if src.address.version == 4:
        return ip_packet(src, dst, ICMP, with_checksum(message, 2, b""))
    return ip_packet(src, dst, ICMPV6, with_checksum(message, 2, pseudo_header(src, dst, ICMPV6, len(message))))


def web_page(client: Host, server: Host, closes: bool) -> Iterator[bytes]:
    """Yield a TCP connection that fetches a page, to the last acknowledgment when it ``closes``."""
    request, answer = b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n" + b"hello " * 100
    mine, theirs = 1000, 0xFFFFFF00  # the server's sequence numbers wrap in the middle of its answer
    yield tcp(client, server, SYN, mine)
    yield tcp(server, client, SYN | ACK, theirs, mine + 1)
    yield tcp(client, server, ACK, mine + 1, theirs + 1)
    yield tcp(client, server, PSH | ACK, mine + 1, theirs + 1, request)
    mine += 1 + len(request)
    yield tcp(server, client, PSH | ACK, theirs + 1, mine, answer)
    theirs = (theirs + 1 + len(answer)) % 2**32
    yield tcp(client, server, ACK, mine, theirs)
    if closes:
        yield tcp(server, client, FIN | ACK, theirs, mine)
        yield tcp(client, server, FIN | ACK, mine, theirs + 1)
        yield tcp(server, client, ACK, theirs + 1, mine + 1)


def packets() -> Iterator[bytes]:
    """Yield every packet of the conversation, as the network carried it."""
    laptop, laptop6 = host("192.0.2.10"), host("2001:db8::10")
    web, web6 = host("198.51.100.80", 80), host("2001:db8:80::1", 443)
    resolver = host("198.51.100.53", 53)

    asks = laptop._replace(port=40053)
    yield udp(asks, resolver, b"what is the address of web?")
    yield udp(resolver, asks, b"198.51.100.80")
    yield from web_page(laptop._replace(port=40080), web, closes=True)
    yield from web_page(laptop6._replace(port=40443), web6, closes=False)
    yield icmp(laptop, web, 8, 0, 7 << 16 | 1, b"ping")
    yield icmp(web, laptop, 0, 0, 7 << 16 | 1, b"ping")
    yield icmp(laptop6, web6, 128, 0, 9 << 16 | 1, b"ping")
    # nobody listens there: the error belongs to the datagram it quotes
    refused = udp(laptop._replace(port=40069), web._replace(port=69), b"anybody?")
    yield refused
    yield icmp(web, laptop, 3, 3, 0, refused)
    # a probe that is never answered, and data beyond any window of the connection that is still open
    yield tcp(host("203.0.113.66", 50000), laptop._replace(port=22), SYN, 77)
    yield tcp(web6, laptop6._replace(port=40443), PSH | ACK, 0x40000000, 1019, b"not theirs")


def frame(packet: bytes) -> bytes:
    """Return ``packet`` in an Ethernet frame."""
    ethertype = ETHERTYPE_IPV4 if packet[0] >> 4 == 4 else ETHERTYPE_IPV6
    return bytes.fromhex("020000000001 020000000002") + struct.pack("!H", ethertype) + packet


def capture() -> bytes:
    """Return the conversation as a capture file in the classic format, a packet each 10 ms."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, LINKTYPE_ETHERNET)]
    for number, packet in enumerate(packets()):
        data = frame(packet)
        parts.append(struct.pack("<IIII", STARTED_S, number * 10_000, len(data), len(data)) + data)
    return b"".join(parts)


def main() -> None:
    """Write the conversation to the file that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("Usage: python -m zonetrack.clients.conversation FILE", file=sys.stderr)
        sys.exit(Exit.USAGE)
    Path(sys.argv[1]).write_bytes(capture())


if __name__ == "__main__":
    main()
