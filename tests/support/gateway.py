"""A table that translates: packets in frames that have room, as rules would have them; what went on is checked by scapy."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import foretelling
import fragmented
import naive_fragments
import numpy as np
import tables
from bursts import Bench
from helping import PORTS
from scapy.layers.inet import IP, TCP, UDP, IPerror
from scapy.layers.inet6 import IPerror6, IPv6
from scapy.layers.l2 import Ether
from zonetrack.kernels import burst, delete_list
from zonetrack.shm.layout import (
    ACTION,
    EXTENSION,
    FRAGMENT,
    FRAGMENTS_MAX,
    FRAME,
    FRAME_SLOT_BYTES,
    UNLIMITED,
    VERDICT,
    CtState,
    FrameFlag,
    Link,
    Nat,
    Region,
    VerdictFlag,
)
from zonetrack.shm.reasons import Reason

CLIENT, CLIENT2, SERVER, PUBLIC, VIRTUAL = "10.0.0.1", "10.0.0.2", "198.51.100.1", "203.0.113.200", "203.0.113.80"
CLIENT6, SERVER6, PUBLIC6, VIRTUAL6 = "fd00::1", "2001:db8:1::1", "2001:db8:ffff::100", "2001:db8:ffff::80"
NEW, EST, REL, RPL = CtState.NEW, CtState.EST, CtState.REL, CtState.RPL
INV, SNAT, DNAT = CtState.INV, CtState.SNAT, CtState.DNAT


def rule(
    nat: int = 0, first: str | None = None, last: str | None = None, ports: tuple[int, int] = (0, 0)
) -> np.ndarray:
    """Return ACTION[1]: translation of what there is, and ``nat`` for what is made."""
    action = np.zeros(1, ACTION)
    action["nat"] = nat | Nat.APPLY
    if first is not None:
        action["nat_first"] = divmod(int(ip_address(first)), 1 << 64)
        action["nat_last"] = divmod(int(ip_address(last or first)), 1 << 64)
    action["nat_ports"] = ports
    return action


TRANSLATE = rule()


def is_right(packet: Any) -> bool:
    """Return whether all checksums and lengths of a packet are as scapy would have them, but those of what it quotes."""
    fresh = packet.copy()
    layer = fresh
    while layer and not isinstance(layer, IPerror | IPerror6):
        for name in ("chksum", "cksum", "len", "plen"):
            if name in layer.fields and not (name == "chksum" and isinstance(layer, UDP) and layer.chksum == 0):
                layer.delfieldval(name)
        layer = layer.payload
    return bytes(fresh) == bytes(packet)


class Went:
    """What became of a packet."""

    def __init__(self, verdict: Any, octets: bytes) -> None:
        self.ct_state = int(verdict["ct_state"]) & ~CtState.TRK
        self.reason = Reason(int(verdict["reason"]))
        self.record, self.direction = int(verdict["record"]), int(verdict["direction"])
        self.frame = Ether(octets)
        self.packet = self.frame.payload
        assert self.ct_state & INV or is_right(self.frame), "a checksum or a length is wrong"

    @property
    def ends(self) -> tuple:
        l4 = self.packet.payload
        return self.packet.src, getattr(l4, "sport", None), self.packet.dst, getattr(l4, "dport", None)

    @property
    def payload(self) -> bytes:
        return bytes(self.packet.payload.payload)


class Path(Bench):
    """A participant that takes frames in and hands out what goes on, held or not."""

    def pass_(self, *packets, action=TRANSLATE, flags=0):
        """Track packets as one burst; returns ct_state, reason and packet of each that goes on, held ones last."""
        slots = np.zeros((len(packets), FRAME_SLOT_BYTES), "u1")
        frames, verdicts = np.zeros(len(packets), FRAME), np.zeros(len(packets), VERDICT)
        for frame, slot, packet in zip(frames, slots, packets, strict=True):
            octets = bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet)
            slot[: len(octets)] = np.frombuffer(octets, "u1")
            frame["address"], frame["captured_bytes"], frame["wire_bytes"] = slot.ctypes.data, len(octets), len(octets)
            frame["link"], frame["flags"] = Link.ETHERNET, FrameFlag.COMMIT | FrameFlag.ROOM | flags
            frame["action"] = action.ctypes.data
        at = (frames.ctypes.data, len(packets), 1000, verdicts.ctypes.data)
        burst.track_burst(self.views, *map(np.uint64, at))
        at_once = [
            self.said(verdict, slot[: frame["captured_bytes"]])
            for verdict, frame, slot in zip(verdicts, frames, slots, strict=True)
            if not verdict["flags"] & VerdictFlag.HELD
        ]
        return at_once + self.late()

    def late(self):
        """Collect fragments that have waited."""
        fragments = self.table.array(Region.FRAGMENTS, "fragments", FRAGMENT)
        buffers = self.table.array(Region.FRAGMENTS, "buffers", "u1").reshape(FRAGMENTS_MAX, FRAME_SLOT_BYTES)
        scratch = naive_fragments.scratch(self.views)
        found = []
        while fragmented.collect(self.views, np.uint64(1000)):
            for number in scratch["late"][: int(scratch["late_count"])]:
                one = fragments[int(number)]
                found.append(self.said(one["verdict"], buffers[int(number)][: int(one["captured"])]))
        return found

    @staticmethod
    def said(verdict, octets):
        packet = Ether(octets.tobytes()).payload
        return int(verdict["ct_state"]) & ~CtState.TRK, Reason(int(verdict["reason"])), packet


class Gateway:
    """A small table with helpers on their ports, and one participant."""

    def __init__(self, *, helpers: bool = True, zone: int = 0) -> None:
        self.table = tables.small(300, extension_share=1000)
        tables.totals(self.table)["limit"] = UNLIMITED
        self.bench = Path(self.table)
        self.zone, self.now_ms = zone, 1000
        if helpers:
            foretelling.set_rules(
                self.table, *((helper, protocol, zone, port) for helper, (protocol, port) in PORTS.items())
            )

    def send(
        self,
        packet: Any,
        action: np.ndarray | None = TRANSLATE,
        *,
        room: bool = True,
        captured: int | None = None,
        flags: int = 0,
    ) -> Went:
        """Track one packet, under a rule."""
        octets = bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet)
        slot = np.zeros(FRAME_SLOT_BYTES, "u1")
        slot[: len(octets)] = np.frombuffer(octets, "u1")
        frames, verdicts = np.zeros(1, FRAME), np.zeros(1, VERDICT)
        frames["address"], frames["link"], frames["zone"] = slot.ctypes.data, Link.ETHERNET, self.zone
        frames["wire_bytes"] = len(octets)
        frames["captured_bytes"] = len(octets) if captured is None else captured
        frames["flags"] = FrameFlag.COMMIT | flags | (FrameFlag.ROOM if room else 0)
        frames["action"] = 0 if action is None else action.ctypes.data
        at = (frames.ctypes.data, 1, self.now_ms, verdicts.ctypes.data)
        burst.track_burst(self.bench.views, *map(np.uint64, at))
        return Went(verdicts[0], slot[: int(frames["captured_bytes"][0])].tobytes())

    def counter(self, reason: Reason) -> int:
        return self.bench.counter(reason)

    @property
    def foretold(self) -> np.ndarray:
        """The expectations there are."""
        return foretelling.all_of(self.table)

    def offsets(self, record: int) -> list[list[int]]:
        """Return place, offset before and after of both directions of a connection."""
        link = int(tables.entries(self.table)["extension"][record])
        extension = self.table.array(Region.EXTENSIONS, "extensions", EXTENSION)[link - 1]
        return extension["sequence_offset"].tolist()

    def settle(self) -> None:
        """Run what is still on the delete list; then nothing is broken."""
        delete_list.run(self.bench.views)
        tables.assert_at_rest(self.table)


def ip(source: str, destination: str) -> Any:
    """Return an IP header between two addresses."""
    return IPv6(src=source, dst=destination) if ":" in source else IP(src=source, dst=destination)


def udp(source: str, sport: int, destination: str, dport: int, data: bytes = b"x") -> Any:
    """Return a datagram."""
    return ip(source, destination) / UDP(sport=sport, dport=dport) / data


def syn(source: str, sport: int, destination: str, dport: int) -> Any:
    """Return a SYN from anywhere to anywhere."""
    return ip(source, destination) / TCP(sport=sport, dport=dport, flags="S", seq=5, window=8192)


class Talk:
    """A TCP connection through a gateway: two hosts, each with what it has sent and what has arrived."""

    def __init__(
        self, gateway: Gateway, client: str, server: str, action: np.ndarray, sport: int = 40000, dport: int = 21
    ):
        self.gateway, self.action = gateway, action
        self.ends = [(client, sport), (server, dport)]  # as each host calls itself and its peer
        self.peers = [(server, dport), (client, sport)]
        self.sent, self.arrived = [1000, 9000], [0, 0]
        self.open()

    def segment(self, side: int, flags: str, data: bytes = b"", seq: int | None = None, **fields: Any) -> Any:
        """Return a segment of a host, with its own numbers."""
        (source, sport), (destination, dport) = self.ends[side], self.peers[side]
        at = self.sent[side] if seq is None else seq
        tcp = TCP(sport=sport, dport=dport, flags=flags, seq=at, ack=self.arrived[side], window=8192, **fields)
        return ip(source, destination) / tcp / data

    def say(self, side: int, data: bytes = b"", flags: str = "PA", seq: int | None = None, **how: Any) -> Went:
        """Send a segment; what goes on arrives at the other host, if it is what he waits for."""
        fields = {name: how.pop(name) for name in ("options",) if name in how}
        packet = self.segment(side, flags, data, seq, **fields)
        went = self.gateway.send(packet, self.action, **how)
        if seq is None:
            self.sent[side] += len(data) + sum(flag in flags for flag in "SF")
        if not went.ct_state & INV:
            tcp = went.packet[TCP]
            if "S" in flags or tcp.seq == self.arrived[1 - side]:
                self.arrived[1 - side] = tcp.seq + len(went.payload) + sum(flag in flags for flag in "SF")
        return went

    def open(self) -> None:
        """Shake hands, by the addresses that arrive."""
        went = self.say(0, flags="S")
        assert went.ct_state & NEW, went.reason
        source, sport, destination, dport = went.ends
        self.ends[1], self.peers[1] = (destination, dport), (source, sport)
        assert self.say(1, flags="SA").ends == (*self.peers[0], *self.ends[0])
        self.record = self.say(0, flags="A").record

    def agree(self) -> bool:
        """Return whether each side is in sync: what it has sent is what its peer's next segment acknowledges to it."""
        seen = []
        for side in (0, 1):
            went = self.say(side, flags="A")
            seen.append((went.packet[TCP].ack, went.packet[TCP].seq, went.ct_state & INV))
        return seen == [(self.sent[1], self.arrived[1], 0), (self.sent[0], self.arrived[0], 0)]
