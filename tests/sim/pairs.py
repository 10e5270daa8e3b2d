"""Small cases enumerated whole: two workers, each pair of operations, the first killed at every access.

Each pair is gone through in two ways.  In one the second operation begins when the first worker is dead, and meets what that
one holds: there a kill before each store is a kill at every access, for what the dead had loaded is in nobody's memory, and
what it had stored has come out.  So of the kills between two stores one is gone through, and stands for all.  In the other
both run at once, the first is killed at each of its accesses, and the order of the two is decided by a seed: one of the
orders that there are; others are for ``make sim``.  A share below 1 takes every so many-th of either.  A kill that something
goes wrong with is a case, as those from seeds are: it is printed, shrunk, and run again by its text.
"""

from __future__ import annotations

import functools
import itertools
import random
import time
from datetime import UTC, datetime

import datagrams
import numpy as np
import tiny
from zonetrack.shm.layout import QUOTA, Region

from ..interleave.plays import NOW
from .rounds import ORDERS, WORKERS, Case, Round, Run
from .shrink import tell
from .worlds import WORLDS, World, stage

FIND, UPDATE, DELETE, EXPIRED, FRESH, SPLITS, REOPENS, FOLLOWS = 0, 1, 2, 3, 4, (5, 6), 7, 8
OPERATIONS = {
    "find": ("find", FIND),
    "insert": ("make", FRESH),
    "split": ("make", *SPLITS),
    "delete": ("remove", DELETE),
    "re-open": ("segments", (REOPENS, "S")),
    "expire": ("sweep",),
    "flush": ("flush",),
    "update": ("burst", (UPDATE, True)),
    "follow": ("converse", (FOLLOWS, True, "A", False, 0, 0, 100)),
    "find what expired": ("burst", (EXPIRED, True)),
    "early drop": ("crowd", (FRESH, True)),
}
FAULTS_MAX = 5
FULL = "early drop"
"""The operation whose pairs need a zone at its limit."""


@functools.cache
def crossing():
    """A table in which each of the operations has something to do: a pair of lines with one slot left, and the others."""
    return _crossing()


@functools.cache
def full_crossing():
    """The same where the zone is at its limit, so that who comes drives out another, or is refused."""
    return _crossing(limited=True)


def _crossing(limited=False):
    made = stage()
    maker = made.participants[0]
    maker.made(np.concatenate([tiny.aimed(7, prefix="0"), tiny.aimed(8, prefix="1")]), None, tiny.LATER)
    keys = np.concatenate([
        tiny.aimed(5, pair=3), tiny.aimed(2, prefix="1", skip=8), tiny.aimed(2, pair=3, protocol=datagrams.TCP),
    ])  # fmt: skip
    before = (FIND, UPDATE, DELETE, EXPIRED)
    play = World(made, keys, before=before, expired=(EXPIRED,), choices=[], aging=True, now_ms=NOW)
    play.prepare(_converse)
    if limited:
        quota = made.table.array(Region.CONTROL, "quotas", QUOTA)
        quota["limit"][0], quota["has_limit"][0] = quota["count"][0], 1
        play.stage.save()
    return play


def _converse(worker):
    """Let one connection be refused, and one be established."""
    worker.segments(*((REOPENS, *how) for how in (("S",), ("RA", True))))
    worker.converse(*((FOLLOWS, True, *how) for how in (("S",), ("SA", True), ("A",))))


WORLDS["crossing"], WORLDS["full crossing"] = crossing, full_crossing


class After(Round):
    """A round in which the second worker waits for the death, or the end, of the first."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.delay = 30
        first, second, *_ = self.actors
        live = second.life

        def life():
            while not self.dead and (first.program or first.busy):
                self.simulation.relax()
            live()

        second.life = life


ORDERS["after"] = After


def case_of(first, second, at, waits):
    """Return one kill of a pair, at a store where the second waits, else at an access."""
    world = "full crossing" if FULL in (first, second) else "crossing"
    programs = ((OPERATIONS[first],), (OPERATIONS[second],), *((),) * (WORKERS - 2))
    kills = ((-at if waits else at,), *((),) * WORKERS)
    return Case(world, at, (programs,), (kills,), "after" if waits else "any")


def fail(_, error):
    """Raise what a case goes wrong with."""
    raise error


def go_through(first, second, share=1.0, wrong=fail):
    """Kill the first of a pair at each access.

    Args:
        first, second: names of OPERATIONS.
        share: of the kills.
        wrong: what to do with a case that goes wrong, and what with.

    Returns:
        Kills, and shared accesses.
    """
    step = max(1, round(1 / share))
    kills = accesses = 0
    for waits in (True, False):
        at = random.Random(f"{first} {second} {waits}").randrange(1, step + 1)
        killed = True
        while killed:
            case = case_of(first, second, at, waits)
            run = Run(case.world, case.seed)
            try:
                run.one(case)
            except Exception as error:
                wrong(case, error)
            killed = run.killed > 0
            kills, accesses = kills + killed, accesses + run.accesses
            at += step
    return kills, accesses


def main(share, firsts=tuple(OPERATIONS)):
    """Go through all pairs whose first is one of some; returns 1 when something went wrong."""
    began, kills, accesses, faults = time.process_time(), 0, 0, []

    def wrong(case, error):
        faults.append(case)
        tell(case, error)

    for first, second in itertools.product(firsts, OPERATIONS):
        some, made = go_through(first, second, share, wrong)
        kills, accesses = kills + some, accesses + made
        print(f"{first} beside {second}: {some:,} kills", flush=True)
        if len(faults) >= FAULTS_MAX:
            break
    seconds = time.process_time() - began
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} {len(firsts) * len(OPERATIONS)} pairs, {kills:,} kills, {accesses:,} shared "
        f"accesses, {len(faults)} faults; {seconds:,.0f} s of one core"
    )
    return 1 if faults else 0
