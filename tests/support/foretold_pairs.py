"""Pairs of tables that get the same packets, one by a short way, the other by the whole one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import raw
from bursts import Bench, frames_of
from zonetrack.kernels import stages
from zonetrack.kernels.words import u64
from zonetrack.shm import segment
from zonetrack.shm.layout import ACTION, ENTRY, VERDICT, Region
from zonetrack.shm.sizing import Geometry

TIMESTAMP = bytes.fromhex("0101080a 00000001 00000002")
SACKS = bytes.fromhex("0402")
NOTHING_ASKED = np.zeros(1, ACTION)
"""A frame with an action goes the whole way, even where nothing is asked."""
ZONE_NUMBER = 2


class Pair:
    """Two tables that get the same packets: one by a short way where it is open, one by the whole way.

    Args:
        follow: the kernel that is the short way.
    """

    def __init__(self, follow: Callable[..., bool]) -> None:
        self.follow = follow
        self.short, self.whole = (Bench(segment.anonymous(Geometry(300, 4, 125))) for _ in range(2))
        # the same hashes, else what is deleted comes home in another order
        self.whole.table.header["secret"] = self.short.table.header["secret"]
        self.whole.views["secret"] = self.short.views["secret"]
        self.taken = self.tried = 0

    def set(self, region: Region, name: str, dtype: np.dtype, field: str, index: object, value: object) -> None:
        """Set a field of an array in both tables."""
        for bench in (self.short, self.whole):
            bench.table.array(region, name, dtype)[field][index] = value

    @staticmethod
    def entries(bench: Bench) -> np.ndarray:
        return bench.table.array(Region.ENTRIES, "entries", ENTRY)

    def track(self, data: bytes, now_ms: int = 1000) -> np.void:
        """Track a packet on both; returns the verdict, the same on both."""
        short = self.short
        frames, buffers = frames_of([data], ZONE_NUMBER)
        verdicts = np.full(VERDICT.itemsize, 0xA5, "u1").view(VERDICT)
        self.look(frames)
        before = self.entries(short).tobytes()
        taken = bool(self.follow(short.views, u64(short.views["parsed"]), u64(now_ms), u64(verdicts.ctypes.data)))
        if not taken:
            assert self.entries(short).tobytes() == before
            assert verdicts.tobytes() == b"\xa5" * VERDICT.itemsize
            verdicts = short.track(data, now_ms=now_ms, zone=ZONE_NUMBER, action=NOTHING_ASKED)
        expected = self.whole.track(data, now_ms=now_ms, zone=ZONE_NUMBER, action=NOTHING_ASKED)
        assert verdicts[0] == expected[0]
        ours, theirs = self.entries(short), self.entries(self.whole)
        for name in ENTRY.names:
            assert np.array_equal(ours[name], theirs[name]), name
        self.tried += 1
        self.taken += taken
        del buffers
        return verdicts[0]

    def look(self, frames: np.ndarray) -> None:
        """Do to a frame what comes before its turn, on the first table."""
        views, first = self.short.views, u64(self.short.views["parsed"])
        stages.parse(views, u64(frames.ctypes.data), first)
        stages.locate(views, first)
        stages.glance(views, first)

    def foresees(self, data: bytes, now_ms: int = 1000) -> bool:
        """Return whether the short way would be open to a packet; the first table stays as it is."""
        entries = self.entries(self.short)
        before = entries.copy()
        frames, buffers = frames_of([data], ZONE_NUMBER)
        verdict = np.zeros(1, VERDICT)
        self.look(frames)
        taken = bool(
            self.follow(self.short.views, u64(self.short.views["parsed"]), u64(now_ms), u64(verdict.ctypes.data))
        )
        entries[:] = before
        del buffers
        return taken

    def open(self, opened: int = 100, answered: int = 500, options: bytes = b"", now_ms: int = 1000) -> None:
        """Shake hands, and go on until the connection is assured."""
        self.track(raw.tcp("S", opened, options=options), now_ms)
        self.track(raw.tcp("SA", answered, opened + 1, reply=True, options=options), now_ms)
        self.track(raw.tcp("A", opened + 1, answered + 1), now_ms)
        self.track(raw.tcp("A", answered + 1, opened + 1, reply=True), now_ms)

    def is_taken(self, data: bytes, now_ms: int = 1000) -> bool:
        """Return whether a packet went the short way."""
        before = self.taken
        self.track(data, now_ms)
        return self.taken > before
