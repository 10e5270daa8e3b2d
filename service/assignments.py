"""Which worker polls which queue: as it is, what each queue costs, and how it would be dealt out best.

What a queue costs is known from those of its bursts that are measured (kernels/perf); what counts is the last minute, as in
Open vSwitch's ``pmd-rxq-show``.  A better assignment is made of single steps: from the worker that has the most to the
one that has the least, whatever brings both nearest to each other, a queue or two that change places.  Few queues move so.
"""

from __future__ import annotations

import asyncio
import collections
import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..shm.layout import MEASURED_EVERY, Part
from ..shm.queues import Queues
from . import log

WINDOW_S = 60.0
LOOK_S = 5.0
SETTLE_S, SETTLE_LOOK_S = 10.0, 0.01
STEPS_MAX = 4_096
BUSY_SHARE, IMPROVEMENT_MIN = 0.95, 25.0
"""Queues are dealt out anew by themselves where a worker is busy for so much of its time, and so many percent of the
variance go away (Open vSwitch: pmd-auto-lb-load-threshold, -improvement-threshold)."""
_log = log.logger("control")


class Move(NamedTuple):
    """A queue that another worker is to poll."""

    number: int
    before: int
    after: int


class Plan(NamedTuple):
    """A better assignment, and by how much it is better."""

    moves: list[Move]
    improvement: float
    """Percent of the variance of what workers have to do that go away."""


class Look(NamedTuple):
    """What queues and workers had done at a moment."""

    moment_ns: int
    queues: dict[str, np.ndarray]
    """By name of a field of QUEUE."""
    workers: dict[str, np.ndarray]
    """By name of a field of PERF."""


def read(text: str) -> tuple[str, int]:
    """Read the name of a queue, PORT.QUEUE.

    Raises:
        ValueError: it is none.
    """
    port, _, queue = text.rpartition(".")
    if not port or not queue.isdecimal():
        raise ValueError(f"expected a queue as PORT.QUEUE, such as lan.0, found {text!r}")
    return port, int(queue)


def variance(loads: Iterable[float]) -> float:
    """Return how unequal loads are."""
    return statistics.pvariance(list(loads))


def plan(loads: Mapping[int, float], holders: Mapping[int, int], workers: int) -> Plan:
    """Return how queues would be dealt out better.

    Args:
        loads: of each queue by number, in any unit.
        holders: the worker of each.
        workers: how many there are.
    """
    own = [{number for number, holder in holders.items() if holder == worker} for worker in range(workers)]
    sums = [sum(loads[number] for number in one) for one in own]
    before = variance(sums)
    for _ in range(STEPS_MAX):
        high, low = sums.index(max(sums)), sums.index(min(sums))
        gap = sums[high] - sums[low]
        # a queue that goes, and one that comes for it: together they are best half of the gap, and never all of it
        steps = [(loads[one], one, None) for one in sorted(own[high])]
        steps += [(loads[one] - loads[other], one, other) for one in sorted(own[high]) for other in sorted(own[low])]
        steps = [step for step in steps if 0.0 < step[0] < gap * (1 - 1e-9)]
        if not steps:
            break
        size, one, other = min(steps, key=lambda step: (abs(step[0] - gap / 2), step[2] is not None, step[1]))
        own[high].remove(one)
        own[low].add(one)
        if other is not None:
            own[low].remove(other)
            own[high].add(other)
        sums[high], sums[low] = sums[high] - size, sums[low] + size
    after = {number: worker for worker, one in enumerate(own) for number in one}
    moves = [
        Move(number, holder, after[number]) for number, holder in sorted(holders.items()) if after[number] != holder
    ]
    return Plan(moves, 100.0 * (before - variance(sums)) / before if before and moves else 0.0)


