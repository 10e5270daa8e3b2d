"""Adaptive timeouts: the fuller a zone is between two marks, the shorter its connections may be silent (Setting.ADAPTIVE).

As pf's adaptive.start and adaptive.end, per zone, but with hysteresis, so that a zone that stands at the mark does not
change its mind with each connection:

    share 1.0 ------------+ . . . .
                          |  \\
                          v   \\ ^
                               \\|
                                \\
        0 .........................\\.......
                low      start      end    connections

It begins above ``start`` and goes on until there are fewer than ``low``, a quarter of the way from ``start`` to ``end``
below ``start``.  Meanwhile a length is taken times (end - count) / (end - low), and is ``FLOOR_MS`` at least, which a
handshake needs, unless it was shorter anyway.  What is set is what a packet sets, of a connection that is made or goes on;
moments that stand in records stay.

Who may                  while
    QUOTA.adapting       anyone who puts an expiry off in the zone, with a plain store: it follows from the count alone
    the marks            the control plane
"""

from __future__ import annotations

from ..shm.layout import QUOTA, offset
from . import memory, zones
from .jit import inlined, kernel
from .words import ONE, TWO, ZERO, u64

FLOOR_MS = u64(1_000)

_START, _END = offset(QUOTA, "adaptive_start"), offset(QUOTA, "adaptive_end")
_ADAPTING = offset(QUOTA, "adapting")


@inlined
def low_of(start, end):
    """Return the mark below which it ends."""
    return start - min(start, (end - start) >> TWO)


@kernel
def _adapts(quota, count, start, low):
    """Return whether lengths are shortened at such a count, and remember it."""
    adapting = memory.read32(quota + _ADAPTING)
    now = ONE if count > start or (adapting != ZERO and count >= low) else ZERO
    if now != adapting:
        memory.write32(quota + _ADAPTING, now)
    return now != ZERO


@kernel
def shorten(views, zone, length_ms):
    """Return the length of a timeout as it is in a zone that is as full as this one.

    Args:
        views: record of shm.views.
        zone: u64, one whose settings have ADAPTIVE.
        length_ms: u64, as its policy has it.

    Concurrency:
        Beside anyone; what others count meanwhile may or may not be seen.

    Source:
        Shape as in OpenBSD's pf.conf(5), adaptive timeouts.
    """
    memory.seldom()
    quota = zones.quota_address(views, zone)
    start, end = memory.read32(quota + _START), memory.read32(quota + _END)
    if end <= start:  # the two are changed one after the other
        return length_ms
    count, low = zones.count_of(views, zone), low_of(start, end)
    if not _adapts(quota, count, start, low):
        return length_ms
    shortened = length_ms * (end - min(count, end)) // (end - low)
    return max(shortened, min(length_ms, FLOOR_MS))
