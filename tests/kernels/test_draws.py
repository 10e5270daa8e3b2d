"""Draws equal a naive twin's, stay below their bound, and meet all of a small range."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.kernels import draws
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64

ALL = (1 << 64) - 1


@kernel
def _after(state):
    return draws.after(state)


@kernel
def _below(state, bound):
    return draws.below(state, bound)


def naive(state):
    state ^= state << 13 & ALL
    state ^= state >> 7
    return state ^ state << 17 & ALL


@given(st.integers(1, ALL), st.integers(1, ALL))
def test_it_is_what_arithmetic_without_bounds_says(state, bound):
    assert int(_after(u64(state))) == naive(state) != 0
    assert int(_below(u64(state), u64(bound))) == (state * 0x9E3779B97F4A7C15 & ALL) * bound >> 64 < bound


def test_a_small_range_is_met_about_evenly():
    state, counts = u64(1), np.zeros(8, "i8")
    for _ in range(4000):
        state = u64(_after(state))
        counts[int(_below(state, u64(8)))] += 1
    assert counts.min() > 400 and counts.max() < 600
