"""Typed constants, and arithmetic whose width must not be left to chance.

In a kernel a bare literal is an int64 and turns u64 arithmetic into signed arithmetic; so every number that meets a u64
is one of these.  All memory operations give and take u64, whatever the width in memory: narrow values are widened once,
when they are loaded, and sequence numbers are compared only through ``seq_*``.
"""

from __future__ import annotations

import numpy as np

from .jit import inlined

u64 = np.uint64
"""In kernels the conversion to an unsigned 64-bit word; in the interpreter numpy's scalar, which wraps alike."""

ZERO = u64(0)
ONE = u64(1)
TWO = u64(2)
THREE = u64(3)
FOUR = u64(4)
SEVEN = u64(7)
EIGHT = u64(8)
SIXTEEN = u64(16)
THIRTY_TWO = u64(32)
LOW_8 = u64(0xFF)
LOW_16 = u64(0xFFFF)
LOW_32 = u64(0xFFFFFFFF)
HALF_32 = u64(0x80000000)
SIXTY_THREE = u64(63)
SIXTY_FOUR = u64(64)
GOLDEN = u64(0x9E3779B97F4A7C15)
"""2**64 / golden ratio, odd: what it multiplies, or is added to, goes far from its neighbours."""


@inlined
def u32_add(a, b):
    """Return a + b modulo 2**32, as u64."""
    return (u64(a) + u64(b)) & LOW_32


@inlined
def u32_sub(a, b):
    """Return a - b modulo 2**32, as u64."""
    return (u64(a) - u64(b)) & LOW_32


@inlined
def seq_before(a, b):
    """Return whether sequence number ``a`` comes before ``b`` (RFC 9293 3.4: arithmetic modulo 2**32)."""
    return ((u64(a) - u64(b)) & LOW_32) >= HALF_32


@inlined
def seq_after(a, b):
    """Return whether sequence number ``a`` comes after ``b``."""
    return ((u64(b) - u64(a)) & LOW_32) >= HALF_32


@inlined
def high_bits(hash_, depth):
    """Return the top ``depth`` bits of a 64-bit hash, 0 when depth is 0."""
    # two shifts, for a shift by 64 is undefined
    return (hash_ >> ONE) >> (SIXTY_THREE - depth)
