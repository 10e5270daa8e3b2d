"""Pushes, pops and chains of free records killed at each of their stores: each record is on one list, once."""

import kills
import pytest
import tables
import tiny
from zonetrack.kernels import entries
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.repair import repair
from zonetrack.shm.layout import BLOCK_RECORDS, Slab

interpreted = pytest.mark.skipif(
    JIT, reason="kills at every store need the interpreter: tests/kernels/test_repair runs it"
)


@pytest.fixture(autouse=True)
def few_zones():
    with kills.few_zones():
        yield


def stage(prepare):
    made = tiny.Stage(2)
    prepare(made.participants[0])
    made.save()
    return made


def front_is_nearly_full(one):
    """Two blocks were taken, and one less than a block given back."""
    one.made(tables.keys(BLOCK_RECORDS + 3))
    one.remove(tables.keys(BLOCK_RECORDS - 1))


def front_is_empty(one):
    one.made(tables.keys(BLOCK_RECORDS))


def emptied_and_filled(one):
    """Give back what is missing for front to become back, then take, so that back becomes front again."""
    one.remove(tables.keys(1, first=BLOCK_RECORDS))
    one.make(tables.keys(1, first=2000))


WAYS = {
    "take a chain": (front_is_empty, lambda one: one.make(tables.keys(2, first=2000))),
    "first record of all": (lambda one: None, lambda one: one.make(tables.keys(1))),
    "front becomes back, and front again": (front_is_nearly_full, emptied_and_filled),
}


@interpreted
@pytest.mark.parametrize("name", WAYS)
def test_lists_killed_at_each_store(name, record_property):
    prepare, act = WAYS[name]
    stand = stage(prepare)
    one, _ = stand.participants

    def check():
        one.remove(one_more)
        one.made(one_more)

    one_more = tables.keys(3, low=60)
    count = kills.each_kill(stand, act, check)
    record_property("kills", count)
    assert count > 10


@interpreted
def test_a_chain_put_into_the_pool_killed_at_each_store():
    """Back is pushed out by a front that is full too."""
    stand = stage(front_is_empty)
    one, _ = stand.participants
    views = one.views
    one.remove(tables.keys(BLOCK_RECORDS))
    back = int(one.place["back"][Slab.ENTRIES])
    assert back
    stand.save()
    count = int(one.place["back_count"][Slab.ENTRIES])

    def put(_):
        entries.put_chain(views, entries.u64(Slab.ENTRIES), entries.u64(back), entries.u64(count))

    assert kills.each_kill(stand, put) == 3


def test_a_count_that_is_stale_is_counted_anew():
    table = tables.small()
    one = tables.Participant(table)
    one.made(tables.keys(3))
    one.place["front_count"][Slab.ENTRIES] += 1
    assert repair(table.views(one.me))
    tables.assert_at_rest(table)
