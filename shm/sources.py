"""Counts of connections by source address, of zones that give each source a budget; kernels/sources says who counts.

The keeper makes them before it forks.  There are four cells for each connection that there can be, so that a source finds
no cell in its window once in a million; a page takes memory when a source was counted there, and none before (shm/unnamed).
"""

from __future__ import annotations

import numpy as np

from .layout import PAGE_BYTES
from .unnamed import Unnamed

CELLS_PER_CONNECTION = 4


def cells_of(connections: int) -> int:
    """Return how many cells a table of so many connections has: a power of two."""
    return max(PAGE_BYTES // 8, 1 << (CELLS_PER_CONNECTION * connections - 1).bit_length())


class Sources(Unnamed):
    """All counts of a table."""

    def __init__(self, connections: int, descriptor: int | None = None) -> None:
        """Make them, all zero.

        Args:
            connections: that the table is sized for.
            descriptor: of counts that there are already, to be used from here too.
        """
        size = 8 * cells_of(connections)
        super().__init__("sources", size, descriptor)
        self.cells = np.frombuffer(self.memory, "u8", size // 8)
        """Of each: fingerprint 40 | count 24, or 0."""
