"""Capture time as a clock: the milliseconds of the latest packet, which never run backwards.

A capture's times jump: back, where several interfaces were merged, and by years, where a clock was set or a byte is
wrong.  The tracker wants ``now_ms`` to grow, and expiries to fit into hints of 32 bits; so the clock is the running
maximum, stands still while times are older, and takes no single step beyond what lets everything expire.

It depends on the packets of a file in their order and on nothing else: all workers of a replay see the same moments.
"""

from __future__ import annotations

from ..shm.layout import DUE_UNIT_MS
from .jit import inlined
from .words import ZERO, u64

MILLISECOND_NS = u64(1_000_000)
BEGIN_MS = 1_000
"""``now_ms`` of the first packet: not 0, which means none in places."""
STEP_MS_MAX = 1 << 32
"""No timeout is longer (u32 milliseconds), so a longer step could do nothing more."""
NOW_MS_MAX = ((1 << 32) - 1) * DUE_UNIT_MS - STEP_MS_MAX
"""Here the clock stops: two years of traffic on; any expiry counted from it fits into a hint."""

_BEGIN_MS = u64(BEGIN_MS)
_STEP_NS_MAX = u64(STEP_MS_MAX * 1_000_000)
_ELAPSED_NS_MAX = u64((NOW_MS_MAX - BEGIN_MS) * 1_000_000)


@inlined
def tick(clock, time_ns):
    """Set the clock by a packet.

    Args:
        clock: CLOCK, zero before the first packet.
        time_ns: when the packet was captured, since 1970; 0 where that is not known.
    """
    latest = u64(clock.latest_ns)
    if latest == ZERO:
        clock.first_ns = time_ns
        clock.latest_ns = time_ns
        clock.now_ms = _BEGIN_MS
    elif time_ns > latest:
        step = min(time_ns - latest, _STEP_NS_MAX)
        elapsed = min(u64(clock.elapsed_ns) + step, _ELAPSED_NS_MAX)
        clock.latest_ns = time_ns
        clock.elapsed_ns = elapsed
        clock.now_ms = _BEGIN_MS + elapsed // MILLISECOND_NS
