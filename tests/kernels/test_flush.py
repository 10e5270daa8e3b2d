"""A flush is one store; what was there comes home in slices, beside those who go on making and deleting."""

import numpy as np
import pytest
import tables
from tables import NONE, Participant
from zonetrack.kernels import flush
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import UNLIMITED, Life, Step
from zonetrack.shm.reasons import Reason

DONE = flush.DONE


@pytest.fixture
def table():
    table = tables.small(2000, extension_share=500)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def me(table):
    return Participant(table)


def count(table, zone):
    return int(tables.quotas(table)["count"][zone])


def used(table):
    """Return how many segments and directories are in use."""
    return tuple(
        int(np.count_nonzero(each)) for each in (tables.segments(table)["owner"], tables.directory_owners(table))
    )


def in_slices(me, zone, word, budget):
    """Bring a detached directory home; returns how many slices it took."""
    cursor, slices = u64(0), 0
    while cursor != DONE:
        before = int(cursor)
        cursor = me.reclaim(zone, word, cursor, budget)
        slices += 1
        assert cursor == DONE or cursor >= before
        assert slices < 10_000
    return slices


# ------------------------------------------------------------------------------------------------ alone
def test_a_zone_without_a_directory_is_flushed_at_once(table, me):
    assert me.detach(1) == 0
    assert me.step is Step.NONE
    assert tables.zones(table)["word"][1] == 0
    tables.assert_at_rest(table)


def test_an_emptied_zone_gives_its_directory_back(table, me):
    keys = tables.keys(3, zone=1)
    me.made(keys)
    me.remove(keys)
    assert used(table) == (1, 1)
    me.flush(1)
    assert used(table) == (0, 0)
    tables.assert_at_rest(table)


def test_a_detached_zone_is_empty_for_all_who_look_and_counted_until_it_is_home(table, me):
    keys = tables.keys(50, zone=1)
    me.made(keys)
    before, version = tables.zones(table)["word"][1], tables.version_of(table, 1)
    word = me.detach(1)
    assert word == before
    assert (tables.version_of(table, 1), len(tables.directory_of(table, 1))) == (version + 1, 0)
    assert me.step is Step.RECLAIM
    assert set(Participant(table).find(keys).tolist()) == {NONE}
    assert count(table, 1) == 50
    assert me.reclaim(1, word) == DONE
    assert (count(table, 1), used(table), me.step) == (0, (0, 0), Step.NONE)
    assert me.counter(Reason.FLUSHED) == 50
    tables.assert_at_rest(table)


@pytest.mark.parametrize("number", [1, 30, 700])
def test_all_of_a_zone_comes_home_and_nothing_of_others(number, table, me):
    keys, others = tables.keys(number, zone=1), tables.keys(200, zone=2)
    records = np.sort(me.made(keys)).astype("i8")
    kept = me.made(others)
    me.flush(1)
    lives = tables.entries(table)["life"][records]
    assert set((lives % np.uint64(256)).tolist()) == {Life.FREE}
    assert set((lives >> np.uint64(32)).tolist()) == {1}
    assert me.find(others).tolist() == kept.tolist()
    assert (count(table, 1), count(table, 2), int(tables.totals(table)["count"])) == (0, 200, 200)
    tables.assert_at_rest(table)
    me.made(keys)
    tables.assert_at_rest(table)


@pytest.mark.parametrize("number", [30, 300])
def test_records_with_two_keys_come_home_once(number, table, me):
    keys, replies = tables.keys(number, zone=1), tables.keys(number, zone=1, low=2)
    me.made(keys, replies)
    me.flush(1)
    assert (count(table, 1), used(table), me.counter(Reason.FLUSHED)) == (0, (0, 0), number)
    tables.assert_at_rest(table)
    me.made(keys, replies)
    tables.assert_at_rest(table)


@pytest.mark.parametrize("budget", [1, 7, 100])
def test_a_big_zone_comes_home_in_slices(budget, table, me):
    number = 300
    me.made(tables.keys(number, zone=1))
    me.made(tables.keys(number, zone=1, low=3), tables.keys(number, zone=1, low=4))
    word = me.detach(1)
    slices = in_slices(me, 1, word, budget)
    assert slices >= 2 * number // budget
    assert me.counter(Reason.FLUSHED) == 2 * number
    assert used(table) == (0, 0)
    tables.assert_at_rest(table)


def test_the_cursor_goes_from_segment_to_segment(table, me):
    me.made(tables.keys(600, zone=1))
    named = tables.directory_of(table, 1).astype("i8").copy()
    assert len(set(named.tolist())) < len(named), "some segments are named more than once"
    word, cursor, seen = me.detach(1), u64(0), []
    while cursor != DONE:
        seen.append(int(cursor))
        home = np.flatnonzero(tables.segments(table)["owner"][named - 1] == 0)
        assert set(range(int(cursor))) <= set(home.tolist())  # what lies behind the cursor is in the pool
        assert me.place["intent"]["cursor"] <= cursor  # it may stand before entries of a segment that is home
        cursor = me.reclaim(1, word, cursor, 20)
    assert seen == sorted(seen) and seen[-1] > 0
    tables.assert_at_rest(table)


