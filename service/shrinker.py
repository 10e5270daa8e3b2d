"""Zones that hold far less than before: found now and then, and what they do not need of the index is brought home.

A zone is thin when its directory has many entries for few connections, or when there is nothing in it.  One that was thin
at two looks, one after the other, is shrunk, so a zone that is about to fill again is left alone; and not again before its
count or its index is another.

While few segments are left in the pool any zone of more than one is worth a try: connections that come and go for hours fill
one pair of lines after the other, so a full zone has more segments in the end than it would have, filled once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np

from ..shm.layout import QUOTA, SEGMENT, ZONE, ZONE_DEPTH_BITS, ZONE_OFFSET_BITS, Region
from ..shm.views import Table
from . import looks

INTERVAL_S = 5.0
PER_ENTRY_MIN = 8
"""Connections for each entry of a zone's directory below which it is thin; of one that is full there are 14 to 26."""
POOL_SHARE_MIN = 8
"""The pool is short when less than one in so many segments is left."""


class Shrinker:
    """Looks after the zones of one table."""

    def __init__(self, table: Table, shrink: Callable[[int], Awaitable[int]]) -> None:
        """Prepare.

        Args:
            table: whose zones.
            shrink: shrinks one, and returns how many segments went back.
        """
        self._words = table.array(Region.CONTROL, "zones", ZONE)["word"]
        self._counts = table.array(Region.CONTROL, "quotas", QUOTA)["count"]
        self._owners = table.array(Region.INDEX, "segments", SEGMENT)["owner"]
        self._shrink = shrink
        self._thin: dict[int, tuple[int, int]] = {}
        """Zones that were thin at the last look: word and count."""
        self._done: dict[int, tuple[int, int]] = {}
        """Zones that were shrunk, and how they were then."""

    def thin(self) -> dict[int, tuple[int, int]]:
        """Return word and count of the zones that are thin."""
        words, counts = self._words.copy(), self._counts.copy()
        has = words & np.uint64((1 << ZONE_OFFSET_BITS) - 1) != 0
        depths = words >> np.uint64(ZONE_OFFSET_BITS) & np.uint64((1 << ZONE_DEPTH_BITS) - 1)
        few = np.where(depths == 0, counts == 0, counts < np.uint64(PER_ENTRY_MIN) << depths)
        if np.count_nonzero(self._owners == 0) * POOL_SHARE_MIN < len(self._owners):
            few |= depths != 0
        return {zone: (int(words[zone]), int(counts[zone])) for zone in np.flatnonzero(has & few).tolist()}

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        await looks.again(self.look, INTERVAL_S, "zones were not shrunk")

    async def look(self) -> int:
        """Shrink the zones that are thin and were so at the last look; returns how many segments went back."""
        before, self._thin = self._thin, self.thin()
        self._done = {zone: how for zone, how in self._done.items() if self._thin.get(zone) == how}
        back = 0
        for zone in [zone for zone in self._thin if zone in before and zone not in self._done]:
            back += await self._shrink(zone)
            self._done[zone] = (int(self._words[zone]), int(self._counts[zone]))
        return back
