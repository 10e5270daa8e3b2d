"""When a worker sweeps and how much, how long that took, and what all sweeps together have done.

Now and then a worker visits a share of the slots.  While it finds what has expired it is *behind*: it visits more in each
turn, and does not sleep in between; above ``CROWDED`` of the global limit it sweeps in each turn too, but sleeps.

A turn's sweep ends early when it has freed ``sweep.FREED_MAX``, so that it takes a few milliseconds at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernels import sweep
from ..shm import roster
from ..shm.layout import DUE_UNIT_MS, GLOBAL, Region, Slab
from ..shm.reasons import Reason
from ..shm.views import Table

INTERVAL_MS = 50
"""A sweep asks of each block whose it is, so many small ones would cost an idle worker more than a few large ones."""
SHARE = 32
"""Of the records, one in this many is visited at once: 1.6 s for all of them when nothing expires."""
SHARE_BEHIND = 16
SLOTS_MIN, SLOTS_MAX = 1 << 13, 1 << 18
"""6 us and 0.2 ms, where nothing is due."""
CROWDED = 7 / 8
"""Of the global limit: above, the table is swept in each turn."""
BOUNDS_US = {Reason.SWEEPS_100_US: 100, Reason.SWEEPS_1_MS: 1_000, Reason.SWEEPS_10_MS: 10_000}
"""Counters of sweeps that took so long at most: a histogram, each with those before."""


class Sweeper:
    """The sweeps of one worker."""

    def __init__(self, table: Table, me: int, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """Sweep what participant ``me`` sweeps; ``clock`` says nanoseconds."""
        records = table.geometry.records(Slab.ENTRIES)
        self.slots, self.slots_behind = (
            min(max(records // share, SLOTS_MIN), SLOTS_MAX) for share in (SHARE, SHARE_BEHIND)
        )
        self._counters = roster.participants(table)[me - 1]["counters"]
        self._globals = table.array(Region.CONTROL, "globals", GLOBAL)[0]
        self._clock = clock
        self._swept_ms = -INTERVAL_MS
        self.is_behind = False
        """Whether the last sweep has freed something: there may be more."""

    def due(self, moment_ms: int) -> int:
        """Return how many slots to visit now."""
        if self.is_behind or self._globals["count"] > CROWDED * self._globals["limit"]:
            return self.slots_behind
        return self.slots if moment_ms - self._swept_ms >= INTERVAL_MS else 0

    def sweep(self, views: np.record, moment_ms: int, slots: int) -> int:
        """Sweep, and note how long it took; returns how many had expired."""
        began_ns = self._clock()
        freed = int(sweep.sweep(views, np.uint64(moment_ms), np.uint64(slots)))
        took_ns = self._clock() - began_ns
        self._swept_ms, self.is_behind = moment_ms, freed != 0
        self._counters[Reason.SWEEPS] += 1
        self._counters[Reason.SWEEP_NS] += took_ns
        for reason, bound_us in BOUNDS_US.items():
            if took_ns <= 1_000 * bound_us:
                self._counters[reason] += 1
        return freed


def backlog(table: Table, now_ms: int) -> int:
    """Return how many records are due to be looked at at a moment: what has expired, and what was refreshed since."""
    due = table.array(Region.DUE, "due", "u4")
    return int(np.count_nonzero(due - np.uint32(1) < np.uint32(now_ms // DUE_UNIT_MS)))


def figures(table: Table, now_ms: int) -> dict[str, Any]:
    """Return what all sweeps together have done, and what waits for the next ones.

    Returns:
        ``visited`` slots, of which ``looked_at`` records were due and ``freed`` had expired; ``efficiency`` is the share
        of those; ``cycles`` through all of a worker's slots; ``backlog``; ``sweeps`` by workers, their ``ns``, and how many
        took ``at_most_us``.
    """
    totals = roster.participants(table)["counters"].sum(axis=0)
    looked_at, freed = int(totals[Reason.SWEEP_LOOKED]), int(totals[Reason.SWEPT])
    return {
        "visited": int(totals[Reason.SWEEP_VISITED]),
        "looked_at": looked_at,
        "freed": freed,
        "efficiency": round(freed / looked_at, 4) if looked_at else None,
        "cycles": int(totals[Reason.SWEEP_CYCLES]),
        "backlog": backlog(table, now_ms),
        "sweeps": int(totals[Reason.SWEEPS]),
        "ns": int(totals[Reason.SWEEP_NS]),
        "at_most_us": {str(bound_us): int(totals[reason]) for reason, bound_us in BOUNDS_US.items()},
    }
