"""How often packets of each zone got each reason: a small hash table of each participant, which only it writes.

A pair of zone and reason stays where it was first counted.  What finds its places taken is counted all together in the
last one, so the sum over all is the sum of the counters whatever there is to count.  Readers add up over participants.
"""

from __future__ import annotations

from ..shm.layout import ZONE_REASON, ZONE_REASON_BYTES, ZONE_REASON_USED, ZONE_REASONS_MAX, offset
from . import memory
from .jit import kernel
from .words import EIGHT, GOLDEN, LOW_32, ONE, ZERO, u64

PROBES_MAX = 16
"""Places that are looked at for a pair."""

_SIZE = u64(ZONE_REASON_BYTES)
_COUNT = offset(ZONE_REASON, "count")
_USED = u64(ZONE_REASON_USED)
_LAST = u64(ZONE_REASONS_MAX - 1)
_SHIFT = u64(40)


@kernel
def count(views, zone, reason):
    """Count a packet of a zone that got a reason."""
    memory.seldom()
    what = _USED | (zone << EIGHT) | reason
    place = (what * GOLDEN) >> _SHIFT
    at = views.own_zone_reasons + _LAST * _SIZE
    for i in range(PROBES_MAX):
        other = views.own_zone_reasons + ((place + u64(i)) % _LAST) * _SIZE
        found = memory.read64(other) & LOW_32
        if found == ZERO:
            memory.release64(other, what)
            found = what
        if found == what:
            at = other
            break
    memory.write64(at + _COUNT, memory.read64(at + _COUNT) + ONE)
