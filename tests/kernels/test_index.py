"""Keys are found where they were put, however the index grows, and only they; what does not fit leaves nothing behind."""

import numpy as np
import pytest
import tables
from hashing import hash_keys
from tables import BUSY, NONE, Participant
from tiny import pinned
from zonetrack.kernels import index
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import LINE_BYTES, LINE_SLOTS, SLOTS, UNLIMITED, Life, Slab
from zonetrack.shm.reasons import Reason

PAIR = 2 * LINE_SLOTS


@kernel
def glance(views, zone, word, line, tag):
    return index.glance(views, zone, word, line, tag)


@pytest.fixture
def table():
    table = tables.small(2000, extension_share=500)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def me(table):
    return Participant(table)


def line_of(table, zone, key):
    """Return the 16 slots of a key's pair of lines, its home line first."""
    [hash_] = hash_keys(tables.SECRET, key)
    slots = tables.slots(table)[tables.segment_of(table, zone, hash_)].reshape(-1, LINE_SLOTS)
    home = int(hash_) % len(slots)
    return np.concatenate([slots[home], slots[home ^ 1]])


# ------------------------------------------------------------------------------------------------ find, insert
def test_a_zone_without_connections_has_no_directory(table, me):
    assert me.find(tables.keys(2, zone=1)).tolist() == [NONE, NONE]
    assert tables.used(table) == (0, 0)
    me.made(tables.keys(1, zone=1))
    assert (tables.used(table), tables.shape(table, 1)) == ((1, 1), (0, [0]))
    assert tables.segments(table)["zone"][tables.directory_of(table, 1)[0] - 1] == 1


def test_what_was_made_is_found_and_nothing_else(table, me):
    keys = tables.keys(50, zone=1)
    records = me.made(keys)
    assert len(set(records.tolist())) == 50
    assert me.find(keys).tolist() == records.tolist()
    near = keys.copy()
    for word, bit in ((0, 0), (1, 5), (2, 63), (3, 31), (4, 48), (4, 32), (4, 8), (4, 0)):
        near[:, word] ^= np.uint64(1 << bit)
        assert set(me.find(near).tolist()) == {NONE}, (word, bit)
        near[:, word] ^= np.uint64(1 << bit)
    assert set(me.find(tables.keys(50, zone=2)).tolist()) == {NONE}
    assert me.counter(Reason.INSERT) == 50
    tables.assert_at_rest(table)


def test_a_found_record_is_locked_by_the_finder(table, me):
    [key] = tables.keys(1)
    [record] = me.made(key)
    entry = tables.entries(table)[int(record)]
    [hash_] = hash_keys(tables.SECRET, key)
    assert int(index.find(me.views, u64(key.ctypes.data), hash_, u64(0))) == record
    assert entry["lock"] == me.me
    entry["lock"] = 0
    assert int(index.find(me.views, u64(tables.keys(1, first=2).ctypes.data), hash_, u64(0))) == NONE
    assert not tables.entries(table)["lock"].any()


def test_the_same_key_again_is_adopted(table, me):
    other, keys = Participant(table), tables.keys(20)
    records = me.made(keys)
    reasons, _ = other.make(keys)
    assert set(reasons.tolist()) == {Reason.ADOPTED}
    assert other.find(keys).tolist() == records.tolist()
    tables.assert_at_rest(table)


def test_a_miss_is_true_after_a_delete_and_the_key_is_free_again(table, me):
    keys = tables.keys(200)
    first = me.made(keys)
    assert me.remove(keys[::2]).tolist() == first[::2].tolist()
    found = me.find(keys)
    assert set(found[::2].tolist()) == {NONE}
    assert found[1::2].tolist() == first[1::2].tolist()
    assert set(me.remove(keys[::2]).tolist()) == {NONE}
    me.made(keys[::2])
    assert NONE not in me.find(keys)
    tables.assert_at_rest(table)


