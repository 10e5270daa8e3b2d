"""Tables that are full after a few connections, made once and put back to how they were before each run.

A segment has 128 slots, but a key may stand only in the 16 of its pair of lines.  So keys are aimed: found by trying, under
a known secret, until their hash names the wanted pair and begins with the wanted bits.  Sixteen in one pair, and the next
splits the segment.
"""

from __future__ import annotations

import ctypes
import functools

import hashing
import numpy as np
import tables
from zonetrack.shm.layout import BLOCK_RECORDS, LINE_SLOTS

PAIR_SLOTS = 2 * LINE_SLOTS
PAIRS = 8
PLACES = 16
"""Places on the roster that a stage puts back."""
TRIED = 200_000
SEATED = 8
"""Seats that a stage puts back."""
LATER = 1 << 30
"""An expiry that no test reaches."""


@functools.cache
def _tried(zone, protocol):
    keys = tables.keys(TRIED, zone, first=zone + 2, low=zone + 1)
    keys[:, 4] = zone << 16 | protocol << 8 | 4
    return keys, hashing.hash_keys(tables.SECRET, keys)


def aimed(count, zone=0, pair=0, prefix="", skip=0, protocol=17):
    """Return keys whose home is in a pair of lines and whose hash begins with some bits, u64[count, 5].

    Args:
        count: how many.
        zone: their zone.
        pair: pair of lines, 0 to 7.
        prefix: the first bits of the hash, as "01".
        skip: how many to leave out, so that two calls give different ones.
        protocol: their protocol.
    """
    keys, hashes = _tried(zone, protocol)
    fits = (hashes >> np.uint64(1)) % np.uint64(PAIRS) == np.uint64(pair)
    if prefix:
        fits &= hashes >> np.uint64(64 - len(prefix)) == np.uint64(int(prefix, 2))
    found = np.flatnonzero(fits)[skip : skip + count]
    assert len(found) == count, f"only {len(found)} of {TRIED:,} keys fit"
    return keys[found]


class Stage:
    """A table that can be put back to a moment.

    Args:
        participants: how many join.
        zones: zones in use that the table is sized for.
        extension_share: extensions per thousand connections.
    """

    def __init__(self, participants=3, zones=2, extension_share=125):
        self.table = tables.small(participants * BLOCK_RECORDS, zones, extension_share)
        self.participants = [tables.Participant(self.table) for _ in range(participants)]
        self.saved = {}

    def save(self):
        """Remember the table as it is now."""
        self.saved = [
            (base + at, bytes(self.table.regions[region][at : at + length]))
            for region, base in self.table.base.items()
            for at, length in self._parts(region)
        ]
        if self.table.sources:
            self.saved.append((self.table.sources.base, self.table.sources.cells.tobytes()))
        if self.table.seats:
            self.saved.append((self.table.seats.base, self.table.seats.words[:SEATED].tobytes()))

    def restore(self):
        """Put the table back to the moment of ``save``."""
        for address, content in self.saved:
            ctypes.memmove(address, content, len(content))

    def _parts(self, region):
        """Yield what of a region can have changed: offset and bytes; of zones and places only those that tests use."""
        used = {"zones": tables.ZONES, "quotas": tables.ZONES, "participants": PLACES, "delete_lists": PLACES}
        offsets = self.table.geometry.offsets(region)
        for name, (count, size) in self.table.geometry.arrays(region).items():
            yield offsets[name], size * min(count, used.get(name, count))


def pinned(count, zone, prefix="", skip=0):
    """Return keys of one pair of lines of the first segment."""
    return aimed(count, zone, pair=3, prefix=prefix, skip=skip)
