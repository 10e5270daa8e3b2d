"""Two dead at once: one who takes a connection out, or puts one in, and one who puts another in, each killed at each store.

Both die before anybody repairs.  Then what the one held the other's repair does not get: the locks of counts, that are
changed by who deletes, by who inserts, and by repair.  It leaves the record where it is, the other is repaired, and it comes
back.  Seeds come to that once in many thousands, so those pairs of kills are gone through by themselves as well.
"""

from __future__ import annotations

import functools
import itertools
import time
from datetime import UTC, datetime

import numpy as np
import tables
import tiny
from zonetrack.kernels import repair

from ..interleave.rings import swapped
from .rounds import ORDERS, WORKERS, Case, Round, Run
from .shrink import tell
from .worlds import WORLDS, World, stage

DELETE, INSERT, SECOND = ("remove", 0), ("make", 1), ("make", 2)
"""What a delete has taken out comes home by its list, which waits for locks by itself: its repair wants none."""
FAULTS_MAX = 5
LATE = 50
"""Turns that the keeper waits for."""


@functools.cache
def budgeted(per_source=40):
    """One connection that is counted where its source is, and room for others, not all in one segment."""
    made = stage(per_source=per_source)
    made.participants[0].made(np.concatenate([tiny.aimed(9, prefix=bit, pair=1) for bit in "01"]), None, tiny.LATER)
    keys = np.concatenate([tiny.aimed(2, prefix="0"), tiny.aimed(1, prefix="1")])
    play = World(made, keys, choices=[])
    play.prepare(lambda worker: worker.make(0))
    return play


@functools.cache
def unbudgeted():
    """The same where no source is counted."""
    return budgeted(0)


WORLDS["budgeted"], WORLDS["unbudgeted"] = budgeted, unbudgeted


class Together(Round):
    """A round in which nobody repairs until all have died that will."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.delay = LATE
        self.held = []
        """Of each of the dead, whether it held a lock of counts."""

    def died(self, actor):
        """Note what it holds."""
        super().died(actor)
        table = self.world.stage.table
        self.held.append(
            actor.participant.me in (*tables.quotas(table)["count_lock"], tables.totals(table)["count_lock"])
        )


ORDERS["together"] = Together


def case_of(world, first, second):
    """Return a case in which two are killed, or one of them.

    Args:
        world: its name.
        first, second: operation, and the store at which it is killed; None: nothing is done.
    """
    both = [(((operation,), (-at,)) if operation else ((), ())) for operation, at in (first, second)]
    programs, kills = zip(*both, *[((), ())] * (WORKERS - 2), strict=True)
    return Case(world, first[1] or second[1], (programs,), ((*kills, ()),), "together")


def killed(case, reach=None):
    """Kill two, or one of them.

    Args:
        case: of ``case_of``.
        reach: notes what is reached.

    Returns:
        Of each that died whether it held a lock of counts; how often repair wanted those; and the shared accesses.
    """
    run = Run(case.world, case.seed, reach)
    wanted, uncount = [], repair._uncount
    with swapped(repair, _uncount=lambda *about: wanted.append(about) or uncount(*about)):
        run.one(case)
    if reach:
        reach.end_of_seed()
    return run.rounds[-1].held, len(wanted), run.accesses


def stores(world, operation, is_first):
    """Return the stores at which one may be killed, and those at which the locks of counts are wanted by repair, or held."""
    chosen, at, held = [], 0, [False]
    while held:
        at += 1
        one = (operation, at)
        held, wanted, _ = killed(case_of(world, *((one, (None, 0)) if is_first else ((None, 0), one))))
        if wanted if is_first else any(held):
            chosen.append(at)
    return range(1, at), chosen


def cases(whole=False):
    """Return pairs of kills, all or where the one holds what the other's repair wants, as cases."""
    found = []
    for world, first in itertools.product(("budgeted", "unbudgeted"), (DELETE, INSERT) if whole else (INSERT,)):
        chosen = [stores(world, operation, i == 0)[0 if whole else 1] for i, operation in enumerate((first, SECOND))]
        found += [case_of(world, (first, at), (SECOND, second_at)) for at, second_at in itertools.product(*chosen)]
    return found


def main():
    """Go through all of them; returns 1 when something went wrong."""
    began, all_, both, accesses, faults = time.process_time(), cases(whole=True), 0, 0, 0
    for case in all_:
        try:
            held, _, made = killed(case)
        except Exception as error:
            faults += 1
            tell(case, error)
            if faults >= FAULTS_MAX:
                break
            continue
        both, accesses = both + (len(held) == 2), accesses + made
    seconds = time.process_time() - began
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} {len(all_):,} pairs of kills, {both:,} with both dead, {accesses:,} shared "
        f"accesses, {faults} faults; {seconds:,.0f} s of one core"
    )
    return 1 if faults else 0
