"""Events for clients: one reader of the rings while anybody has subscribed, and for each client what it wants of them.

    subscribe    the rings are written from now on; the answer has the number from which on all is told
    tell         notifications ``events``: packed rows, and how many were lost before them
    finish       a client has been told all that has happened
    forget       a client has gone; with the last one the rings' memory goes too, unless it is kept

Who comes back names the number up to which he knows: what the rings still have of the rest is told first.

Nothing here waits for a client: what one has not read is bounded, and what comes beyond that is lost to it and counted.  The
rings are read on a thread of its own, and rows are parted and packed there, so the loop only hands bytes on.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..clients import wire
from ..clients.errors import FailedError
from ..shm import roster
from ..shm.events import Events
from ..shm.layout import EVENT_ROW, STEP_BITS, Change, End, Step
from ..shm.views import Table
from . import event_filters, event_merge, log
from .event_merge import Batch, Merger
from .filters import Wanted

ROWS_MAX = 2_048
"""In one notification; 384 KiB."""
SHORTEST_S, LONGEST_S = 0.002, 0.02
"""Between two looks at the rings: short after something happened, longer and longer while nothing does."""
GRACE_S = 0.03
"""For a client that reads, when more has happened at once than is kept for it: shorter than a ring takes to go round."""
SETTLE_S = 1.0
DTYPE = [[name, kind.base.str, list(kind.shape)] for name, (kind, *_) in (EVENT_ROW.fields or {}).items()]
_log = log.logger("control")


class Line(Protocol):
    """Where a client is told things."""

    @property
    def unread(self) -> int:
        """Bytes that wait for it."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether all clients together may have more kept for them, or this one has less than its part."""
        ...

    def post(self, data: bytes) -> None:
        """Have bytes sent."""
        ...


@dataclass
class Subscriber:
    """What a client wants, and what it missed."""

    line: Line
    kinds: int
    wanted: Wanted
    since: int
    """Events up to this number are not for it."""
    lost: int = 0
    """Of those for it, what it was not told of because it did not read; it does not know yet."""
    after: int | None = None
    """What has happened since this number is to be told first."""
    heard: int = 0
    """All up to this number was told to it, or was not for it."""


