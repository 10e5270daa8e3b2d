"""The packets with which Open vSwitch was probed for all but plain TCP, by their names in tests/data/ovs-other-matrix.json.

A probe is a list of steps: a name and a packet, or seconds to wait.  Checksums are right unless a name says otherwise; that
of an upper layer covers what the IP header says is there, whatever its own length says.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import associations
import naive_checksum
from scapy.layers.sctp import crc32c

CLIENT, SERVER, ROUTER, THIRD = "192.0.2.1", "198.51.100.1", "203.0.113.9", "192.0.2.99"
CLIENT6, SERVER6, ROUTER6, THIRD6 = "2001:db8:1::1", "2001:db8:2::1", "2001:db8:3::9", "2001:db8:1::99"
ICMP, TCP, UDP, ICMPV6, SCTP = 1, 6, 17, 58, 132
CHECKSUM_AT = {ICMP: 2, TCP: 16, UDP: 6, ICMPV6: 2}
HEADER_BYTES = {ICMP: 4, TCP: 20, UDP: 8, ICMPV6: 4}
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16, "U": 32}

Step = tuple[str, bytes] | float


# ---------------------------------------------------------------------------------------------------- packets
def packed(address: str) -> bytes:
    """Return an address as it is on the wire."""
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def summed(protocol: int, upper: bytes, src: bytes, dst: bytes) -> bytes:
    """Return a transport packet with the right checksum; UDP over IPv4 without one stays so."""
    at = CHECKSUM_AT.get(protocol)
    of_other_family = (ICMP if len(src) == 16 else ICMPV6) == protocol
    if at is None or of_other_family or len(upper) < HEADER_BYTES[protocol]:
        return upper
    if protocol == UDP and len(src) == 4 and upper[6:8] == bytes(2):
        return upper
    blank = upper[:at] + bytes(2) + upper[at + 2 :]
    pseudo = b"" if protocol == ICMP else naive_checksum.pseudo_header(src, dst, protocol, len(upper))
    value = naive_checksum.checksum(pseudo + blank)
    return upper[:at] + (value or (0xFFFF if protocol == UDP else 0)).to_bytes(2, "big") + upper[at + 2 :]


def ip(source: str, target: str, protocol: int, upper: bytes, *, ttl: int = 64, summing: bool = True) -> bytes:
    """Return an IP packet; without ``summing`` what it carries is left as it is."""
    src, dst = packed(source), packed(target)
    if summing:
        upper = summed(protocol, upper, src, dst)
    if len(src) == 16:
        return struct.pack("!IHBB", 6 << 28, len(upper), protocol, ttl) + src + dst + upper
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(upper), 1, 0, ttl, protocol, 0) + src + dst
    return head[:10] + naive_checksum.checksum(head).to_bytes(2, "big") + head[12:] + upper


def udp(sport: int, dport: int, length: int | None = None) -> bytes:
    """Return a datagram of ten bytes, its checksum yet to be written."""
    return struct.pack("!HHHH", sport, dport, 18 if length is None else length, 0xFFFF) + b"q" * 10


def tcp(sport: int, dport: int, flags: str, seq: int, ack: int = 0) -> bytes:
    """Return a segment without data."""
    return struct.pack("!HHIIBBHHH", sport, dport, seq, ack, 0x50, sum(FLAGS[flag] for flag in flags), 65535, 0, 0)


def icmp(kind: int, code: int = 0, identifier: int = 7, data: bytes = b"x" * 20) -> bytes:
    """Return a message with an identifier."""
    return struct.pack("!BBHHH", kind, code, 0, identifier, 1) + data


def error(source: str, target: str, kind: int, quoted: bytes, code: int = 0) -> bytes:
    """Return an ICMP error."""
    return ip(source, target, ICMPV6 if ":" in source else ICMP, struct.pack("!BBHI", kind, code, 0, 0) + quoted)


# ---------------------------------------------------------------------------------------------------- probes
def icmp4_first() -> Iterator[list[Step]]:
    """Yield each ICMP type alone."""
    for kind in range(45):
        yield [(f"ICMP type {kind} code 0", ip(CLIENT, SERVER, ICMP, icmp(kind)))]
    for kind in (0, 8, 13, 14, 15, 16):
        yield [(f"ICMP type {kind} code 1", ip(CLIENT, SERVER, ICMP, icmp(kind, 1)))]


def icmp6_first() -> Iterator[list[Step]]:
    """Yield ICMPv6 types alone, and each protocol in the other's IP."""
    for kind in (*range(8), *range(126, 162), 200, 255):
        packet = ip(CLIENT6, SERVER6, ICMPV6, icmp(kind, data=b"x" * 24), ttl=255)
        yield [(f"ICMPv6 type {kind} code 0", packet)]
    for kind in (128, 129):
        yield [(f"ICMPv6 type {kind} code 1", ip(CLIENT6, SERVER6, ICMPV6, icmp(kind, 1)))]
    yield [("ICMPv6 in IPv4", ip(CLIENT, SERVER, ICMPV6, icmp(128)))]
    yield [("ICMP in IPv6", ip(CLIENT6, SERVER6, ICMP, icmp(8)))]


