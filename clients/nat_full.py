"""A range of ports of which nearly all are taken: what a commit takes there, and what of that is the machine's.

Commits are made one by one, each of which is deleted before the next, so that the range stays as full as it is.  The moments
are read where the packets are tracked, for a call from Python takes longer than what is measured.  As many stretches of the
same length, in which frames are written and nothing else, tell how long the machine itself keeps one waiting: a tick of a
virtual machine takes longer than a commit.  So all commits are made three times over, and the least that each took is told
beside what all of them took.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..kernels import delete_list, memory, moments
from ..kernels.jit import kernel
from ..kernels.words import THREE, ZERO, u64
from ..shm.layout import BURST_PACKETS_MAX, NO_RECORD, QUOTA, VERDICT, Region
from ..shm.views import Table
from .driver import BUDGET_PACKETS, CheckFailed, Driver, now_ms
from .nat_scenarios import NatCommits
from .trips import TRIP, Leg, Traveller, travel

PERCENTILES = {"p50": 50.0, "p99": 99.0, "p999": 99.9, "p9999": 99.99}
CALL_COMMITS = 256
ROUNDS = 3
"""Times that all commits are made: a tick does not meet one of them each time."""
_NO_RECORD = u64(NO_RECORD)

_trip_at, _verdict_at = memory.record_at(TRIP), memory.record_at(VERDICT)


@kernel
def commit_each(views, address, now_ms, spec, times, count):
    """Carry out commits one by one, each of which is deleted before the next.

    Args:
        views: VIEWS of a participant.
        address: of a TRIP in bursts of one, which has `count` connections to send yet.
        now_ms: u64.
        spec: address of two words, scratch.
        times: out, address of u64[count]: what each takes, in ns.
        count: u64.
    """
    trip = _trip_at(address)
    for i in range(count):
        begun = moments.now_ns(spec)
        travel(views, address, now_ms)
        memory.set_le64(times + (u64(i) << THREE), moments.now_ns(spec) - begun)
        verdict = _verdict_at(trip.verdicts)
        if u64(verdict.record) != _NO_RECORD:
            delete_list.delete(views, u64(verdict.record), ZERO, u64(verdict.incarnation))
            delete_list.run(views)


@kernel
def write_each(views, address, spec, times, count):
    """Write the same frames again and again, and note what each time takes; parameters as for ``commit_each``."""
    trip = _trip_at(address)
    for i in range(count):
        trip.next = ZERO
        begun = moments.now_ns(spec)
        travel(views, address, ZERO)
        memory.set_le64(times + (u64(i) << THREE), moments.now_ns(spec) - begun)


class Stopwatch:
    """Times that kernels note."""

    def __init__(self, count: int) -> None:
        """Have room for so many."""
        self.times, self._spec = np.zeros(count, "u8"), np.zeros(2, "u8")

    def __call__(self, first: int, count: int) -> tuple[np.uint64, np.uint64, np.uint64]:
        """Return what a kernel wants to know that notes ``count`` times, from the ``first`` on."""
        return u64(self._spec.ctypes.data), u64(self.times.ctypes.data + 8 * first), u64(count)


def percentiles(name: str, times: np.ndarray) -> dict[str, float]:
    """Return some percentiles of times in ns, in microseconds."""
    return {f"{name}_us_{end}": float(np.percentile(times, at)) / 1000 for end, at in PERCENTILES.items()}


def warm(driver: Driver) -> None:
    """Load the kernels."""
    address, spec = Traveller(1, 1).address, Stopwatch(1)(0, 0)
    commit_each(driver.views, address, ZERO, *spec)
    write_each(driver.views, address, *spec)


def _fill(scenario: NatCommits, driver: Driver, held: np.ndarray, tick: Callable[[int], object]) -> int:
    """Take the ports that are to be taken; returns the number of the next connection."""
    traveller, number = Traveller(scenario.plan.seed, BURST_PACKETS_MAX), 0
    while (left := scenario.filled - int(held[0])) > 0:
        traveller.aim(Leg.SYN, (scenario.commit,), number, min(left, BUDGET_PACKETS))
        traveller.set(budget=BUDGET_PACKETS)
        while travel(driver.views, traveller.address, u64(now_ms())):
            pass
        number += min(left, BUDGET_PACKETS)
        tick(number)
    if complaint := traveller.complaint():
        raise CheckFailed(complaint)
    return number


def _machine(scenario: NatCommits, driver: Driver, length_ns: float) -> np.ndarray:
    """Return the times of as many stretches as there are connections, about so long, in which nothing shared is touched."""
    watch, ghost = Stopwatch(scenario.plan.connections), Traveller(scenario.plan.seed, 1)

    def write(frames: int, first: int, count: int) -> None:
        ghost.aim(Leg.SYN, (scenario.commit,), 0, frames)
        ghost.set(alone=1, budget=frames)
        write_each(driver.views, ghost.address, *watch(first, count))

    write(CALL_COMMITS, 0, 1)
    write(CALL_COMMITS, 0, 1)
    frames = max(1, round(CALL_COMMITS * length_ns / max(1, int(watch.times[0]))))
    for first in range(0, len(watch.times), CALL_COMMITS):
        write(frames, first, min(CALL_COMMITS, len(watch.times) - first))
    return watch.times


def measure(scenario: NatCommits, table: Table, tick: Callable[[int], object]) -> dict[str, float]:
    """Fill a part of all ports, then time commits.

    Raises:
        CheckFailed: there were other connections in the end than those that filled it.
    """
    driver = Driver(table, scenario.plan.seed, 1)
    held = table.array(Region.CONTROL, "quotas", QUOTA)["count"]
    number = _fill(scenario, driver, held, tick)
    rounds, traveller = np.zeros((ROUNDS, scenario.plan.connections), "u8"), Traveller(scenario.plan.seed, 1)
    traveller.set(budget=1)
    for times in rounds:
        watch = Stopwatch(len(times))
        traveller.aim(Leg.SYN, (scenario.commit,), number, len(times))
        traveller.set(exhausted=0)
        for first in range(0, len(times), CALL_COMMITS):
            count = min(CALL_COMMITS, len(times) - first)
            commit_each(driver.views, traveller.address, u64(now_ms()), *watch(first, count))
        times[:] = watch.times
    if complaint := traveller.complaint():
        raise CheckFailed(complaint)
    machine = _machine(scenario, driver, float(np.median(rounds)))
    driver.leave()
    if held[0] != scenario.filled:
        raise CheckFailed(f"{held[0]} connections, expected {scenario.filled}")
    return {
        **percentiles("commit", rounds),
        **percentiles("least", rounds.min(axis=0)),
        **percentiles("machine", machine),
        "elapsed_s": float(rounds.sum()) / 1e9,
        "commit_us_max": float(rounds.max()) / 1000,
        "exhausted": traveller["exhausted"],
        "ports_filled": scenario.filled,
        "ports_total": scenario.ports,
    }
