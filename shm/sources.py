"""Counts of connections by source address, of zones that give each source a budget; kernels/sources says who counts.

Memory without a name, which the keeper makes before it forks and everybody it forks shares.  Four cells for each
connection that there can be, so that a source finds no cell in its window once in a million; a page takes memory when a
source was counted there, and none before.
"""

from __future__ import annotations

import mmap
import os
import weakref

import numpy as np

from .layout import PAGE_BYTES
from .views import address_of

CELLS_PER_CONNECTION = 4


def cells_of(connections: int) -> int:
    """Return how many cells a table of so many connections has: a power of two."""
    return max(PAGE_BYTES // 8, 1 << (CELLS_PER_CONNECTION * connections - 1).bit_length())


class Sources:
    """All counts of a table."""

    def __init__(self, connections: int, descriptor: int | None = None) -> None:
        """Make them, all zero.

        Args:
            connections: that the table is sized for.
            descriptor: of counts that there are already, to be used from here too.
        """
        size = 8 * cells_of(connections)
        self.descriptor = os.memfd_create("zonetrack.sources") if descriptor is None else descriptor
        weakref.finalize(self, os.close, self.descriptor)
        if descriptor is None:
            os.ftruncate(self.descriptor, size)
        self._memory = mmap.mmap(self.descriptor, size)
        self.base = address_of(self._memory)
        self.cells = np.frombuffer(self._memory, "u8", size // 8)
        """Of each: fingerprint 40 | count 24, or 0."""
