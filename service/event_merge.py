"""All participants' events as one sequence: gathered from their rings, in the order of their numbers, told once or counted.

An event is told when all before it were told or are known to be lost.  What is missing is being written, or lost: it is lost
when each ring that was open while it was missing has gone on since, or its writer is dead (shm/events, I4).  A writer that
is stopped in the middle is waited for, but not for ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..kernels import event_reader
from ..shm import roster
from ..shm.layout import EVENT, EVENT_ROW, EVENTS_MAX, ROSTER_MAX, Attendance
from ..shm.views import Table

RING_ROWS_MAX = 8_192
"""Events that are taken from one ring at once; 1.5 MiB."""
PATIENCE_S = 1.0
"""For who has begun an event and does not finish it."""
WAIT_S = 0.001
"""Between looks at what is not finished."""


class Batch(NamedTuple):
    """What happened next."""

    lost: int
    """Events that nobody will ever see; they came before the rows, or among them."""
    rows: np.ndarray
    """EVENT_ROW[n], by their numbers."""
    sequence: int
    """All that has happened up to this number was told."""


class Merger:
    """Reads the rings of one table; one at a time does."""

    def __init__(self, table: Table, since: int | None = None) -> None:
        """Begin with what happens from now on, or with what the rings still have.

        Args:
            table: whose participants write events.
            since: number of the latest event that is not wanted; None: of the latest that there is.
        """
        assert table.events is not None
        self._events = table.events
        self._attendance = roster.participants(table)["attendance"]
        self._wall_offset_ms = np.int64(table.header[0]["wall_offset_ms"]).astype(np.uint64)
        self._seen = np.zeros((ROSTER_MAX, 2), "u8")
        self._scratch = np.zeros(1, EVENT)
        self._buffer = np.zeros(RING_ROWS_MAX, EVENT_ROW)
        self._held = np.zeros(0, EVENT_ROW)
        self.told = self._survey()
        self.cursors = self._seen[:, 1].copy()
        if since is not None:
            self.told = since
            self.cursors -= np.minimum(self.cursors, np.uint64(EVENTS_MAX))
        self._look_from(self.told)

    def _survey(self) -> int:
        events = self._events
        return int(
            event_reader.survey(
                *map(np.uint64, (events.sequence_address, events.heads_address, self._seen.ctypes.data))
            )
        )

    def behind(self, owner: int) -> int:
        """Return how many events of a participant were not gathered yet."""
        return int(self._events.heads["written"][owner - 1] - self.cursors[owner - 1])

    def take(self) -> tuple[Batch, bool]:
        """Return what has happened since the last call, and whether there is more already."""
        taken = self._survey()
        parts, more = [self._held], False
        for index in np.flatnonzero(self._seen[:, 1] != self.cursors).tolist():
            rows, all_of_it = self._gather(index)
            parts.append(rows)
            more = more or not all_of_it
        rows = np.concatenate(parts) if len(parts) > 1 else self._held
        rows = rows[rows["sequence"] > self.told]  # what was given up, and came after all
        if len(parts) > 1:
            rows = rows[np.argsort(rows["sequence"], kind="stable")]
        return self._told(rows, taken), more

    def _gather(self, index: int) -> tuple[np.ndarray, bool]:
        first, end = int(self.cursors[index]), int(self._seen[index, 1])
        result = int(
            event_reader.gather(
                np.uint64(self._events.ring_address(index + 1)),
                np.uint64(first),
                np.uint64(end),
                self._wall_offset_ms,
                np.uint64(self._scratch.ctypes.data),
                np.uint64(self._buffer.ctypes.data),
                np.uint64(RING_ROWS_MAX),
            )
        )
        self.cursors[index] = first + (result >> 32)
        return self._buffer[: result & 0xFFFFFFFF].copy(), first + (result >> 32) == end

    def _told(self, rows: np.ndarray, taken: int) -> Batch:
        """Part what can be told from what has to wait for others."""
        self._hear_of_open()
        count = lost = 0
        for _ in range(2):  # of what was taken at the last look that was waited for, then of what was at this one
            if self._open or (self.cursors < self._written).any():
                break
            upto = max(count, int(np.searchsorted(rows["sequence"], self._limit, "right")))
            lost += self._limit - self.told - (upto - count)
            count, self.told = upto, self._limit
            self._look_from(taken)
        # those that follow without a gap are told whatever is open
        following = rows["sequence"][count:]
        is_next = following == self.told + 1 + np.arange(len(following), dtype="u8")
        more = len(is_next) if is_next.all() else int(np.argmin(is_next))
        self._held = rows[count + more :]
        self.told += more
        self._limit = max(self._limit, self.told)
        return Batch(lost, rows[: count + more], self.told)

    def _look_from(self, taken: int) -> None:
        """Begin to wait for all that was taken at the present look."""
        self._limit, self._since_s = max(taken, self.told), time.monotonic()
        self._written = self._seen[:, 1].copy()
        here = (self._seen[:, 0] != 0) & (self._attendance == Attendance.PRESENT)
        self._open = {index: int(self._seen[index, 1]) for index in np.flatnonzero(here).tolist()}

    def _hear_of_open(self) -> None:
        """Wait no more for rings that have gone on, or whose writers are dead; nor for ever."""
        for index, written in list(self._open.items()):
            is_open, now_written = self._seen[index].tolist()
            if not is_open or now_written != written or self._attendance[index] != Attendance.PRESENT:
                del self._open[index]
        if time.monotonic() - self._since_s > PATIENCE_S:
            self._open.clear()


def history(table: Table, since: int, upto: int) -> Iterator[Batch]:
    """Yield what has happened, as far as the rings still have it; the rest is lost, and counted.

    Args:
        table: whose participants write events.
        since: number of the latest event that is known.
        upto: number of the latest that is wanted; all up to it were told to somebody, or are known to be lost.
    """
    if since >= upto:
        return
    merger = Merger(table, since)
    while merger.told < upto:
        before = merger.told
        batch, _ = merger.take()
        rows = batch.rows[batch.rows["sequence"] <= upto]
        told = min(batch.sequence, upto)
        if told > before:
            yield Batch(told - before - len(rows), rows, told)
        else:
            time.sleep(WAIT_S)
