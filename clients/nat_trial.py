"""One trial of a scenario of translated traffic: a table, workers that send, a check of what they did, and the figures.

Workers go through the phases together: none begins one before all have ended the last.  A figure per packet is reckoned as
in clients/trial: the time that passed, times the cores that worked, less what making the frames cost, which is measured
before and after each phase.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from ..kernels import expecting
from ..kernels.words import ZERO, u64
from ..service import crew
from ..shm import segment
from ..shm.layout import (
    BLOCK_RECORDS,
    BURST_PACKETS_MAX,
    DELETE_LIST_MAX,
    ENTRY,
    ENTRY_BYTES,
    EXPECTATION,
    EXPECTATIONS_MAX,
    EXTENSION_BYTES,
    GLOBAL,
    QUOTA,
    Life,
    Region,
)
from ..shm.sizing import Geometry
from ..shm.views import Table
from . import floor, nat_full
from .driver import BUDGET_PACKETS, CheckFailed, Driver, now_ms
from .nat_scenarios import NatCommits, NatScenario, Phase
from .scenarios import Plan, draws, index_bytes
from .traffic import SAMPLE_STRIDE
from .trial import ALONE_PACKETS, Meet, cores, measure_floor, together
from .trips import TUPLE, Traveller, travel

RESULT = np.dtype(
    [(name, "u8") for name in ("begun_ns", "ended_ns", "packets", "alone_ns", "alone_packets", "exhausted", "retries")]
)
"""What a worker did in a phase; ``alone`` is the generator by itself, in time of its process."""
ELSEWHERE = 100
"""First of the zones that expectations are spread over, of so many."""


def geometry(scenario: NatScenario) -> Geometry:
    """Return the sizes of the table for a scenario.

    Raises:
        ValueError: no table has so many connections.
    """
    spare = 4 * BLOCK_RECORDS * (scenario.plan.threads + 1)
    records = scenario.held + spare
    share = math.ceil(1000 * (scenario.translated + spare) / records)
    return Geometry(records, len(scenario.zone_counts) + 1, min(1000, share))


def new_table(scenario: NatScenario) -> Table:
    """Make a table for a scenario, with a limit just above what it needs."""
    table = segment.anonymous(geometry(scenario))
    spare = (scenario.plan.threads + 1) * (DELETE_LIST_MAX + BURST_PACKETS_MAX)
    table.array(Region.CONTROL, "globals", GLOBAL)["limit"] = scenario.held + spare
    return table


def foretell(driver: Driver, count: int) -> None:
    """Have some connection foretell others, in zones that no packet of a trial meets."""
    entries = driver.table.array(Region.ENTRIES, "entries", ENTRY)
    record = int(np.flatnonzero(entries["life"] & 0xFF == Life.LIVE)[0])
    made = np.zeros(1, EXPECTATION)
    made["parent"] = int(entries["life"][record]) >> 32 << 32 | record
    made["expiry_ms"] = now_ms() + (1 << 32)
    for i in range(count):
        zone, port = ELSEWHERE + i % ELSEWHERE, 1 + i // ELSEWHERE
        made["destination"][0] = 0, i
        made["last"] = port << 32 | zone << 16 | 6 << 8 | 4
        if expecting.add(driver.views, u64(made.ctypes.data), u64(EXPECTATIONS_MAX), u64(now_ms())):
            raise CheckFailed(f"expectation {i} was not taken")


# ---------------------------------------------------------------------------------------------------- in a worker
def aim(traveller: Traveller, scenario: NatScenario, phase: Phase, index: int) -> None:
    """Set a traveller up for a phase."""
    random = draws(Plan(seed=scenario.plan.seed), index) if phase.packets else 0
    traveller.aim(phase.leg, phase.stages, phase.first, phase.count, phase.packets, random)


def alone(scenario: NatScenario, phase: Phase, index: int, tuples: np.ndarray, driver: Driver, result: np.void) -> None:
    """Make the first frames of a phase, track none of them, and add what that cost."""
    ghost = Traveller(scenario.plan.seed, scenario.plan.burst, tuples)
    aim(ghost, scenario, phase, index)
    ghost.set(alone=1, budget=BUDGET_PACKETS, end=min(ghost["end"], ALONE_PACKETS))
    begun = time.process_time_ns()
    while travel(driver.views, ghost.address, ZERO):
        pass
    result["alone_ns"] += time.process_time_ns() - begun
    result["alone_packets"] += ghost["packets"]


def work(scenario: NatScenario, table: Table, tuples: np.ndarray, results: np.ndarray, index: int, meet: Meet) -> None:
    """Be one of the workers of a trial."""
    plan = scenario.plan
    driver = Driver(table, plan.seed, plan.burst)
    keeping, passing = Traveller(plan.seed, plan.burst, tuples), Traveller(plan.seed, plan.burst)
    phases = scenario.phases(index)
    measured = next(phase for phase in phases if phase.name)
    for phase, result in zip(phases, results[index], strict=True):
        meet()
        if phase is measured and index == 0 and plan.expectations:
            foretell(driver, plan.expectations)
        if phase.name:
            alone(scenario, phase, index, tuples, driver, result)
        meet()
        traveller = keeping if phase.keeps else passing
        aim(traveller, scenario, phase, index)
        traveller.set(budget=BUDGET_PACKETS, packets=0, exhausted=0, retries=0)
        result["begun_ns"] = time.monotonic_ns()
        while travel(driver.views, traveller.address, u64(now_ms())):
            result["packets"] = traveller["packets"]
        result["ended_ns"] = time.monotonic_ns()
        for name in ("packets", "exhausted", "retries"):
            result[name] = traveller[name]
        if complaint := traveller.complaint():
            raise CheckFailed(complaint)
        meet()
        if phase.name:
            alone(scenario, phase, index, tuples, driver, result)
    driver.leave()


# ---------------------------------------------------------------------------------------------------- who watches
def check(scenario: NatScenario, table: Table, tuples: np.ndarray, exhausted: int) -> int:
    """Hold the table against what was asked for, and look one in 1,000 connections up again.

    Returns:
        How many connections were looked up.

    Raises:
        CheckFailed: says what was expected and what was found.
    """
    wanted = np.array(scenario.zone_counts)
    wanted[0] -= exhausted
    found = table.array(Region.CONTROL, "quotas", QUOTA)["count"]
    total = int(table.array(Region.CONTROL, "globals", GLOBAL)["count"][0])
    live = int(np.count_nonzero(table.array(Region.ENTRIES, "entries", ENTRY)["life"] & 0xFF == Life.LIVE))
    for what, number in (("the global count", total), ("the zones' counts", int(found.sum())), ("live records", live)):
        if number != wanted.sum():
            raise CheckFailed(f"{what}: {number} connections, expected {wanted.sum()}")
    wrong = np.flatnonzero(found[: len(wanted)] != wanted)
    if len(wrong):
        raise CheckFailed(f"zone {wrong[0]}: {found[wrong[0]]} connections, expected {wanted[wrong[0]]}")
    names = int(np.unique(tuples[tuples["addresses"] != 0]).size)
    if names != len(tuples) - exhausted:
        raise CheckFailed(f"{len(tuples) - exhausted} connections have {names} tuples between them")
    return look_up_samples(scenario, table, tuples)


def look_up_samples(scenario: NatScenario, table: Table, tuples: np.ndarray) -> int:
    """Look one in 1,000 connections up again, now and just before it expires; returns how many."""
    plan = scenario.plan
    driver = Driver(table, plan.seed, plan.burst)
    traveller = Traveller(plan.seed, BURST_PACKETS_MAX, tuples)
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    leg, stages = scenario.again
    numbers = np.arange(0, plan.connections, SAMPLE_STRIDE, dtype="u8")
    numbers = numbers[tuples["addresses"][numbers] != 0]

    def look_up(part: np.ndarray, moment_ms: int) -> None:
        traveller.aim_at(part, leg, stages)
        while travel(driver.views, traveller.address, u64(moment_ms)):
            pass
        if complaint := traveller.complaint():
            raise CheckFailed(f"looked up again: {complaint}")

    for part in np.array_split(numbers, -(-len(numbers) // BURST_PACKETS_MAX) or 1):
        look_up(part, now_ms())
        expiries = entries["expiry_ms"][traveller.verdicts["record"][: len(part)]]
        for expiry in np.unique(expiries):
            look_up(part[expiries == expiry], int(expiry) - 1)
    driver.leave()
    return len(numbers)


def warm() -> None:
    """Load all kernels, in this process, so that workers are born with them."""
    driver = Driver(segment.anonymous(Geometry(1, 1, 0)), 1, 1)
    travel(driver.views, Traveller(1, 1).address, ZERO)  # nothing to send
    nat_full.warm(driver)
    driver.leave()
    floor.measure(floor.region(1), 1, floor.BURST)


def conduct(scenario: NatScenario, tick: Callable[[int], object]) -> dict[str, float]:
    """Carry out one trial.

    Args:
        scenario: with its parameters.
        tick: told every now and then how many packets have been sent.

    Returns:
        The figures, by name.

    Raises:
        ZonetrackError: something was not as it should; says what.
    """
    if isinstance(scenario, NatCommits) and scenario.plan.fill:
        return nat_full.measure(scenario, new_table(scenario), tick)
    threads, phases = scenario.plan.threads, scenario.phases(0)
    table, tuples = new_table(scenario), crew.shared(TUPLE, scenario.plan.connections)
    results = crew.shared(RESULT, threads * len(phases)).reshape(threads, len(phases))
    job = partial(work, scenario, table, tuples, results)
    together(threads, job, lambda: tick(int(results["packets"].sum())))
    exhausted = int(results["exhausted"].sum())
    looked_up = check(scenario, table, tuples, exhausted)
    size = scenario.held * ENTRY_BYTES + scenario.translated * EXTENSION_BYTES + index_bytes(table)
    del table  # the floor gets its pages
    found = figures(scenario, results) | measure_floor(size, threads)
    for prefix, figure in (("", f"ns_per_{scenario.unit}"), ("miss_", "ns_per_miss_stage")):
        if figure in found:
            found[f"{prefix}ratio_to_floor"] = found[figure] / found["floor_ns_2"]
    return found | {"exhausted": exhausted, "floor_bytes": size, "looked_up": looked_up}


def figures(scenario: NatScenario, results: np.ndarray) -> dict[str, float]:
    """Return what is reckoned from what the workers did."""
    busy_cores = cores(scenario.plan.threads)
    elapsed, per_packet, generators = {}, {}, {}
    for column, phase in enumerate(scenario.phases(0)):
        if not phase.name:
            continue
        rows = results[:, column]
        elapsed[phase.name] = int(rows["ended_ns"].max() - rows["begun_ns"].min())
        generators[phase.name] = float(rows["alone_ns"].sum() / max(1, rows["alone_packets"].sum()))
        packets = max(1, int(rows["packets"].sum()))
        per_packet[phase.name] = elapsed[phase.name] * busy_cores / packets - generators[phase.name]
    found = {
        "elapsed_s": sum(elapsed.values()) / 1e9,
        "generator_ns": generators[scenario.unit],
        "packets": int(results["packets"].sum()),
        "retries": int(results["retries"].sum()),
    }
    column = next(i for i, phase in enumerate(scenario.phases(0)) if phase.name == scenario.unit)
    units = int(results[:, column]["packets"].sum())
    found[f"{scenario.unit}s_per_second"] = units / elapsed[scenario.unit] * 1e9
    if scenario.unit == "connection":
        found |= {"connections": units, "ns_per_reply": per_packet["reply"]}
    found[f"ns_per_{scenario.unit}"] = per_packet[scenario.unit]
    return found | scenario.figures(lambda name: per_packet[name])
