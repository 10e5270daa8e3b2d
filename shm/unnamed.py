"""Memory without a name: made by one process, shared by all that it forks, and by whoever is handed its descriptor.

It is there as long as somebody has the descriptor, or has it mapped.  A page takes memory once it is written, not before.
"""

from __future__ import annotations

import mmap
import os
import weakref

from .views import address_of


class Unnamed:
    """Such memory, mapped in this process."""

    def __init__(self, name: str, size: int, descriptor: int | None = None) -> None:
        """Make it, all zero; or take up what there is.

        Args:
            name: what it is called in /proc.
            size: in bytes.
            descriptor: of memory of that size that there is already; it belongs to this object from now on.
        """
        self.descriptor = os.memfd_create(f"zonetrack.{name}") if descriptor is None else descriptor
        weakref.finalize(self, os.close, self.descriptor)
        if descriptor is None:
            os.ftruncate(self.descriptor, size)
        self.memory = mmap.mmap(self.descriptor, size)
        self.base = address_of(self.memory)