def test_a_record_that_is_dead_is_missed_and_its_key_free_before_its_slot_is(table, me):
    [key] = tables.keys(1)
    [old] = me.made(key)
    me.mark(key)
    assert me.find(key).tolist() == [NONE]
    [new] = me.made(key)
    assert new != old
    assert np.count_nonzero(line_of(table, 0, key)) == 2
    assert me.find(key).tolist() == [new]
    assert me.run() == 0
    assert me.find(key).tolist() == [new]
    tables.assert_at_rest(table)


def test_a_record_whose_lock_is_held_is_busy(table, me):
    keys = tables.keys(2)
    records = me.made(keys)
    with tables.held(tables.entries(table)[int(records[0])]):
        assert me.find(keys).tolist() == [BUSY, int(records[1])]
    assert me.find(keys).tolist() == records.tolist()
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ tags, lines
def same_tags():
    """Return two keys whose hashes begin with the same 32 bits and have one pair of lines.

    Among n keys there are n**2 / 2 pairs, of which one in 2**35 will do: 400,000 keys have some two.
    """
    keys = tables.keys(500_000, zone=1)
    hashes = hash_keys(tables.SECRET, keys)
    places = hashes >> np.uint64(32) << np.uint64(3) | (hashes >> np.uint64(1)) & np.uint64(7)
    order = np.argsort(places, kind="stable")
    [at, *_] = np.flatnonzero(np.diff(places[order]) == 0)
    return keys[order[[at, at + 1]]]


def test_keys_with_one_tag_are_told_apart(table, me):
    keys = same_tags()
    assert len(set((hash_keys(tables.SECRET, keys) >> np.uint64(32)).tolist())) == 1
    [first] = me.made(keys[0])
    assert me.find(keys).tolist() == [first, NONE]
    [second] = me.made(keys[1])
    assert me.find(keys).tolist() == [first, second]
    slots = line_of(table, 1, keys[0])
    assert len(set((slots[slots != 0] >> np.uint64(32)).tolist())) == 1
    tables.assert_at_rest(table)
    assert me.remove(keys[0]).tolist() == [first]
    assert me.find(keys).tolist() == [NONE, second]
    assert me.make_one(keys[1]) is Reason.ADOPTED
    tables.assert_at_rest(table)


def test_a_full_home_line_goes_on_in_the_neighbour_and_a_full_pair_splits(table, me):
    keys = pinned(PAIR + 1, 1)
    for i, key in enumerate(keys[:PAIR]):
        [record] = me.made(key)
        [place] = np.flatnonzero(line_of(table, 1, key) % np.uint64(2**32) == record + np.uint64(1))
        same_home = np.count_nonzero((hash_keys(tables.SECRET, keys[:i]) ^ hash_keys(tables.SECRET, key)) % 2 == 0)
        assert (place < LINE_SLOTS) or same_home >= LINE_SLOTS, "home line first"
    assert np.count_nonzero(line_of(table, 1, keys[0])) == PAIR
    assert tables.shape(table, 1) == (0, [0])
    tables.assert_at_rest(table)
    me.made(keys[PAIR])
    assert tables.shape(table, 1)[0] >= 1
    assert NONE not in me.find(keys)
    assert me.counter(Reason.SPLIT) >= 1
    tables.assert_at_rest(table)


def test_a_slot_that_is_free_again_is_used_again(table, me):
    keys = pinned(PAIR + 5, 1)
    me.made(keys[:PAIR])
    for old, new in zip(keys[:5], keys[PAIR:], strict=True):
        me.remove(old)
        me.made(new)
    assert tables.shape(table, 1) == (0, [0])
    tables.assert_at_rest(table)


def test_a_glance_names_a_record_of_the_pair_or_says_that_there_is_none(table, me):
    keys = pinned(PAIR - 3, 1)  # some stand in the neighbour of their home
    records = me.made(keys)
    word = tables.zones(table)["word"][1]
    for key, record in zip(keys, records, strict=True):
        [hash_] = hash_keys(tables.SECRET, key)
        segment, tag = tables.segment_of(table, 1, hash_), hash_ >> np.uint64(32)
        line = u64(int(me.views["slots"]) + segment * SLOTS * 8 + int(hash_) % 16 * LINE_BYTES)
        assert int(glance(me.views, u64(1), word, line, tag)) == record + 1
        absent = tag ^ np.uint64(1)
        assert int(glance(me.views, u64(1), word, line, absent)) == index.ABSENT
        assert int(glance(me.views, u64(1), word ^ np.uint64(1 << 40), line, absent)) == 0  # another zone word


