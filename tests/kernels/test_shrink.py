"""The index shrinks: what a zone does not need comes home, what is in it stays, whoever dies over it."""

import kills
import naive_audit
import numpy as np
import pytest
import tables
import tiny
from zonetrack.clients.sender import Sender
from zonetrack.clients.traffic import Packet, drive
from zonetrack.kernels import shrink
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import SLOTS
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import CONNECTIONS_PER_SEGMENT_MIN

interpreted = pytest.mark.skipif(JIT, reason="kills at every store need the interpreter")
MANY = 6_000 if JIT else 500
GENERATIONS = 12 if JIT else 4
SOMEBODYS = 200
"""The owner of segments that nobody shall get."""


@pytest.fixture
def table():
    made = tables.small(2 * MANY, extension_share=1000)
    yield made
    assert naive_audit.faults(made) == []


def segments_in_use(table):
    return tables.used(table)[0]


def test_a_zone_that_held_many_and_holds_ten_keeps_one_segment(table):
    one = tables.Participant(table)
    keys = tables.keys(MANY)
    one.made(keys)
    before = segments_in_use(table)
    assert before > MANY // SLOTS
    one.remove(keys[10:])
    assert segments_in_use(table) == before
    assert one.shrink(0) == before - 1 == one.counter(Reason.MERGED)
    assert tables.shape(table, 0) == (0, [0]) and tables.used(table) == (1, 1)
    assert (one.find(keys[:10]) != tables.NONE).all() and (one.find(keys[10:50]) == tables.NONE).all()
    one.made(keys[10:])  # and it grows again
    assert (one.find(keys) != tables.NONE).all()


def test_nothing_goes_back_of_a_zone_that_is_full(table):
    one = tables.Participant(table)
    one.made(tables.keys(MANY))
    before = tables.shape(table, 0)
    assert one.shrink(0) < len(before[1]) // 8  # some two that have just split may fit into one
    assert (one.find(tables.keys(MANY)) != tables.NONE).all()
    word = tables.zones(table)["word"][0]
    assert one.shrink(0) == 0 and tables.zones(table)["word"][0] == word


