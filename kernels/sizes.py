"""How many packets came or went at once: counted by the power of two that the number reaches."""

from __future__ import annotations

from ..shm.layout import SIZES
from .jit import inlined
from .words import ONE, TWO, u64

_LAST = u64(SIZES - 1)


@inlined
def count(sizes, n):
    """Count a burst or batch.

    Args:
        sizes: u8[SIZES] of a QUEUE.
        n: u64, its packets, not 0.
    """
    place = u64(0)
    reach = TWO
    for _ in range(SIZES - 1):
        if n < reach:
            break
        place += ONE
        reach += reach
    place = min(place, _LAST)
    sizes[place] = sizes[place] + ONE
