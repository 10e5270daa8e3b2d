"""Seats for what a zone may have only so many of: half-open connections; kernels/half_open says who sits where.

The keeper makes them before it forks.  A seat takes memory when somebody has sat on it, and none before (shm/unnamed).
"""

from __future__ import annotations

import numpy as np

from .layout import SEATS_MAX
from .unnamed import Unnamed


class Seats(Unnamed):
    """All seats of a table."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Make them, all free.

        Args:
            descriptor: of seats that there are already, to be used from here too.
        """
        super().__init__("seats", 8 * SEATS_MAX, descriptor)
        self.words = np.frombuffer(self.memory, "u8", SEATS_MAX)
        """What sits on each: incarnation 32 | record + 1, or 0."""
