"""A worker: the process that polls its queues, tracks what comes, and sweeps its share of the table.

Everything that is done often is one call of ``kernels/poll``, which lasts some milliseconds.  In between Python runs
signal handlers, reads the clock and decides how much to sweep: now and then, but in each turn while there is something to
free, or while the table fills up.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

import numpy as np

from ..kernels import poll
from ..shm import roster
from ..shm.layout import GLOBAL, PARTICIPANT, Kind, Region, Slab
from ..shm.queues import Loop, Queues
from ..shm.reasons import Reason
from ..shm.rulebook import Rulebook
from ..shm.views import Table
from . import leaving
from .waiting import Waiter

ROUNDS_MAX = np.uint64(128)
"""Bursts in one call: 4,096 packets, one or two milliseconds, ten where each of them opens a connection."""
SWEEP_INTERVAL_MS = 50
"""A sweep asks of each block whose it is, so many small ones would cost an idle worker more than a few large ones."""
SWEEP_SHARE = 32
"""Of the records, one in this many is visited at once: 1.6 s for all of them when nothing expires."""
SWEEP_SHARE_BEHIND = 16
SWEEP_SLOTS_MIN, SWEEP_SLOTS_MAX = 1 << 13, 1 << 18
"""6 us and 0.2 ms, where nothing is due."""
REST_TURNS = 100
"""Empty turns, about a second, after which a worker sleeps longer: what wakes it, packet or signal, does so all the same."""
REST_FACTOR = 3
LOOK_INTERVAL_MS = 500
"""Between looks at what only system calls tell of devices: what they lost."""
CROWDED = 7 / 8
"""Of the global limit: above, the table is swept in each turn."""
NOTHING = np.uint64(0)


def now_ms() -> int:
    """Return the moment, as the whole table counts it."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


class Worker:
    """One worker, made by the keeper and run in a child of it."""

    def __init__(
        self,
        table: Table,
        queues: Queues,
        numbers: Sequence[int],
        line: np.void,
        rules: Rulebook | None = None,
        number: int = 0,
    ) -> None:
        """Prepare.

        Args:
            table: of the service.
            queues: of all its ports.
            numbers: of those that this worker owns.
            line: its line of the board.
            rules: that packets meet; None where there never are any.
            number: of this worker.
        """
        self.table = table
        self.queues = queues
        self.numbers = list(numbers)
        self.line = line
        self.rules, self.number = rules, number
        self.stopping = self.hurrying = False
        records = table.geometry.records(Slab.ENTRIES)
        self._slots, self._slots_behind = (
            np.uint64(min(max(records // share, SWEEP_SLOTS_MIN), SWEEP_SLOTS_MAX))
            for share in (SWEEP_SHARE, SWEEP_SHARE_BEHIND)
        )
        self._globals = table.array(Region.CONTROL, "globals", GLOBAL)[0]
        self._swept_ms = 0
        self._freed = 0

    def stop(self, *_: object) -> None:
        """Ask it to stop when its queues are empty: a handler of signals."""
        self.stopping = True

    def hurry(self, *_: object) -> None:
        """Ask it to stop whatever is in its queues: likewise."""
        self.stopping = self.hurrying = True

    def work(self, ready: Callable[[], None]) -> None:
        """Work until asked to stop, then until the queues are empty, and leave the roster.

        Args:
            ready: called when packets can flow.
        """
        me = roster.join(self.table, Kind.WORKER)
        self.line["owner"] = me
        views = self.table.views(me)
        turn = self._turns(me, views)
        gc.freeze()
        ready()
        while not self.stopping:
            turn()
        while turn() and not self.hurrying:
            pass
        leaving.leave(self.table, me, views)
        if self.rules is not None:
            self.rules.let_go(self.number)
        self.line["owner"] = 0

    def _turns(self, me: int, views: np.record) -> Callable[[], int]:
        """Return a function that makes one turn of participant ``me``: it returns the packets taken."""
        loop = Loop(self.queues, self.numbers, me, self.rules, self.number)
        counters = self.table.array(Region.CONTROL, "participants", PARTICIPANT)[me - 1]["counters"]
        self._freed = int(counters[Reason.SWEPT])
        waiter = Waiter(self.table, me)
        sleep_ms = int(loop.record["sleep_ms"])
        empty = looked_ms = 0

        def turn() -> int:
            nonlocal empty, looked_ms
            moment = now_ms()
            packets = int(
                poll.poll(views, loop.record, np.uint64(moment), ROUNDS_MAX, self._to_sweep(moment, counters))
            )
            self.line["calls"] += 1
            if loop.record["troubled"] or moment - looked_ms >= LOOK_INTERVAL_MS:
                looked_ms = moment
                loop.look()
            waiter.look()
            if packets:
                self.line["packets"] += packets
                empty = 0
            else:
                empty += 1
            if empty in (0, REST_TURNS):
                loop.record["sleep_ms"] = sleep_ms * REST_FACTOR if empty else sleep_ms
            return packets

        return turn

    def _to_sweep(self, moment: int, counters: np.ndarray) -> np.uint64:
        """Return how many slots to sweep in this turn."""
        freed = int(counters[Reason.SWEPT])
        behind = freed != self._freed or self._globals["count"] > CROWDED * self._globals["limit"]
        self._freed = freed
        if not behind and moment - self._swept_ms < SWEEP_INTERVAL_MS:
            return NOTHING
        self._swept_ms = moment
        return self._slots_behind if behind else self._slots