class Hub:
    """The events of one table."""

    def __init__(self, table: Table, output_bytes_max: int) -> None:
        self._table = table
        self._unread_max = output_bytes_max // 2
        self._rows_max = max(1, min(ROWS_MAX, output_bytes_max // 8 // EVENT_ROW.itemsize))
        self._merger: Merger | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="events")
        self.subscribers: dict[Line, Subscriber] = {}
        self.lost = 0
        """Events that nobody will ever see."""
        self.lost_to_readers = 0
        """Events that one of those who had subscribed was not told of, because it did not read."""

    @property
    def sequence(self) -> int:
        """Number of the latest event."""
        return 0 if self._table.events is None else self._table.events.sequence

    def figures(self) -> dict[str, int]:
        """Return figures about events."""
        return {
            "subscribers": len(self.subscribers),
            "sequence": self.sequence,
            "lost": self.lost,
            "lost_by_slow_readers": self.lost_to_readers,
        }

    # -------------------------------------------------------------------------------------------- clients
    async def subscribe(
        self, line: Line, kinds: int, wanted: Wanted, after: int | None = None, life: int | None = None
    ) -> dict[str, Any]:
        """Tell a client of events from now on; what it had subscribed to before holds no more.

        Args:
            line: of the client.
            kinds: EventKind bits.
            wanted: which connections.
            after: number of the latest event that it knows: what has happened since is told first; None: nothing is.
            life: what that is a number of; None: of this one.  Who knows another life has missed all of this; who knows
                none, 0, what is kept.

        Returns:
            How to read them, and the number up to which it is told nothing.

        Raises:
            FailedError: nobody writes events here.
        """
        events = self._table.events
        if events is None:
            raise FailedError("this service writes no events")
        self.subscribers[line] = subscriber = Subscriber(line, kinds, wanted, since=1 << 63)
        self._want()
        await self._settle()
        if self._task is None or self._task.done():
            self._merger = Merger(self._table)
            self._task = asyncio.create_task(self._run(self._merger))
            self._task.add_done_callback(_note)
        first = events.sequence if after is None else _first(events, after, life)
        if after is None:
            subscriber.since = first
        else:
            subscriber.after = first
        return {
            "sequence": first,
            "life": events.life,
            "table": int(self._table.header[0]["generation"]),
            "dtype": DTYPE,
            "kinds": {name: int(kind) for name, kind in event_filters.KINDS.items()},
            "ends": [end.name.lower() for end in End],
            "changes": {change.name.lower(): int(change) for change in Change},
        }

    async def finish(self, line: Line) -> bool:
        """Tell a client what has happened until now, and nothing more; returns whether it was told anything before."""
        subscriber, upto = self.subscribers.get(line), self.sequence
        while subscriber is not None and subscriber.heard < upto and self.subscribers.get(line) is subscriber:
            if self._task is None or self._task.done():
                break
            await asyncio.sleep(SHORTEST_S)
        return self.forget(line)

    def forget(self, line: Line) -> bool:
        """Tell a client nothing more; returns whether it was told anything before."""
        if self.subscribers.pop(line, None) is None:
            return False
        self._want()
        return True

    def _want(self) -> None:
        """Have just those events written that somebody reads."""
        assert self._table.events is not None
        kinds = 0
        for one in self.subscribers.values():
            kinds |= one.kinds
        wanted = [one.wanted for one in self.subscribers.values()]
        means_all = any(not one.names for one in wanted)
        self._table.events.want(kinds, () if means_all else [one.record for one in wanted])

    async def _settle(self) -> None:
        """Wait until nobody is in the middle of what he began before events were wanted."""
        steps = roster.participants(self._table)["intent"]["step"]
        busy = steps & np.uint64((1 << STEP_BITS) - 1) != Step.NONE
        until_s = asyncio.get_running_loop().time() + SETTLE_S
        before = steps.copy()
        while busy.any() and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(SHORTEST_S)
            busy &= (steps & np.uint64((1 << STEP_BITS) - 1) != Step.NONE) & (steps == before)

    async def catch_up(self, owner: int, most: int) -> None:
        """Wait until the reader is no more than ``most`` events behind a participant of this process."""
        while self.subscribers and self._merger is not None and self._merger.behind(owner) > most:
            await asyncio.sleep(SHORTEST_S)

    # -------------------------------------------------------------------------------------------- the reader
    async def _run(self, merger: Merger) -> None:
        pause_s = SHORTEST_S
        loop = asyncio.get_running_loop()
        while self.subscribers:
            for subscriber in list(self.subscribers.values()):
                if subscriber.after is not None:
                    await self._tell_history(subscriber, subscriber.after, merger.told)
            batch, more = await loop.run_in_executor(self._thread, merger.take)
            self.lost += batch.lost
            for subscriber in list(self.subscribers.values()):
                await self._tell(subscriber, batch)
                if subscriber.after is None:
                    subscriber.heard = batch.sequence
            if not more:
                await asyncio.sleep(pause_s)
            pause_s = SHORTEST_S if len(batch.rows) or batch.lost else min(2 * pause_s, LONGEST_S)
        self._merger = None
        events = self._table.events
        assert events is not None
        if not events.kept:
            events.let_go()

    async def _tell_history(self, subscriber: Subscriber, after: int, upto: int) -> None:
        """Tell a client what has happened since a number, up to where the reader is."""
        loop = asyncio.get_running_loop()
        parts = event_merge.history(self._table, after, upto)
        subscriber.since = after
        while (batch := await loop.run_in_executor(self._thread, next, parts, None)) is not None:
            await self._tell(subscriber, batch)
        subscriber.since, subscriber.after = max(after, upto), None

    async def _tell(self, subscriber: Subscriber, batch: Batch) -> None:
        """Tell a client what of a batch is for it, if it reads."""
        if not len(batch.rows) and not batch.lost and not subscriber.lost:
            return
        loop = asyncio.get_running_loop()
        parts = await loop.run_in_executor(self._thread, self._packed, subscriber, batch)
        lost = batch.lost if batch.sequence > subscriber.since else 0
        for rows, sequence in parts:
            count = len(rows) // EVENT_ROW.itemsize
            if self.subscribers.get(subscriber.line) is not subscriber:
                return
            if not await self._has_room(subscriber):
                subscriber.lost += lost + count
                self.lost_to_readers += count
            elif count or lost or subscriber.lost:
                told = {"lost": subscriber.lost + lost, "records": rows, "sequence": sequence}
                subscriber.line.post(wire.notification("events", told))
                subscriber.lost = 0
            lost = 0

    async def _has_room(self, subscriber: Subscriber) -> bool:
        """Return whether a client has read enough to be told more; who has read all so far gets a moment for it."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (0.0 if subscriber.lost else GRACE_S)
        while subscriber.line.unread > self._unread_max or not subscriber.line.has_room:
            if loop.time() >= until_s:
                return False
            await asyncio.sleep(SHORTEST_S / 2)
        return True

    def _packed(self, subscriber: Subscriber, batch: Batch) -> list[tuple[bytes, int]]:
        """Return the rows that are for a client, in portions, each with the number up to which it is told then."""
        rows = batch.rows
        if len(rows):
            for_it = event_filters.mask(rows, subscriber.kinds, subscriber.wanted)
            rows = rows[for_it & (rows["sequence"] > subscriber.since)]
        portions = [rows[first : first + self._rows_max] for first in range(0, len(rows), self._rows_max)]
        if not portions:
            return [(b"", batch.sequence)]
        numbers = [int(portion["sequence"][-1]) for portion in portions[:-1]] + [batch.sequence]
        return [(portion.tobytes(), number) for portion, number in zip(portions, numbers, strict=True)]

    def close(self) -> None:
        """End the reader."""
        self.subscribers.clear()
        if self._table.events is not None:
            self._want()
        self._thread.shutdown(cancel_futures=True)


def _first(events: Events, after: int, life: int | None) -> int:
    """Return the number after which somebody is to be told who knows up to one of some life."""
    if life in (None, events.life):
        return min(after, events.sequence)
    if events.kept:
        return events.kept_since
    return 0 if life else events.sequence


def _note(task: asyncio.Task[None]) -> None:
    """Log why the reader ended, if it should not have."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("events are read no more", exc_info=task.exception())
