"""However the index grows, every key is found where it was put; where it cannot grow, nothing is left behind."""

import numpy as np
import pytest
import tables
from tables import NONE, Participant
from tiny import aimed, pinned
from zonetrack.kernels.jit import JIT
from zonetrack.shm.layout import DEPTH_MAX, LINE_SLOTS, SLOTS, UNLIMITED
from zonetrack.shm.reasons import Reason

PAIR = 2 * LINE_SLOTS


@pytest.fixture
def table():
    table = tables.small(2000, extension_share=500)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def me(table):
    return Participant(table)


def test_a_split_halves_a_segment_by_the_next_bit(table, me):
    """Sixteen keys that begin with 00 and sixteen with 1 fill two pairs of lines; one more of each splits."""
    low, high = pinned(PAIR, 1, "00"), aimed(PAIR, 1, pair=5, prefix="1")
    me.made(np.concatenate([low, high]))
    assert tables.shape(table, 1) == (0, [0])
    me.made(pinned(1, 1, "01"))  # the first bit moves the wrong half, the second makes room
    assert (tables.shape(table, 1), me.counter(Reason.SPLIT)) == ((2, [2, 2, 1]), 2)
    me.made(pinned(1, 1, "00", skip=PAIR))  # 00 is split again and again until the sixteen part
    depth, depths = tables.shape(table, 1)
    assert depth >= 3 and depths[-2:] == [2, 1]  # what has room is named by more entries and stays as it is
    assert sum(2.0**-each for each in depths) == 1
    assert me.counter(Reason.SPLIT) == len(depths) - 1
    tables.assert_at_rest(table)
    for keys in (low, high):
        assert NONE not in me.find(keys)


def test_a_plain_split_leaves_the_directory_where_it_is(table, me):
    me.made(pinned(PAIR + 1, 1, "00"))  # deep on the left
    depth = tables.depth_of(table, 1)
    assert depth >= 2
    number, version = tables.directory_number(table, 1), tables.version_of(table, 1)
    me.made(aimed(PAIR, 1, pair=5, prefix="10"))
    me.made(aimed(1, 1, pair=5, prefix="11"))
    assert tables.shape(table, 1)[1][-2:] == [2, 2]
    assert (tables.directory_number(table, 1), tables.depth_of(table, 1)) == (number, depth)
    assert tables.version_of(table, 1) > version  # yet the word is another, for who looks twice
    tables.assert_at_rest(table)


def test_one_zone_grows_to_many_segments():
    count = 20_000 if JIT else 1500
    table = tables.small(count, zones=2)
    me, other = Participant(table), Participant(table)
    keys = tables.keys(count, zone=7)
    records = np.concatenate([me.made(keys[: count // 2]), other.made(keys[count // 2 :], wanted=32)])
    assert len(set(records.tolist())) == count
    assert me.find(keys).tolist() == records.tolist()
    depth, depths = tables.shape(table, 7)
    assert depth >= (8 if JIT else 4)
    assert count / SLOTS < len(depths) <= table.geometry.segments
    tables.assert_at_rest(table)

    other.remove(keys[::3])
    found = me.find(keys)
    expected = records.copy()
    expected[::3] = NONE
    assert found.tolist() == expected.tolist()
    tables.assert_at_rest(table)
    me.made(keys[::3])
    tables.assert_at_rest(table)


def test_many_zones_grow_side_by_side():
    zones, each = (500, 20) if JIT else (60, 5)
    table = tables.small(zones * each, zones=zones)
    me = Participant(table)
    keys = np.concatenate([tables.keys(each, zone=1 + i) for i in range(zones)])
    records = me.made(keys[np.random.default_rng(5).permutation(len(keys))])
    assert len(set(records.tolist())) == len(keys)
    found = me.find(keys)
    assert NONE not in found
    zone_of = (tables.entries(table)["key"][found.astype("i8"), 4] >> np.uint64(16)) % np.uint64(2**16)
    assert zone_of.tolist() == np.repeat(np.arange(1, zones + 1), each).tolist()
    assert tables.quotas(table)["count"][1 : zones + 1].tolist() == [each] * zones
    assert tables.used(table)[0] >= zones
    tables.assert_at_rest(table)
    me.remove(keys)
    assert tables.totals(table)["count"] == 0
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ index full
def tight():
    """Return a table of 256 records, 32 segments and 31 directories of one entry."""
    table = tables.small(1, zones=30, extension_share=0)
    tables.totals(table)["limit"] = UNLIMITED
    assert table.geometry.segments == 32 and table.geometry.directories(0) == 31
    return table


def test_without_a_segment_left_a_split_is_refused_and_all_stands():
    table = tight()
    me = Participant(table)
    for zone in range(1, 32):
        me.made(tables.keys(1, zone=zone))
    reasons, records = me.make(pinned(40, 1))
    assert set(reasons.tolist()) == {Reason.NONE, Reason.INDEX_FULL}
    assert tables.used(table)[0] == 32
    tables.assert_at_rest(table)
    for _ in range(3):
        assert me.make_one(pinned(1, 1, skip=39)) is Reason.INDEX_FULL
    made = pinned(40, 1)[reasons == Reason.NONE]
    assert me.find(made).tolist() == records[reasons == Reason.NONE].tolist()
    tables.assert_at_rest(table)
    me.remove(made)  # room in the lines is enough
    assert me.make_one(pinned(1, 1, skip=39)) is Reason.NONE
    tables.assert_at_rest(table)


def test_without_a_directory_left_a_new_zone_is_refused_and_its_segment_goes_back():
    table = tight()
    me = Participant(table)
    for zone in range(1, 32):
        me.made(tables.keys(1, zone=zone))
    assert me.make_one(tables.keys(1, zone=32)) is Reason.INDEX_FULL
    assert tables.used(table) == (31, 31)
    assert tables.zones(table)["word"][32] == 0
    tables.assert_at_rest(table)
    me.flush(5)
    assert me.make_one(tables.keys(1, zone=32)) is Reason.NONE
    tables.assert_at_rest(table)


def test_without_a_larger_directory_left_a_split_is_refused_and_its_segment_goes_back(table, me):
    owners, first = tables.directory_owners(table), table.geometry.directory_first
    me.made(pinned(PAIR, 1))
    owners[first[1] : first[2]] = 255
    assert me.make_one(pinned(1, 1, skip=PAIR)) is Reason.INDEX_FULL
    assert tables.used(table)[0] == 1
    owners[first[1] : first[2]] = 0
    tables.assert_at_rest(table)
    assert me.make_one(pinned(1, 1, skip=PAIR)) is Reason.NONE
    tables.assert_at_rest(table)


def test_a_segment_of_the_deepest_depth_is_not_split(table, me):
    me.made(pinned(PAIR, 1))
    segment = tables.segments(table)[tables.directory_of(table, 1)[0] - 1]
    segment["depth"] = DEPTH_MAX
    assert me.make_one(pinned(1, 1, skip=PAIR)) is Reason.INDEX_FULL
    segment["depth"] = 0
    tables.assert_at_rest(table)
