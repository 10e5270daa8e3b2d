"""The floor: the walk reads the lines that a naive one reads, and a measurement names its figures."""

import numpy as np
import pytest
from zonetrack.clients.floor import BURST, LINES, measure, region, walk
from zonetrack.shm.layout import LINE_BYTES, PAGE_BYTES

MASK = 2**64 - 1


def draws(state, groups, count):
    """Return the groups that xorshift64* draws, in Python's own integers."""
    for _ in range(count):
        state ^= state << 13 & MASK
        state ^= state >> 7
        state ^= state << 17 & MASK
        yield (state * 0x9E3779B97F4A7C15 & MASK) * groups >> 64


@pytest.mark.parametrize("lines", LINES)
def test_the_walk_reads_what_a_naive_one_reads(lines):
    words = np.arange(8 * 64, dtype="u8")
    scratch = np.zeros(BURST, "u8")
    groups = 64 // lines
    arguments = (words.ctypes.data, groups, lines, 7, scratch.ctypes.data, 3)
    first = words[::8]
    expected = sum(int(first[g * lines : g * lines + lines].sum()) for g in draws(7, groups, 3 * BURST))
    assert int(walk(*(np.uint64(argument) for argument in arguments))) == expected


def test_draws_reach_every_group():
    assert set(draws(1, 16, 1000)) == set(range(16))


@pytest.mark.parametrize(("size", "expected"), [(1, PAGE_BYTES), (PAGE_BYTES, PAGE_BYTES), (5000, 2 * PAGE_BYTES)])
def test_a_region_is_whole_pages_and_no_page_of_zeros(size, expected):
    made = region(size)
    assert made.nbytes == expected
    assert made.view("u8")[:: LINE_BYTES // 8].all()


def test_a_measurement_has_a_figure_for_each_number_of_lines():
    figures = measure(region(64 * PAGE_BYTES), seed=1, accesses=BURST)
    assert len(figures) == len(LINES) == 3
    assert all(figure > 0 for figure in figures)