def icmp_pairs() -> Iterator[list[Step]]:
    """Yield requests and answers, of one identifier and another, and of both sides."""
    families = (
        (ICMP, CLIENT, SERVER, ((8, 0), (13, 14), (15, 16), (17, 18))),
        (ICMPV6, CLIENT6, SERVER6, ((128, 129), (139, 140))),
    )
    for protocol, client, server, pairs in families:
        for request, answer in pairs:
            sent = (
                *(("client", request, 7), ("client", request, 7), ("server", answer, 7), ("client", request, 7)),
                *(("server", answer, 8), ("server", request, 7), ("client", answer, 7)),
            )
            yield [
                (
                    f"{who} type {kind} id {number}",
                    ip(*(client, server) if who == "client" else (server, client), protocol, icmp(kind, 0, number)),
                )
                for who, kind, number in sent
            ]


def icmp_errors() -> Iterator[list[Step]]:
    """Yield errors from both hosts and a router, and what they may quote."""
    families = (
        (CLIENT, SERVER, ROUTER, THIRD, 20, (3, 4, 5, 11, 12)),
        (CLIENT6, SERVER6, ROUTER6, THIRD6, 40, (1, 2, 3, 4, 137)),
    )
    for client, server, router, third, header, kinds in families:
        sent = ip(client, server, UDP, udp(5000, 6000))
        back = ip(server, client, UDP, udp(6000, 5000))
        for kind in kinds:
            unknown = ip(client, server, UDP, udp(5999, 6000))
            yield [
                ("client UDP", sent),
                (f"server: error {kind} on it", error(server, client, kind, sent)),
                (f"router: error {kind} on it", error(router, client, kind, sent)),
                (f"router: error {kind} code 3 on it", error(router, client, kind, sent, 3)),
                (f"router: error {kind} on an unknown flow", error(router, client, kind, unknown)),
                (f"router: error {kind} to a third host", error(router, third, kind, sent)),
                ("server UDP reply", back),
                (f"client: error {kind} on the reply", error(client, server, kind, back)),
                (f"router: error {kind} on the first packet", error(router, client, kind, sent)),
            ]
        protocol, request = (ICMP, 8) if header == 20 else (ICMPV6, 128)
        syn = ip(client, server, TCP, tcp(4000, 80, "S", 1000))
        echo = ip(client, server, protocol, icmp(request))
        quoted: list[tuple[str, bytes]] = [
            *((f"{n} bytes of TCP", syn[: header + n]) for n in (20, 19, 8, 7, 4, 0)),
            *((f"{n} bytes of UDP", sent[: header + n]) for n in (18, 8, 7)),
            *((f"{n} bytes of echo", echo[: header + n]) for n in (28, 8, 7)),
            ("UDP with a bad checksum", sent[:-1] + bytes([sent[-1] ^ 0xFF])),
            ("an error", error(server, client, kinds[0], sent)),
            ("another protocol", ip(client, server, 99, b"1234567890")),
        ]
        yield [
            *(("client UDP", sent), ("client SYN", syn), ("client echo", echo)),
            *((f"error quoting {name}", error(router, client, kinds[0], quote)) for name, quote in quoted),
            ("error with an empty quote", error(router, client, kinds[0], b"")),
        ]


