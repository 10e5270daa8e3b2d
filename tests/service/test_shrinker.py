"""Zones that hold far less than before are found and shrunk, once, and not while they may fill again."""

import asyncio

import naive_audit
import numpy as np
import pytest
import tables
from zonetrack.kernels.jit import JIT
from zonetrack.service.flusher import Flusher
from zonetrack.service.runner import Runner
from zonetrack.service.shrinker import PER_ENTRY_MIN, POOL_SHARE_MIN, Shrinker

MANY = 5_000 if JIT else 300


class Bench:
    """A shrinker of a table, with the runner it works through."""

    def __init__(self, table):
        self.table = table
        self.runner = Runner(table, "shrinker")
        self.flusher = Flusher(table, self.runner)
        self.asked = []

        def shrink(zone):
            self.asked.append(zone)
            return self.flusher.shrink(zone)

        self.shrinker = Shrinker(table, shrink)

    async def look(self):
        return await self.shrinker.look()


@pytest.fixture
def table():
    made = tables.small(2 * MANY, zones=32)
    yield made
    assert naive_audit.faults(made) == []


@pytest.fixture
def bench(table):
    made = Bench(table)
    yield made
    made.runner.close()


def test_a_zone_that_was_thin_twice_is_shrunk_once(table, bench):
    one = tables.Participant(table)
    keys = tables.keys(MANY, zone=3)
    one.made(keys)
    one.made(tables.keys(5, zone=4))

    async def looks():
        assert await bench.look() == 0
        one.remove(keys[10:])
        before = tables.used(table)[0]
        assert await bench.look() == 0 and bench.asked == []  # thin now; it may fill again
        assert await bench.look() == before - 2 and bench.asked == [3]
        assert tables.shape(table, 3) == (0, [0]) == tables.shape(table, 4)
        for _ in range(3):
            assert await bench.look() == 0
        assert bench.asked == [3]
        one.remove(keys[:10])
        assert [await bench.look() for _ in range(3)] == [0, 0, 0] and bench.asked == [3, 3]
        assert len(tables.directory_of(table, 3)) == 0

    asyncio.run(looks())
    assert (one.find(tables.keys(5, zone=4)) != tables.NONE).all()


def test_a_zone_that_fills_again_is_left_alone(table, bench):
    one = tables.Participant(table)
    keys = tables.keys(MANY, zone=3)
    one.made(keys)

    async def looks():
        for _ in range(3):
            one.remove(keys[10:])
            assert 3 in bench.shrinker.thin()
            await bench.look()
            one.made(keys[10:])
            assert 3 not in bench.shrinker.thin()
            await bench.look()

    asyncio.run(looks())
    assert bench.asked == []


def test_a_zone_that_is_full_is_not_thin(table, bench):
    one = tables.Participant(table)
    for first in range(0, MANY, MANY // 5):
        one.made(tables.keys(MANY // 5, zone=3, first=first + 1))
        assert bench.shrinker.thin() == {}
    depth = tables.depth_of(table, 3)
    one.remove(tables.keys(MANY - (PER_ENTRY_MIN << depth) + 1, zone=3))
    assert list(bench.shrinker.thin()) == [3]


def test_while_the_pool_is_short_any_zone_is_worth_a_try(table, bench):
    one = tables.Participant(table)
    one.made(tables.keys(MANY, zone=3))
    one.made(tables.keys(5, zone=4))
    assert bench.shrinker.thin() == {}
    owners = tables.segments(table)["owner"]
    aside = np.flatnonzero(owners == 0)[len(owners) // POOL_SHARE_MIN - 1 :]
    owners[aside] = 99
    assert list(bench.shrinker.thin()) == [3]
    owners[aside] = 0


def test_a_flush_under_way_comes_first(table, bench):
    one = tables.Participant(table)
    one.made(tables.keys(MANY, zone=3))

    async def both():
        flushed = asyncio.create_task(bench.flusher.flush([3], wait=True))
        assert await asyncio.gather(flushed, bench.flusher.shrink(3)) == [MANY, 0]

    asyncio.run(both())
    assert tables.used(table) == (0, 0)
