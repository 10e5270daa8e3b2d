"""Zones keep their counts exact: limits refuse the first connection too many, and credit is taken, spent and given back."""

import numpy as np
import operations
import pytest
import tables
from forked import Child
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import Participant
from zonetrack.kernels import zones
from zonetrack.kernels.jit import JIT, kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import (
    MAX_RETRANS_SHIFT,
    POLICY_SHIFT,
    SETTINGS_WORD_DEFAULT,
    UNLIMITED,
    ZONE_DEPTH_BITS,
    ZONE_OFFSET_BITS,
    ZONE_VERSION_SHIFT,
    Setting,
    Step,
)
from zonetrack.shm.reasons import Reason

SHARES = int(zones.SHARES)


@kernel
def look(views, zone, out):
    out[0] = zones.count_of(views, zone)
    out[1] = zones.global_count(views)
    out[2] = zones.limit_of(views, zone)
    out[3] = zones.global_limit(views)
    out[4] = zones.settings_of(views, zone)
    out[5] = zones.policy_of(views, zone)
    out[6] = u64(1) if zones.expires(views, zone) else u64(0)
    out[7] = zones.credit(views)
    out[8] = zones.credit_zone(views)
    out[9] = zones.load_word(views, zone)


@kernel
def zone_words(word, depth, directory, out):
    following = zones.next_word(word, depth, directory)
    out[0] = following
    out[1] = zones.depth_of(following)
    out[2] = zones.directory_of(following)


@pytest.fixture
def table():
    """A table whose limits are far away."""
    table = tables.small(1000)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def me(table):
    return Participant(table)


def seen(me, zone):
    """Return what kernels see of a zone, by name."""
    out = np.zeros(10, "u8")
    look(me.views, u64(zone), out)
    names = ("count", "total", "limit", "total_limit", "settings", "policy", "expires", "credit", "credit_zone", "word")
    return dict(zip(names, out.tolist(), strict=True))


def counts(table, *numbers):
    """Return the counts of zones, and the global one last."""
    return [*tables.quotas(table)["count"][list(numbers)].tolist(), int(tables.totals(table)["count"])]


def make(me, key, wanted):
    """Make a connection, and keep the credit that is left."""
    key = np.ascontiguousarray(key)
    return Reason(int(operations.make(me.views, operations.at(key), u64(0), u64(tables.LATER), u64(wanted))) >> 32)


# ------------------------------------------------------------------------------------------------ words, settings
@settings(deadline=None)
@given(
    st.integers(0, 2 ** (64 - ZONE_VERSION_SHIFT) - 1),
    st.integers(0, 2**ZONE_VERSION_SHIFT - 1),
    st.integers(0, 2**ZONE_DEPTH_BITS - 1),
    st.integers(0, 2**ZONE_OFFSET_BITS - 1),
)
def test_the_next_word_is_one_version_on(version, rest, depth, directory):
    out = np.zeros(3, "u8")
    zone_words(u64(version << ZONE_VERSION_SHIFT | rest), u64(depth), u64(directory), out)
    following = (version + 1) % 2 ** (64 - ZONE_VERSION_SHIFT)
    assert out.tolist() == [
        *(following << ZONE_VERSION_SHIFT | depth << ZONE_OFFSET_BITS | directory, depth, directory),
    ]


def test_a_new_zone_is_empty_unlimited_and_as_configured_by_default(me):
    unlimited = {"limit": UNLIMITED, "total_limit": UNLIMITED}
    empty = dict.fromkeys(("count", "total", "policy", "credit", "credit_zone", "word"), 0)
    assert seen(me, 65535) == empty | unlimited | {"settings": SETTINGS_WORD_DEFAULT, "expires": 1}


def test_each_zone_has_its_own_settings(table, me):
    tables.zones(table)["settings"][3] = Setting.NO_EXPIRY | Setting.BE_LIBERAL
    tables.zones(table)["policy"][3] = 9
    assert [seen(me, zone)["expires"] for zone in (2, 3, 4)] == [1, 0, 1]
    tables.zones(table)["max_retrans"][3] = 5
    word = Setting.NO_EXPIRY | Setting.BE_LIBERAL | 5 << MAX_RETRANS_SHIFT | 9 << POLICY_SHIFT
    assert (seen(me, 3)["settings"], seen(me, 3)["policy"]) == (word, 9)


# ------------------------------------------------------------------------------------------------ limits
@pytest.mark.parametrize("limit", [0, 1, 7])
def test_a_zones_limit_is_exact(limit, table, me):
    tables.set_limit(table, 1, limit)
    reasons, _ = me.make(tables.keys(limit + 3, zone=1))
    assert reasons.tolist() == [Reason.NONE] * limit + [Reason.ZONE_FULL] * 3
    assert counts(table, 1, 2) == [limit, 0, limit]
    assert me.make_one(tables.keys(1, zone=2)) is Reason.NONE
    tables.assert_at_rest(table)


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_the_global_limit_is_exact_over_all_zones(limit, table, me):
    tables.totals(table)["limit"] = limit
    keys = np.concatenate([tables.keys(1, zone=1 + i % 3, first=i + 1) for i in range(limit + 3)])
    assert me.make(keys)[0].tolist() == [Reason.NONE] * limit + [Reason.FULL] * 3
    assert sum(counts(table, 1, 2, 3)) == 2 * limit
    tables.assert_at_rest(table)


