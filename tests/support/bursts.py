"""Bursts of scapy packets through the tracker, on a small table of their own."""

from __future__ import annotations

import numpy as np
from scapy.all import IP, TCP, UDP, Ether
from zonetrack.kernels import burst, delete_list
from zonetrack.service import audit
from zonetrack.shm import roster
from zonetrack.shm.layout import FRAME, PARTICIPANT, QUOTA, VERDICT, FrameFlag, Kind, Link, Region
from zonetrack.shm.reasons import Reason
from zonetrack.shm.views import Table

CLIENT, SERVER, ROUTER = "192.0.2.1", "198.51.100.1", "203.0.113.1"


def frames_of(
    packets, zone: int = 0, commit: bool = True, action: np.ndarray | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return FRAME[len(packets)], and the buffers that they point into; ``action`` is an ACTION[1] for all of them."""
    buffers = [np.frombuffer(bytes(packet), "u1").copy() for packet in packets]
    frames = np.zeros(len(buffers), FRAME)
    for frame, buffer in zip(frames, buffers, strict=True):
        frame["address"] = buffer.ctypes.data
        frame["captured_bytes"] = frame["wire_bytes"] = buffer.size
        frame["zone"] = zone
        frame["link"] = Link.ETHERNET
        frame["flags"] = FrameFlag.COMMIT if commit else 0
        frame["action"] = 0 if action is None else action.ctypes.data
    return frames, buffers


class Bench:
    """A small table and one participant on it."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.me = roster.join(table, Kind.TOOL)
        self.views = table.views(self.me)

    def track(
        self, *packets, now_ms: int = 1000, zone: int = 0, commit: bool = True, action: np.ndarray | None = None
    ) -> np.ndarray:
        """Track packets as one burst; returns VERDICT[len(packets)]."""
        frames, buffers = frames_of(packets, zone, commit, action)
        verdicts = np.zeros(len(buffers), VERDICT)
        burst.track_burst(
            self.views,
            np.uint64(frames.ctypes.data),
            np.uint64(len(buffers)),
            np.uint64(now_ms),
            np.uint64(verdicts.ctypes.data),
        )
        return verdicts

    def count(self, zone: int = 0) -> int:
        return int(self.table.array(Region.CONTROL, "quotas", QUOTA)[zone]["count"])

    def counter(self, reason: Reason) -> int:
        return int(self.table.array(Region.CONTROL, "participants", PARTICIPANT)[self.me - 1]["counters"][reason])

    def settle(self) -> None:
        """Run what is still on the delete list, for a burst leaves its last deletes for later; then nothing is broken."""
        delete_list.run(self.views)
        assert audit.at_rest(self.table) is None


def tcp(flags: str, seq: int, ack: int = 0, reply: bool = False, sport: int = 40000):
    """A segment of the conversation CLIENT:sport -> SERVER:80."""
    source, destination, ports = (SERVER, CLIENT, (80, sport)) if reply else (CLIENT, SERVER, (sport, 80))
    return (
        Ether()
        / IP(src=source, dst=destination)
        / TCP(sport=ports[0], dport=ports[1], flags=flags, seq=seq, ack=ack, window=8192)
    )


def udp(sport: int = 1234, reply: bool = False):
    """A datagram of CLIENT:sport <-> SERVER:53."""
    if reply:
        return Ether() / IP(src=SERVER, dst=CLIENT) / UDP(sport=53, dport=sport) / b"answer"
    return Ether() / IP(src=CLIENT, dst=SERVER) / UDP(sport=sport, dport=53) / b"question"
