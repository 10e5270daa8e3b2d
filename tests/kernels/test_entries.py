"""Free records go from hand to hand through the pool; a record's life, expiry and hint change by their rules."""

import numpy as np
import pytest
import tables
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import NONE, Participant
from zonetrack.kernels import entries, intents, locks, memory
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm import roster
from zonetrack.shm.layout import (
    BLOCK_RECORDS,
    DUE_UNIT_MS,
    NO_RECORD,
    POOL_COUNT_SHIFT,
    POOL_OWNER_SHIFT,
    USED,
    Life,
    Slab,
    Step,
)
from zonetrack.shm.reasons import Reason

ELSEWHERE = 255 << POOL_OWNER_SHIFT
"""A word of the pool that another participant has in hand."""


@kernel
def hold(views, record, expiry_ms):
    """Set the expiry of a record under its lock; returns its second key's address."""
    entry = entries.address(views, record)
    locks.take(entry + entries.LOCK, views.me)
    entries.set_expiry(views, record, entry, expiry_ms)
    locks.drop(entry + entries.LOCK)
    return entries.second_key(views, entry)


@kernel
def release_all(views, records, count):
    """Free NEW records of ours; nothing is under way afterwards."""
    for i in range(count):
        record = memory.le64(records + u64(8 * i))
        intents.set_record(views, record, Step.ALLOC)
        entries.release(views, record)
    intents.done(views)


@kernel
def life_words(state, owner, incarnation, out):
    word = entries.life(state, owner, incarnation)
    out[0] = word
    out[1] = entries.state_of(word)
    out[2] = entries.owner_of(word)
    out[3] = entries.incarnation_of(word)
    out[4] = entries.due_units(incarnation)


@pytest.fixture
def table():
    return tables.small(1000)


def life_of(table, record):
    """Return state, owner and incarnation of a record."""
    word = int(tables.entries(table)["life"][int(record)])
    return Life(word & 0xFF), word >> 8 & 0xFFFF, word >> 32


def take(me, count=1):
    """Take records until ``count`` are had or none is left."""
    taken = []
    while len(taken) < count and (record := int(entries.take(me.views))) != NONE:
        taken.append(record)
    return taken


def release(me, records):
    records = np.array(records, "u8")
    release_all(me.views, u64(records.ctypes.data), u64(len(records)))


def lists(me, slab=Slab.ENTRIES):
    """Return the counts of front and back, 0 for an empty list."""
    place = me.place
    return tuple(int(place[f"{name}_count"][slab]) if place[name][slab] else 0 for name in ("front", "back"))


def in_pool(table, slab=Slab.ENTRIES):
    """Return the counts of the chains in the pool."""
    pool = tables.pool(table, slab)
    return [int(word) >> POOL_COUNT_SHIFT & 0xFFFF for word in pool[pool != 0]]


