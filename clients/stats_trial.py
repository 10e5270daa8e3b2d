"""What statistics cost: workers with them and without, in turn, a second each, in one run.

Two workers receive and send on the same two ports in shared memory, both ways.  Each has its queues filled and emptied by
its own process, between two calls of its loop: so nobody waits for anybody, and what is measured is the time of the
processor that those calls take.  How many packets they took is read from the rings, which know it whether anything is
counted or not.  A pair is a spell with and one without, next to each other, which of them comes first in turn; what is said
is the ratio of packets for a second of that time, the median over all pairs, and where that lies with 95 %.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..kernels import jit, poll
from ..kernels.words import ZERO, u64
from ..service import crew, rules_compile, rules_text
from ..service.rules import Names
from ..shm import port, roster, segment
from ..shm.layout import DESCRIPTOR, FRAME_SLOT_BYTES, POLL_BURST_PACKETS, Kind
from ..shm.loop import Loop
from ..shm.queues import Queues
from ..shm.rulebook import Rulebook
from ..shm.sizing import Geometry
from . import forward_traffic
from .driver import CheckFailed
from .port import Queue

PORTS, WORKERS = ("left", "right"), 2
RULES = {
    "drop": "ip actions=ct(commit)",
    "normal": "ip actions=ct(commit),NORMAL",
    "forward": "in_port=left,ip actions=ct(commit),output:right\nin_port=right,ip actions=ct(commit),output:left",
}
SLOTS = 1024 if jit.JIT else 64
"""Frames of a queue at a time: all are taken by one call of the loop, which has nothing to wait for."""
ROUNDS = u64(len(PORTS) * SLOTS // POLL_BURST_PACKETS)
PATIENCE_S = 30.0
"""That a spell lasts at most until each worker has taken a packet."""
Z_95 = 1.959964
"""Of the normal distribution: how many of the pairs lie below the median, by chance."""
SPENT = np.dtype([("ns", "u8", (2,)), ("packets", "u8", (2,))])
"""Of a worker, with statistics and without."""


class Bench:
    """Two ports, and two workers, each of which is the client of its queues."""

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
        self.spent = crew.shared(SPENT, WORKERS)

    def worker(self, number: int) -> None:
        """Be a worker, and the client of its queues, until it is over."""
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, [processors[number % len(processors)]])
        frames, _kept = forward_traffic.flows_of(self.flows, self.frame_bytes)
        frames = np.tile(frames, -(-2 * SLOTS // self.flows))
        answers, slots = np.zeros(SLOTS, DESCRIPTOR), np.zeros((SLOTS, FRAME_SLOT_BYTES), "u1")
        own = [Queue(name, number, self.instance) for name in PORTS]
        me = roster.join(self.table, Kind.WORKER)
        views = self.table.views(me)
        loop = Loop(self.queues, self.queues.deal()[number], me, self.rules, number)
        mine = self.spent[number]
        first = 0
        while not self.over[0]:
            for queue in own:
                queue.send(frames[first : first + SLOTS])
            first = (first + SLOTS) % self.flows
            state = int(self.queues.head["unmeasured"])
            loop.measure()
            began_ns = time.thread_time_ns()
            taken = int(poll.poll(views, loop.record, u64(time.monotonic_ns() // 1_000_000), ROUNDS, ZERO))
            mine["ns"][state] += time.thread_time_ns() - began_ns
            mine["packets"][state] += taken
            for queue in own:
                queue.receive(answers, slots)
        self.rules.let_go(number)
        roster.leave(self.table, me)

    def rate(self, on: bool, seconds: float) -> float:
        """Return the packets taken for a second of both workers' time, with statistics or without."""
        state = int(not on)
        before = self.spent.copy()
        self.queues.measure(on)
        until_s = time.perf_counter() + seconds
        while (left_s := until_s - time.perf_counter()) > 0 or (
            (self.spent["packets"][:, state] == before["packets"][:, state]).any() and left_s > -PATIENCE_S
        ):
            time.sleep(max(left_s, 0.001))
        after = self.spent.copy()
        packets, ns = (int((after[name] - before[name])[:, state].sum()) for name in ("packets", "ns"))
        return packets / max(1, ns) * 1e9

    def pairs(self, count: int, seconds: float) -> list[tuple[float, float]]:
        """Return the rates of pairs, with statistics and without.

        Raises:
            CheckFailed: a process failed.
        """
        found: list[tuple[float, float]] = []

        def look() -> None:
            if made.deaths or len(found) == count:
                self.over[0] = 1
            elif self.spent["packets"].any(axis=1).all():
                with_first = len(found) % 2 == 0
                one, other = self.rate(with_first, seconds), self.rate(not with_first, seconds)
                found.append((one, other) if with_first else (other, one))

        made = crew.Crew(WORKERS, self.worker)
        made.run(look)
        if made.deaths:
            raise CheckFailed("; ".join(map(str, made.deaths)))
        return found


def interval(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return the median ratio of pairs, and where it lies with 95 %: between two of them, whatever their distribution."""
    ratios = sorted(one / other for one, other in pairs)
    below = max(0, int((len(ratios) - Z_95 * math.sqrt(len(ratios))) / 2))
    return {"ratio": statistics.median(ratios), "low": ratios[below], "high": ratios[-1 - below]}


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
        on, off = (statistics.median(half) for half in zip(*pairs, strict=True))
        row = {"rules": rules, "pairs": len(pairs), "on_per_second": on, "off_per_second": off}
        yield row | interval(pairs)