# ------------------------------------------------------------------------------------------------ two keys
def two_keys(count, zone=1):
    """Return keys and reply keys of as many connections."""
    return tables.keys(count, zone), tables.keys(count, zone, low=2)


def test_a_connection_with_two_keys_is_found_by_both(table, me):
    keys, replies = two_keys(30)
    records = me.made(keys, replies)
    assert me.find(keys).tolist() == records.tolist()
    assert me.find(replies).tolist() == records.tolist()
    assert tables.quotas(table)["count"][1] == 30
    assert tables.shape(table, 1) == (0, [0])  # both of each in one segment
    tables.assert_at_rest(table)
    assert me.remove(replies[:10]).tolist() == records[:10].tolist()
    for each in (keys, replies):
        assert me.find(each).tolist() == [NONE] * 10 + records[10:].tolist()
    tables.assert_at_rest(table)


def test_two_keys_in_one_full_pair_take_different_slots(table, me):
    keys = pinned(PAIR, 1)
    records = me.made(keys[: PAIR // 2], keys[PAIR // 2 :])
    slots = line_of(table, 1, keys[0])
    assert sorted((slots % np.uint64(2**32)).tolist()) == sorted([*(records + 1).tolist()] * 2)
    tables.assert_at_rest(table)


def test_two_keys_of_which_one_finds_the_last_slot_of_the_pair_split_it(table, me):
    keys = pinned(PAIR + 1, 1)
    me.made(keys[: PAIR - 1])
    me.made(keys[PAIR - 1], keys[PAIR])
    assert tables.depth_of(table, 1) >= 1
    assert NONE not in me.find(keys)
    tables.assert_at_rest(table)


def test_two_keys_in_segments_that_part(table, me):
    count = 400
    keys, replies = two_keys(count)
    records = me.made(keys, replies)
    segments = [
        [tables.segment_of(table, 1, hash_) for hash_ in hash_keys(tables.SECRET, each)] for each in (keys, replies)
    ]
    apart = [a < b for a, b in zip(*segments, strict=True) if a != b]
    assert {True, False} <= set(apart), "in either order"
    assert me.find(keys).tolist() == records.tolist() == me.find(replies).tolist()
    tables.assert_at_rest(table)
    me.remove(np.concatenate([keys[: count // 4], replies[count // 4 : count // 2]]))
    for each in (keys, replies):
        assert me.find(each).tolist() == [NONE] * (count // 2) + records[count // 2 :].tolist()
    tables.assert_at_rest(table)


@pytest.mark.parametrize("filled", [0, 300])
def test_a_reply_key_that_is_taken_is_a_clash(filled, table, me):
    """Whether by another's original or reply key, in the same segment or in others."""
    me.made(tables.keys(filled, zone=1, low=9))
    keys, replies = two_keys(8)
    me.made(keys[:1])
    me.made(keys[1], replies[1])
    assert me.make_one(keys[2], keys[0]) is Reason.CLASH
    assert me.make_one(keys[2], keys[1]) is Reason.CLASH
    assert me.make_one(keys[2], replies[1]) is Reason.CLASH
    assert me.find(keys[2]).tolist() == [NONE]
    assert tables.quotas(table)["count"][1] == filled + 2
    assert me.make_one(keys[2], replies[2]) is Reason.NONE
    tables.assert_at_rest(table)


def test_an_original_key_that_is_taken_is_adopted_before_the_reply_key_clashes(table, me):
    keys, replies = two_keys(3)
    me.made(keys[0], replies[0])
    assert me.make_one(keys[0], replies[0]) is Reason.ADOPTED
    assert me.make_one(keys[0], replies[1]) is Reason.ADOPTED
    assert me.make_one(replies[0]) is Reason.ADOPTED  # by the other's reply key
    assert me.make_one(replies[0], replies[1]) is Reason.ADOPTED
    tables.assert_at_rest(table)


def test_both_keys_are_free_again_while_their_dead_record_still_has_its_slots(table, me):
    [key], [reply] = two_keys(1)
    [old] = me.made(key, reply)
    me.mark(reply)
    assert me.find([key, reply]).tolist() == [NONE, NONE]
    [new] = me.made(reply, key)  # the other way round
    assert me.run() == 0
    assert new != old and me.find([key, reply]).tolist() == [new, new]
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ locks not had
def refused_while_held(table, me, record, key, field="lock", reply=None):
    """Make a connection while a lock is held: BUSY, and nothing is left of the attempt."""
    before = tables.zones(table)["word"].tolist(), tables.used(table), int(tables.totals(table)["count"])
    with tables.held(record, field):
        assert me.make_one(key, reply) is Reason.BUSY
        assert tables.at_rest(table).numbers[2] == 255  # that lock and no other
    assert (tables.zones(table)["word"].tolist(), tables.used(table), int(tables.totals(table)["count"])) == before
    tables.assert_at_rest(table)
    assert me.make_one(key, reply) is Reason.NONE
    tables.assert_at_rest(table)


def test_a_segment_that_is_locked_makes_busy(table, me):
    keys = tables.keys(2)
    me.made(keys[0])
    refused_while_held(table, me, tables.segments(table)[tables.directory_of(table, 0)[0] - 1], keys[1])


def test_a_second_segment_that_is_locked_makes_busy_and_the_first_is_unlocked(table, me):
    me.made(tables.keys(400, zone=1, low=9))
    keys, replies = two_keys(40)
    hashes = hash_keys(tables.SECRET, keys), hash_keys(tables.SECRET, replies)
    places = [[tables.segment_of(table, 1, hash_) for hash_ in each] for each in hashes]
    [i, *_] = [i for i, (a, b) in enumerate(zip(*places, strict=True)) if a != b]
    high = max(places[0][i], places[1][i])
    refused_while_held(table, me, tables.segments(table)[high], keys[i], reply=replies[i])


def test_a_zone_that_is_locked_makes_busy_where_its_word_must_change(table, me):
    quota = tables.quotas(table)[1]
    refused_while_held(table, me, quota, pinned(1, 1), "zone_lock")  # create
    me.made(pinned(PAIR - 1, 1, skip=1))
    with tables.held(tables.quotas(table)[1], "zone_lock"):
        assert NONE not in me.find(pinned(PAIR, 1))  # finding needs no lock of the zone
    refused_while_held(table, me, quota, pinned(1, 1, skip=PAIR), "zone_lock")  # split


# ------------------------------------------------------------------------------------------------ what is not believed
def test_an_entry_outside_of_the_index_is_looked_at_again_and_then_busy(table, me):
    """As a finder may see it that was preempted while a directory was reused: here it never becomes right."""
    key = tables.keys(1)
    me.made(key)
    directory = tables.directory_of(table, 0)
    before = directory.copy()
    for wrong in (0, table.geometry.segments + 1, 2**32 - 1):
        directory[:] = wrong
        assert me.find(key).tolist() == [BUSY]
        assert me.make_one(tables.keys(1, first=2)) is Reason.BUSY
    directory[:] = before
    assert me.find(key).tolist() == [0]
    tables.assert_at_rest(table)


def test_a_slot_is_a_hint_and_life_decides(table, me):
    """A slot that names a free record, as a finder may load it just before it is cleared."""
    key = tables.keys(1)
    [record] = me.made(key)
    line = line_of(table, 0, key)
    slots = tables.slots(table)[tables.directory_of(table, 0)[0] - 1]
    kept = slots.copy()
    me.remove(key)
    slots[:] = kept
    assert tables.entries(table)["life"][int(record)] % np.uint64(256) == Life.FREE
    assert me.find(key).tolist() == [NONE]
    assert np.count_nonzero(line) == 1
    [again] = me.made(key)
    assert me.find(key).tolist() == [again]
    assert table.geometry.records(Slab.ENTRIES) > again
