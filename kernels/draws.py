"""Draws: numbers in no order that one can see, each from the state that the one before has left.

A state is 64 bits, not 0, and comes again after all 2**64 - 1 others.  Whoever draws keeps it where he likes; the same state
draws the same numbers, with the JIT and without.

Source:
    Marsaglia, "Xorshift RNGs", 2003, the triple (13, 7, 17); multiplied as in Vigna, "An experimental exploration of
    Marsaglia's xorshift generators, scrambled", 2016.  A number below a bound as in Lemire, "Fast random integer generation
    in an interval", 2019, without the rejection, whose bias is below bound / 2**64.
"""

from __future__ import annotations

from . import memory
from .jit import inlined
from .words import GOLDEN, u64

_SHIFTS = (u64(13), u64(7), u64(17))


@inlined
def after(state):
    """Return the state that follows one, which is not 0."""
    state ^= state << _SHIFTS[0]
    state ^= state >> _SHIFTS[1]
    state ^= state << _SHIFTS[2]
    return state


@inlined
def below(state, bound):
    """Return the number below ``bound``, u64, that a state draws."""
    return memory.multiply_high(state * GOLDEN, bound)
