"""One trial of events: how many a second one reader is told with none lost, and how many are lost and counted beyond that.

A worker makes connections, four packets each, at one rate after the other, and at last as fast as it can; each packet
changes a connection, and is an event.  Control merges them and tells a client, which has them as arrays.  After each rate
the worker waits until all was told or counted as lost; what was told and what was lost must be what has happened.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ..service import crew
from ..shm.views import Table
from . import answered
from .driver import CheckFailed, Driver, streams
from .scenarios import Run
from .sync import connect
from .traffic import Packet
from .trial import Meet, Plan, aim, together
from .trials import Tick, Trial

RATES = (100_000, 150_000, 210_000, 250_000, 300_000, 400_000, 600_000, 0)
"""Packets a second; 0: as many as can be."""
BUDGET_PACKETS = 256
"""Between two looks at the clock."""
STEP = np.dtype([("happened", "u8"), ("told", "u8"), ("lost", "u8"), ("elapsed_ns", "u8")])


# ---------------------------------------------------------------------------------------------------- members
def make(plan: Plan, table: Table, note: np.recarray, stream: np.record, results: np.ndarray, meet: Meet) -> None:
    """Be the worker: make connections at each rate, and see that all of it is told or counted; control ends with it."""
    driver = Driver(table, plan.seed, plan.burst, stream)
    assert table.events is not None
    meet()
    try:
        answered.until("somebody reads events", lambda: note["begun"][0])
        for number, rate in enumerate(RATES):
            before, told, lost = table.events.sequence, int(note["second"][0]), int(note["third"][0])
            pace = Pace(stream, rate)
            driver.sender.set(budget=BUDGET_PACKETS)
            begun = time.perf_counter_ns()
            aim(
                driver.sender,
                Run((Packet.SYN, Packet.RST), number * plan.connections, plan.connections, plan.connections),
            )
            driver.run(between=pace.keep)
            results[number]["elapsed_ns"] = time.perf_counter_ns() - begun
            if complaint := driver.sender.complaint():
                raise CheckFailed(complaint)
            latest = table.events.sequence
            answered.until("all is told", lambda latest=latest: int(note["first"][0]) >= latest)
            results[number]["happened"] = latest - before
            results[number]["told"] = int(note["second"][0]) - told
            results[number]["lost"] = int(note["third"][0]) - lost
    finally:
        answered.end(note)
    driver.leave()


class Pace:
    """Keeps packets from going faster than a rate."""

    def __init__(self, stream: np.record, rate: int) -> None:
        self._stream, self._rate = stream, rate
        self._first, self._begun = int(stream["packets"]), time.perf_counter()

    def keep(self, _: int) -> None:
        """Wait until the next packet is due."""
        if self._rate:
            due = self._begun + (int(self._stream["packets"]) - self._first) / self._rate
            ahead = due - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)


def read(path: Path, note: np.recarray, meet: Meet) -> None:
    """Be the reader: have events as arrays, and say up to which number, and how many were lost."""
    meet()
    with answered.to_the_end(note), connect(str(path)) as ct:
        for batch in ct.event_batches():
            rows = batch.array()
            numbers = rows["sequence"]
            if len(numbers) and (numbers[0] <= note["first"][0] or (np.diff(numbers.astype("i8")) <= 0).any()):
                raise CheckFailed("events were told out of order")
            note["second"] += len(rows)
            note["third"] += batch.lost
            note["first"] = batch.sequence
            note["begun"] = 1


# ---------------------------------------------------------------------------------------------------- the trial
def conduct(plan: Plan, tick: Tick) -> dict[str, float]:
    """Carry out one trial, whose connections are those of each rate; see ``trials.Trial``."""
    answered.warm()
    table = answered.new_table(len(RATES) * plan.connections)
    watched, note = streams(1), crew.shared(answered.NOTE, 1).view(np.recarray)
    results = crew.shared(STEP, len(RATES))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "control.sock"
        jobs: tuple[Callable[[Meet], object], ...] = (
            partial(make, plan, table, note, watched[0], results),
            lambda meet: answered.answer(table, path, note, meet, {}),
            partial(read, path, note),
        )
        together(len(jobs), lambda index, meet: jobs[index](meet), lambda: tick(int(watched["packets"].sum())))
    return figures(results)


def figures(results: np.ndarray) -> dict[str, float]:
    """Return what is reckoned from the steps.

    Raises:
        CheckFailed: events were neither told nor counted as lost.
    """
    found: dict[str, float] = {"events_per_second": 0.0}
    for rate, step in zip(RATES, results, strict=True):
        happened, told, lost = (int(step[name]) for name in ("happened", "told", "lost"))
        if told + lost != happened:
            raise CheckFailed(f"at {rate or 'full'} rate: {happened} events, {told} told and {lost} lost")
        per_second = happened / int(step["elapsed_ns"]) * 1e9
        if not lost:
            found["events_per_second"] = max(found["events_per_second"], per_second)
        if not rate:
            found |= {"full_events_per_second": per_second, "full_told_percent": 100 * told / happened}
            found["full_lost"] = lost
    return found | {"events": int(results["happened"].sum())}


TRIAL = Trial(Plan, lambda plan: len(RATES) * 4 * plan.connections, answered.geometry_of, conduct)