def ip_protos() -> Iterator[list[Step]]:
    """Yield every protocol without ports that are read, and the course of some."""
    for protocol in (*range(145), 253, 254, 255):
        if protocol not in (ICMP, TCP, UDP, ICMPV6, SCTP, 44):
            yield [(f"IPv4 protocol {protocol}", ip(CLIENT, SERVER, protocol, bytes(24)))]
    for protocol in (4, 41, 47, 50, 59, 89, 97, 103, 112, 115, 135, 136, 139, 140, 253, 255):
        yield [(f"IPv6 next header {protocol}", ip(CLIENT6, SERVER6, protocol, bytes(24)))]
    for protocol, name in ((47, "GRE"), (50, "ESP"), (33, "DCCP"), (136, "UDP-Lite"), (2, "IGMP")):
        yield [
            (f"client {name}", ip(CLIENT, SERVER, protocol, bytes(24))),
            (f"client {name}", ip(CLIENT, SERVER, protocol, bytes(24))),
            (f"server {name}", ip(SERVER, CLIENT, protocol, bytes(24))),
            (f"client {name}", ip(CLIENT, SERVER, protocol, b"z" * 24)),
            61.0,
        ]


def udp_courses() -> Iterator[list[Step]]:
    """Yield the course of a UDP flow, answered soon and late."""
    client, server = ip(CLIENT, SERVER, UDP, udp(5000, 6000)), ip(SERVER, CLIENT, UDP, udp(6000, 5000))
    yield [
        *(("client", client), ("client", client), ("server", server), ("client", client), 2.2),
        *(("client", client), ("server", server), 29.0, ("server", server), 31.0, ("server", server)),
    ]
    yield [
        *(("client", client), 59.0, ("client again", client), 59.0),
        *(("server", server), 31.0, ("server after it expired", server)),
    ]


def udp_odd() -> Iterator[list[Step]]:
    """Yield datagrams with something about them."""
    good = ip(CLIENT, SERVER, UDP, udp(5000, 6000))
    good6 = ip(CLIENT6, SERVER6, UDP, udp(5000, 6000))
    yield [("IPv4, good checksum", good)]
    yield [("IPv4, checksum 0", good[:26] + bytes(2) + good[28:])]
    yield [("IPv4, bad checksum", good[:26] + b"\1\1" + good[28:])]
    yield [("IPv6, good checksum", good6)]
    yield [("IPv6, checksum 0", good6[:46] + bytes(2) + good6[48:])]
    for name, length in (("less than there is", 12), ("8", 8), ("7", 7), ("0", 0), ("more than there is", 30)):
        yield [(f"length field {name}", ip(CLIENT, SERVER, UDP, udp(5000, 6000, length)))]
    yield [("4 bytes of UDP", ip(CLIENT, SERVER, UDP, good[20:24]))]
    yield [("source port 0", ip(CLIENT, SERVER, UDP, udp(0, 6000)))]
    yield [("destination port 0", ip(CLIENT, SERVER, UDP, udp(5000, 0)))]


def tcp_odd() -> Iterator[list[Step]]:
    """Yield segments with something about them, and every set of flags first."""
    syn = tcp(4000, 80, "S", 1000)
    yield [("source port 0", ip(CLIENT, SERVER, TCP, tcp(0, 80, "S", 1)))]
    yield [("destination port 0", ip(CLIENT, SERVER, TCP, tcp(4000, 0, "S", 1)))]
    yield [("data offset 4", ip(CLIENT, SERVER, TCP, syn[:12] + b"\x40" + syn[13:]))]
    yield [("data offset beyond the end", ip(CLIENT, SERVER, TCP, syn[:12] + b"\xf0" + syn[13:]))]
    yield [("19 bytes of TCP", ip(CLIENT, SERVER, TCP, syn[:19], summing=False))]
    yield [("bad checksum", ip(CLIENT, SERVER, TCP, syn, summing=False))]
    yield [("source is destination", ip(CLIENT, CLIENT, TCP, tcp(4000, 4000, "S", 1)))]
    for bits in range(64):
        flags = "".join(flag for flag, bit in FLAGS.items() if bits & bit)
        packet = ip(CLIENT, SERVER, TCP, tcp(4000, 80, flags, 1000, 5000))
        yield [(f"first packet, flags {flags or 'none'}", packet)]


