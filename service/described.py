"""A packet made from its description, in the words of rules: ``in_port=lan,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80``.

What is not said is 0, but for what a packet cannot do without: lengths, checksums that are right, a hop limit, and for TCP a
SYN.  TCP and UDP may carry something: ``payload="PORT 10,0,0,1,156,65\\r\\n"``, or its bytes as ``payload=0x5045...``; then
TCP has PSH and ACK.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from . import rule_matches, rules_text
from .rule_matches import ARP, DCCP, ICMP, ICMPV6, IPV4, IPV6, SCTP, TCP, TCP_FLAGS, UDP, UDP_LITE
from .rules import BITS, Masked, Names

WINDOW = 65_535
HOPS = 64
PAYLOAD_BYTES_MAX = 1400
PAYLOAD = re.compile(r"""(?:^|(?<=[,\s]))payload=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^,\s"']*)(?=[,\s]|$)""")
ESCAPED = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
ESCAPES = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0", b"\\": b"\\", b'"': b'"', b"'": b"'"}


@dataclass(frozen=True)
class Described:
    """A packet as it was described."""

    fields: Mapping[str, int] = field(default_factory=dict)
    """By field of FIELDS, what is known of it before it is tracked, or was told."""
    data: bytes = b""
    payload: bytes = b""

    @property
    def in_port(self) -> int:
        """Number of the port that it comes from."""
        return self.fields["in_port"]


def read(text: str, names: Names) -> Described:
    """Return the packet that a text describes.

    Raises:
        ValueError: it describes none, or more than one.
    """
    text, payload = _without_payload(text)
    pairs = [(word, value if sign else None) for word, sign, value in rules_text.parted(text)]
    match = rule_matches.read(pairs, names)
    fields: dict[str, int] = {}
    for name, wanted in match.items():
        full = Masked(wanted[0], _full(name, match))
        if name in ("ct_state", "tcp_flags") and isinstance(wanted, Masked):
            full = wanted  # what is not said of it is not set
        if wanted != full:
            raise ValueError(f"a packet has one {name}, not a range of them")
        fields[name] = wanted[0]
    if "in_port" not in fields:
        raise ValueError("in_port is missing: where does the packet come from?")
    if fields.get("protocol") == TCP:
        fields.setdefault("tcp_flags", TCP_FLAGS["psh"] | TCP_FLAGS["ack"] if payload else TCP_FLAGS["syn"])
    if fields.get("frag"):
        raise ValueError("a fragment cannot be described by itself")
    if payload and fields.get("protocol") not in (TCP, UDP):
        raise ValueError("payload: only tcp and udp carry one here")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"payload: {len(payload)} bytes, at most {PAYLOAD_BYTES_MAX} are possible")
    return Described(fields, frame(fields, payload), payload)


def _without_payload(text: str) -> tuple[str, bytes]:
    """Return what a text says beside a payload, and that payload.

    Raises:
        ValueError: there are two of them, or one is not well written.
    """
    found = PAYLOAD.findall(text)
    if len(found) > 1:
        raise ValueError("payload: a packet has one")
    rest = PAYLOAD.sub("", text)
    if re.search(r"(^|[,\s])payload=", rest):
        raise ValueError('payload: write it as "text", with \\r, \\n, \\", \\x0d in it, or as 0x and its bytes')
    return rest, _bytes(found[0]) if found else b""


def _bytes(word: str) -> bytes:
    """Return what a payload, as it is written, means."""
    if word.startswith("0x"):
        try:
            return bytes.fromhex(word[2:])
        except ValueError as error:
            raise ValueError(f"payload: {word[:40]} is not whole bytes in hexadecimal") from error
    plain = word[1:-1] if word[:1] in ("'", '"') else word

    def meant(escape: re.Match[bytes]) -> bytes:
        letter = escape[1]
        if len(letter) == 3:
            return bytes.fromhex(letter[1:].decode())
        if letter not in ESCAPES:
            raise ValueError(f"payload: \\{letter.decode(errors='replace')} means nothing")
        return ESCAPES[letter]

    return ESCAPED.sub(meant, plain.encode())


def told(payload: bytes) -> str:
    """Return a payload as it is written in a description."""
    if any(byte >= 0x7F for byte in payload):
        return "0x" + payload.hex()
    letters = {ord(b): f"\\{a.decode()}" for a, b in ESCAPES.items() if b != b"'"}
    return '"' + "".join(letters.get(byte, chr(byte) if byte >= 0x20 else f"\\x{byte:02x}") for byte in payload) + '"'


def _full(name: str, match: Mapping[str, object]) -> int:
    if name in ("src", "dst") and match.get("eth_type") == Masked(IPV4, 0xFFFF):
        return (1 << 32) - 1
    return (1 << BITS[name]) - 1


