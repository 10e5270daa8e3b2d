"""Reasons by zone are counted by whom they happen to, and none is lost when there are too many."""

import numpy as np
import pytest
import tables
from zone_counts import counts, rows_of
from zonetrack.kernels import zone_reasons
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import ZONE_REASONS_MAX
from zonetrack.shm.reasons import Reason


@kernel
def count(views, zone, reason, times):
    for _ in range(times):
        zone_reasons.count(views, zone, reason)


@pytest.fixture
def table():
    return tables.small(300)


def test_each_pair_has_a_count_of_its_participant(table):
    first, second = tables.Participant(table), tables.Participant(table)
    count(second.views, u64(5), u64(Reason.TCP_STATE), u64(3))
    count(second.views, u64(0), u64(Reason.NOIP), u64(1))
    count(second.views, u64(65535), u64(255), u64(2))
    count(second.views, u64(5), u64(Reason.TCP_STATE), u64(1))
    rows = rows_of(table)
    assert counts(rows[second.me - 1]) == {(5, Reason.TCP_STATE): 4, (0, Reason.NOIP): 1, (65535, 255): 2}
    assert not rows[first.me - 1]["count"].any() and not rows[second.me :]["count"].any()


def test_what_has_no_room_is_counted_together(table):
    me = tables.Participant(table)
    pairs = [(zone, reason) for zone in range(0, 4000, 20) for reason in (16, 18, 40)]
    for zone, reason in pairs:
        count(me.views, u64(zone), u64(reason), u64(2))
    found = counts(rows_of(table)[me.me - 1])
    lost = found.pop(None)
    assert len(found) == ZONE_REASONS_MAX - 1 and set(found) <= set(pairs) and set(found.values()) == {2}
    assert lost + sum(found.values()) == 2 * len(pairs)
    for zone, reason in pairs:  # what has its place keeps it
        count(me.views, u64(zone), u64(reason), u64(1))
    again = counts(rows_of(table)[me.me - 1])
    assert again.pop(None) == lost + len(pairs) - len(found)
    assert set(again) == set(found) and set(again.values()) == {3}


def test_neighbours_have_room(table):
    me = tables.Participant(table)
    pairs = [(zone, reason) for zone in range(8) for reason in range(16, 24)]
    for zone, reason in pairs:
        count(me.views, u64(zone), u64(reason), u64(1))
    found = counts(rows_of(table)[me.me - 1])
    assert set(found) == set(pairs) and np.ptp(list(found.values())) == 0
