"""One trial of dumps: how fast a client gets a full table, as an array and as text, and what others notice of it.

    alone     on all cores: the table as a numpy array, as lines of conntrack, as lines of dpctl
    rounds    a worker sends packets of established connections on the first core; on the last are control, a client that
              asks for the count again and again, and one that does in turn: nothing, reckoning in memory of its own, a dump

The second of these three says what a busy neighbour costs a worker whatever it does: two cores share more than they seem to.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..kernels import jit
from ..service import crew
from ..shm.views import Table
from . import answered
from .connection_commands import WRITERS
from .driver import CheckFailed, Driver, streams
from .scenarios import Run, draws
from .sync import Client, connect
from .traffic import Packet
from .trial import Meet, Plan, aim, together
from .trials import Tick, Trial

TEXTS = ("conntrack", "ovs")
TURNS = ("idle", "busy", "dump")
PAUSE_S = 0.002
"""Between two counts."""
COUNTS_MAX = 1 << 20
BUDGET_PACKETS = 4_096 if jit.JIT else 64
"""Of the worker, after which it says how many there were: less than a millisecond."""
COUNTS = np.dtype([("count", "u8"), ("ns", "u8", (COUNTS_MAX,))])
"""What asking for the count took, while dumps were made."""


@dataclass(frozen=True)
class DumpPlan(Plan):
    """What was asked for."""

    rounds: int = 10


def turns(number: int, names: tuple[str, ...] = TURNS) -> tuple[str, ...]:
    """Return the order of a round: each of them is first, second and last as often."""
    first = number % len(names)
    return names[first:] + names[:first]


# ---------------------------------------------------------------------------------------------------- members
def send(plan: Plan, table: Table, note: np.recarray, stream: np.record, meet: Meet) -> None:
    """Be the worker: make the connections, then send packets of them from the first round to the end."""
    driver = Driver(table, plan.seed, plan.burst, stream)
    answered.fill(driver, plan.connections)
    meet()
    while not (note["begun"][0] or note["over"][0]):
        time.sleep(answered.PAUSE_S)
    answered.stay_on(min(os.sched_getaffinity(0)))
    driver.sender.set(budget=BUDGET_PACKETS)
    draw = draws(plan, 0)
    while not note["over"][0]:
        aim(driver.sender, Run((Packet.EITHER, Packet.EITHER), 0, plan.connections, BUDGET_PACKETS, random=draw))
        driver.run()
        draw = int(stream["random"])
    if complaint := driver.sender.complaint():
        raise CheckFailed(complaint)
    driver.leave()


def count(path: Path, note: np.recarray, counts: np.ndarray, meet: Meet) -> None:
    """Be the client that asks for the count, and note how long that takes while a dump is made."""
    meet()
    answered.stay_on(max(os.sched_getaffinity(0)))
    room = counts[0]
    with answered.to_the_end(note), connect(str(path)) as ct:
        while not note["over"][0]:
            during = int(note["first"][0])
            begun = time.perf_counter_ns()
            ct.count()
            taken = time.perf_counter_ns() - begun
            if during and int(room["count"]) < COUNTS_MAX:
                room["ns"][int(room["count"])] = taken
                room["count"] += 1
            time.sleep(PAUSE_S)


def dump(
    plan: DumpPlan,
    path: Path,
    note: np.recarray,
    stream: np.record,
    counts: np.ndarray,
    results: np.ndarray,
    meet: Meet,
) -> None:
    """Be the client that dumps: alone, then in rounds; control ends with it."""
    meet()
    result = results[0]
    try:
        with connect(str(path), timeout_s=None) as ct:
            result["dump_ns"] = _dump(ct, plan.connections)
            for form in TEXTS:
                result[f"{form}_ns"] = _write(ct, form, plan.connections)
            last = max(os.sched_getaffinity(0))
            answered.stay_on(last, (os.getpid(), int(note["control"][0])))
            note["begun"] = 1
            before = int(stream["packets"])
            answered.until("the worker sends", lambda: int(stream["packets"]) > before)
            for number in range(plan.rounds):
                _round(ct, plan, number, note, stream, counts, result)
    finally:
        answered.end(note)


def _round(
    ct: Client,
    plan: DumpPlan,
    number: int,
    note: np.recarray,
    stream: np.record,
    counts: np.ndarray,
    result: np.void,
) -> None:
    """Note the worker's rate in each turn of a round; turns without a dump take as long as the last dump did."""
    length_ns = int(result["beside_ns"][number - 1]) if number else int(result["dump_ns"])
    for turn in turns(number):
        packets, begun = int(stream["packets"]), time.perf_counter_ns()
        if turn == "dump":
            counted = int(counts[0]["count"])
            note["first"] = 1
            result["beside_ns"][number] = _dump(ct, plan.connections)
            while int(counts[0]["count"]) == counted < COUNTS_MAX:  # of a small table, before anything was counted
                _dump(ct, plan.connections)
            note["first"] = 0
        elif turn == "busy":
            while time.perf_counter_ns() - begun < length_ns:
                pass
        else:
            time.sleep(length_ns / 1e9)
        elapsed_ns = time.perf_counter_ns() - begun
        result["rates"][number][TURNS.index(turn)] = (int(stream["packets"]) - packets) / elapsed_ns * 1e9