def test_a_zone_is_flushed_again_and_again(table, me):
    versions = []
    for i in range(5):
        me.made(tables.keys(150, zone=1, first=1 + 100 * i))
        me.flush(1)
        versions.append(tables.version_of(table, 1))
    assert versions == sorted(set(versions))
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ beside others
def test_what_is_made_after_the_detach_stays(table, me):
    other, keys = Participant(table), tables.keys(400, zone=1)
    me.made(keys)
    word = me.detach(1)
    anew = other.made(keys[:200])  # the same keys, beside their old records
    assert count(table, 1) == 600
    cursor = me.reclaim(1, word, 0, 100)
    assert other.find(keys).tolist() == [*anew.tolist(), *[NONE] * 200]
    more = other.made(keys[200:])  # records and segments that came home may be used again
    while cursor != DONE:
        cursor = me.reclaim(1, word, cursor, 50)
    assert other.find(keys).tolist() == [*anew.tolist(), *more.tolist()]
    assert (count(table, 1), me.counter(Reason.FLUSHED)) == (400, 400)
    tables.assert_at_rest(table)


def test_segments_that_came_home_serve_another_zone_meanwhile(table, me):
    other = Participant(table)
    me.made(tables.keys(600, zone=1))
    old = set((tables.directory_of(table, 1) - 1).tolist())
    word = me.detach(1)
    cursor = me.reclaim(1, word, 0, 300)
    assert 0 < cursor < DONE
    other.place["segment_hint"] = min(old)
    keys = tables.keys(400, zone=2)
    records = other.made(keys)
    assert old & set((tables.directory_of(table, 2) - 1).tolist()), "a segment serves anew"
    assert me.reclaim(1, word, cursor) == DONE
    assert other.find(keys).tolist() == records.tolist()
    assert (count(table, 1), count(table, 2)) == (0, 400)
    tables.assert_at_rest(table)


def test_two_flush_two_zones_at_once(table, me):
    other = Participant(table)
    me.made(tables.keys(300, zone=1))
    me.made(tables.keys(300, zone=2))
    words = me.detach(1), other.detach(2)
    cursors = [u64(0), u64(0)]
    while any(cursor != DONE for cursor in cursors):
        for i, who in enumerate((me, other)):
            if cursors[i] != DONE:
                cursors[i] = who.reclaim(1 + i, words[i], cursors[i], 40)
    assert used(table) == (0, 0)
    tables.assert_at_rest(table)


def test_a_second_flush_of_a_zone_whose_first_is_not_home_has_what_came_since(table, me):
    other, keys = Participant(table), tables.keys(100, zone=1)
    me.made(keys)
    first = me.detach(1)
    other.made(keys[:30])
    second = other.detach(1)
    assert other.reclaim(1, second) == DONE
    assert other.counter(Reason.FLUSHED) == 30
    assert me.reclaim(1, first) == DONE
    assert me.counter(Reason.FLUSHED) == 100
    assert (count(table, 1), used(table)) == (0, (0, 0))
    tables.assert_at_rest(table)


def test_records_that_others_marked_become_the_flushs(table, me):
    other, keys = Participant(table), tables.keys(100, zone=1)
    records = me.made(keys)
    other.mark(keys[:40])
    word = me.detach(1)
    assert me.reclaim(1, word) == DONE
    assert me.counter(Reason.FLUSHED) == 100
    assert not tables.entries(table)["life"][records.astype("i8")].astype("u4").any()  # FREE, of nobody
    assert other.run() == 0
    tables.assert_at_rest(table)


def test_records_found_before_the_flush_may_still_be_deleted_after_it(table, me):
    """Whoever remembers a record and its incarnation deletes it in the detached directory: the flush frees it."""
    other, keys = Participant(table), tables.keys(10, zone=1)
    records = me.made(keys)
    word = me.detach(1)
    assert other.delete(records[3], keys[3])
    assert other.run() == 0
    assert count(table, 1) == 10
    assert me.reclaim(1, word) == DONE
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ locks not had
def test_a_zone_that_is_locked_is_not_detached(table, me):
    keys = tables.keys(5, zone=1)
    records = me.made(keys)
    with tables.held(tables.quotas(table)[1], "zone_lock"):
        assert me.detach(1) == DONE
        assert me.step is Step.NONE
    assert me.find(keys).tolist() == records.tolist()
    tables.assert_at_rest(table)
    me.flush(1)
    tables.assert_at_rest(table)


@pytest.mark.parametrize("which", ["segment", "record", "count", "total"])
def test_what_is_locked_is_done_whole_by_the_next_slice(which, table, me):
    """One record is stuck: nothing of it is changed, and the slice ends."""
    keys, replies = tables.keys(200, zone=1), tables.keys(200, zone=1, low=2)
    records = me.made(keys, replies)
    segment = int(tables.directory_of(table, 1)[1]) - 1
    place = {
        "segment": (tables.segments(table)[segment], "lock"),
        "record": (tables.entries(table)[int(records[77])], "lock"),
        "count": (tables.quotas(table)[1], "count_lock"),
        "total": (tables.totals(table), "count_lock"),
    }[which]
    word = me.detach(1)
    with tables.held(*place):
        cursor = me.reclaim(1, word)
        assert cursor < 2**32
        assert me.step is Step.RECLAIM
        left = count(table, 1)
        assert left == 200 - me.counter(Reason.FLUSHED) > 0
        assert tables.at_rest(table).numbers[2] == 255  # that lock and no other
    assert me.reclaim(1, word, cursor) == DONE
    assert (count(table, 1), used(table)) == (0, (0, 0))
    tables.assert_at_rest(table)