def test_half_of_a_zone(table):
    one = tables.Participant(table)
    keys = tables.keys(MANY)
    one.made(keys)
    before = segments_in_use(table)
    one.remove(keys[MANY // 8 :])
    one.shrink(0)
    assert segments_in_use(table) < before / 3
    assert (one.find(keys[: MANY // 8]) != tables.NONE).all()
    assert one.shrink(0) == 0


def test_an_empty_zone_has_nothing(table):
    one = tables.Participant(table)
    keys = tables.keys(MANY // 4)
    one.made(keys)
    one.remove(keys)
    assert one.shrink(0) > 0
    assert tables.used(table) == (0, 0) and len(tables.directory_of(table, 0)) == 0
    assert one.shrink(0) == 0 == one.shrink(1)
    one.made(keys)
    assert (one.find(keys) != tables.NONE).all()


def test_who_comes_when_no_segment_is_left_gets_one_of_two_that_fit_into_one(table):
    """Generations of as many connections, none in the places of those before: each is whole, in hardly more segments."""
    one, sender = tables.Participant(table), Sender(5, 32)
    sender.set(count=1 << 40, budget=1 << 40)
    owners = tables.segments(table)["owner"]
    for generation in range(GENERATIONS):
        sender.set(first=generation * MANY, end=MANY)
        sender.send(Packet.SYN)
        moment = (generation + 1) << 24
        while not sender.done:
            assert not drive(one.views, sender.stream, u64(moment)), Reason(int(sender.stream["refusal"]))
        assert tables.totals(table)["count"] == MANY
        if generation == 0:
            enough = MANY // CONNECTIONS_PER_SEGMENT_MIN + 2  # what a table of this size would have
            owners[np.flatnonzero(owners == 0)[enough - segments_in_use(table) :]] = SOMEBODYS
        while one.sweep(moment + (1 << 23)):
            pass
    assert one.counter(Reason.INDEX_FULL) == 0
    assert one.counter(Reason.MERGED) > 0 or not JIT  # a few hundred are not enough for that
    owners[owners == SOMEBODYS] = 0
    tables.assert_at_rest(table)


def test_what_is_looked_at_for_relief_is_bounded(table):
    one = tables.Participant(table)
    keys = tables.keys(MANY)
    one.made(keys)
    one.remove(keys[10:])
    assert one.relieve(0, 7) == int(shrink.RELIEF) == one.counter(Reason.MERGED)
    assert one.relieve(1, 7) == 0  # a zone that has nothing
    assert (one.find(keys[:10]) != tables.NONE).all()


def test_connections_with_two_keys(table):
    one = tables.Participant(table)
    keys, replies = tables.keys(MANY // 2), tables.keys(MANY // 2, low=77)
    one.made(keys, replies)
    one.remove(keys[20:])
    assert one.shrink(0) > 0
    for each in (keys, replies):
        assert (one.find(each[:20]) != tables.NONE).all()
    one.remove(keys[:20])
    one.shrink(0)
    assert tables.used(table) == (0, 0)


def test_a_slice_at_a_time(table):
    one = tables.Participant(table)
    keys = tables.keys(MANY)
    one.made(keys)
    one.remove(keys[3:])
    before = segments_in_use(table)
    assert one.shrink(0, 2) == 2 and segments_in_use(table) == before - 2
    while one.shrink(0, 5):
        assert (one.find(keys[:3]) != tables.NONE).all()
    assert segments_in_use(table) == 1


def halves(table, low, high):
    """Make two segments of a zone with so many in one of their pairs of lines."""
    one = tables.Participant(table)
    crowd = np.concatenate([tiny.aimed(9, prefix="0", pair=1), tiny.aimed(8, prefix="1", pair=1)])
    one.made(crowd)
    one.remove(crowd)
    one.made(np.concatenate([tiny.aimed(low, prefix="0"), tiny.aimed(high, prefix="1")]))
    assert tables.shape(table, 0) == (1, [1, 1])
    return one


@pytest.mark.parametrize(("low", "high", "merges"), [(6, 6, 1), (0, 12, 1), (12, 0, 1), (7, 6, 0), (12, 1, 0)])
def test_what_is_merged_has_room_for_more(table, low, high, merges):
    one = halves(table, low, high)
    assert low + high <= int(shrink.PAIR_MAX) or not merges
    assert one.shrink(0) == merges
    assert tables.shape(table, 0) == ((0, [0]) if merges else (1, [1, 1]))
    keys = np.concatenate([tiny.aimed(low, prefix="0"), tiny.aimed(high, prefix="1")])
    assert (one.find(keys) != tables.NONE).all()


def test_two_at_different_depths_do_not_fit(table):
    """Of 0, 10 and 11 the last two are merged first, then what they have become with the first."""
    one = tables.Participant(table)
    crowd = np.concatenate([tiny.aimed(9, prefix="10", pair=1), tiny.aimed(8, prefix="11", pair=1)])
    one.made(crowd)
    assert tables.shape(table, 0) == (2, [1, 2, 2])
    one.remove(crowd)
    one.made(np.concatenate([tiny.aimed(13, prefix="0"), tiny.aimed(1, prefix="1")]))
    assert one.shrink(0) == 1 and tables.shape(table, 0) == (1, [1, 1])


def test_without_a_smaller_directory_the_large_one_stays(table):
    one = halves(table, 1, 1)
    owners = tables.directory_owners(table)
    free = np.flatnonzero(owners == 0)
    owners[free] = 99
    assert one.shrink(0) == 1 and tables.shape(table, 0) == (1, [0])
    owners[free] = 0
    assert one.shrink(0) == 0 and tables.shape(table, 0) == (0, [0])


def test_a_lock_that_is_not_had_is_left_for_later(table, monkeypatch):
    one = halves(table, 1, 1)
    segment = int(tables.directory_of(table, 0)[0]) - 1
    with tables.held(tables.segments(table)[segment : segment + 1]):
        assert one.shrink(0) == 0
    assert tables.shape(table, 0) == (1, [1, 1])
    with tables.held(tables.quotas(table)[:1], "zone_lock"):
        assert one.shrink(0) == 0
    assert one.shrink(0) == 1


# ------------------------------------------------------------------------------------------------ deaths
def apart(one):
    """Four segments of a directory of four entries, with one connection each, and one of two keys."""
    crowd = [tiny.aimed(9, prefix=prefix, pair=1) for prefix in ("00", "01", "10", "11")]
    for few in crowd:
        one.made(few)
    for few in crowd:
        one.remove(few[1:])
    one.made(tiny.aimed(1, prefix="0"), tiny.aimed(1, prefix="11"))


KNOWN = np.concatenate([tiny.aimed(1, prefix=prefix, pair=1) for prefix in ("00", "01", "10", "11")])


@pytest.fixture
def stand():
    with kills.few_zones():
        made = tiny.Stage(2, extension_share=1000)
        apart(made.participants[0])
        made.save()
        yield made


@interpreted
def test_a_death_at_each_store(stand, record_property):
    one, other = stand.participants

    def check():
        assert (other.find(KNOWN) != tables.NONE).all()
        one.shrink(0)
        assert tables.shape(stand.table, 0) == (0, [0])
        assert (other.find(np.concatenate([KNOWN, tiny.aimed(1, prefix="11")])) != tables.NONE).all()

    count = kills.each_kill(stand, lambda one: one.shrink(0), check)
    record_property("kills", count)
    assert count > 60


@interpreted
def test_a_death_at_each_store_of_the_repairer(stand):
    assert kills.each_kill_of_the_repairer(stand, lambda one: one.shrink(0), 0.004) > 10


@interpreted
def test_a_death_over_the_last_segment():
    with kills.few_zones():
        made = tiny.Stage(2)
        one, other = made.participants
        one.made(tiny.aimed(1))
        one.remove(tiny.aimed(1))
        made.save()

        def check():
            one.shrink(0)
            assert tables.used(made.table) == (0, 0)
            other.made(tiny.aimed(1))

        assert kills.each_kill(made, lambda one: one.shrink(0), check) > 8
        assert kills.each_kill_of_the_repairer(made, lambda one: one.shrink(0), 0.03) > 2
