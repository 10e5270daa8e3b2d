"""What was marked leaves index and counts in batches, once; what a flush took, or lives anew, is left alone."""

import numpy as np
import pytest
import tables
from hashing import hash_keys
from tables import BUSY, NONE, Participant
from zonetrack.shm.layout import DELETE_LIST_MAX, UNLIMITED, Life, Step
from zonetrack.shm.reasons import Reason


@pytest.fixture
def table():
    table = tables.small(2000, extension_share=500)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def me(table):
    return Participant(table)


def life_of(table, record):
    word = int(tables.entries(table)["life"][int(record)])
    return Life(word & 0xFF), word >> 8 & 0xFFFF, word >> 32


def count(table, zone):
    return int(tables.quotas(table)["count"][zone])


def segment_header(table, zone, key):
    [hash_] = hash_keys(tables.SECRET, key)
    return tables.segments(table)[tables.segment_of(table, zone, hash_)]


# ------------------------------------------------------------------------------------------------ mark, run
def test_a_marked_record_is_dead_and_on_the_list_but_still_counted(table, me):
    keys = tables.keys(3, zone=7)
    records = me.made(keys)
    assert me.mark(keys[1]).tolist() == [records[1]]
    [line] = me.deletes
    assert (line["record"], line["incarnation"], line["zone_step"]) == (records[1], 1, 7 << 8 | Step.MARK)
    assert life_of(table, records[1]) == (Life.DEAD, me.me, 1)
    assert me.find(keys).tolist() == [records[0], NONE, records[2]]
    assert count(table, 7) == 3
    assert me.mark(keys[1]).tolist() == [NONE]  # once
    assert len(me.deletes) == 1


def test_a_run_takes_it_out_of_index_and_counts_and_frees_it(table, me):
    keys = tables.keys(3, zone=7)
    records = me.made(keys)
    me.mark(keys[1])
    assert me.run() == 0
    assert life_of(table, records[1]) == (Life.FREE, 0, 1)
    assert (count(table, 7), len(me.deletes), me.counter(Reason.REMOVE)) == (2, 0, 1)
    tables.assert_at_rest(table)
    assert me.run() == 0  # an empty list: nothing happens
    assert me.counter(Reason.REMOVE) == 1
    tables.assert_at_rest(table)


def test_a_batch_goes_over_many_zones_and_segments_at_once(table, me):
    keys = np.concatenate([tables.keys(500, zone=1), *(tables.keys(30, zone=zone) for zone in range(2, 6))])
    me.made(keys)
    assert len(set(tables.directory_of(table, 1).tolist())) > 4
    doomed = np.random.default_rng(3).permutation(len(keys))[:90]
    me.mark(keys[doomed])
    assert len(me.deletes) == 90
    assert len(set((me.deletes["zone_step"] >> 8).tolist())) == 5
    assert me.run() == 0
    tables.assert_at_rest(table)
    found = me.find(keys)
    assert np.flatnonzero(found == NONE).tolist() == sorted(doomed.tolist())
    assert sum(count(table, zone) for zone in range(1, 6)) == len(keys) - 90


def test_a_list_that_gets_crowded_is_run_in_between(table, me):
    keys = tables.keys(400, zone=1)
    records = me.made(keys)
    assert me.mark(keys).tolist() == records.tolist()
    assert len(me.deletes) < DELETE_LIST_MAX
    assert me.run() == 0
    assert count(table, 1) == 0
    tables.assert_at_rest(table)


def test_records_with_two_keys_go_with_the_others(table, me):
    """Some have both keys in one segment and some in two, in either order."""
    keys, replies = tables.keys(300, zone=1), tables.keys(300, zone=1, low=2)
    me.made(keys, replies)
    single = tables.keys(100, zone=1, low=3)
    me.made(single)
    mixed = np.concatenate([keys[:40], single[:40]])[np.random.default_rng(4).permutation(80)]
    me.mark(mixed)
    assert me.run() == 0
    tables.assert_at_rest(table)
    assert set(me.find(np.concatenate([mixed, replies[:40]])).tolist()) == {NONE}
    assert NONE not in me.find(np.concatenate([keys[40:], replies[40:], single[40:]]))
    assert count(table, 1) == 320


