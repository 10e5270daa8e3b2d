"""A packet as a network engineer would write it down: who sent it to whom, and its numbers.

It is told from a sample, which the service keeps of packets with a reason, or from what the parser found in a frame.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..clients.connections import PEER_STATES, SCTP_STATES, TCP_STATES, endpoint
from ..kernels.endpoints import SCTP, TCP
from ..kernels.sctp_states import Chunk
from ..shm.layout import NO_RECORD, PacketKind, SampleFlag, Status
from ..shm.reasons import Reason

PROTOCOLS = {
    1: "icmp",
    6: "tcp",
    17: "udp",
    33: "dccp",
    47: "gre",
    50: "esp",
    51: "ah",
    58: "icmpv6",
    132: "sctp",
    136: "udplite",
}
PORTS = (6, 17, 33, 132, 136)
ICMP = (1, 58)
FLAGS = "FSRPAUEC"
"""Names of the TCP flags, from the lowest bit."""
IPV4_HEADER_BYTES, IPV6_HEADER_BYTES = 20, 40


@dataclass(frozen=True)
class Arrival:
    """What arrived, and what was said of it.  Fields as SAMPLE has them, but for what is told apart here."""

    zone: int
    protocol: int
    family: int
    ends: tuple[tuple[int, int], tuple[int, int]]
    """(address, port) of the source and of the destination that it was looked up by."""
    quoted: bool
    """Whether those are of the packet that an ICMP error quotes."""
    found: bool
    """Whether there is a record: ``contents`` are what it remembers, else the packet."""
    contents: bytes
    kind: int
    seq: int
    ack: int
    sack: int
    win: int
    tcp_flags: int
    payload_bytes: int
    l4_bytes: int
    ip_bytes: int
    captured_bytes: int
    icmp_word: int
    settings: int
    reason: Reason
    ct_state: int
    way: int
    state: int
    status: int
    timeout_ms: int
    id: int | None
    packet: bytes = b""
    """All that there is of it, from its IP header on, where somebody has it."""

    @property
    def end(self) -> int:
        """Sequence number after a segment; SYN and FIN take one each."""
        return (self.seq + self.payload_bytes + (self.tcp_flags & 1) + (self.tcp_flags >> 1 & 1)) & 0xFFFFFFFF

    @property
    def is_ovs(self) -> bool:
        """Whether its connection is judged by the `ovs` profile."""
        return bool(self.status & Status.OVS)


SAME = (
    *("seq", "ack", "sack", "win", "tcp_flags", "payload_bytes", "l4_bytes", "ip_bytes", "captured_bytes", "icmp_word"),
    *("settings", "ct_state", "way", "state", "status", "timeout_ms", "kind"),
)


def of_sample(sample: np.void) -> Arrival:
    """Return the arrival that a SAMPLE tells of."""
    flags, last = int(sample["flags"]), int(sample["key"][4])
    return Arrival(
        **{name: int(sample[name]) for name in SAME},
        **_ends(sample["key"].tolist(), bool(flags & SampleFlag.HIGH_IS_SOURCE)),
        zone=last >> 16 & 0xFFFF,
        protocol=last >> 8 & 0xFF,
        family=last & 0xFF,
        quoted=bool(flags & SampleFlag.QUOTED),
        found=bool(flags & SampleFlag.FOUND),
        contents=sample["contents"].tobytes(),
        reason=Reason(int(sample["reason"])),
        id=_id(int(sample["record"]), int(sample["incarnation"])),
    )


def of_packet(parsed: Any, verdict: np.void, settings: int) -> Arrival:
    """Return the arrival of a packet that nobody sampled, for it had no reason."""
    from_parsed = ("seq", "ack", "win", "tcp_flags", "payload_bytes", "l4_bytes", "ip_bytes", "icmp_word", "kind")
    quoted = int(parsed["kind"]) == PacketKind.ICMP_ERROR
    key = parsed["inner_key" if quoted else "key"].tolist()
    high_is_source = parsed["inner_high_is_source" if quoted else "high_is_source"]
    return Arrival(
        **{name: int(parsed[name]) for name in from_parsed},
        **{name: int(verdict[name]) for name in ("ct_state", "state", "timeout_ms", "zone")},
        **_ends(key, bool(high_is_source)),
        sack=int(parsed["ack"]),
        captured_bytes=int(parsed["ip_bytes"]),
        protocol=key[4] >> 8 & 0xFF if quoted else int(parsed["protocol"]),
        family=int(parsed["family"]),
        quoted=quoted,
        found=False,
        contents=b"",
        settings=settings,
        reason=Reason(int(verdict["reason"])),
        way=int(verdict["direction"]),
        status=0,
        id=_id(int(verdict["record"]), int(verdict["incarnation"])),
    )


def _ends(key: list[int], high_is_source: bool) -> dict[str, Any]:
    low = key[0] << 64 | key[1], key[4] >> 48
    high = key[2] << 64 | key[3], key[4] >> 32 & 0xFFFF
    return {"ends": (high, low) if high_is_source else (low, high)}


def _id(record: int, incarnation: int) -> int | None:
    return None if record == NO_RECORD else incarnation << 32 | record


# ------------------------------------------------------------------------------------------------ words
def host(arrival: Arrival, which: int) -> str:
    """Return the address of the source (0) or the destination (1) by which a packet was looked up."""
    return _address(arrival.family, arrival.ends[which][0])


def _address(family: int, number: int) -> str:
    return str(ipaddress.IPv4Address(number & 0xFFFFFFFF) if family == 4 else ipaddress.IPv6Address(number))


def protocol_name(protocol: int) -> str:
    """Return the name of a protocol, its number where it has none here."""
    return PROTOCOLS.get(protocol, f"protocol {protocol}")


def flags_of(tcp_flags: int) -> str:
    """Return TCP flags as letters."""
    return "".join(name for bit, name in enumerate(FLAGS) if tcp_flags >> bit & 1) or "none"


def chunks_of(arrival: Arrival) -> list[str]:
    """Return the names of the chunks of an SCTP packet; nothing of what is none."""
    if arrival.kind != PacketKind.SCTP or arrival.protocol != SCTP:
        return []
    return [chunk.name for chunk in Chunk if arrival.tcp_flags >> chunk & 1]


def tuple_of(arrival: Arrival) -> dict[str, Any]:
    """Return what it was looked up by, as connections are shown: addresses, and ports where it has any."""
    if not any(address for address, _ in arrival.ends):
        return {}
    source, destination = arrival.ends
    found: dict[str, Any] = {"src": host(arrival, 0), "dst": host(arrival, 1)}
    if arrival.protocol in PORTS or (source[1] and arrival.protocol not in ICMP):
        found["sport"], found["dport"] = source[1], destination[1]
    return found


def segment(arrival: Arrival) -> dict[str, Any]:
    """Return the numbers of a TCP segment; nothing of what is none."""
    if arrival.kind != PacketKind.TCP or arrival.protocol != TCP or not arrival.l4_bytes:
        return {}
    found = {"flags": flags_of(arrival.tcp_flags), "seq": arrival.seq, "end": arrival.end, "win": arrival.win}
    if arrival.tcp_flags & 0x10:
        found["ack"] = arrival.ack
    if arrival.sack != arrival.ack:
        found["sack"] = arrival.sack
    return found | {"length": arrival.payload_bytes}


def ip_header(arrival: Arrival) -> bytes:
    """Return what was kept of a packet from its IP header on: nothing where there is a record."""
    return b"" if arrival.found or not arrival.family else arrival.contents[: arrival.captured_bytes]


def header_ends(arrival: Arrival) -> str:
    """Return source and destination of an IP header that was kept, where there is one."""
    header = ip_header(arrival)
    if arrival.family == 4 and len(header) >= IPV4_HEADER_BYTES:
        return f"{ipaddress.IPv4Address(header[12:16])} > {ipaddress.IPv4Address(header[16:20])} "
    if arrival.family == 6 and len(header) >= IPV6_HEADER_BYTES:
        return f"{ipaddress.IPv6Address(header[8:24])} > {ipaddress.IPv6Address(header[24:40])} "
    return ""


def line(arrival: Arrival) -> str:
    """Return what arrived, in a line."""
    if not arrival.family:
        return f"{arrival.captured_bytes} bytes without an IP header" if arrival.captured_bytes else "no IP header"
    named = protocol_name(arrival.protocol)
    ends = tuple_of(arrival)
    if not ends:
        return f"{header_ends(arrival)}{named}, {arrival.ip_bytes} IP bytes, {arrival.captured_bytes} captured"
    pair = f"{endpoint(ends['src'], ends.get('sport'))} > {endpoint(ends['dst'], ends.get('dport'))}"
    kind, code = arrival.icmp_word >> 24, arrival.icmp_word >> 16 & 0xFF
    if arrival.quoted:
        family = "icmpv6" if arrival.family == 6 else "icmp"
        return f"{header_ends(arrival)}{family} error type {kind} code {code} about {pair} {named}"
    if arrival.protocol in ICMP:
        return f"{pair} {named} type {kind} code {code} id {arrival.icmp_word & 0xFFFF}"
    if chunks := chunks_of(arrival):
        return f"{pair} {named} {', '.join(chunks)} tag 0x{arrival.seq:08x}"
    numbers = segment(arrival)
    if not numbers:
        return f"{pair} {named} length {max(0, arrival.payload_bytes)}"
    parts = [f"{pair} {named} {numbers['flags']} seq {numbers['seq']}"]
    if numbers["end"] != numbers["seq"]:
        parts[0] += f"..{numbers['end']}"
    parts += [f"{name} {numbers[name]}" for name in ("ack", "sack", "win") if name in numbers]
    return " ".join(parts)


def state_name(arrival: Arrival) -> str | None:
    """Return the protocol state of its connection after it, both sides' in the `ovs` profile; None where it has none."""
    if arrival.id is None or arrival.protocol not in (TCP, SCTP):
        return None
    if arrival.protocol == SCTP:
        return None if arrival.is_ovs else SCTP_STATES[arrival.state % len(SCTP_STATES)]
    if arrival.is_ovs:
        return " / ".join(PEER_STATES[min(side, 10)] for side in (arrival.state & 0xF, arrival.state >> 4))
    return TCP_STATES[arrival.state] if arrival.state < len(TCP_STATES) else str(arrival.state)
