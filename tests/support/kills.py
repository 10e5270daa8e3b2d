"""Kills: an operation is stopped before each store that it makes, then repaired, and the table is looked at.

Between two stores nothing changes that anybody could find, so a kill before each store is a kill at every access.
"""

from __future__ import annotations

import contextlib
import random

import naive_audit
import naive_fragments
import numpy as np
import tables
from simulation import Killed, Simulation
from zonetrack.kernels import (
    audit,
    audit_fragments,
    fragment_rules,
    fragments,
    late,
    memory,
    reassembly,
    repair,
    repair_fragments,
)
from zonetrack.shm.layout import DATAGRAM, FRAGMENT, FRAGMENTS_MAX, STORE, Region

ZONES = 4
"""Zones that repair and audit look at in the interpreter; tests stay below."""


class Killing(memory.World):
    """A world that ends whoever is about to make his ``at``-th store."""

    def __init__(self, at):
        self.at = at
        self.stores = 0

    def _count(self):
        self.stores += 1
        if self.stores == self.at:
            raise Killed

    def store(self, address, size, value, order):
        self._count()
        super().store(address, size, value, order)

    def swap(self, address, size, expected, desired):
        self._count()
        return super().swap(address, size, expected, desired)


@contextlib.contextmanager
def few_zones():
    """Let repair and audit look at a few zones only."""
    before = repair.ZONES_MAX, audit.ZONES_MAX, tables.ZONES
    repair.ZONES_MAX = audit.ZONES_MAX = tables.ZONES = ZONES
    yield
    repair.ZONES_MAX, audit.ZONES_MAX, tables.ZONES = before


FRAGMENTS = 16
"""Fragments that there are in the interpreter."""


@contextlib.contextmanager
def few_fragments():
    """Let the store of fragments, and whoever repairs it, have a few of them; for tables of ``cut_store``."""
    rooms = (audit_fragments, fragment_rules, fragments, late, reassembly, repair_fragments)
    masked = fragments._BUCKETS_MASK
    for room in rooms:
        room.FRAGMENTS_MAX = FRAGMENTS
    fragments._BUCKETS_MASK = np.uint64(FRAGMENTS - 1)
    naive_fragments.COUNT = FRAGMENTS
    yield
    for room in rooms:
        room.FRAGMENTS_MAX = FRAGMENTS_MAX
    fragments._BUCKETS_MASK = masked
    naive_fragments.COUNT = FRAGMENTS_MAX


def cut_store(table):
    """Leave a few fragments in the store of a new table."""
    table.array(Region.FRAGMENTS, "store", STORE)["count_max"] = FRAGMENTS
    for name, dtype in (("fragments", FRAGMENT), ("datagrams", DATAGRAM)):
        table.array(Region.FRAGMENTS, name, dtype)["next"][FRAGMENTS - 1] = 0


def is_killed(at, act):
    """Do something until its ``at``-th store; whether it was killed, or had ended before."""
    before, memory.world = memory.world, Killing(at)
    try:
        act()
    except Killed:
        return True
    finally:
        memory.world = before
    return False


def stores_of(act):
    """Do something, and return how many stores it made."""
    before, memory.world = memory.world, Killing(0)
    try:
        act()
        return memory.world.stores
    finally:
        memory.world = before


def repaired(participant):
    """Repair a participant with nobody in the way."""
    assert repair.repair(participant.table.views(participant.me))


def whole(stage, about=""):
    """Assert that every invariant of the table holds and nothing is under way, once the living have run their lists."""
    for living in stage.participants[1:]:
        living.run()
    faults = naive_audit.faults(stage.table)
    assert faults == [], f"{about}: {faults}"


def each_kill(stage, act, check=lambda: None):
    """Kill ``act`` at each of its stores, repair, and look; returns how many kills there were.

    The table is audited by numpy after each; after every fourth again when it was used, and now and then by the kernel.
    """
    victim = stage.participants[0]
    at = 0
    while True:
        at += 1
        stage.restore()
        if not is_killed(at, lambda: act(victim)):
            return at - 1
        repaired(victim)
        whole(stage, f"killed at store {at}")
        check()
        if at % 4 == 0:
            whole(stage, f"killed at store {at}, then used")
        if at % 32 == 0:
            tables.assert_at_rest(stage.table)


def each_kill_of_the_repairer(stage, act, share=1.0):
    """Kill ``act`` at each of its stores and then its repairer at each of its own, repair again, and look.

    Args:
        stage: where.
        act: what is killed.
        share: of the pairs of kills, how many are gone through, chosen by chance from a seed; 1 or more is all.

    Returns:
        How many pairs of kills there were.
    """
    victim = stage.participants[0]
    beginning = stage.saved
    chance = random.Random(1)
    at = pairs = 0
    while True:
        at += 1
        stage.saved = beginning
        stage.restore()
        if not is_killed(at, lambda: act(victim)):
            return pairs
        stage.save()
        for again in range(1, stores_of(lambda: repaired(victim)) + 1):
            if chance.random() < share:
                stage.restore()
                assert is_killed(again, lambda: repaired(victim))
                repaired(victim)
                whole(stage, f"killed at store {at}, repairer at {again}")
                pairs += 1


class Massacre(Simulation):
    """A simulation in which the first worker is killed at some access; what it had stored comes out, as from a real core."""

    def __init__(self, mapped, seed, accesses_max, **more):
        super().__init__(mapped, seed, **more)
        self.at = int(accesses_max ** self.random.random())
        self.killed = False

    def mortal(self, participant, act):
        """Return a body for ``run``: ``act``, and repair when it is killed.  The process goes on as its own repairer."""

        def body():
            self.current.left = self.at
            try:
                act(participant)
            except Killed:
                self.killed = True
                self.empty(self.current)
                for _ in range(100):
                    if repair.repair(participant.table.views(participant.me)):
                        return
                raise AssertionError("repair does not come to an end") from None
            self.current.left = 0

        return body