# ------------------------------------------------------------------------------------------------ delete
def test_a_record_is_deleted_if_it_still_is_what_it_was(table, me):
    keys = tables.keys(3)
    records = me.made(keys)
    assert not me.delete(records[0], keys[1])
    assert not me.delete(records[0], keys[0], incarnation=0)
    assert not me.delete(records[0], keys[0], incarnation=2)
    assert me.find(keys[0]).tolist() == [records[0]]
    tables.assert_at_rest(table)
    assert me.delete(records[0], keys[0])
    assert not me.delete(records[0], keys[0])  # DEAD is not deleted again
    assert me.delete(records[1])  # any key
    assert me.run() == 0
    assert me.find(keys).tolist() == [NONE, NONE, records[2]]
    assert not me.delete(records[0])  # FREE
    tables.assert_at_rest(table)


def test_a_record_is_deleted_by_its_reply_key_too(table, me):
    [key], [reply] = tables.keys(1), tables.keys(1, low=2)
    [record] = me.made(key, reply)
    assert me.delete(record, reply)
    assert me.run() == 0
    tables.assert_at_rest(table)


def test_a_record_that_lives_anew_is_not_deleted_for_what_it_was(table, me):
    [key] = tables.keys(1)
    [record] = me.made(key)
    me.remove(key)
    assert me.made(key).tolist() == [record]
    assert not me.delete(record, key, incarnation=1)
    assert me.find(key).tolist() == [record]
    assert me.delete(record, key, incarnation=2)
    assert me.run() == 0
    tables.assert_at_rest(table)


def test_a_record_whose_lock_is_held_is_not_deleted(table, me):
    [record] = me.made(tables.keys(1))
    with tables.held(tables.entries(table)[int(record)]):
        assert not me.delete(record)
    tables.assert_at_rest(table)
    assert me.delete(record)
    assert me.run() == 0


# ------------------------------------------------------------------------------------------------ what has to wait
def test_lines_whose_segment_is_locked_wait_and_the_others_go(table, me):
    keys = tables.keys(500, zone=1)
    me.made(keys)
    header = segment_header(table, 1, keys[0])
    segments = np.array([tables.segment_of(table, 1, hash_) for hash_ in hash_keys(tables.SECRET, keys[:60])])
    there = np.count_nonzero(segments == segments[0])
    me.mark(keys[:60])
    with tables.held(header):
        assert me.run() >= there > 0
        assert count(table, 1) == 500 - 60 + there
        assert np.count_nonzero(me.deletes["zone_step"] & 0xFF) == there
        assert set(me.find(keys[:60]).tolist()) == {NONE}
    me.mark(keys[60:70])  # behind those that wait
    assert me.run() == 0
    assert count(table, 1) == 430
    tables.assert_at_rest(table)


def test_a_record_with_two_keys_waits_for_either_segment(table, me):
    keys, replies = tables.keys(300, zone=1), tables.keys(300, zone=1, low=2)
    me.made(keys, replies)
    places = [[tables.segment_of(table, 1, h) for h in hash_keys(tables.SECRET, each)] for each in (keys, replies)]
    i = next(i for i, (first, second) in enumerate(zip(*places, strict=True)) if first < second)
    me.mark(keys[i])
    for segment in (places[0][i], places[1][i]):
        with tables.held(tables.segments(table)[segment]):
            assert me.run() == 1
        assert not tables.segments(table)["lock"].any()
    assert me.run() == 0
    tables.assert_at_rest(table)


@pytest.mark.parametrize("which", ["zone", "table"])
def test_lines_whose_count_is_locked_wait_cleared_and_are_counted_once(which, table, me):
    keys = tables.keys(20, zone=1)
    me.made(keys)
    me.made(tables.keys(5, zone=2))
    me.mark(keys[:8])
    me.mark(tables.keys(2, zone=2))
    record = tables.quotas(table)[1] if which == "zone" else tables.totals(table)
    with tables.held(record, "count_lock"):
        assert me.run() > 0
        waiting = me.deletes[me.deletes["zone_step"] & 0xFF != 0]
        assert set((waiting["zone_step"] & 0xFF).tolist()) == {Step.CLEARED}
        assert count(table, 1) == 20
        assert count(table, 2) == (3 if which == "zone" else 5)
        assert not tables.quotas(table)["count_lock"][[0, 2]].any()
    assert me.run() == 0
    assert (count(table, 1), count(table, 2), int(tables.totals(table)["count"])) == (12, 3, 15)
    tables.assert_at_rest(table)


