"""Words wrap as machine words do, and sequence numbers are before and after each other as RFC 9293 says."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from zonetrack.kernels import words
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64

WORD = st.integers(0, 2**64 - 1)
SEQUENCE = st.integers(0, 2**32 - 1)
timeless = settings(deadline=None)
"""The first example compiles."""
EDGES = (0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1)


def behind(a, b):
    """Return how far ``b`` is ahead of ``a`` on a circle of 2**32 numbers."""
    return (b - a) % 2**32


@timeless
@given(SEQUENCE, SEQUENCE)
def test_u32_arithmetic_is_modulo_2_to_the_32(a, b):
    assert int(words.u32_add(u64(a), u64(b))) == (a + b) % 2**32
    assert int(words.u32_sub(u64(a), u64(b))) == (a - b) % 2**32


@timeless
@given(WORD, WORD)
def test_u32_arithmetic_forgets_what_stands_above(a, b):
    assert int(words.u32_add(u64(a), u64(b))) == (a + b) % 2**32
    assert int(words.u32_sub(u64(a), u64(b))) == (a - b) % 2**32


@timeless
@given(SEQUENCE, SEQUENCE)
@example(2**32 - 1, 0)
@example(0, 2**31)
def test_sequence_numbers_are_ordered_by_the_shorter_way_round(a, b):
    assert bool(words.seq_before(u64(a), u64(b))) == (2**31 >= behind(a, b) > 0)
    assert bool(words.seq_after(u64(a), u64(b))) == (2**31 >= behind(b, a) > 0)


@pytest.mark.parametrize("a", EDGES)
def test_sequence_numbers_at_the_wrap(a):
    assert not words.seq_before(u64(a), u64(a))
    assert not words.seq_after(u64(a), u64(a))
    following = (a + 1) % 2**32
    assert words.seq_before(u64(a), u64(following)) and words.seq_after(u64(following), u64(a))
    assert not words.seq_before(u64(following), u64(a)) and not words.seq_after(u64(a), u64(following))
    farthest = (a + 2**31 - 1) % 2**32
    assert words.seq_before(u64(a), u64(farthest)) and not words.seq_before(u64(farthest), u64(a))


@timeless
@given(SEQUENCE, st.integers(1, 2**31 - 1))
def test_what_is_sent_later_is_after(a, length):
    b = (a + length) % 2**32
    assert words.seq_before(u64(a), u64(b)) and not words.seq_after(u64(a), u64(b))
    assert words.seq_after(u64(b), u64(a)) and not words.seq_before(u64(b), u64(a))


@timeless
@given(WORD)
@example(2**64 - 1)
@example(2**63)
def test_high_bits_for_every_depth(hash_):
    for depth in range(33):
        assert int(words.high_bits(u64(hash_), u64(depth))) == hash_ >> 64 - depth


@kernel
def wrapped(a, b, out):
    out[0] = a + b
    out[1] = a - b
    out[2] = a * b
    out[3] = a % b if b != words.ZERO else words.ZERO
    out[4] = a >> words.THIRTY_TWO


@timeless
@given(WORD, WORD)
@example(2**63 + 5, 1000)  # with a plain literal beside it, int64 gives 197
def test_a_kernel_computes_as_machine_words_do(a, b):
    out = np.zeros(5, "u8")
    wrapped(u64(a), u64(b), out)
    remainder = a % b if b else 0
    assert out.tolist() == [(a + b) % 2**64, (a - b) % 2**64, a * b % 2**64, remainder, a >> 32]


@pytest.mark.parametrize(
    ("constant", "value"),
    [
        *((words.ZERO, 0), (words.ONE, 1), (words.TWO, 2), (words.THREE, 3), (words.FOUR, 4), (words.SEVEN, 7)),
        *((words.EIGHT, 8), (words.SIXTEEN, 16), (words.THIRTY_TWO, 32), (words.SIXTY_THREE, 63)),
        *((words.SIXTY_FOUR, 64), (words.HALF_32, 2**31)),
        *((words.LOW_8, 2**8 - 1), (words.LOW_16, 2**16 - 1), (words.LOW_32, 2**32 - 1)),
    ],
)
def test_constants_are_words(constant, value):
    assert constant == value and isinstance(constant, np.uint64)
