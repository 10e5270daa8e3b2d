"""One trial of a scenario: a table, workers that load it, a check of what they did, and the figures.

A figure per unit is what one core spent on it: the time that passed, times the cores that worked, less what making the
frames cost.  That is measured in the same trial, half before and half after, by running the generator alone.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import islice
from multiprocessing import get_context

import numpy as np

from ..kernels.words import ZERO
from ..service import crew
from ..shm import mapping, segment
from ..shm.layout import BLOCK_RECORDS, ENTRY, GLOBAL, POLICY, QUOTA, ZONE, Life, Region, Setting
from ..shm.sizing import Geometry
from ..shm.views import Table
from . import floor
from .driver import BUDGET_PACKETS, SWEEP_SLOTS, CheckFailed, Driver, Tally, now_ms, streams
from .errors import ZonetrackError
from .scenarios import Plan, Run, Scan, Scenario
from .sender import Sender
from .series import Series
from .traffic import SAMPLE_STRIDE, drive

ALONE_PACKETS = 1 << 19
"""Frames that each worker makes, before and again after, to measure the generator: 5 ms."""
ALONE_RUNS = 64
"""The runs that they are taken from at most."""
EARLY_MS = 200
"""A sampled connection is looked up again in the last so many milliseconds of its life, or the last quarter of it."""


def cores(threads: int) -> int:
    """Return how many cores so many workers can keep busy."""
    return min(threads, len(os.sched_getaffinity(0)))


RESULT = np.dtype(
    [
        (name, "u8")
        for name in (
            *("begun_ns", "ended_ns", "packets", "units", "retries", "errors", "alone_ns", "alone_packets"),
            *("waits", "waited_ns", "cleaned", "peak_connections", "looked_up"),
        )
    ]
)
"""What a worker did while the clock ran; ``alone`` is the generator by itself, in time of its process."""

Meet = Callable[[], object]
"""Waits until all workers of a trial have called it."""


def together(count: int, job: Callable[[int, Meet], object], tick: Callable[[], object]) -> None:
    """Do a job in ``count`` processes, which may meet; the first that fails ends them all.

    Raises:
        ZonetrackError: one of them failed or died; it has said why.
    """
    barrier = get_context("fork").Barrier(count)

    def live(index: int) -> None:
        job(index, barrier.wait)

    workers = crew.Crew(count, live)

    def look() -> None:
        for death in workers.deaths:
            raise ZonetrackError(str(death))
        tick()

    workers.run(look)


def geometry(scenario: Scenario) -> Geometry:
    """Return the sizes of the table for a scenario: what is held, and what workers have on their free lists.

    Raises:
        ValueError: no table has so many connections.
    """
    spare = 4 * BLOCK_RECORDS * (scenario.plan.threads + 1)
    return Geometry(scenario.held + spare, scenario.plan.zones, 0)


def new_table(scenario: Scenario) -> Table:
    """Make a table for a scenario, with its limit and its timeouts; who is at the limit waits, and drives out nobody."""
    plan = scenario.plan
    table = segment.anonymous(geometry(scenario))
    table.array(Region.CONTROL, "zones", ZONE)["settings"] &= np.uint16(0xFFFF & ~Setting.EARLY_DROP)
    table.array(Region.CONTROL, "globals", GLOBAL)["limit"] = scenario.limit
    if plan.timeout_ms is not None:
        table.array(Region.CONTROL, "policies", POLICY)["timeout_ms"][0] = plan.timeout_ms
    return table


def aim(sender: Sender, run: Run) -> None:
    """Set a sender up for a run."""
    first, last = run.packets
    sender.set(first=run.first, count=run.count, end=run.end, random=run.random, iteration=run.iteration)
    sender.commits(run.commits)
    sender.send(first, last, run.sent_bytes, run.rounds)


# ---------------------------------------------------------------------------------------------------- in a worker
def hired(scenario: Scenario, table: Table, index: int, stream: np.record) -> Driver:
    """Return the driver of a worker that tracks its packets itself."""
    return Driver(table, scenario.plan.seed, scenario.plan.burst, stream)


def work(
    scenario: Scenario,
    table: Table,
    watched: np.recarray,
    results: np.ndarray,
    index: int,
    meet: Meet,
    hire: Callable[[Scenario, Table, int, np.record], Driver] = hired,
) -> None:
    """Be one of the workers of a trial."""
    plan, result = scenario.plan, results[index]
    driver = hire(scenario, table, index, watched[index])
    for sender in (driver.sender, driver.looker):
        sender.set(zones=plan.zones, zone_offset=scenario.zone_offset(index))
    for run in scenario.prepare(index):
        aim(driver.sender, run)
        driver.run()
    if complaint := driver.sender.complaint():
        raise CheckFailed(complaint)
    meet()
    generate_alone(scenario, index, driver, result)
    driver.tally = Tally()
    stream = driver.sender.stream
    before = {name: int(stream[name]) for name in ("packets", "retries")}
    sampler = Sampler(scenario, driver)
    meet()
    result["begun_ns"] = time.monotonic_ns()
    for run in scenario.perform(index):
        aim(driver.sender, run)
        driver.run(scenario.timeout_ms if scenario.sweeps else 0, sampler.between)
        if run.packets[1] == scenario.unit_packet:
            result["units"] += stream["finished"]
    result["ended_ns"] = time.monotonic_ns()
    result["errors"] = stream["errors"]
    for name, count in before.items():
        result[name] = int(stream[name]) - count
    if complaint := driver.sender.complaint():
        raise CheckFailed(complaint)
    sampler.finish()
    driver.leave()  # before the meeting: others may need the room in the blocks that it swept
    meet()
    generate_alone(scenario, index, driver, result)
    for name, value in asdict(driver.tally).items():
        result[name] = value


def generate_alone(scenario: Scenario, index: int, driver: Driver, result: np.void) -> None:
    """Make the frames of the first runs again, track none of them, and add what that cost."""
    ghost = Sender(scenario.plan.seed, scenario.plan.burst)
    ghost.set(alone=1, budget=BUDGET_PACKETS, zones=scenario.plan.zones, zone_offset=scenario.zone_offset(index))
    begun = time.process_time_ns()
    for run in islice(scenario.perform(index), ALONE_RUNS):
        left = ALONE_PACKETS - int(ghost.stream["packets"])
        if left <= 0:
            break
        if run.end == 0:
            continue
        aim(ghost, run._replace(end=min(run.end, -(-left * run.end // run.packets_count))))
        while not ghost.done:
            drive(driver.views, ghost.stream, ZERO)
    result["alone_ns"] += time.process_time_ns() - begun
    result["alone_packets"] += ghost.stream["packets"]


class Sampler:
    """Looks one in 1,000 connections up again just before it expires, while the workers sweep."""

    def __init__(self, scenario: Scenario, driver: Driver) -> None:
        """Take what is looked up, and by whom."""
        self.driver = driver
        self.packet = scenario.last_packet
        self.timeout_ms = scenario.timeout_ms
        self.early_ms = min(EARLY_MS, self.timeout_ms // 4)
        self.queue: deque[tuple[int, int]] = deque()  # number and expiry, the earliest first
        self.sweeps = scenario.sweeps
        driver.sender.set(sampling=int(scenario.sweeps))

    def between(self, now: int) -> None:
        """Sweep, and look up what is about to expire."""
        if not self.sweeps:
            return
        self.driver.sweep(SWEEP_SLOTS)
        for number, finished_ms in self.driver.sender.take_samples().tolist():
            self.queue.append((number, finished_ms + self.timeout_ms))
        soon = []
        while self.queue and self.queue[0][1] - self.early_ms <= now:
            soon.append(self.queue.popleft())
        self._look_up(soon, now)

    def finish(self) -> None:
        """Look up what has not expired yet, each at its last moment, which is yet to come."""
        for number, expiry_ms in self.queue:
            self._look_up([(number, expiry_ms)], expiry_ms - 1)

    def _look_up(self, samples: list[tuple[int, int]], moment_ms: int) -> None:
        """Look samples up, unless somebody may have swept them by now, and rightly."""
        samples = [(number, expiry_ms) for number, expiry_ms in samples if now_ms() < expiry_ms]
        if not samples:
            return
        try:
            self.driver.look_up(np.array([number for number, _ in samples], "u8"), self.packet, moment_ms)
        except CheckFailed:
            if now_ms() < min(expiry_ms for _, expiry_ms in samples):
                raise
            self.driver.looker.set(errors=0, waiting=0)


# ---------------------------------------------------------------------------------------------------- who watches
def check(scenario: Scenario, table: Table, results: np.ndarray) -> int:
    """Hold the table against what was asked for, and look one in 1,000 connections up again.

    Returns:
        How many connections were looked up.

    Raises:
        CheckFailed: says what was expected and what was found.
    """
    units = int(results["units"].sum())
    if units != scenario.units:
        raise CheckFailed(f"{units} {scenario.unit}s were finished, expected {scenario.units}")
    cleaned = int(results["cleaned"].sum())
    expected = int(scenario.zone_counts().sum()) - cleaned
    total = int(table.array(Region.CONTROL, "globals", GLOBAL)["count"][0])
    zones = table.array(Region.CONTROL, "quotas", QUOTA)["count"]
    live = int(np.count_nonzero(table.array(Region.ENTRIES, "entries", ENTRY)["life"] & 0xFF == Life.LIVE))
    for what, found in (("the global count", total), ("the zones' counts", int(zones.sum())), ("live records", live)):
        if found != expected:
            raise CheckFailed(f"{what}: {found} connections, expected {expected}")
    peak = int(results["peak_connections"].max())
    if peak > scenario.limit:
        raise CheckFailed(f"there were {peak} connections at once, the limit is {scenario.limit}")
    if scenario.sweeps:
        return int(results["looked_up"].sum())
    wrong = np.flatnonzero(zones[: scenario.plan.zones] != scenario.zone_counts())
    if len(wrong):
        zone = int(wrong[0])
        raise CheckFailed(f"zone {zone}: {zones[zone]} connections, expected {scenario.zone_counts()[zone]}")
    return look_up_samples(scenario, table)


def look_up_samples(scenario: Scenario, table: Table) -> int:
    """Look one in 1,000 connections up again, now and just before it expires; returns how many."""
    plan, looked_up = scenario.plan, 0
    driver = Driver(table, plan.seed, plan.burst)
    for index in range(plan.threads):
        first, count = scenario.share(index)
        numbers = np.arange(first, first + count, SAMPLE_STRIDE, dtype=np.uint64)
        driver.looker.set(zones=plan.zones, zone_offset=scenario.zone_offset(index), iteration=scenario.last_iteration)
        driver.look_up_just_before_expiry(numbers, scenario.last_packet, scenario.sent_bytes)
        looked_up += len(numbers)
    driver.leave()
    return looked_up


def measure_floor(size: int, threads: int) -> dict[str, float]:
    """Return the figures of the floor over ``size`` bytes, with as many processes at once as had cores."""
    over = floor.region(size)
    count = cores(threads)
    each = crew.shared(np.dtype((np.float64, len(floor.LINES))), count)

    def measure(index: int, meet: Meet) -> None:
        mapping.populate(over)
        meet()
        each[index] = floor.measure(over, index + 1)

    together(count, measure, lambda: None)
    return {f"floor_ns_{lines}": float(ns) for lines, ns in zip(floor.LINES, each.mean(axis=0), strict=True)}


def warm() -> None:
    """Run everything once on next to nothing, in this process, so that workers are born with compiled kernels."""
    scenario = Scan(Plan(connections=1))
    work(scenario, new_table(scenario), streams(1), np.zeros(1, RESULT), 0, lambda: None)
    floor.measure(floor.region(1), 1, floor.BURST)


def watch(table: Table, watched: np.recarray, tick: Callable[[int], object], series: Series | None) -> None:
    """Tell how many packets have been sent, and note the moment."""
    tick(int(watched["packets"].sum()))
    if series is not None:
        series.note(table, watched)


def conduct(scenario: Scenario, tick: Callable[[int], object], series: Series | None = None) -> dict[str, float]:
    """Carry out one trial.

    Args:
        scenario: with its parameters.
        tick: told every now and then how many packets have been sent.
        series: gets a moment as often.

    Returns:
        The figures, by name.

    Raises:
        ZonetrackError: something was not as it should; says what.
    """
    plan = scenario.plan
    table = new_table(scenario)
    watched = streams(plan.threads)
    results = crew.shared(RESULT, plan.threads)
    job = partial(work, scenario, table, watched, results)

    look = partial(watch, table, watched, tick, series)
    together(plan.threads, job, look)
    looked_up = check(scenario, table, results)
    size = scenario.touched_bytes(table)
    del table, job, look  # the floor gets its pages
    found = figures(scenario, results) | measure_floor(size, plan.threads)
    ratio = found[f"ns_per_{scenario.unit}"] / found[f"floor_ns_{scenario.floor_lines}"]
    return found | {"ratio_to_floor": ratio, "floor_bytes": size, "looked_up": looked_up}


def figures(scenario: Scenario, results: np.ndarray) -> dict[str, float]:
    """Return what is reckoned from what the workers did."""
    elapsed_ns = int(results["ended_ns"].max() - results["begun_ns"].min())
    packets = int(results["packets"].sum())
    generator_ns = float(results["alone_ns"].sum() / results["alone_packets"].sum())
    busy_ns = elapsed_ns * cores(scenario.plan.threads)
    found = {
        "elapsed_s": elapsed_ns / 1e9,
        f"ns_per_{scenario.unit}": (busy_ns - generator_ns * packets) / scenario.units,
        f"{scenario.unit}s_per_second": scenario.units / elapsed_ns * 1e9,
        "generator_ns": generator_ns,
        "packets": packets,
    }
    if scenario.unit == "connection":
        found["connections"] = scenario.units
        found["retries"] = int(results["retries"].sum())
        found["lookup_errors"] = int(results["errors"].sum())
    if scenario.sweeps:
        found["cleaned"] = int(results["cleaned"].sum())
        found["waits"] = int(results["waits"].sum())
        found["waited_percent"] = 100 * float(results["waited_ns"].sum()) / (elapsed_ns * scenario.plan.threads)
        found["peak_connections"] = int(results["peak_connections"].max())
    if isinstance(scenario, Scan):
        found["expiry_floor_s"] = scenario.expiry_floor_s
    return found
