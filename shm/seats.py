"""Seats for what a zone may have only so many of: half-open connections; kernels/half_open says who sits where.

Memory without a name, which the keeper makes before it forks and everybody it forks shares.  A seat takes memory when
somebody has sat on it, and none before.
"""

from __future__ import annotations

import mmap
import os
import weakref

import numpy as np

from .layout import SEATS_MAX
from .views import address_of


class Seats:
    """All seats of a table."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Make them, all free.

        Args:
            descriptor: of seats that there are already, to be used from here too.
        """
        self.descriptor = os.memfd_create("zonetrack.seats") if descriptor is None else descriptor
        weakref.finalize(self, os.close, self.descriptor)
        if descriptor is None:
            os.ftruncate(self.descriptor, 8 * SEATS_MAX)
        self._memory = mmap.mmap(self.descriptor, 8 * SEATS_MAX)
        self.base = address_of(self._memory)
        self.words = np.frombuffer(self._memory, "u8", SEATS_MAX)
        """What sits on each: incarnation 32 | record + 1, or 0."""
