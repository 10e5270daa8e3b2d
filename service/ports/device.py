"""What all ports have in common that are not rings of clients: descriptors in a house, closed together.

A device is open from the moment it is made to ``unlink``, or to the end of its block; one that cannot be opened wholly is
not open at all.  A room of its kind says the rest of what is asked of a port (``shm.queues.Source``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Self


class Device:
    """A port whose memory nobody has but the service."""

    is_whole = True
    """All of its memory can be touched: nobody makes it shorter."""

    def __init__(self, spec: str, name: str, queues: int, zone: int) -> None:
        """Begin with nothing open.

        Args:
            spec: what is opened, as in SPEC.
            name: of the port.
            queues: how many packets come from.
            zone: of all packets that come from it.
        """
        self.name, self.queues, self.zone = name, queues, zone
        self._spec = spec
        self._house = contextlib.ExitStack()

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """Close at once what is open already, if the rest cannot be opened."""
        try:
            yield
        except BaseException:
            self._house.close()
            raise

    def _keep(self, descriptor: int) -> int:
        """Have a descriptor closed with all others."""
        self._house.callback(os.close, descriptor)
        return descriptor

    def places(self, workers: int) -> int:
        """Return how many places it has: one for each queue, and one for each worker at least."""
        return max(self.queues, workers)

    def unlink(self) -> None:
        """Close it, and leave nothing of it."""
        self._house.close()

    def __enter__(self) -> Self:
        """Close it at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.unlink()
