"""Small cases enumerated whole: two workers, each pair of operations, the first killed at every access.

Each kill is gone through twice: the second operation begins when the first worker is dead, and meets what that one holds;
and both run at once, in an order that a seed decides.  A share below 1 takes every so many-th access.
"""

from __future__ import annotations

import functools
import random
import time

import datagrams
import numpy as np
import tiny

from ..interleave.plays import NOW
from .rounds import WORKERS, Case, Round, Run
from .worlds import WORLDS, World, stage

FIND, UPDATE, DELETE, EXPIRED, FRESH, SPLITS, REOPENS = 0, 1, 2, 3, 4, (5, 6), 7
OPERATIONS = {
    "find": ("find", FIND),
    "insert": ("make", FRESH),
    "split": ("make", *SPLITS),
    "delete": ("remove", DELETE),
    "re-open": ("segments", (REOPENS, "S")),
    "expire": ("sweep",),
    "flush": ("flush",),
    "update": ("burst", (UPDATE, True)),
    "find what expired": ("burst", (EXPIRED, True)),
}


@functools.cache
def crossing():
    """A table in which each of the operations has something to do: a pair of lines with one slot left, and the others."""
    made = stage()
    maker = made.participants[0]
    maker.made(np.concatenate([tiny.aimed(7, prefix="0"), tiny.aimed(8, prefix="1")]), None, tiny.LATER)
    keys = np.concatenate([
        tiny.aimed(5, pair=3), tiny.aimed(2, prefix="1", skip=8), tiny.aimed(1, pair=3, protocol=datagrams.TCP),
    ])  # fmt: skip
    play = World(made, keys, before=(FIND, UPDATE, DELETE, EXPIRED), expired=(EXPIRED,), choices=[], aging=True)
    play.now_ms = NOW
    play.prepare(lambda worker: worker.segments(*((REOPENS, *how) for how in (("S",), ("RA", True)))))
    return play


WORLDS["crossing"] = crossing


class Cross(Round):
    """A round in which the second worker may wait for the death of the first."""

    def __init__(self, run, programs, kills, waits):
        super().__init__(run, 0, programs, kills)
        self.delay = 30 if waits else self.delay
        if waits:
            second = self.actors[1]
            live, first = second.life, self.actors[0]

            def life():
                while not self.dead and (first.program or first.busy):
                    self.simulation.relax()
                live()

            second.life = life


def killed_at(first, second, at, seed, waits):
    """Go through one kill of a pair; returns whether it came to that, and the shared accesses."""
    programs = ((OPERATIONS[first],), (OPERATIONS[second],), *((),) * (WORKERS - 2))
    kills = ((at,), *((),) * WORKERS)
    run = Run("crossing", seed)
    run.case = Case("crossing", seed, (programs,), (kills,))
    run.world.begin()
    run.world.now_ms = NOW
    Cross(run, programs, kills, waits).run()
    return run.killed > 0, run.accesses


def go_through(first, second, share=1.0):
    """Kill the first of a pair at each access; returns kills and shared accesses."""
    step = max(1, round(1 / share))
    at = random.Random(f"{first} {second}").randrange(1, step + 1)
    kills = accesses = 0
    while True:
        outcomes = [killed_at(first, second, at, at, waits) for waits in (True, False)]
        kills += sum(killed for killed, _ in outcomes)
        accesses += sum(made for _, made in outcomes)
        if not any(killed for killed, _ in outcomes):
            return kills, accesses
        at += step


def main(share):
    """Go through all pairs; returns 1 when something went wrong."""
    began, kills, accesses = time.process_time(), 0, 0
    for first in OPERATIONS:
        for second in OPERATIONS:
            some, made = go_through(first, second, share)
            kills, accesses = kills + some, accesses + made
            print(f"{first} beside {second}: {some:,} kills", flush=True)
    seconds = time.process_time() - began
    print(f"{len(OPERATIONS) ** 2} pairs, {kills:,} kills, {accesses:,} shared accesses, 0 faults; {seconds:,.0f} s")
    return 0
