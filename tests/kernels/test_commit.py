"""Commit: how much credit a burst asks for, and that a refused record goes home."""

from __future__ import annotations

import numpy as np
import pytest
from bursts import Bench, frames_of, tcp, udp
from zonetrack.kernels import burst, commit
from zonetrack.shm import segment
from zonetrack.shm.layout import ENTRY, PARTICIPANT, QUOTA, VERDICT, CtState, Region, Status
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def bench():
    made = Bench(segment.anonymous(Geometry(300, 4, 125)))
    yield made
    made.settle()


def wanted(bench: Bench, first: int, count: int, zone: int = 0) -> int:
    return int(commit.wanted_in(bench.views, np.uint64(first), np.uint64(count), np.uint64(zone)))


def test_credit_is_asked_for_what_found_nothing_in_the_same_zone(bench):
    bench.track(udp(1))
    bench.track(udp(1), udp(2), udp(3, reply=True), bytes(40), udp(4))
    assert wanted(bench, 1, 5) == 3  # 2, the answer to nobody, and 4
    assert wanted(bench, 4, 5) == 1
    assert wanted(bench, 1, 5, zone=3) == 1  # itself, whatever the others are


def test_behind_many_packets_of_other_zones_nobody_looks_for_more_of_his_own(bench):
    frames, buffers = frames_of([udp(sport) for sport in range(1, 10)], commit=False)
    frames["zone"] = [0, 1, 0, 2, 3, 0, 1, 0, 0]
    verdicts = np.zeros(len(buffers), VERDICT)
    burst.track_burst(bench.views, *map(np.uint64, (frames.ctypes.data, len(buffers), 1000, verdicts.ctypes.data)))
    assert wanted(bench, 0, 9) == 3  # the fourth of another zone stands before the last two
    assert wanted(bench, 5, 9) == 3


def test_no_credit_is_left_when_a_burst_is_over(bench):
    bench.track(*(udp(sport) for sport in range(1, 20)))
    place = bench.table.array(Region.CONTROL, "participants", PARTICIPANT)[bench.me - 1]
    assert place["intent"]["credit"] == 0
    assert bench.count() == 19


def test_who_opened_is_remembered_whichever_end_comes_first_in_the_key(bench):
    verdicts = bench.track(udp(1), udp(2, reply=True))
    entries = bench.table.array(Region.ENTRIES, "entries", ENTRY)[verdicts["record"]]
    high = (entries["status"] & Status.ORIG_IS_HIGH) != 0
    assert high[0] != high[1]


def test_a_refused_record_goes_home(bench):
    quota = bench.table.array(Region.CONTROL, "quotas", QUOTA)[0:1]
    quota["limit"], quota["has_limit"] = 0, 1
    before = bench.table.array(Region.CONTROL, "participants", PARTICIPANT)[bench.me - 1]["front_count"].copy()
    verdicts = bench.track(*(tcp("S", 1, sport=sport) for sport in range(1, 60)))
    assert set(verdicts["ct_state"].tolist()) == {CtState.TRK | CtState.NEW}
    after = bench.table.array(Region.CONTROL, "participants", PARTICIPANT)[bench.me - 1]["front_count"]
    assert after[0] >= before[0] and bench.count() == 0