def _dump(ct: Client, connections: int) -> int:
    """Return the nanoseconds that a dump into an array takes."""
    begun = time.perf_counter_ns()
    rows = ct.dump()
    taken = time.perf_counter_ns() - begun
    if len(rows) != connections:
        raise CheckFailed(f"a dump has {len(rows)} connections, expected {connections}")
    return taken


def _write(ct: Client, form: str, connections: int) -> int:
    """Return the nanoseconds until the whole table is written as text, as `zonetrack list` does it."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        begun = time.perf_counter_ns()
        lines = WRITERS[form](ct.pages())
        taken = time.perf_counter_ns() - begun
    if lines != connections:
        raise CheckFailed(f"{form}: {lines} lines, expected {connections}")
    return taken


# ---------------------------------------------------------------------------------------------------- the trial
def conduct(plan: DumpPlan, tick: Tick) -> dict[str, float]:
    """Carry out one trial; see ``trials.Trial``."""
    answered.warm()
    table = answered.new_table(plan.connections)
    watched, note = streams(1), crew.shared(answered.NOTE, 1).view(np.recarray)
    result = np.dtype(
        [
            *((f"{name}_ns", "u8") for name in ("dump", *TEXTS)),
            ("beside_ns", "u8", (plan.rounds,)),
            ("rates", "f8", (plan.rounds, len(TURNS))),
        ]
    )
    results, counts = crew.shared(result, 1), crew.shared(COUNTS, 1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "control.sock"
        jobs: tuple[Callable[[Meet], object], ...] = (
            partial(send, plan, table, note, watched[0]),
            lambda meet: answered.answer(table, path, note, meet, {}),
            partial(count, path, note, counts),
            partial(dump, plan, path, note, watched[0], counts, results),
        )
        together(len(jobs), lambda index, meet: jobs[index](meet), lambda: tick(int(watched["packets"].sum())))
    return figures(plan, results[0], counts[0])


def figures(plan: DumpPlan, result: np.void, counts: np.void) -> dict[str, float]:
    """Return what is reckoned from what the members noted."""
    found: dict[str, float] = {"dump_s": int(result["dump_ns"]) / 1e9}
    for form in TEXTS:
        found[f"{form}_lines_per_second"] = plan.connections / int(result[f"{form}_ns"]) * 1e9
    found["dump_beside_s"] = float(np.median(result["beside_ns"])) / 1e9
    taken = counts["ns"][: int(counts["count"])]
    if not len(taken):
        raise CheckFailed("a dump was over before anything was counted")
    for percent in (50, 99):
        found[f"count_ms_p{percent}"] = float(np.percentile(taken, percent)) / 1e6
    found["counts"] = len(taken)
    rates = {turn: result["rates"][:, i] for i, turn in enumerate(TURNS)}
    found["packets_per_second"] = float(np.median(rates["idle"]))
    for turn in TURNS[1:]:
        falls = [100 * (1 - one / idle) if idle else 0.0 for one, idle in zip(rates[turn], rates["idle"], strict=True)]
        found[f"packet_rate_fall_percent_{turn}"] = statistics.median(falls)
    return found


TRIAL = Trial(DumpPlan, answered.packets_count, answered.geometry_of, conduct)
"""Packets beside dumps depend on how long these take."""
