"""What statistics cost: workers with them and without, in turn, a second each, in one run.

Two workers receive and send on the same two ports in shared memory, both ways, while two clients send as fast as there is
room.  How many packets were taken is read from the rings, which know it whether anything is counted or not.  A pair is a
spell with and one without, next to each other, which of them comes first in turn; what is said is the ratio of the two
rates, its mean over all pairs, and where that lies with 95 %.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..kernels import poll
from ..kernels.words import ZERO, u64
from ..service import crew, rules_compile, rules_text
from ..service.rules import Names
from ..shm import port, roster, segment
from ..shm.layout import DESCRIPTOR, FRAME_SLOT_BYTES, Kind
from ..shm.queues import Loop, Queues
from ..shm.rulebook import Rulebook
from ..shm.sizing import Geometry
from . import forward_traffic
from .driver import CheckFailed
from .forward_ends import BATCH_CLIENT
from .forward_trial import ROUNDS, SLOTS
from .port import Queue

PORTS, WORKERS = ("left", "right"), 2
RULES = {
    "drop": "ip actions=ct(commit)",
    "normal": "ip actions=ct(commit),NORMAL",
    "forward": "in_port=left,ip actions=ct(commit),output:right\nin_port=right,ip actions=ct(commit),output:left",
}
PATIENCE_S = 30.0
"""That a spell lasts at most until a packet has come."""
Z_95 = 1.959964
"""Of the normal distribution; with 60 pairs Student's t is 2 % more."""


class Bench:
    """Two ports, two workers, two clients."""

    def __init__(self, rules: str, flows: int, size: int, house: contextlib.ExitStack) -> None:
        """Set it up; everything is open until the end of ``house``."""
        self.flows, self.frame_bytes = flows, size - 4
        self.instance = f"stats-{os.getpid()}"
        self.table = segment.anonymous(Geometry(connections=1 << 14))
        made = [house.enter_context(port.create(self.instance, name, WORKERS, slots=SLOTS)) for name in PORTS]
        self.queues = Queues(made, workers=WORKERS)
        self.rules = Rulebook(WORKERS)
        names = Names({name: number for number, name in enumerate(PORTS, 1)})
        self.rules.publish(rules_compile.compile_rules(rules_text.read(RULES[rules], names)))
        self.over = crew.shared(np.dtype("u8"), 1)

    def worker(self, number: int) -> None:
        """Be a worker until it is over."""
        me = roster.join(self.table, Kind.WORKER)
        views = self.table.views(me)
        loop = Loop(self.queues, self.queues.deal()[number], me, self.rules, number)
        while not self.over[0]:
            loop.measure()
            poll.poll(views, loop.record, u64(time.monotonic_ns() // 1_000_000), ROUNDS, ZERO)
        self.rules.let_go(number)
        roster.leave(self.table, me)

    def client(self, index: int) -> None:
        """Send into one queue of each port, and take what comes back there, until it is over."""
        frames, _kept = forward_traffic.flows_of(self.flows, self.frame_bytes)
        answers = np.zeros(BATCH_CLIENT, DESCRIPTOR)
        slots = np.zeros((BATCH_CLIENT, FRAME_SLOT_BYTES), "u1")
        own = [Queue(name, index, self.instance) for name in PORTS]
        first = 0
        while not self.over[0]:
            moved = 0
            for queue in own:
                moved += queue.send(frames[first : first + BATCH_CLIENT])
                moved += queue.receive(answers, slots)
            first = (first + BATCH_CLIENT) % self.flows
            if not moved:
                os.sched_yield()

    @property
    def taken(self) -> int:
        """How many packets workers have taken."""
        return int(self.queues.records["rx"]["cursor"].sum())

    def rate(self, on: bool, seconds: float) -> float:
        """Return the packets taken in a second, with statistics or without."""
        self.queues.measure(on)
        time.sleep(seconds / 20)
        began, before = time.perf_counter(), self.taken
        time.sleep(seconds)
        while self.taken == before and time.perf_counter() - began < PATIENCE_S:
            os.sched_yield()
        return (self.taken - before) / (time.perf_counter() - began)

    def pairs(self, count: int, seconds: float) -> list[tuple[float, float]]:
        """Return the rates of pairs, with statistics and without.

        Raises:
            CheckFailed: a process failed.
        """
        jobs: list[Callable[[], None]] = [
            *(partial(self.worker, number) for number in range(WORKERS)),
            *(partial(self.client, index) for index in range(WORKERS)),
        ]
        found: list[tuple[float, float]] = []

        def look() -> None:
            if made.deaths or len(found) == count:
                self.over[0] = 1
            elif self.taken:
                with_first = len(found) % 2 == 0
                one, other = self.rate(with_first, seconds), self.rate(not with_first, seconds)
                found.append((one, other) if with_first else (other, one))

        made = crew.Crew(len(jobs), lambda number: jobs[number]())
        made.run(look)
        if made.deaths:
            raise CheckFailed("; ".join(map(str, made.deaths)))
        return found


def interval(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return the mean ratio of pairs, and where it lies with 95 %."""
    logs = [math.log(one / other) for one, other in pairs]
    mean = statistics.fmean(logs)
    reach = Z_95 * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    low, high = (math.exp(mean - reach), math.exp(mean + reach)) if reach < math.inf else (0.0, math.inf)
    return {"ratio": math.exp(mean), "low": low, "high": high}


def conduct(count: int, flows: int, size: int, seconds: float, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield a row for each set of rules.

    Args:
        count: pairs of each.
        flows: of each client.
        size: of a frame on the wire, in bytes.
        seconds: of each half of a pair.
        say: told what is under way.
    """
    for rules in RULES:
        say(f"{rules}: {count} pairs of {2 * seconds:g} s")
        with contextlib.ExitStack() as house:
            pairs = Bench(rules, flows, size, house).pairs(count, seconds)
        on, off = (statistics.fmean(half) for half in zip(*pairs, strict=True))
        row = {"rules": rules, "pairs": len(pairs), "on_per_second": on, "off_per_second": off}
        yield row | interval(pairs)