# ------------------------------------------------------------------------------------------------ bytes
def frame(fields: Mapping[str, int], payload: bytes = b"") -> bytes:
    """Return an Ethernet frame with these fields."""
    eth_type = fields.get("eth_type", 0)
    tag = b""
    if fields.get("vlan"):
        tag = struct.pack("!HH", 0x8100, fields["vlan"] & 0xFFF)
    addresses = bytes.fromhex("020000000002 020000000001")
    packet = _ip(fields, payload) if eth_type in (IPV4, IPV6) else bytes(28 if eth_type == ARP else 46)
    return addresses + tag + eth_type.to_bytes(2, "big") + packet


def _place(data: bytes) -> tuple[int, int]:
    """Return where in a frame, as `frame` makes them, its addresses and its transport header begin."""
    start = 18 if data[12:14] == b"\x81\0" else 14
    return (start + 12, start + 20) if data[start] >> 4 == 4 else (start + 8, start + 40)


def flags_of(data: bytes) -> int:
    """Return the flags of a frame of TCP."""
    return data[_place(data)[1] + 13]


def numbered(data: bytes, sequence: int, acknowledgment: int) -> bytes:
    """Return a frame of TCP, as `frame` makes them, with other numbers."""
    addresses, head = _place(data)
    middle = (addresses + head) // 2
    segment = bytearray(data[head:])
    segment[4:12] = struct.pack("!II", sequence, acknowledgment if flags_of(data) & TCP_FLAGS["ack"] else 0)
    segment[16:18] = bytes(2)
    return data[:head] + _summed(bytes(segment), 16, TCP, Ends(data[addresses:middle], data[middle:head]))


def payload_of(data: bytes, protocol: int) -> bytes:
    """Return what a frame of TCP or UDP, as `frame` makes them, carries."""
    head = _place(data)[1]
    return data[head + (data[head + 12] >> 4 << 2 if protocol == TCP else 8) :]


class Ends(NamedTuple):
    """The addresses of a packet, as they are on the wire."""

    src: bytes
    dst: bytes


def _ip(fields: Mapping[str, int], payload: bytes) -> bytes:
    version = 4 if fields["eth_type"] == IPV4 else 6
    size = 4 if version == 4 else 16
    ends = Ends(*(fields.get(name, 0).to_bytes(size, "big") for name in ("src", "dst")))
    protocol = fields.get("protocol", 0)
    inner = _transport(fields, protocol, ends, payload)
    if version == 6:
        return struct.pack("!IHBB", 6 << 28, len(inner), protocol, HOPS) + ends.src + ends.dst + inner
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(inner), 0, 0x4000, HOPS, protocol, 0) + ends.src + ends.dst
    return head[:10] + _checksum(head) + head[12:] + inner


def _transport(fields: Mapping[str, int], protocol: int, ends: Ends, payload: bytes) -> bytes:
    sport, dport = fields.get("sport", 0), fields.get("dport", 0)
    ports = struct.pack("!HH", sport, dport)
    if protocol == TCP:
        flags = 5 << 12 | fields["tcp_flags"]
        acked = 1 if fields["tcp_flags"] & TCP_FLAGS["ack"] else 0
        segment = ports + struct.pack("!IIHHHH", 1, acked, flags, WINDOW, 0, 0)
        return _summed(segment + payload, 16, protocol, ends)
    if protocol in (UDP, UDP_LITE):
        return _summed(ports + struct.pack("!HH", 8 + len(payload), 0) + payload, 6, protocol, ends)
    if protocol in (ICMP, ICMPV6):
        message = struct.pack("!BBHHH", sport, dport, 0, 1, 1)
        return _summed(message, 2, protocol, ends if protocol == ICMPV6 else None)
    if protocol == DCCP:
        return ports + bytes([4, 0, 0, 0]) + bytes(8)
    if protocol == SCTP:
        raise ValueError("a packet of SCTP cannot be described: what it is stands in its chunks")
    return b""


def _summed(segment: bytes, place: int, protocol: int, ends: Ends | None) -> bytes:
    """Return a segment with its checksum at ``place``."""
    pseudo = b"" if ends is None else ends.src + ends.dst + struct.pack("!II", len(segment), protocol)
    total = _checksum(pseudo + segment)
    if total == b"\0\0" and protocol in (UDP, UDP_LITE):
        total = b"\xff\xff"
    return segment[:place] + total + segment[place + 2 :]


def _checksum(data: bytes) -> bytes:
    """Return the Internet checksum (RFC 1071)."""
    total = sum(int.from_bytes(data[place : place + 2].ljust(2, b"\0"), "big") for place in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")
