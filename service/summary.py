"""The summary: who and what fills the table, from a walk that costs a small share of a core however large the table is.

A walk begins when somebody asks and the last one is old enough: it may rest so long that it costs ``SHARE`` of a core.  So
who asks often is told the same again, with its age; and where nobody asks nothing is walked.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np

from ..clients.connections import PEER_STATES, PROTOCOLS, SCTP_STATES, TCP_STATES, address
from ..kernels import tally
from ..shm.layout import TALKER, TALKERS_BUCKETS, TALKERS_PLACES, TALLY, Slab
from ..shm.views import Table
from .runner import Runner, now_ms
from .stats import Stats

SHARE = 0.015
"""Of a core, that walks may cost while somebody asks all the time."""
REST_S_MIN = 0.5
SLICE_SLOTS = np.uint64(16_384)
TURN_S = 0.004
"""Then whoever else waits for the runner has his turn."""
TALKERS_SHOWN = 64
ZONES_SHOWN = 256
SIDES = ("sources", "destinations")
KINDS = ("expired", "overdue_ms", "unreplied", "assured", "related", "translated", "ipv6")
STATES = {"tcp": TCP_STATES, "ovs": PEER_STATES, "sctp": SCTP_STATES}


class Summary:
    """Walks of one table."""

    def __init__(self, table: Table, runner: Runner, stats: Stats) -> None:
        self._runner, self._stats = runner, stats
        self._records = table.geometry.records(Slab.ENTRIES)
        self._task: asyncio.Task[None] | None = None
        self._last: dict[str, Any] | None = None
        self._made_s = self._due_s = 0.0

    async def get(self) -> dict[str, Any]:
        """Return the last walk's result; the first who asks waits for it."""
        if self._task is None and time.monotonic() >= self._due_s:
            self._task = asyncio.create_task(self._walk())
        if self._last is None and self._task is not None:
            await asyncio.shield(self._task)
        assert self._last is not None
        return self._last | {
            "age_s": round(time.monotonic() - self._made_s, 3),
            "zones": self.zones(),
            "reasons": self._stats.reasons(),
        }

    async def _walk(self) -> None:
        try:
            walk = _Walk(self._records)
            while not walk.is_done:
                await self._runner.do(walk.turn)
            self._last = walk.told()
            self._made_s = time.monotonic()
            self._due_s = self._made_s + max(REST_S_MIN, walk.took_s / SHARE)
        finally:
            self._task = None

    def zones(self) -> list[dict[str, Any]]:
        """Return the zones with the most connections, and those nearest to their limit."""
        rows = self._stats.fill()
        bounded = [row for row in rows if row[2]]
        nearest = sorted(bounded, key=lambda row: row[1] / (row[2] or 1), reverse=True)[:ZONES_SHOWN]
        shown = dict.fromkeys((*rows[:ZONES_SHOWN], *nearest))
        return [{"zone": zone, "count": count, "limit": limit} for zone, count, limit in shown]


class _Walk:
    """One walk, in memory that the kernel writes."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._tally = np.zeros(1, TALLY)
        self._talkers = np.zeros(TALKERS_BUCKETS * TALKERS_PLACES, TALKER)
        self._cursor = np.zeros(1, np.uint64)
        self._at = [np.uint64(one.ctypes.data) for one in (self._cursor, self._tally, self._talkers)]
        self.took_s = 0.0

    @property
    def is_done(self) -> bool:
        return int(self._cursor[0]) >= self._records

    def turn(self, views: np.record) -> None:
        """Go on for some milliseconds, on the runner's thread."""
        until_s, began_s = time.monotonic() + TURN_S, time.thread_time()
        while True:
            tally.count(views, now_ms(), SLICE_SLOTS, *self._at)
            if self.is_done or time.monotonic() >= until_s:
                break
        self.took_s += time.thread_time() - began_s

    def told(self) -> dict[str, Any]:
        """Return what was counted, in plain values."""
        one = self._tally[0]
        protocols = {int(number): int(one["protocols"][number]) for number in np.flatnonzero(one["protocols"])}
        return {
            "time": time.time(),
            "took_s": round(self.took_s, 4),
            "connections": int(one["connections"]),
            **{name: int(one[name]) for name in KINDS},
            "protocols": {PROTOCOLS.get(number, str(number)): count for number, count in protocols.items()},
            "states": {name: _named(one[name], states) for name, states in STATES.items()},
            **{side: self._side(number) for number, side in enumerate(SIDES)},
        }

    def _side(self, number: int) -> list[dict[str, Any]]:
        """Return who has the most connections of a side."""
        who = self._talkers["who"]
        own = self._talkers[(who != 0) & (who >> 8 & 0xFF == number)]
        own = own[np.argsort(own["connections"], kind="stable")[::-1][:TALKERS_SHOWN]]
        return [
            {
                "address": address(int(one["who"]) & 0xFF, one["address"].astype(">u8").tobytes()),
                "zone": int(one["who"]) >> 16,
                "connections": int(one["connections"]),
                "others": int(one["others"]),
                "packets": int(one["packets"]),
                "bytes": int(one["bytes"]),
            }
            for one in own
        ]


def _named(counts: np.ndarray, names: tuple[str, ...]) -> dict[str, int]:
    return {names[n] if n < len(names) else str(n): int(counts[n]) for n in np.flatnonzero(counts)}
