"""Flushes on behalf of clients: a zone is empty at once, and what it held comes home in slices.

A flush is one operation with one intent line, from the detach of the directory until all of it is home.  So a flusher has
a runner of its own, does one zone after the other, and when a lock is not had it remembers where it stands: whoever asks
next has that finished first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..clients.errors import BusyError
from ..kernels import flush, shrink
from ..shm import roster
from ..shm.layout import ZONE, ZONE_OFFSET_BITS, Region
from ..shm.reasons import Reason
from ..shm.views import Table
from . import log, waiting
from .runner import Runner
from .snapshot import EVENTS_BEHIND_MAX, Pace, at_once

MERGES = np.uint64(1_024)
"""Segments merged in one go: some milliseconds."""
SLICE_RECORDS = np.uint64(4_096)
"""About a millisecond."""
TURN_S = 0.02
TURN_SLICES = 4
"""Half a ring of events."""
STUCK_MAX = 20
"""Turns that brought nothing home, each some ten milliseconds of waiting for a lock."""
_EMPTY = np.uint64(0)
_log = log.logger("control")


class _Under(NamedTuple):
    """A flush that is under way."""

    zone: np.uint64
    word: np.uint64
    cursor: np.uint64


class Flusher:
    """Flushes the zones of one table."""

    def __init__(self, table: Table, runner: Runner) -> None:
        self._runner, self._table = runner, table
        self._zones = table.array(Region.CONTROL, "zones", ZONE)
        self._counter = roster.participants(table)[runner.me - 1]["counters"][Reason.FLUSHED :][:1]
        self._under: _Under | None = None
        self.pace: Pace = at_once
        self._alone = asyncio.Lock()
        self._tasks: set[asyncio.Task[int]] = set()

    def in_use(self) -> list[int]:
        """Return the zones that have a directory."""
        offsets = self._zones["word"] & np.uint64((1 << ZONE_OFFSET_BITS) - 1)
        return np.flatnonzero(offsets).tolist()

    async def flush(self, zones: Sequence[int], *, wait: bool) -> int:
        """Flush zones, and return how many connections came home.

        Args:
            zones: which.
            wait: until all are home; else the zones are empty for whoever looks, but still counted, and 0 is returned.

        Raises:
            BusyError: a lock was not had; what is left is brought home by the next flush.
        """
        detached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # a task of ours: once begun it goes on, whether whoever asked still waits or not
        task = asyncio.create_task(self._flush_all(zones, detached))
        self._tasks.add(task)
        task.add_done_callback(self._note)
        if wait:
            return await asyncio.shield(task)
        await asyncio.wait({task, detached}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return 0

    async def shrink(self, zone: int) -> int:
        """Bring home what a zone does not need of the index; returns how many segments that were.

        Raises:
            BusyError: a flush is under way, and a lock was not had.
        """
        merged = 0
        async with self._alone:
            await self._bring_home()
            while True:
                now = await self._runner.do(_shrink, np.uint64(zone))
                merged += now
                if now < MERGES:
                    return merged

    async def finish(self) -> None:
        """Wait for all flushes that were begun."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _note(self, task: asyncio.Task[int]) -> None:
        """See to a flush that has ended, for whoever asked may be gone."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.warning("a flush: %s", error)

    async def _flush_all(self, zones: Sequence[int], detached: asyncio.Future[None]) -> int:
        async with self._alone:
            await self._bring_home()
            before = int(self._counter[0])
            for zone in zones:
                word = await self._runner.do(_detach, np.uint64(zone))
                if word == flush.DONE and await self._runner.do(self._see_to_dead):
                    word = await self._runner.do(_detach, np.uint64(zone))
                if word == flush.DONE:
                    raise BusyError(f"zone {zone} is locked", {"zone": zone})
                if word != _EMPTY:
                    self._under = _Under(np.uint64(zone), word, _EMPTY)
                if zone == zones[-1] and not detached.done():
                    detached.set_result(None)
                await self._bring_home()
            return int(self._counter[0]) - before

    async def _bring_home(self) -> None:
        """Finish the flush under way, if there is one."""
        stuck = 0
        while self._under is not None:
            before = self._counter[0]
            if self._table.events is not None:
                self._table.events.tick(self._runner.me)
            self._under = await self._runner.do(_reclaim, self._under)
            await self.pace(self._runner.me, EVENTS_BEHIND_MAX)
            stuck = stuck + 1 if self._counter[0] == before else 0
            if self._under is not None and stuck:
                await self._runner.do(self._see_to_dead)
            if self._under is not None and stuck == STUCK_MAX:
                zone = int(self._under.zone)
                raise BusyError(f"zone {zone} was flushed, but not all came home: a lock was not had", {"zone": zone})

    def _see_to_dead(self, _: np.record) -> bool:
        return waiting.see_to(self._table)


# ------------------------------------------------------------------------------------------------ on the thread
def _detach(views: np.record, zone: np.uint64) -> np.uint64:
    return np.uint64(flush.detach(views, zone))


def _shrink(views: np.record, zone: np.uint64) -> int:
    return int(shrink.shrink(views, zone, MERGES))


def _reclaim(views: np.record, under: _Under) -> _Under | None:
    """Go on for a turn; None when all is home."""
    cursor, until_s = under.cursor, time.monotonic() + TURN_S
    for _ in range(TURN_SLICES):
        if cursor == flush.DONE or time.monotonic() >= until_s:
            break
        cursor = np.uint64(flush.reclaim(views, under.zone, under.word, cursor, SLICE_RECORDS))
    return None if cursor == flush.DONE else under._replace(cursor=cursor)