# ------------------------------------------------------------------------------------------------ life
@settings(deadline=None)
@given(st.sampled_from(Life), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1))
def test_a_life_word_is_state_owner_and_incarnation(state, owner, incarnation):
    out = np.zeros(5, "u8")
    life_words(u64(state), u64(owner), u64(incarnation), out)
    assert out.tolist() == [
        *(incarnation << 32 | owner << 8 | state, state, owner, incarnation),
        max(1, incarnation // DUE_UNIT_MS),
    ]


def test_a_record_is_new_when_taken_and_free_when_released(table):
    me = Participant(table)
    [record] = take(me)
    assert life_of(table, record) == (Life.NEW, me.me, 1)
    assert (me.step, int(me.place["intent"]["record"])) == (Step.ALLOC, record + 1)
    release(me, [record])
    assert life_of(table, record) == (Life.FREE, 0, 1)
    tables.assert_at_rest(table)


def test_each_allocation_is_one_incarnation_more(table):
    me = Participant(table)
    for incarnation in range(1, 6):
        [record] = take(me)
        assert life_of(table, record) == (Life.NEW, me.me, incarnation)
        release(me, [record])
    tables.entries(table)["life"][record] = 0xFFFFFFFF << 32
    assert take(me) == [record]
    assert life_of(table, record) == (Life.NEW, me.me, 0)  # it wraps, and nothing beside it changes
    release(me, [record])
    tables.assert_at_rest(table)


def test_a_deleted_connections_record_lives_anew_as_another_incarnation(table):
    me, key = Participant(table), tables.keys(1)
    for incarnation in range(1, 4):
        [record] = me.made(key)
        assert life_of(table, record) == (Life.LIVE, 0, incarnation)
        assert me.remove(key) == record
        assert life_of(table, record) == (Life.FREE, 0, incarnation)
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ free lists
def test_every_record_is_given_once_and_then_none(table):
    me = Participant(table)
    total = table.geometry.records(Slab.ENTRIES)
    assert in_pool(table) == [BLOCK_RECORDS] * (total // BLOCK_RECORDS)
    taken = take(me, total + 1)
    assert sorted(taken) == list(range(total))
    assert in_pool(table) == []
    assert int(entries.take(me.views)) == NONE
    assert me.step is Step.ALLOC  # of the last one taken
    release(me, taken)
    tables.assert_at_rest(table)
    assert sum(in_pool(table)) + sum(lists(me)) == total


def test_a_full_front_list_becomes_back_and_a_back_in_the_way_goes_to_the_pool(table):
    me = Participant(table)
    taken = take(me, 3 * BLOCK_RECORDS)
    left = in_pool(table)
    assert lists(me) == (0, 0)
    release(me, taken[: BLOCK_RECORDS - 1])
    assert lists(me) == (BLOCK_RECORDS - 1, 0)
    release(me, taken[BLOCK_RECORDS - 1 : BLOCK_RECORDS])
    assert lists(me) == (0, BLOCK_RECORDS)
    release(me, taken[BLOCK_RECORDS : 2 * BLOCK_RECORDS - 1])
    assert (lists(me), in_pool(table)) == ((BLOCK_RECORDS - 1, BLOCK_RECORDS), left)
    release(me, taken[2 * BLOCK_RECORDS - 1 : 2 * BLOCK_RECORDS])
    assert (lists(me), in_pool(table)) == ((0, BLOCK_RECORDS), [*left, BLOCK_RECORDS])
    release(me, taken[2 * BLOCK_RECORDS :])
    assert (lists(me), in_pool(table)) == ((0, BLOCK_RECORDS), [*left, BLOCK_RECORDS, BLOCK_RECORDS])
    tables.assert_at_rest(table)


def test_an_empty_front_list_is_filled_from_back_and_then_from_the_pool(table):
    me = Participant(table)
    taken = take(me, 2 * BLOCK_RECORDS)
    pooled = in_pool(table)
    release(me, [taken.pop() for _ in range(BLOCK_RECORDS + 5)])
    assert lists(me) == (5, BLOCK_RECORDS)
    taken += take(me, 5)
    assert lists(me) == (0, BLOCK_RECORDS)
    taken += take(me, BLOCK_RECORDS)
    assert (lists(me), in_pool(table)) == ((0, 0), pooled)
    taken += take(me)
    assert (lists(me), in_pool(table)) == ((BLOCK_RECORDS - 1, 0), pooled[1:])
    release(me, taken)
    tables.assert_at_rest(table)


def test_what_one_frees_another_takes(table):
    """One makes connections and another deletes them, more than there are records."""
    maker, deleter = Participant(table), Participant(table)
    keys = tables.keys(500)
    total = table.geometry.records(Slab.ENTRIES)
    for _ in range(3):
        records = maker.made(keys)
        assert deleter.remove(keys).tolist() == records.tolist()
        assert sum(lists(maker)) + sum(lists(deleter)) + sum(in_pool(table)) == total
    assert sum(lists(deleter)) <= 2 * BLOCK_RECORDS
    tables.assert_at_rest(table)


def test_no_record_is_a_reason_and_leaves_all_as_it_was(table):
    tables.totals(table)["limit"] = 2**32 - 1
    me, total = Participant(table), table.geometry.records(Slab.ENTRIES)
    me.made(tables.keys(total))
    tables.assert_at_rest(table)
    reasons, records = me.make(tables.keys(3, first=total + 1))
    assert (set(reasons.tolist()), set(records.tolist())) == ({Reason.SLAB_FULL}, {NONE})
    tables.assert_at_rest(table)
    me.remove(tables.keys(1))
    me.made(tables.keys(1, first=total + 1))
    tables.assert_at_rest(table)


def test_chains_that_others_have_in_hand_are_left_alone(table):
    me, pool = Participant(table), tables.pool(table)
    before = pool.copy()
    pool[pool != 0] |= np.uint64(ELSEWHERE)
    assert take(me) == []
    pool[2] = before[2]
    assert take(me) == [int(before[2]) % 2**32 - 1]
    release(me, take(me, 0) or [int(before[2]) % 2**32 - 1])
    pool[:] = np.where(np.arange(len(pool)) == 2, 0, before)
    tables.assert_at_rest(table)


def test_a_list_grows_while_the_pool_has_no_word_free(table):
    me = Participant(table)
    total = table.geometry.records(Slab.ENTRIES)
    taken, pool = take(me, total), tables.pool(table)
    pool[:] = ELSEWHERE
    release(me, taken)
    assert lists(me) == (total - BLOCK_RECORDS, BLOCK_RECORDS)
    pool[:] = 0
    tables.assert_at_rest(table)
    release(me, take(me))  # and shrinks when there is room again
    assert lists(me)[0] == 0 and sum(in_pool(table)) == BLOCK_RECORDS
    tables.assert_at_rest(table)
    assert len(take(me, total + 1)) == total


def test_who_joins_the_place_of_one_who_left_has_his_records(table):
    first = Participant(table)
    taken = take(first, 3)
    release(first, taken)
    left = lists(first)
    roster.leave(table, first.me)
    second = Participant(table)
    assert (second.me, lists(second)) == (first.me, left)
    assert take(second, 3) == taken[::-1]


# ------------------------------------------------------------------------------------------------ extensions
def test_extensions_have_lists_of_their_own(table):
    me = Participant(table)
    total = table.geometry.records(Slab.EXTENSIONS)
    keys, replies = tables.keys(total + 1), tables.keys(total + 1, low=2)
    reasons, records = me.make(keys, replies)
    assert reasons.tolist() == [Reason.NONE] * total + [Reason.EXTENSION_FULL]
    links = tables.entries(table)["extension"][records[:-1].astype("i8")]
    assert sorted(links.tolist()) == list(range(1, total + 1))
    tables.assert_at_rest(table)

    me.made(keys[-1:])  # without a second key there is room for it
    me.remove(keys[:10])
    assert sum(lists(me, Slab.EXTENSIONS)) + sum(in_pool(table, Slab.EXTENSIONS)) == 10
    assert not tables.entries(table)["extension"][records[:10].astype("i8")].any()
    me.made(keys[:10], replies[:10])
    tables.assert_at_rest(table)


def test_extensions_go_from_hand_to_hand_too(table):
    maker, deleter = Participant(table), Participant(table)
    total = table.geometry.records(Slab.EXTENSIONS)
    count = total * 3 // 4
    keys, replies = tables.keys(count), tables.keys(count, low=2)
    maker.made(keys, replies)
    assert deleter.remove(keys).max() < NO_RECORD
    tables.assert_at_rest(table)
    assert deleter.made(keys, replies).max() < NO_RECORD
    tables.assert_at_rest(table)


def test_a_fresh_extension_has_no_second_key(table):
    """Its last owner had one, and nothing says that the next will."""
    me, key = Participant(table), tables.keys(1)
    me.made(key, tables.keys(1, low=2))
    [old] = np.flatnonzero(tables.extensions(table)["reply_key"].any(axis=1))
    me.remove(key)
    [record] = take(me)
    assert entries.take_extension(me.views, u64(record))
    assert int(tables.entries(table)["extension"][record]) == old + 1
    assert int(hold(me.views, u64(record), u64(5))) == 0
    release(me, [record])
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ expiry, hints
def test_an_earlier_expiry_lowers_the_hint_and_a_later_one_does_not_raise_it(table):
    me, key = Participant(table), tables.keys(1)
    [record] = me.made(key, expiry_ms=1600)
    seen = []
    for expiry_ms in (1600, 9000, 1599, 1601, 1584, 1583, 16, 15, 0, 5000):
        assert me.refresh(key, expiry_ms) == record
        entry = tables.entries(table)[int(record)]
        assert entry["expiry_ms"] == expiry_ms
        assert entry["hint"] == tables.due(table)[int(record)]
        seen.append(int(entry["hint"]))
    assert seen == [100, 100, 99, 99, 99, 98, 1, 1, 1, 1]
    tables.assert_at_rest(table)
    me.remove(key)
    assert tables.due(table)[int(record)] == 0


@pytest.mark.parametrize("expiry_ms", [DUE_UNIT_MS << 32, (DUE_UNIT_MS << 32) + 5, 2**64 - 1])
def test_an_expiry_beyond_all_hints_has_the_last_one(expiry_ms, table):
    me, key = Participant(table), tables.keys(1)
    [record] = me.made(key, expiry_ms=expiry_ms)
    assert tables.due(table)[int(record)] == 2**32 - 1
    tables.assert_at_rest(table)
    me.refresh(key, 1600)
    assert tables.due(table)[int(record)] == 100
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ blocks
def test_who_takes_a_chain_first_sweeps_its_block(table):
    first, second = Participant(table), Participant(table)
    assert not tables.blocks(table).any()
    mine, others = take(first), take(second)
    blocks = {record // BLOCK_RECORDS: who.me for who, (record,) in ((first, mine), (second, others))}
    assert len(blocks) == 2
    expected = [blocks.get(block, 0) for block in range(len(tables.blocks(table)))]
    assert tables.blocks(table).tolist() == expected
    release(first, mine)
    release(second, others)


def test_a_block_keeps_its_sweeper_when_its_records_move_on(table):
    first, second = Participant(table), Participant(table)
    total = table.geometry.records(Slab.ENTRIES)
    release(first, take(first, total))
    assert set(tables.blocks(table).tolist()) == {first.me}
    taken = take(second, BLOCK_RECORDS)
    assert len(taken) == BLOCK_RECORDS
    assert set(tables.blocks(table).tolist()) == {first.me}
    release(second, taken)
    roster.leave(table, first.me)
    release(second, take(second, BLOCK_RECORDS + 1))
    assert set(tables.blocks(table).tolist()) == {USED}  # orphans are the sweep's to adopt
    tables.assert_at_rest(table)


def test_extensions_claim_no_blocks(table):
    me = Participant(table)
    [record] = take(me)
    tables.blocks(table)[:] = 0
    assert entries.take_extension(me.views, u64(record))
    assert not tables.blocks(table).any()