def test_a_list_without_room_takes_nothing_more(table, me):
    """What can be done, one zone's lines, stands between two lots of another's, which wait for a segment."""
    waiting, done = tables.keys(40, zone=1), tables.keys(tables.FULL_LIST - 40, zone=2)
    records = me.made(waiting)
    me.made(np.concatenate([done, tables.keys(1, zone=3)]))
    [segment] = tables.directory_of(table, 1) - 1
    with tables.held(tables.segments(table)[segment]):
        for keys in (waiting[:39], done, waiting[39:]):
            me.mark_unasked(keys)
        assert len(me.deletes) == tables.FULL_LIST
        assert me.mark(tables.keys(1, zone=3)).tolist() == [BUSY]
        assert not me.delete(records[0])
        assert count(table, 2) == 0
        beyond = table.array(tables.Region.CONTROL, "delete_lists", tables.DELETE)[me.me * DELETE_LIST_MAX :]
        assert (len(me.deletes), beyond.view("u4").any()) == (tables.FULL_LIST, False)
    assert me.mark(tables.keys(1, zone=3))[0] != BUSY
    assert me.run() == 0
    assert int(tables.totals(table)["count"]) == 0
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ beside a flush
def test_records_of_a_detached_zone_are_left_to_the_flush(table, me):
    other, keys = Participant(table), tables.keys(100, zone=1)
    me.made(keys)
    me.mark(keys[:20])
    word = other.detach(1)
    assert me.run() == 0  # the zone has no directory
    assert count(table, 1) == 100
    assert other.reclaim(1, word) == tables.flush.DONE
    assert count(table, 1) == 0
    tables.assert_at_rest(table)


def test_records_of_a_detached_zone_are_left_to_the_flush_when_the_zone_begins_anew(table, me):
    """The keys are made once more: the slots that stand in the new directory are of other records."""
    other, keys = Participant(table), tables.keys(100, zone=1)
    me.made(keys)
    me.mark(keys[:20])
    word = other.detach(1)
    anew = me.made(keys)
    assert me.run() == 0
    assert me.find(keys).tolist() == anew.tolist()
    assert count(table, 1) == 200
    assert other.reclaim(1, word) == tables.flush.DONE
    assert (count(table, 1), other.counter(Reason.FLUSHED)) == (100, 100)
    tables.assert_at_rest(table)


def test_records_that_a_flush_has_freed_are_left_alone(table, me):
    other, keys = Participant(table), tables.keys(100, zone=1)
    me.made(keys)
    me.mark(keys[:20])
    other.flush(1)
    assert len(me.deletes) == 20
    assert me.run() == 0
    assert (count(table, 1), me.counter(Reason.REMOVE)) == (0, 0)
    tables.assert_at_rest(table)


@pytest.mark.parametrize("second_key", [False, True])
def test_records_that_live_anew_after_a_flush_are_left_alone(second_key, table, me):
    other, keys = Participant(table), tables.keys(100, zone=1)
    replies = tables.keys(100, zone=1, low=2) if second_key else None
    records = me.made(keys, replies)
    me.mark(keys[:20])
    other.flush(1)
    again = other.made(keys, replies)  # the records that the flush freed
    assert set(again.tolist()) == set(records.tolist())
    assert me.run() == 0
    assert other.find(keys).tolist() == again.tolist()
    assert count(table, 1) == 100
    tables.assert_at_rest(table)


def test_a_record_may_be_on_the_list_as_what_it_was_and_as_what_it_is(table, me):
    other, [key] = Participant(table), tables.keys(1, zone=1)
    [record] = me.made(key)
    me.mark(key)
    other.flush(1)
    assert other.made(key).tolist() == [record]
    me.mark(key)
    assert [(int(line["record"]), int(line["incarnation"])) for line in me.deletes] == [(record, 1), (record, 2)]
    assert me.run() == 0
    assert (count(table, 1), me.counter(Reason.REMOVE)) == (0, 1)
    tables.assert_at_rest(table)


def test_lines_that_were_cleared_before_a_flush_are_counted_and_freed_after_it(table, me):
    other, keys = Participant(table), tables.keys(10, zone=1)
    me.made(keys)
    me.mark(keys[:4])
    with tables.held(tables.quotas(table)[1], "count_lock"):
        assert me.run() == 4
    other.flush(1)
    assert count(table, 1) == 4
    assert me.run() == 0
    assert count(table, 1) == 0
    tables.assert_at_rest(table)


def test_two_delete_one_connection_and_one_of_them_has_it(table, me):
    other, keys = Participant(table), tables.keys(10)
    records = me.made(keys)
    assert [each.delete(records[i]) for i in range(10) for each in ((me, other), (other, me))[i % 2]] == [
        *[True, False] * 10,
    ]
    assert (len(me.deletes), len(other.deletes)) == (5, 5)
    assert me.run() == other.run() == 0
    assert me.counter(Reason.REMOVE) == other.counter(Reason.REMOVE) == 5
    tables.assert_at_rest(table)
