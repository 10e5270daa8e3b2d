"""Verdicts that come late: to whom, when, and what becomes of those that nobody asks for."""

import fragmented
import naive_fragments
import numpy as np
import pytest
from fragmented import HELD, NEW, OVS, Bench, collect, cut, refused, udp
from zonetrack.kernels import late
from zonetrack.shm.layout import POLICY, SETTINGS_DEFAULT, ZONE, Region, Setting
from zonetrack.shm.reasons import Reason

EXPIRED = refused(Reason.FRAGMENT_EXPIRED)


def pair(**settings):
    """Return two participants on one table."""
    one = Bench(**settings)
    other = Bench(one.table)
    other.sent = 100
    return one, other


@pytest.mark.parametrize("settings", [None, OVS], ids=["netfilter", "ovs"])
def test_each_participant_hears_of_its_own_fragments(settings):
    one, other = pair(settings=settings)
    first, middle, last = cut(udp(3200), 1480, 2960)
    assert one.send(first) == [HELD] and other.send(middle) == [HELD]
    assert one.late() == {} and other.late() == {}
    assert one.send(last) == [NEW]
    assert other.late() == {100: NEW} and one.late() == {0: NEW}
    assert one.count() == 1
    one.settle()


def test_who_holds_nothing_does_not_look():
    one, other = pair()
    one.send(cut(udp(2000), 1400)[0])
    one.store["lock"] = other.me  # whoever looked would wait for it
    assert not collect(other.views, np.uint64(10**9))
    one.store["lock"] = 0


LIFETIMES = [(None, 4, 30), (None, 6, 60), (OVS, 4, 15), (OVS, 6, 15)]


@pytest.mark.parametrize(("settings", "family", "seconds"), LIFETIMES)
def test_what_is_not_completed_in_time_expires(settings, family, seconds):
    bench = Bench(settings=settings)
    first, last = cut(udp(2000, family=family), 1480, family=family)
    assert bench.send(first) == [HELD]
    assert bench.late(now_ms=1000 + 1000 * seconds - 1) == {}
    assert bench.late(now_ms=1000 + 1000 * seconds) == {0: EXPIRED}
    assert bench.counter(Reason.FRAGMENTS_EXPIRED) == bench.counter(Reason.FRAGMENT_EXPIRED) == 1
    assert bench.send(last, now_ms=1000 + 1000 * seconds) == [HELD]


def test_expiry_counts_from_the_first_fragment_and_is_seen_by_the_next():
    bench = Bench()
    first, middle, last = cut(udp(3200), 1480, 2960)
    bench.send(first)
    bench.send(middle, now_ms=20_000)
    assert bench.send(last, now_ms=31_000) == [HELD]
    assert bench.late(now_ms=31_000) == {0: EXPIRED, 1: EXPIRED}


def test_the_lengths_are_those_of_the_zones_policy():
    bench = Bench()
    bench.table.array(Region.CONTROL, "policies", POLICY)["timeout_ms"][5][32] = 1234
    bench.table.array(Region.CONTROL, "zones", ZONE)["policy"][2] = 5
    bench.send(cut(udp(2000), 1400)[0], zone=2)
    assert bench.late(now_ms=2233) == {} and bench.late(now_ms=2234) == {0: EXPIRED}


def test_nothing_expires_where_time_stands_still():
    bench = Bench(settings=int(SETTINGS_DEFAULT | Setting.NO_EXPIRY))
    first, last = cut(udp(2000), 1400)
    bench.send(first)
    assert bench.late(now_ms=1 << 40) == {}
    assert bench.send(last, now_ms=1 << 40) == [NEW]


def test_another_expires_it_only_when_its_owner_is_long_overdue():
    one, other = pair()
    first, middle, _ = cut(udp(3200), 1480, 2960)
    one.send(first)
    other.send(middle)
    assert other.late(now_ms=1000 + 30_000) == {}
    assert other.late(now_ms=1000 + 40_000) == {100: EXPIRED}
    assert other.late(now_ms=1000 + 50_001) == {}


def test_what_nobody_collects_is_given_up():
    one, other = pair()
    one.send(cut(udp(3200), 1480, 2960)[0])
    other.send(*cut(udp(3200), 1480, 2960)[1:])
    held = cut(udp(3200, sport=9), 1480, id=9)[0]
    other.send(held, now_ms=35_000)
    assert other.late(now_ms=40_999) == {100: NEW} and one.store["count"] == 2
    assert other.late(now_ms=41_000) == {} and one.store["count"] == 1
    assert other.counter(Reason.FRAGMENTS_PURGED) == 1
    assert one.late() == {}


def test_more_than_are_collected_at_once():
    bench = Bench()
    n = late.LATE_MAX + 10
    for number in range(n):
        bench.send(cut(udp(1500), 1400, id=number)[0])
    assert set(bench.late(now_ms=31_000).values()) == {EXPIRED} and bench.sent == n
    bench.settle()


def test_a_lock_that_is_not_had_leaves_everything_for_later(monkeypatch):
    monkeypatch.setattr("zonetrack.kernels.locks.YIELDS_MAX", 5)  # of the interpreter only
    bench = Bench()
    first, last = cut(udp(2000), 1400)
    bench.send(first)
    bench.store["lock"] = 200
    assert bench.send(last) == [refused(Reason.BUSY)]
    assert bench.late(now_ms=31_000) == {} and not late.abandon(bench.views)
    bench.store["lock"] = 0
    assert bench.send(last) == [NEW] and bench.late() == {0: NEW}
    bench.settle()


# ------------------------------------------------------------------------------------------------ leaving
def test_who_leaves_gives_up_what_it_holds_and_the_others_hear_of_it():
    one, other = pair()
    first, middle, last = cut(udp(3200), 1480, 2960)
    one.send(first)
    other.send(middle)
    one.send(cut(udp(2000), 1400, id=9)[1])
    assert late.abandon(one.views)
    assert one.counter(Reason.FRAGMENTS_PURGED) == 2
    assert other.late() == {100: EXPIRED}
    assert other.send(last) == [HELD]  # it is the first of another datagram
    assert naive_fragments.faults(one.table) == []
    assert late.abandon(one.views) and late.abandon(other.views)
    one.settle()


def test_who_leaves_with_verdicts_that_it_did_not_collect():
    bench = Bench()
    bench.send(*cut(udp(2000), 1400))
    assert bench.store["count"] == 1
    assert late.abandon(bench.views) and bench.store["count"] == 0
    bench.settle()


def test_a_fragment_is_the_collectors_until_he_collects_again():
    bench = Bench()
    bench.send(*cut(udp(2000), 1400))
    assert collect(bench.views, np.uint64(1000)) == 1
    assert naive_fragments.faults(bench.table) == [] and bench.store["count"] == 1
    assert collect(bench.views, np.uint64(1000)) == 0 and bench.store["count"] == 0
    assert fragmented.naive_fragments.faults(bench.table) == []