class Assignments:
    """The queues of a service, who polls them, and what they cost."""

    def __init__(self, queues: Queues, balance_interval_s: float = 0.0) -> None:
        """Begin to look.

        Args:
            queues: of the service.
            balance_interval_s: after which queues may be dealt out anew by themselves, 0: never.
        """
        self.queues, self.balance_interval_s = queues, balance_interval_s
        self.receiving = np.flatnonzero(queues.records["receives"]).tolist()
        self._looks: collections.deque[Look] = collections.deque([self._look()], int(WINDOW_S / LOOK_S) + 1)

    def _look(self) -> Look:
        return Look(
            time.monotonic_ns(),
            {name: self.queues.records[name].astype("f8") for name in ("busy_ns", "bursts", "measured", "rx_packets")},
            {name: self.queues.perf[name].astype("f8") for name in ("calls_ns", "idle_ns", "sweep_ns")},
        )

    async def watch(self) -> None:
        """Look again and again, until cancelled; deal queues out anew where that was asked for and is worth while."""
        balanced_s = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            if self.balance_interval_s and time.monotonic() - balanced_s >= self.balance_interval_s:
                balanced_s = time.monotonic()
                self.balance_if_needed()
            self._looks.append(self._look())

    # ------------------------------------------------------------------------------------------------ what is
    def _over(self) -> Look:
        """Return what was done in the last minute, or since we look: its moment is how long that was."""
        now, before = self._look(), self._looks[0]
        return Look(
            max(1, now.moment_ns - before.moment_ns),
            {name: now.queues[name] - before.queues[name] for name in now.queues},
            {name: now.workers[name] - before.workers[name] for name in now.workers},
        )

    def loads(self, done: Look | None = None) -> dict[int, float]:
        """Return the share of one worker's time that each queue took lately."""
        done = self._over() if done is None else done
        found = {}
        for number in self.receiving:
            busy_ns, bursts, measured = (done.queues[name][number] for name in ("busy_ns", "bursts", "measured"))
            found[number] = float(busy_ns * (bursts / measured if measured else MEASURED_EVERY) / done.moment_ns)
        return found

    def holders(self) -> dict[int, int]:
        """Return who polls each queue, or is to."""
        return {number: int(self.queues.records["wanted"][number]) - 1 for number in self.receiving}

    def tell(self) -> dict[str, Any]:
        """Return queues and workers with their shares, in plain values."""
        done = self._over()
        window_ns, loads, records = done.moment_ns, self.loads(done), self.queues.records
        rows = []
        for number in self.receiving:
            port = self.queues.ports[int(records["port"][number])]
            holder = int(records["holder"][number])
            rows.append(
                {
                    "port": port.name,
                    "queue": int(records["index"][number]),
                    "worker": holder - 1 if holder else None,
                    "wanted": int(records["wanted"][number]) - 1,
                    "packets_per_second": round(done.queues["rx_packets"][number] / window_ns * 1e9, 1),
                    "usage_percent": round(100.0 * loads[number], 2),
                }
            )
        workers = []
        for worker in range(self.queues.workers):
            calls_ns, idle_ns, sweep_ns = (done.workers[name][worker] for name in ("calls_ns", "idle_ns", "sweep_ns"))
            busy_ns = calls_ns - idle_ns + sweep_ns
            usage = 100.0 * busy_ns / window_ns
            own = 100.0 * sum(loads[number] for number, holder in self.holders().items() if holder == worker)
            workers.append(
                {
                    "worker": worker,
                    "usage_percent": round(usage, 2),
                    "queues_percent": round(own, 2),
                    "overhead_percent": round(max(0.0, usage - own), 2),
                }
            )
        rows.sort(key=lambda row: (row["wanted"], row["port"], row["queue"]))
        return {"seconds": round(window_ns / 1e9, 3), "queues": rows, "workers": workers}

    # ------------------------------------------------------------------------------------------------ what shall be
    def plan(self) -> Plan:
        """Return how queues would be dealt out better, by what they cost lately."""
        return plan(self.loads(), self.holders(), self.queues.workers)

    def told(self, made: Plan) -> dict[str, Any]:
        """Return a plan in plain values."""
        named = {number: self.queues.named([number])[0] for number, *_ in made.moves}
        moves = [
            {"port": named[one.number][0], "queue": named[one.number][1], "from": one.before, "to": one.after}
            for one in made.moves
        ]
        return {"moves": moves, "improvement_percent": round(made.improvement, 1)}

    def balance_if_needed(self) -> Plan | None:
        """Deal queues out anew where a worker is at its limit and another is not."""
        sums = [0.0] * self.queues.workers
        loads = self.loads()
        for number, worker in self.holders().items():
            sums[worker] += loads[number]
        if max(sums, default=0.0) < BUSY_SHARE:
            return None
        made = self.plan()
        if made.improvement < IMPROVEMENT_MIN:
            return None
        self.queues.assign({one.number: one.after for one in made.moves})
        _log.info("queues are dealt out anew", extra=log.facts(**self.told(made)))
        return made

    async def assign(self, wanted: Mapping[int, int]) -> bool:
        """Have workers poll queues, both by numbers; return whether they do, after some seconds at most."""
        self.queues.assign(wanted)
        until_s = time.monotonic() + SETTLE_S
        while not self.queues.is_settled(wanted):
            if time.monotonic() >= until_s:
                return False
            await asyncio.sleep(SETTLE_LOOK_S)
        return True


def perf(queues: Queues) -> list[dict[str, Any]]:
    """Return where each worker's time went, in plain values; of what is measured, all that it stands for."""
    told = []
    for worker, line in enumerate(queues.perf):
        bursts, packets = int(line["bursts"]), int(line["packets"])
        measured_ns = {part.name.lower(): int(line["parts_ns"][part]) for part in Part}
        busy_ns = int(line["calls_ns"]) - int(line["idle_ns"])
        told.append(
            {
                "worker": worker,
                "measured_bursts": bursts,
                "measured_packets": packets,
                "packets_per_burst": round(packets / bursts, 2) if bursts else None,
                "ns_per_packet": {
                    name: round(ns / packets, 1) if packets else None for name, ns in measured_ns.items()
                },
                "busy_ns": busy_ns,
                "idle_ns": int(line["idle_ns"]),
                "sweep_ns": int(line["sweep_ns"]),
                "latency": latency(line["latencies"]),
                "latencies": {str(1 << place): int(n) for place, n in enumerate(line["latencies"].tolist()) if n},
            }
        )
    return told


def latency(counts: np.ndarray) -> dict[str, int | None]:
    """Return the nanoseconds within which measured bursts were handed over, as powers of two: of half, of 99 %, of all."""
    total = int(counts.sum())
    reached = np.cumsum(counts)
    return {
        name: 1 << int(np.searchsorted(reached, np.ceil(share * total))) + 1 if total else None
        for name, share in (("p50_ns", 0.5), ("p99_ns", 0.99), ("max_ns", 1.0))
    }