def test_a_refused_connection_leaves_nothing_behind_but_room_for_the_next(table, me):
    tables.set_limit(table, 1, 2)
    keys = tables.keys(3, zone=1)
    me.made(keys[:2])
    for _ in range(5):
        assert me.make_one(keys[2]) is Reason.ZONE_FULL
    me.remove(keys[:1])
    assert me.make_one(keys[2]) is Reason.NONE
    assert me.make_one(keys[0]) is Reason.ZONE_FULL
    tables.assert_at_rest(table)


def test_of_two_limits_the_zones_is_named_first(table, me):
    tables.set_limit(table, 1, 1)
    tables.totals(table)["limit"] = 1
    me.made(tables.keys(1, zone=1))
    assert me.make_one(tables.keys(1, zone=1, first=2)) is Reason.ZONE_FULL
    assert me.make_one(tables.keys(1, zone=2)) is Reason.FULL


def test_a_zone_without_a_limit_of_its_own_has_the_default(table, me):
    tables.quotas(table)["limit"][1:4] = 2  # means nothing without has_limit
    tables.totals(table)["zone_limit_default"] = 3
    tables.set_limit(table, 2, 1)
    tables.set_limit(table, 3, UNLIMITED)
    assert [seen(me, zone)["limit"] for zone in (1, 2, 3)] == [3, 1, UNLIMITED]
    made = [me.make(tables.keys(5, zone=zone))[0].tolist().count(Reason.NONE) for zone in (1, 2, 3)]
    assert made == [3, 1, 5]
    assert counts(table, 1, 2, 3) == [3, 1, 5, 9]
    tables.assert_at_rest(table)


@pytest.mark.parametrize("scope", ["zone", "table"])
def test_a_limit_lowered_below_the_count_refuses_until_enough_are_gone(scope, table, me):
    keys = tables.keys(6, zone=1)
    me.made(keys[:5])
    if scope == "zone":
        tables.set_limit(table, 1, 3)
    else:
        tables.totals(table)["limit"] = 3
    full = Reason.ZONE_FULL if scope == "zone" else Reason.FULL
    told = []
    for key in keys[:4]:
        told.append(me.make_one(keys[5]))
        me.remove(key)
    assert told == [full, full, full, Reason.NONE]
    assert counts(table, 1) == [2, 2]
    tables.assert_at_rest(table)


def test_a_limit_raised_lets_in_more(table, me):
    tables.set_limit(table, 1, 2)
    keys = tables.keys(4, zone=1)
    assert me.make(keys)[0].tolist() == [Reason.NONE] * 2 + [Reason.ZONE_FULL] * 2
    tables.set_limit(table, 1, 3)
    assert me.make(keys[2:])[0].tolist() == [Reason.NONE, Reason.ZONE_FULL]


def test_several_participants_share_a_limit(table):
    tables.set_limit(table, 1, 10)
    participants = [Participant(table) for _ in range(4)]
    keys = tables.keys(20, zone=1)
    reasons = [participants[i % 4].make_one(key) for i, key in enumerate(keys)]
    assert reasons == [Reason.NONE] * 10 + [Reason.ZONE_FULL] * 10
    tables.assert_at_rest(table)


@pytest.mark.skipif(not JIT, reason="the twins' words are whole within one process only")
@pytest.mark.parametrize("scope", ["zone", "table"])
def test_processes_that_make_at_once_stop_at_the_limit_together(scope, table):
    limit, each = 700, 400
    if scope == "zone":
        tables.set_limit(table, 1, limit)
    else:
        tables.totals(table)["limit"] = limit
    Participant(table).make(tables.keys(0))  # compiled before the fork

    def worker(number):
        def work(child):
            me = Participant(table)
            child.hear()
            reasons, _ = me.make(tables.keys(each, zone=1, first=1 + number * each), wanted=32)
            child.say(reasons.tolist())

        return work

    children = [Child(worker(number)) for number in range(3)]
    for child in children:
        child.say("go")
    reasons = [reason for child in children for reason in child.hear()]
    assert [child.wait() for child in children] == [0, 0, 0]
    full = Reason.ZONE_FULL if scope == "zone" else Reason.FULL
    assert (reasons.count(Reason.NONE), reasons.count(full)) == (limit, 3 * each - limit)
    assert counts(table, 1) == [limit, limit]
    tables.assert_at_rest(table)


def test_counts_follow_what_is_there(table, me):
    me.made(tables.keys(40, zone=1))
    me.made(tables.keys(25, zone=2))
    assert counts(table, 1, 2) == [40, 25, 65]
    me.remove(tables.keys(15, zone=1))
    assert counts(table, 1, 2) == [25, 25, 50]
    assert me.make(tables.keys(5, zone=2))[0].tolist() == [Reason.ADOPTED] * 5
    assert counts(table, 1, 2) == [25, 25, 50]
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ credit
def credit(me):
    return seen(me, 0)["credit"], seen(me, 0)["credit_zone"]


