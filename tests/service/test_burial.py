"""Workers killed at any moment of heavy traffic: the next goes on where they were, and nothing established is lost."""

import ctypes
import os
import random

import bursts
import naive_audit
import numpy as np
import pytest
import tables
from forked import Child
from zonetrack.kernels import burst, flush, sweep
from zonetrack.service import burial, crew
from zonetrack.shm import roster, segment
from zonetrack.shm.layout import VERDICT, CtState, Kind, Setting, Step
from zonetrack.shm.sizing import Geometry

KILLS, WORKERS = 30, 2
KEPT, CHURNED, FLUSHED = 0, 1, 2
"""Zones: of connections that must be there at the end; of short ones; of those that are flushed."""
STEP_MS = 500
"""The clock of a worker goes on so much with each of its bursts, so that connections keep expiring."""


@pytest.fixture
def table():
    """A table of a few blocks, with a name, so that the roster has a lock that works between processes."""
    name = f"test-burial-{os.getpid()}"
    with segment.create(name, Geometry(4000, zones_in_use=4), secret=tables.SECRET) as made:
        yield made.table
    segment.discard(name)


def kept():
    """Return FRAME[n] of conversations in both directions, and the buffers they point into."""
    packets = [bursts.udp(3000 + i, reply=reply) for i in range(100) for reply in (False, True)]
    return bursts.frames_of(packets, KEPT)


def track(views, frames, now_ms):
    """Track one burst; returns its verdicts."""
    verdicts = np.zeros(len(frames), VERDICT)
    at = (np.uint64(frames.ctypes.data), np.uint64(len(frames)), np.uint64(now_ms), np.uint64(verdicts.ctypes.data))
    burst.track_burst(views, *at)
    return verdicts


class Traffic:
    """What a worker does for ever: short connections, kept ones, sweeps, and flushes."""

    def __init__(self, table):
        self.table = table
        self.kept, self._kept = kept()
        self.short, self._short = bursts.frames_of([bursts.udp(10_000 + i) for i in range(2_000)], CHURNED)
        self.turns = crew.shared(np.dtype("u8"), WORKERS)

    def work(self, number, child):
        """Join, say so, and go on until killed."""
        me = roster.join(self.table, Kind.WORKER)
        child.say(me)
        views = self.table.views(me)
        chance = random.Random(me)
        flushed = self.short[:64].copy()
        flushed["zone"] = FLUSHED
        now_ms = 1_000
        while True:
            now_ms += STEP_MS
            at = chance.randrange(len(self.short) - 128)
            track(views, np.concatenate([self.short[at : at + 128], self.kept[:64]]), now_ms)
            sweep.sweep(views, np.uint64(now_ms), np.uint64(4_096))
            if chance.random() < 0.2:
                track(views, flushed, now_ms)
                word, cursor = flush.detach(views, np.uint64(FLUSHED)), np.uint64(0)
                while word not in (0, flush.DONE) and cursor != flush.DONE:
                    cursor = flush.reclaim(views, np.uint64(FLUSHED), np.uint64(word), cursor, np.uint64(16))
                    cursor = np.uint64(cursor)
            self.turns[number] += 1

    def start(self, number):
        """Return a new worker that has begun."""
        child = Child(lambda child: self.work(number, child))
        child.hear()
        return child

    def until(self, number, turns):
        """Wait until a worker has made some more turns."""
        target = self.turns[number] + turns
        while self.turns[number] < target:
            os.sched_yield()


def test_workers_killed_under_traffic(table, record_property):
    """Each kill is at a moment by chance, beside another worker that goes on."""
    ctypes.CDLL(None)  # loaded before anyone is forked
    tables.zones(table)["settings"][KEPT] |= Setting.NO_EXPIRY
    traffic = Traffic(table)
    first = roster.join(table, Kind.TOOL)
    for begin in range(0, len(traffic.kept), 100):
        track(table.views(first), traffic.kept[begin : begin + 100], 1_000)
    chance = random.Random(0)
    workers = [traffic.start(number) for number in range(WORKERS)]
    interrupted = []
    try:
        for _ in range(KILLS):
            victim = chance.randrange(WORKERS)
            traffic.until(victim, chance.randrange(1, 20))
            for _ in range(chance.randrange(3_000)):
                pass
            workers[victim].kill()
            done = burial.bury_dead(table)
            assert done.left == [] and len(done.buried) == 1
            interrupted += done.interrupted.values()
            workers[victim] = traffic.start(victim)
    finally:
        for worker in workers:
            worker.kill()
    assert burial.bury_dead(table).left == []
    record_property("interrupted", len(interrupted))
    assert naive_audit.faults(table) == []
    tables.assert_at_rest(table)
    verdicts = np.concatenate(
        [track(table.views(first), traffic.kept[i : i + 100], 1_000) for i in range(0, len(traffic.kept), 100)]
    )
    assert (verdicts["ct_state"] & CtState.EST != 0).all()
    assert tables.quotas(table)["count"][KEPT] == len(traffic.kept) / 2


def test_nobody_is_dead(table):
    roster.join(table, Kind.TOOL)
    assert burial.bury_dead(table) == ({}, [])


def test_what_they_died_in_is_told(table):
    with Child(lambda child: child.say(roster.join(table, Kind.WORKER))) as child:
        owner = child.hear()
        child.wait()
    roster.participants(table)[owner - 1]["intent"]["step"] = Step.LOCKS
    assert burial.bury_dead(table).interrupted == {owner: "LOCKS"}
    assert roster.present(table) == []
