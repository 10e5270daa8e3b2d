"""One trial of the same connections in one zone and in many: what making, sweeping and flushing them costs.

All of it is done by one participant, on a new table for each layout:

    create   a SYN of each connection; making the frames is taken off
    sweep    a pass over all records, where nothing is due
    flush    what it takes until a zone is empty to whoever looks: one that was empty, and one that has them all

Then, with all of them in one zone again, a worker on the first core sends bursts to another zone, while a second process on
the last core flushes the full one, and as many while that one sleeps, in pairs; each burst is timed.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..kernels import flush, sweep
from ..kernels.words import ZERO, u64
from ..service import crew
from ..shm import segment
from ..shm.layout import BLOCK_RECORDS, QUOTA, Region, Slab
from ..shm.sizing import Geometry
from ..shm.views import Table
from .driver import BUDGET_PACKETS, CheckFailed, Driver, now_ms, streams
from .scenarios import Plan, Run
from .sender import Sender
from .traffic import SAMPLE_STRIDE, Packet, drive
from .trial import Meet, aim, together
from .trials import Tick, Trial

BACKGROUND_CONNECTIONS = 1 << 16
"""Connections of the zone that bursts go to."""
BACKGROUND = 1 << 40
"""First of their numbers."""
EMPTY_ZONE, FIRST_ZONE = 1, 2
"""One that never has anything, and the first of those that are loaded; bursts go to zone 0."""
SWEEPS = 9
EMPTY_FLUSHES = 101
SLICE_RECORDS = u64(4_096)
BURSTS_MAX = 1 << 22
"""Bursts that are timed with a flush and without, each."""
PERCENTILE = 99.9


@dataclass(frozen=True)
class ZonesPlan(Plan):
    """What was asked for."""

    zones: int = 10_000
    pairs: int = 60


TIMES = np.dtype([("count", "u8", (2,)), ("ns", "u4", (2, BURSTS_MAX))])
"""Bursts without and with a flush beside them, and the time of each."""
PHASE = np.dtype([("flushing", "u8"), ("sending", "u8")])
"""What the two processes tell each other."""


def background_of(plan: ZonesPlan) -> int:
    """Return how many connections the zone has that bursts go to."""
    return min(plan.connections, BACKGROUND_CONNECTIONS)


def geometry(plan: ZonesPlan, zones: int) -> Geometry:
    """Return the sizes of a table.

    Raises:
        ValueError: there is no such table.
    """
    return Geometry(plan.connections + background_of(plan) + 8 * BLOCK_RECORDS, zones + FIRST_ZONE, 0)


def counts(table: Table) -> np.ndarray:
    """Return how many connections each zone has, as limits count them."""
    return table.array(Region.CONTROL, "quotas", QUOTA)["count"]


# ---------------------------------------------------------------------------------------------------- one participant
class Maker:
    """Who makes the connections of a table, sweeps and flushes them."""

    def __init__(self, plan: ZonesPlan, table: Table, zones: int, stream: np.record | None = None) -> None:
        """Join the table.

        Args:
            plan: what was asked for.
            table: with nothing in the zones that are to be loaded.
            zones: how many these are.
            stream: as of Driver.
        """
        self.plan, self.table, self.zones = plan, table, zones
        self.driver = Driver(table, plan.seed, plan.burst, stream)
        for sender in (self.driver.sender, self.driver.looker):
            sender.set(zones=zones, zone_first=FIRST_ZONE)
        self.run = Run((Packet.SYN, Packet.SYN), 0, plan.connections, plan.connections)

    @property
    def numbers(self) -> np.ndarray:
        """One in 1,000 of the connections."""
        return np.arange(0, self.plan.connections, SAMPLE_STRIDE, dtype=np.uint64)

    def create(self) -> float:
        """Make all connections, and look some up; returns nanoseconds for each, without what their frames cost."""
        begun = time.perf_counter_ns()
        aim(self.driver.sender, self.run)
        self.driver.run()
        elapsed = time.perf_counter_ns() - begun
        if complaint := self.driver.sender.complaint():
            raise CheckFailed(complaint)
        counted = counts(self.table)[FIRST_ZONE:]
        expect("connections that were made", int(counted.sum()), self.plan.connections)
        expect("zones that have some", int(np.count_nonzero(counted)), min(self.zones, self.plan.connections))
        self.driver.look_up_just_before_expiry(self.numbers, Packet.SYN)
        return (elapsed - self._generator_ns()) / self.plan.connections

    def _generator_ns(self) -> int:
        ghost = Sender(self.plan.seed, self.plan.burst)
        ghost.set(alone=1, budget=BUDGET_PACKETS, zones=self.zones, zone_first=FIRST_ZONE)
        aim(ghost, self.run)
        begun = time.perf_counter_ns()
        while not ghost.done:
            drive(self.driver.views, ghost.stream, ZERO)
        return time.perf_counter_ns() - begun

    def sweep(self) -> float:
        """Sweep all records, in which nothing is due; returns nanoseconds for each connection."""
        slots, now, times = u64(self.table.geometry.records(Slab.ENTRIES)), u64(now_ms()), []
        for _ in range(SWEEPS):
            begun = time.perf_counter_ns()
            freed = sweep.sweep(self.driver.views, now, slots)
            times.append(time.perf_counter_ns() - begun)
            expect("connections that had expired", int(freed), 0)
        return statistics.median(times) / self.plan.connections

    def flush_empty(self) -> float:
        """Flush a zone that is empty; returns microseconds."""
        times = []
        for _ in range(EMPTY_FLUSHES):
            begun = time.perf_counter_ns()
            word = flush.detach(self.driver.views, u64(EMPTY_ZONE))
            times.append(time.perf_counter_ns() - begun)
            expect("the word of a zone that is empty", int(word), 0)
        return statistics.median(times) / 1_000

    def flush(self) -> tuple[float, float]:
        """Flush all zones that are loaded.

        Returns:
            Microseconds until all were empty to see, of one zone; milliseconds until all of it was home.
        """
        detached, begun = 0, time.perf_counter_ns()
        for zone in range(FIRST_ZONE, FIRST_ZONE + min(self.zones, self.plan.connections)):
            first = time.perf_counter_ns()
            word = u64(flush.detach(self.driver.views, u64(zone)))
            detached += time.perf_counter_ns() - first
            self._bring_home(zone, word)
        home = time.perf_counter_ns() - begun
        return detached / 1_000 / min(self.zones, self.plan.connections), home / 1_000_000

    def check_empty(self) -> None:
        """Look up again what was flushed."""
        expect("connections that are left", int(counts(self.table)[FIRST_ZONE:].sum()), 0)
        for part in np.array_split(self.numbers, -(-len(self.numbers) // 256)):
            self.driver.look_up(part, Packet.PROBE, now_ms())

    def _bring_home(self, zone: int, word: np.uint64) -> None:
        if word in (ZERO, flush.DONE):
            raise CheckFailed(f"zone {zone} could not be flushed")
        cursor = ZERO
        while cursor != flush.DONE:
            cursor = u64(flush.reclaim(self.driver.views, u64(zone), word, cursor, SLICE_RECORDS))


def expect(what: str, found: int, expected: int) -> None:
    """Hold a number against what it must be.

    Raises:
        CheckFailed: it is another.
    """
    if found != expected:
        raise CheckFailed(f"{what}: {found}, expected {expected}")


def layout(plan: ZonesPlan, zones: int, stream: np.record) -> dict[str, float]:
    """Return what the connections cost in so many zones."""
    maker = Maker(plan, segment.anonymous(geometry(plan, zones)), zones, stream)
    found = {"create_ns": maker.create(), "sweep_ns_per_entry": maker.sweep(), "flush_us_empty": maker.flush_empty()}
    found["flush_us_full"], found["home_ms"] = maker.flush()
    maker.check_empty()
    maker.driver.leave()
    return found


# ---------------------------------------------------------------------------------------------------- beside a flush
def pin(last: bool) -> None:
    """Stay on the first or the last of the cores that this process may use."""
    own = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {own[-1 if last else 0]})


def flush_again(plan: ZonesPlan, table: Table, phase: np.recarray, stream: np.record, meet: Meet) -> None:
    """Be the one who flushes: make the connections, meet, flush beside a burst that has begun; in each pair the other one
    works once more alone."""
    pin(last=True)
    maker = Maker(plan, table, 1, stream)
    for pair in range(plan.pairs):
        maker.create()
        for flushes in order(pair):
            phase["sending"] = 0
            meet()
            if flushes:
                while not phase["sending"][0]:
                    os.sched_yield()
                maker.flush()
                phase["flushing"] = 0
                maker.check_empty()
            meet()
    maker.driver.leave()


def order(pair: int) -> tuple[bool, bool]:
    """Return whether the first and the second part of a pair have a flush; in the first pair, the first."""
    return (False, True) if pair % 2 else (True, False)


def send_bursts(plan: ZonesPlan, table: Table, phase: np.recarray, times: np.ndarray, meet: Meet) -> None:
    """Be the worker: time bursts beside each flush, and about as many while nothing else is done."""
    pin(last=False)
    driver = Driver(table, plan.seed, plan.burst)
    count = background_of(plan)
    for packets in ((Packet.SYN, Packet.ACK), (Packet.DATA, Packet.ANSWER_ACK)):
        aim(driver.sender, Run(packets, BACKGROUND, count, count))
        driver.run()
    aim(driver.sender, Run((Packet.EITHER, Packet.EITHER), BACKGROUND, count, 1 << 62, random=plan.seed | 1))
    driver.sender.set(budget=plan.burst)
    gc.freeze()
    gc.disable()
    share = BURSTS_MAX // plan.pairs
    bursts = 0
    for pair in range(plan.pairs):
        for flushes in order(pair):
            if flushes:
                phase["flushing"] = 1
            meet()
            bursts = _bursts(driver, times[0], flushes, phase, share, bursts)
            meet()
    if complaint := driver.sender.complaint():
        raise CheckFailed(complaint)
    driver.leave()


def _bursts(driver: Driver, times: np.void, flushes: bool, phase: np.recarray, most: int, as_many: int) -> int:
    """Send bursts as long as the flush goes on, or as many as in the last one; returns how many."""
    clock, views, stream, moment = time.perf_counter_ns, driver.views, driver.sender.stream, u64(now_ms())
    room, done = times["ns"][int(flushes)], int(times["count"][int(flushes)])
    most = min(most, len(room) - done)
    sent = 0
    while sent < most and (not sent or phase["flushing"][0] if flushes else sent < as_many):
        phase["sending"] = 1
        begun = clock()
        drive(views, stream, moment)
        room[done + sent] = min(clock() - begun, 0xFFFFFFFF)
        sent += 1
    phase["sending"] = 1  # or there is no room for more
    times["count"][int(flushes)] = done + sent
    return sent if flushes else as_many


def beside(plan: ZonesPlan, watched: np.recarray, tick: Tick) -> dict[str, float]:
    """Return what a burst took beside a flush, and without one."""
    table = segment.anonymous(geometry(plan, 1))
    phase, times = crew.shared(PHASE, 1).view(np.recarray), crew.shared(TIMES, 1)
    jobs = (
        partial(send_bursts, plan, table, phase, times),
        partial(flush_again, plan, table, phase, watched[0]),
    )
    together(2, lambda index, meet: jobs[index](meet), lambda: tick(int(watched["packets"].sum())))
    found = {}
    for name, row in (("idle", 0), ("during_flush", 1)):
        taken = times[0]["ns"][row][: int(times[0]["count"][row])]
        found[f"burst_us_p999_{name}"] = float(np.percentile(taken, PERCENTILE)) / 1_000
        found[f"bursts_{name}"] = len(taken)
    return found


def conduct(plan: ZonesPlan, tick: Tick) -> dict[str, float]:
    """Carry out one trial; see ``trials.Trial``.

    Returns:
        The figures, by name; those of many zones end in ``_many``.
    """
    watched = streams(1)
    begun = time.monotonic()
    found = layout(plan, 1, watched[0])
    tick(int(watched["packets"].sum()))
    many = layout(plan, plan.zones, watched[0])
    tick(int(watched["packets"].sum()))
    found |= {f"{name}_many": value for name, value in many.items()}
    found["sweep_ratio"] = found["sweep_ns_per_entry_many"] / found["sweep_ns_per_entry"]
    found |= beside(plan, watched, tick)
    found["burst_ratio"] = found["burst_us_p999_during_flush"] / found["burst_us_p999_idle"]
    return {"elapsed_s": time.monotonic() - begun} | found


TRIAL = Trial(
    ZonesPlan, lambda plan: (2 + plan.pairs) * plan.connections, lambda plan: geometry(plan, plan.zones), conduct
)
"""Packets of bursts depend on how long a flush takes."""