def ip_odd() -> Iterator[list[Step]]:
    """Yield IP headers with something about them, and IPv6 extension headers."""
    datagram = udp(5000, 6000)
    good = ip(CLIENT, SERVER, UDP, datagram)
    yield [("good", good)]
    yield [("20 bytes of padding", good + bytes(20))]
    yield [("300 bytes of padding", good + bytes(300))]
    yield [("cut by 4 bytes", good[:-4])]
    yield [("bad header checksum", good[:10] + b"\0\1" + good[12:])]
    yield [("total length 0", good[:2] + bytes(2) + good[4:])]
    yield [("header length 4 words", b"\x44" + good[1:])]
    yield [("15 bytes", good[:15])]
    yield [("TTL 0", ip(CLIENT, SERVER, UDP, datagram, ttl=0))]
    yield [("from 0.0.0.0", ip("0.0.0.0", SERVER, UDP, datagram))]
    yield [("from loopback", ip("127.0.0.1", "127.0.0.1", UDP, datagram))]
    yield [("to broadcast", ip(CLIENT, "255.255.255.255", UDP, datagram))]
    yield [("to multicast", ip(CLIENT, "224.0.0.251", UDP, datagram))]

    good6 = ip(CLIENT6, SERVER6, UDP, datagram)
    padded = b"\x01\x04" + bytes(4)
    chains = {
        "hop-by-hop": (0, b"\x11\0" + padded),
        "destination options": (60, b"\x11\0" + padded),
        "routing, no segments left": (43, b"\x11\x02\0\0" + bytes(20)),
        "routing, 1 segment left": (43, b"\x11\x02\0\x01" + bytes(20)),
        "AH": (51, b"\x11\x04" + bytes(22)),
        "atomic fragment": (44, b"\x11" + bytes(7)),
        "first fragment, more to come": (44, b"\x11\0\0\x01" + bytes(4)),
        "later fragment": (44, b"\x11\0\0\x10" + bytes(4)),
        "hop-by-hop, destination options": (0, b"\x3c\0" + padded + b"\x11\0" + padded),
        "hop-by-hop running past the end": (0, b"\x11\xc8" + padded),
        "mobility": (135, b"\x11\0" + padded),
    }
    for name, (first, chain) in chains.items():
        yield [(f"IPv6 {name}", ip(CLIENT6, SERVER6, first, chain + good6[40:], summing=False))]
    yield [("IPv6 cut by 4 bytes", good6[:-4])]


def sctp_odd() -> Iterator[list[Step]]:
    """Yield SCTP packets with something about them."""

    def of(chunks: bytes, sport: int = 30001) -> bytes:
        upper = struct.pack("!HHII", sport, 3868, 0, 0) + chunks
        upper = upper[:8] + struct.pack("!I", crc32c(upper)) + upper[12:]
        return ip(CLIENT, SERVER, SCTP, upper)

    init = associations.init(associations.TAGS["c"])
    good = of(init)
    yield [("bad CRC32c", good[:28] + bytes([good[28] ^ 1]) + good[29:])]
    yield [("no chunk", of(b""))]
    yield [("chunk length 0", of(b"\1\0\0\0" + bytes(16)))]
    yield [("chunk longer than the packet", of(b"\1\0\0\xc8" + bytes(16)))]
    yield [("source port 0", of(init, 0))]


GROUPS = {
    "icmp4_first": icmp4_first,
    "icmp6_first": icmp6_first,
    "icmp_pairs": icmp_pairs,
    "icmp_errors": icmp_errors,
    "ip_protos": ip_protos,
    "udp": udp_courses,
    "udp_odd": udp_odd,
    "tcp_odd": tcp_odd,
    "ip_odd": ip_odd,
    "sctp_odd": sctp_odd,
}
