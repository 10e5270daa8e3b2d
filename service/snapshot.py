"""Walks over all connections on behalf of clients: pages of a dump, counts, deletes; in slices, on a runner's thread.

A slice is one call of a kernel, about a millisecond; a turn is as many as fit into some milliseconds, and between two turns
whoever else waits for the runner has his.  So a walk over millions of records holds nobody up for long.

A cursor is the number of the next record, and nothing is kept for a client between two pages: whoever stops in the middle
of a dump leaves nothing behind.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np

from ..clients.errors import BusyError
from ..kernels import walk
from ..kernels.tcp_states import Tcp
from ..shm.layout import CONNECTION, CONNECTION_BYTES, EVENTS_MAX, Slab, Status
from ..shm.views import Table
from . import waiting
from .connections import parents_of
from .filters import Wanted
from .runner import Runner, now_ms

SLICE_SLOTS = np.uint64(16_384)
TURN_S = 0.005
PAGE_RECORDS_MAX = 16_384
"""2.5 MiB: the loop copies it in half a millisecond, and a million connections are 62 turns of client, loop and thread,
which on a busy machine cost more than the work."""
PAGE_S_MAX = 0.25
"""After this a page goes out as it is, even empty, so that a client with a rare filter hears from us."""
STUCK_MAX = 20
"""Turns of a delete that came no further, each some ten milliseconds of waiting for a lock."""
DTYPE = [[name, kind.base.str, list(kind.shape)] for name, (kind, *_) in (CONNECTION.fields or {}).items()]
"""How a row of a dump is read: name, numpy's format, shape of each field."""
STATES = [state.name for state in Tcp]
"""Names of TCP's states by their numbers."""
STATUS = {bit.name.lower(): int(bit) for bit in Status if not bit.name.endswith("_IS_HIGH")}


Pace = Callable[[int, int], Awaitable[None]]
"""Waits until no more than so many events of a participant are still to be read."""
EVENTS_BEHIND_MAX = EVENTS_MAX // 4
"""A turn may make as many again, and its ring must not go round."""


async def at_once(owner: int, most: int) -> None:
    """Wait for nobody."""


class Page(NamedTuple):
    """A page of a dump."""

    records: memoryview
    """CONNECTION[n]."""
    next: int | None
    """The cursor to go on at, None at the end."""
    parents: list[dict[str, Any]]
    """What is shown of the parents of those that are related."""


def as_answer(page: Page) -> dict[str, Any]:
    """Return a page as it goes over the wire."""
    return {
        "records": page.records,
        "dtype": DTYPE,
        "next": page.next,
        "states": STATES,
        "status": STATUS,
        "parents": page.parents,
    }


class Snapshot:
    """Walks over one table."""

    def __init__(self, table: Table, runner: Runner) -> None:
        self._runner, self._table = runner, table
        self.records = table.geometry.records(Slab.ENTRIES)
        # a u64 in two's complement, as kernels add it
        self.pace: Pace = at_once
        self._wall_offset_ms = np.int64(table.header[0]["wall_offset_ms"]).astype(np.uint64)

    async def page(self, wanted: Wanted, cursor: int, limit: int) -> Page:
        """Return the connections that are meant, from the cursor on, as many as fit into a page."""
        place = _Place(self.records, cursor)
        out = np.empty(min(limit, PAGE_RECORDS_MAX), CONNECTION)
        filled, until_s = 0, time.monotonic() + PAGE_S_MAX
        while filled < len(out) and not place.is_done and time.monotonic() < until_s:
            filled += await self._runner.do(_collect, wanted.record, self._wall_offset_ms, place, out[filled:])
        parents = list(parents_of(self._table, out[:filled]["parent"], int(now_ms())).values())
        return Page(out[:filled].view("u1").data, None if place.is_done else place.cursor, parents)

    async def count(self, wanted: Wanted) -> int:
        """Return how many connections are meant."""
        place, total = _Place(self.records), 0
        while not place.is_done:
            total += await self._runner.do(_count, wanted.record, place)
        return total

    async def delete(self, wanted: Wanted) -> int:
        """Delete the connections that are meant; return how many there were.

        Raises:
            BusyError: it comes no further, for somebody holds a lock; those before it are deleted.
        """
        place, total, stuck = _Place(self.records), 0, 0
        while not place.is_done:
            before = place.cursor
            total += await self._runner.do(_delete, wanted.record, place)
            await self.pace(self._runner.me, EVENTS_BEHIND_MAX)
            stuck = stuck + 1 if place.cursor == before else 0
            if stuck:
                await self._runner.do(lambda _: waiting.see_to(self._table))
            if stuck == STUCK_MAX:
                raise BusyError(f"{total} were deleted, then a lock was not had", {"deleted": total})
        return total


class _Place:
    """Where a walk stands, in memory that kernels write."""

    def __init__(self, records: int, cursor: int = 0) -> None:
        self._records = records
        self._word = np.array([cursor], "u8")
        self.address = np.uint64(self._word.ctypes.data)
        self._turn_until_s = 0.0

    @property
    def cursor(self) -> int:
        return int(self._word[0])

    @property
    def is_done(self) -> bool:
        return self.cursor >= self._records

    def begin_turn(self) -> None:
        self._turn_until_s = time.monotonic() + TURN_S

    @property
    def goes_on(self) -> bool:
        """Whether there is more to walk, and time for it in this turn."""
        return not self.is_done and time.monotonic() < self._turn_until_s


# ------------------------------------------------------------------------------------------------ turns, on the thread
def _collect(views: np.record, wanted: np.record, wall_offset_ms: np.uint64, place: _Place, out: np.ndarray) -> int:
    place.begin_turn()
    filled = 0
    while filled < len(out) and place.goes_on:
        filled += int(
            walk.collect(
                views,
                wanted,
                now_ms(),
                wall_offset_ms,
                SLICE_SLOTS,
                place.address,
                np.uint64(out.ctypes.data + filled * CONNECTION_BYTES),
                np.uint64(len(out) - filled),
            )
        )
    return filled


def _count(views: np.record, wanted: np.record, place: _Place) -> int:
    place.begin_turn()
    total = 0
    while place.goes_on:
        total += int(walk.count(views, wanted, now_ms(), SLICE_SLOTS, place.address))
    return total


def _delete(views: np.record, wanted: np.record, place: _Place) -> int:
    place.begin_turn()
    total, before = 0, -1
    while place.goes_on and place.cursor != before:
        before = place.cursor
        total += int(walk.delete(views, wanted, now_ms(), SLICE_SLOTS, place.address))
    return total