def test_credit_is_reserved_at_once_spent_one_by_one_and_given_back(table, me):
    keys = tables.keys(3, zone=1)
    assert make(me, keys[0], 10) is Reason.NONE
    assert (credit(me), counts(table, 1)) == ((9, 1), [10, 10])
    assert make(me, keys[1], 99) is Reason.NONE  # there is credit: no more is taken
    assert (credit(me), counts(table, 1)) == ((8, 1), [10, 10])
    assert zones.return_credit(me.views)
    assert (credit(me)[0], counts(table, 1), me.step) == (0, [2, 2], Step.NONE)
    assert zones.return_credit(me.views)  # nothing is left: nothing happens
    assert counts(table, 1) == [2, 2]
    tables.assert_at_rest(table)


def test_credit_ends_with_the_last_that_was_wanted(table, me):
    keys = tables.keys(7, zone=1)
    left = []
    for key in keys:
        assert make(me, key, 3) is Reason.NONE
        left.append((credit(me)[0], counts(table, 1)[0]))
    assert left == [(2, 3), (1, 3), (0, 3), (2, 6), (1, 6), (0, 6), (2, 9)]
    zones.return_credit(me.views)
    tables.assert_at_rest(table)


def test_a_duplicate_spends_no_credit(table, me):
    [key] = tables.keys(1, zone=1)
    assert make(me, key, 5) is Reason.NONE
    assert make(me, key, 5) is Reason.ADOPTED
    assert (credit(me), counts(table, 1)) == ((4, 1), [5, 5])
    zones.return_credit(me.views)
    assert counts(table, 1) == [1, 1]


def test_credit_is_for_one_zone(table, me):
    assert make(me, tables.keys(1, zone=1)[0], 5) is Reason.NONE
    assert make(me, tables.keys(1, zone=2)[0], 7) is Reason.NONE
    assert (credit(me), counts(table, 1, 2)) == ((6, 2), [1, 7, 8])
    zones.return_credit(me.views)
    tables.assert_at_rest(table)


@pytest.mark.parametrize(
    ("room", "left"), [(1, 0), (2 * SHARES - 1, 0), (2 * SHARES, 1), (5 * SHARES - 1, 3), (5 * SHARES, 4), (1 << 20, 4)]
)
@pytest.mark.parametrize("scope", ["zone", "table"])
def test_the_nearer_a_limit_the_less_is_reserved(scope, room, left, table, me):
    if scope == "zone":
        tables.set_limit(table, 1, room)
    else:
        tables.totals(table)["limit"] = room
    assert make(me, tables.keys(1, zone=1)[0], 5) is Reason.NONE
    assert credit(me)[0] == left
    zones.return_credit(me.views)
    tables.assert_at_rest(table)


def test_nobody_is_refused_for_anothers_unspent_credit(table):
    """Far from the limit one takes much; another uses up what is left, alone and one by one."""
    one, other = Participant(table), Participant(table)
    tables.set_limit(table, 1, 256 * SHARES)
    assert make(one, tables.keys(1, zone=1)[0], 256) is Reason.NONE
    assert credit(one)[0] == 255
    keys = tables.keys(20, zone=1, first=2)
    assert [make(other, key, 256) for key in keys] == [Reason.NONE] * 20
    assert credit(other)[0] < 256
    assert seen(other, 1)["count"] <= 256 * SHARES
    for each in (one, other):
        zones.return_credit(each.views)
    assert counts(table, 1) == [21, 21]
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ locks not had
def count_lock_held(table, which, zone):
    return tables.held(tables.quotas(table)[zone] if which == "zone" else tables.totals(table), "count_lock")


@pytest.mark.parametrize("which", ["zone", "table"])
def test_a_count_that_is_locked_makes_busy_and_changes_nothing(which, table, me):
    me.made(tables.keys(3, zone=1))
    with count_lock_held(table, which, 1):
        assert me.make_one(tables.keys(1, zone=1, first=9)) is Reason.BUSY
        assert counts(table, 1) == [3, 3]
    tables.assert_at_rest(table)
    assert me.make_one(tables.keys(1, zone=1, first=9)) is Reason.NONE


@pytest.mark.parametrize("which", ["zone", "table"])
def test_credit_that_cannot_be_given_back_is_kept_for_later(which, table, me):
    assert make(me, tables.keys(1, zone=1)[0], 10) is Reason.NONE
    with count_lock_held(table, which, 1):
        assert not zones.return_credit(me.views)
        assert (credit(me), counts(table, 1)) == ((9, 1), [10, 10])
    assert zones.return_credit(me.views)
    tables.assert_at_rest(table)


def test_a_full_zone_is_told_without_its_lock(table, me):
    tables.set_limit(table, 1, 0)
    with count_lock_held(table, "zone", 1):
        assert me.make_one(tables.keys(1, zone=1)) is Reason.ZONE_FULL
