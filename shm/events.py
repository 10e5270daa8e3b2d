"""Where participants write what happens to connections: a ring for each, one count for all, and a reader that owes nothing.

The keeper makes them before it forks (shm/unnamed).  Where nobody reads events they take a page for the heads and no more:
the rings get their memory when they are written, and lose it with the last reader.
What is kept for readers that come back (exports of the service) is written whether one is there at the moment or not.

Who may           while                        sees
    write         a participant, its own ring  -
    gather        one reader (control)         events that are whole, and of others how many there were
    want          control                      what it said before
    keep          the keeper                   -

Invariants
    I1  An event has a sequence number that no other has; the numbers taken are all from 1 to the count.
    I2  Of two events of one connection the later has the higher number: it is taken under the record's lock, or while
        nobody else can find the record.
    I3  `life` is another in each memory that was made: a number says nothing about the events of another life.  Both are
        below 2**63, for readers in languages without larger integers.
    I4  A number that was taken and is in no ring is of an event that is being written (its ring is `open`), or that is
        lost: its ring went round, or its writer died.

Ordering
    R1  `open` = 1, then the count is added to (acq_rel)   A1  the count, then `open`
    R2  odd number, contents, even number                  A2  that number before and after the copy
    R3  `written` + 1, then `open` = 0                     A3  `open`, then `written`
        So who sees a number taken (A1) and the ring not open (A3) finds the event in the ring, or it is lost.
    R4  `filters` = 0, the filters, `filters`, which       A4  `filters`, the filters, `filters` again: other than before,
        is never again what it was                             what was read may be of two times, and the event is written
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence

import numpy as np

from .layout import (
    EVENT_BYTES,
    EVENT_FILTERS_MAX,
    EVENT_RING,
    EVENT_RING_BYTES,
    EVENTS_MAX,
    FILTER,
    FILTER_BYTES,
    PAGE_BYTES,
    ROSTER_MAX,
    EventKind,
)
from .unnamed import Unnamed

EVERYTHING = EventKind.NEW | EventKind.UPDATE | EventKind.DESTROY
RING_BYTES = EVENTS_MAX * EVENT_BYTES
_HEADS = 2 * EVENT_RING_BYTES
"""Where the heads begin: the count before them has lines of its own."""
_FILTERS = _HEADS + ROSTER_MAX * EVENT_RING_BYTES
_RINGS = -(-(_FILTERS + EVENT_FILTERS_MAX * FILTER_BYTES) // PAGE_BYTES) * PAGE_BYTES
_SIZE = _RINGS + ROSTER_MAX * RING_BYTES
_PUNCH_HOLE = 0x01 | 0x02  # fallocate(2): FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE


class Events(Unnamed):
    """The rings of all participants of a table."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Make them, and nobody wants events yet.

        Args:
            descriptor: of rings that there are already, to be used from here too.
        """
        super().__init__("events", _SIZE, descriptor)
        self.heads_address = self.base + _HEADS
        self._count = np.frombuffer(self.memory, "u8", 1)
        # life, kinds that are kept, since, how often filters were said
        self._about = np.frombuffer(self.memory, "u8", 4, EVENT_RING_BYTES)
        if descriptor is None:
            self._about[0] = int.from_bytes(os.urandom(8), "little") >> 1 | 1
        self.heads = np.frombuffer(self.memory, EVENT_RING, ROSTER_MAX, _HEADS)
        self.filters = np.frombuffer(self.memory, FILTER, EVENT_FILTERS_MAX, _FILTERS)

    @property
    def sequence(self) -> int:
        """Sequence number of the latest event, 0 before the first."""
        return int(self._count[0])

    @property
    def life(self) -> int:
        """What the numbers of these events are of; whoever has numbers of another begins anew."""
        return int(self._about[0])

    @property
    def kept(self) -> int:
        """EventKind bits of what is written whether anybody reads at the moment or not."""
        return int(self._about[1])

    @property
    def kept_since(self) -> int:
        """Number of the latest event before they were."""
        return int(self._about[2])

    @property
    def sequence_address(self) -> int:
        """Address of the word with the latest sequence number."""
        return self.base

    def ring_address(self, owner: int) -> int:
        """Return the address of EVENT[EVENTS_MAX] of a participant."""
        return self.base + _RINGS + (owner - 1) * RING_BYTES

    def enter(self, owner: int, views: np.record) -> None:
        """Let kernels write in a participant's name; what its predecessor was writing when it died is lost."""
        head = self.heads[owner - 1]
        head["open"] = 0
        head["clock_ms"] = time.monotonic_ns() // 1_000_000
        views["events"] = self.heads_address + (owner - 1) * EVENT_RING_BYTES
        views["event_slots"] = self.ring_address(owner)
        views["event_sequence"] = self.sequence_address
        views["event_filters"] = self.base + _FILTERS

    def tick(self, owner: int) -> None:
        """Say what moment it is, for a participant whose kernels are not told."""
        self.heads[owner - 1]["clock_ms"] = time.monotonic_ns() // 1_000_000

    def want(self, kinds: int, filters: Sequence[np.void] = ()) -> None:
        """Say which events are read from now on: what nobody reads is not written.

        Args:
            kinds: EventKind bits.
            filters: FILTERs, of connections that one of them means; none: of all.  More than EVENT_FILTERS_MAX, or beside
                events that are kept, they hold for nobody: more is written than is read.
        """
        kept = self.kept
        self.heads["filters"] = 0  # R4
        if 0 < len(filters) <= EVENT_FILTERS_MAX and not kept:
            for place, one in enumerate(filters):
                self.filters[place] = one
            self._about[3] += 1
            self.heads["filters"] = int(self._about[3]) << 8 & 0xFFFFFFFF | len(filters)
        self.heads["wanted"] = kinds | kept

    def keep(self, kinds: int) -> None:
        """Say which events are written for readers that come and go; of all zones, and beside what others want.

        Args:
            kinds: EventKind bits; those of before hold until control says again what is wanted.
        """
        if kinds and not self.kept:
            self._about[2] = self.sequence
        self._about[1] = kinds
        if kinds:
            self.heads["filters"] = 0
            self.heads["wanted"] |= np.uint32(kinds)

    def let_go(self) -> None:
        """Give the rings' memory back; for when nothing is wanted, and who was writing has finished or never will."""
        libc = ctypes.CDLL(None, use_errno=True)
        length = ctypes.c_long(ROSTER_MAX * RING_BYTES)
        if libc.fallocate(self.descriptor, _PUNCH_HOLE, ctypes.c_long(_RINGS), length):
            raise OSError(ctypes.get_errno(), "the rings' memory cannot be given back")
