"""Real processes on one table, attached by its name: they get in each other's way for a while, and nothing is lost."""

import mmap
import os

import naive_audit
import numpy as np
import pytest
import tables
from zonetrack.kernels import delete_list, flush
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.service.crew import Crew
from zonetrack.shm import roster, segment
from zonetrack.shm.layout import BLOCK_RECORDS, Kind, Life
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry

pytestmark = pytest.mark.skipif(not JIT, reason="workers of plain Python hardly ever meet; tests/interleave makes them")

SOON, NOW = 5_000, 100_000
SHARED_KEYS = 3_000
ROUNDS, BATCH = 1_500, 200
CROWD = 60
OWN_KEYS = 40
MADE, DELETED, FINISHED = range(3)


@pytest.fixture
def made(request):
    """Return what makes a named table for so many workers; it is gone after the test."""

    def make(workers):
        name = f"hammer-{workers}-{os.getpid()}"
        geometry = Geometry(SHARED_KEYS + (workers + 1) * 2 * BLOCK_RECORDS, 8)
        instance = segment.create(name, geometry, secret=tables.SECRET)
        request.addfinalizer(instance.close)
        request.addfinalizer(instance.unlink)
        load(tables.Participant(instance.table, Kind.TOOL))
        return instance

    return make


def load(me):
    """Do once what workers do, so that they find every kernel loaded."""
    key = tables.keys(1, zone=7)
    me.made(key, None, SOON)
    assert me.find(key)[0] != tables.NONE
    me.refresh(key, SOON)
    assert me.sweep(NOW) == 1
    me.made(key)
    me.remove(key)
    me.flush(7)


def run(size, job):
    """Do a job in so many processes; all must end well."""
    crew = Crew(size, job)
    crew.run()
    assert [str(death) for death in crew.deaths] == []


def tally_of(workers):
    """Return i8[workers, 3] that forked workers write and all read."""
    return np.frombuffer(mmap.mmap(-1, workers * 24), "i8").reshape(workers, 3)


def live_after_rest(table):
    """Let everybody's list be worked off in their name, audit, and return how many connections there are."""
    for place in roster.present(table):
        assert delete_list.run(table.views(place.owner)) == 0
    assert naive_audit.faults(table) == []
    tables.assert_at_rest(table)
    return int((naive_audit.states(table) == Life.LIVE).sum())


def hammer(name, number, tally, rounds=ROUNDS):
    """Make, find, refresh, delete and sweep connections of one zone at random; tally what was made and deleted."""
    me = tables.Participant(segment.attach(name).table)
    rng = np.random.default_rng(number)
    keys = tables.keys(SHARED_KEYS)

    def some(count):
        return keys[rng.integers(0, SHARED_KEYS, count)]

    for _ in range(rounds):
        expiry_ms = SOON if rng.random() < 0.3 else tables.LATER
        reasons, _ = me.make(some(BATCH), None, expiry_ms, wanted=int(rng.choice((1, BATCH))))
        assert set(reasons.tolist()) <= {Reason.NONE, Reason.ADOPTED, Reason.BUSY}
        tally[number, MADE] += np.count_nonzero(reasons == Reason.NONE)
        me.find(some(BATCH))
        me.refresh(some(BATCH // 4), tables.LATER)
        records = (me.mark if rng.random() < 0.5 else me.remove)(some(BATCH))
        tally[number, DELETED] += np.count_nonzero(records < tables.BUSY)
        if rng.random() < 0.2:
            tally[number, DELETED] += me.sweep(NOW)


def test_two_processes_hammer_one_zone(made):
    instance = made(2)
    tally = tally_of(2)
    run(2, lambda number: hammer(instance.name, number, tally))
    assert (tally[:, :FINISHED] > ROUNDS).all()
    assert live_after_rest(instance.table) == tally[:, MADE].sum() - tally[:, DELETED].sum()


def test_two_processes_hammer_a_zone_that_a_third_flushes(made):
    instance = made(3)
    tally = tally_of(3)

    def job(number):
        if number < 2:
            hammer(instance.name, number, tally, ROUNDS // 2)
            tally[number, FINISHED] = 1
            return
        me = tables.Participant(segment.attach(instance.name).table, Kind.CONTROL)
        while not tally[:2, FINISHED].all():
            word = me.detach(0)
            cursor = u64(0)
            while word not in (0, flush.DONE) and cursor != flush.DONE:
                cursor = me.reclaim(0, word, cursor, 100)
            tally[number, MADE] += word not in (0, flush.DONE)

    run(3, job)
    assert (tally[:, MADE] > 1).all()
    assert live_after_rest(instance.table) <= tally[:2, MADE].sum() - tally[:2, DELETED].sum()


def test_sixty_workers_finish(made):
    """On two cores most of them wait while one that holds a lock is not running."""
    instance = made(CROWD)
    tally = tally_of(CROWD)
    shared = tables.keys(20)

    def job(number):
        me = tables.Participant(segment.attach(instance.name).table)
        own = tables.keys(OWN_KEYS, first=SHARED_KEYS + number * OWN_KEYS)
        me.made(own, None, tables.LATER, wanted=OWN_KEYS)
        for _ in range(10):
            tally[number, MADE] += np.count_nonzero(me.make(shared)[0] == Reason.NONE)
            tally[number, DELETED] += np.count_nonzero(me.remove(shared) < tables.BUSY)
            assert (me.find(own) < tables.BUSY).all()
        assert (me.remove(own[::2]) < tables.BUSY).all()
        roster.leave(me.table, me.me)

    run(CROWD, job)
    left = CROWD * (OWN_KEYS // 2) + tally[:, MADE].sum() - tally[:, DELETED].sum()
    assert live_after_rest(instance.table) == left
