"""One worker of a load test whose packets a service tracks: a driver that looks at the table, and touches nothing in it.

It has a queue of a port to itself.  The service goes by its own clock and sweeps by itself, so this one only waits.
"""

from __future__ import annotations

import numpy as np

from ..shm.layout import BURST_PACKETS_MAX, CARRIER, DESCRIPTOR, POLL_BURST_PACKETS, TIMESPEC
from ..shm.views import Table
from .driver import Driver
from .errors import ZonetrackError
from .port import Queue

PATIENCE_MS = 30_000
"""A machine with more to do than cores may take its time; what has not come after that is lost."""


class Courier(Driver):
    """A queue of a service's port, a driver's senders, and what became of what they sent."""

    def __init__(
        self,
        queue: Queue,
        table: Table,
        seed: int,
        burst_packets: int,
        stream: np.record | None = None,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        """Let all packets go through a queue.

        Args:
            queue: closed when the driver leaves.
            table: of the service.
            seed: of all connections.
            burst_packets: packets in a call.
            stream: as of Driver.
            patience_ms: how long an answer is waited for; what has none then is lost.

        Raises:
            ZonetrackError: its rings are shorter than a burst can be.
        """
        if queue.slots < BURST_PACKETS_MAX:
            raise ZonetrackError(
                f"the rings of port {queue.port.name} hold {queue.slots} packets, a burst has up to {BURST_PACKETS_MAX}"
            )
        super().__init__(table, seed, burst_packets, stream)
        self.queue = queue
        self._carrier = np.zeros(1, CARRIER)
        self._descriptors, self._timeout = np.zeros(POLL_BURST_PACKETS, DESCRIPTOR), np.zeros(1, TIMESPEC)
        for name, end in zip(("outward", "inward"), queue.ends, strict=True):
            self._carrier[name] = end
        self._carrier["descriptors"] = self._descriptors.ctypes.data
        self._carrier["timeout"] = self._timeout.ctypes.data
        self._carrier["patience_ms"] = patience_ms
        for sender in (self.sender, self.looker):
            sender.set(carrier=self._carrier.ctypes.data)

    def enter(self) -> int:
        """Return the place of one who only looks."""
        return 0

    def sweep(self, slots: int) -> int:
        """Sweep nothing: the service does."""
        return 0

    def settle(self) -> None:
        """Have nothing to settle."""

    def leave(self) -> None:
        """Let another client have the queue."""
        self.queue.close()
