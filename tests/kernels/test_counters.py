"""Counters are added to by their reason, in the line of their participant alone."""

import pytest
import tables
from zonetrack.kernels import counters
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm import roster
from zonetrack.shm.layout import COUNTERS_MAX
from zonetrack.shm.reasons import Reason


@kernel
def count(views, reason, amount):
    counters.count(views, Reason.INSERT)
    counters.add(views, reason, amount)


@pytest.mark.parametrize("reason", [Reason.NOIP, Reason.INSERT, Reason.SWEEP_CYCLES, COUNTERS_MAX - 1])
def test_a_counter_is_one_participants(reason):
    table = tables.small(300)
    first, second = tables.Participant(table), tables.Participant(table)
    for amount in (5, 2**40):
        count(second.views, u64(reason), u64(amount))
    expected = [0] * COUNTERS_MAX
    expected[Reason.INSERT] = 2
    expected[reason] += 5 + 2**40
    assert second.place["counters"].tolist() == expected
    assert not first.place["counters"].any()
    assert not roster.participants(table)["counters"][second.me :].any()
    assert second.place["intent"]["step"] == 0


def test_a_counter_wraps_as_words_do():
    me = tables.Participant(tables.small(300))
    me.place["counters"][Reason.BYTES] = 2**64 - 2
    count(me.views, u64(Reason.BYTES), u64(3))
    assert me.counter(Reason.BYTES) == 1


def test_every_reason_has_its_counter():
    assert max(Reason) < COUNTERS_MAX
