"""A worker: the process that polls its queues, tracks what comes, and sweeps its share of the table.

Everything that is done often is one call of ``kernels/poll``, which lasts some milliseconds.  In between Python runs
signal handlers, reads the clock and sweeps, as service/sweeping says how much.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

import numpy as np

from ..kernels import poll
from ..shm import roster
from ..shm.layout import Kind
from ..shm.loop import Loop
from ..shm.queues import Queues
from ..shm.rulebook import Rulebook
from ..shm.views import Table
from . import leaving
from .sweeping import Sweeper
from .waiting import Waiter

ROUNDS_MAX = np.uint64(128)
"""Bursts in one call: 4,096 packets, one or two milliseconds, ten where each of them opens a connection."""
REST_TURNS = 100
"""Empty turns, about a second, after which a worker sleeps longer: what wakes it, packet or signal, does so all the same."""
REST_FACTOR = 3
LOOK_INTERVAL_MS = 500
"""Between looks at what only system calls tell of devices: what they lost."""
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
            numbers: of the places that this worker sends by, and of the queues that it polls, unless others are to.
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
        polls = self.queues.held_by(self.number)
        self._loop = loop = Loop(self.queues, self.numbers, me, self.rules, self.number, polls)
        perf, head = self.queues.perf[self.number], self.queues.head
        perf["on"] = perf["round_packets"] = 0  # whoever was here before may have died in the middle of a burst
        seen = (-1, -1)
        sweeper = Sweeper(self.table, me)
        waiter = Waiter(self.table, me)
        sleep_ms = rest_ms = int(loop.record["sleep_ms"])
        empty = looked_ms = 0

        def turn() -> int:
            nonlocal empty, looked_ms, rest_ms, seen
            moment = now_ms()
            said = int(head["assignments"]), int(head["unmeasured"])
            if said != seen:
                loop.measure()
                seen = said if loop.settle() else (-1, -1)
            slots = sweeper.due(moment)
            if slots:
                began_ns = time.monotonic_ns()
                sweeper.sweep(views, moment, slots)
                perf["sweep_ns"] += time.monotonic_ns() - began_ns
            loop.record["sleep_ms"] = 0 if sweeper.is_behind or head["awake"] else 1 if seen[0] < 0 else rest_ms
            if head["awake"]:
                loop.record["busy"] = 1  # it looks for a while before it comes back
            began_ns = time.monotonic_ns()
            packets = int(poll.poll(views, loop.record, np.uint64(moment), ROUNDS_MAX, NOTHING))
            took_ns = time.monotonic_ns() - began_ns
            perf["calls_ns"] += took_ns
            if not packets:
                perf["idle_ns"] += took_ns
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
                rest_ms = sleep_ms * REST_FACTOR if empty else sleep_ms
            return packets

        return turn
