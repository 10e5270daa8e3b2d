"""The clock follows the packets, never runs backwards, and never further than expiries can count."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels.clock import BEGIN_MS, NOW_MS_MAX, STEP_MS_MAX, tick
from zonetrack.kernels.jit import kernel
from zonetrack.shm.layout import CLOCK, DUE_UNIT_MS

MS = 1_000_000
START = 1_700_000_000_000 * MS


@kernel
def one_tick(clock, time_ns):
    tick(clock, time_ns)


def moments(times):
    """Return ``now_ms`` after each time, and the clock."""
    clock, seen = np.zeros(1, CLOCK).view(np.recarray)[0], []
    for time in times:
        one_tick(clock, np.uint64(time))
        seen.append(int(clock.now_ms))
    return seen, clock


@pytest.mark.parametrize(
    ("steps_ns", "expected_ms"),
    [
        ([0], [0]),
        ([0, 999_999, 1_000_000, 1_000_001, 5 * MS], [0, 0, 1, 1, 5]),
        ([0, 7 * MS, 3 * MS, 7 * MS, 8 * MS], [0, 7, 7, 7, 8]),
        ([0, -9 * MS, -1 * MS, 1 * MS], [0, 0, 0, 1]),
        ([0, STEP_MS_MAX * MS + 5 * MS, STEP_MS_MAX * MS + 6 * MS], [0, STEP_MS_MAX, STEP_MS_MAX + 1]),
    ],
    ids=["first", "milliseconds", "backwards", "before the first", "a leap"],
)
def test_the_clock_is_the_running_maximum(steps_ns, expected_ms):
    seen, clock = moments([START + step for step in steps_ns])
    assert seen == [BEGIN_MS + ms for ms in expected_ms]
    assert clock.first_ns == START


def test_a_packet_without_time_does_not_move_the_clock():
    seen, clock = moments([0, 0, START, 0, START + 2 * MS])
    assert seen == [BEGIN_MS + ms for ms in (0, 0, 0, 0, 2)]
    assert clock.first_ns == START


def test_the_clock_stops_where_hints_end():
    seen, _ = moments([1 + i * STEP_MS_MAX * MS for i in range(40)])
    assert seen[-1] == seen[-2] == NOW_MS_MAX
    assert (NOW_MS_MAX + STEP_MS_MAX) // DUE_UNIT_MS < 1 << 32


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=10))
def test_any_times_give_a_clock_that_grows(times):
    seen, _ = moments(times)
    assert seen == sorted(seen)
    assert seen[0] >= BEGIN_MS and seen[-1] <= NOW_MS_MAX
