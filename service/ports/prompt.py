"""A network interface as a port of low latency: packet sockets that hand over each frame as soon as it is there.

As service/ports/packet, but that a queue receives into a ring of TPACKET_V2 (kernels/port_frames).
"""

from __future__ import annotations

import struct

import numpy as np

from ...shm.layout import FRAMES, PortKind
from ...shm.queues import Side
from . import packet_rings
from .packet import BLOCK_BYTES, TPACKET_V2, PacketPort


class PromptPort(PacketPort):
    """The sockets and rings of an interface, with a place for each frame."""

    kind = PortKind.FRAMES

    @property
    def _frames_count(self) -> int:
        return self._blocks_count * BLOCK_BYTES // self._place_bytes

    def _ring(self, retire_ms: int) -> tuple[int, bytes]:
        """Return the version of the rings to receive in, and how one is asked for: no block is there to wait for."""
        return TPACKET_V2, struct.pack("4I", BLOCK_BYTES, self._blocks_count, self._place_bytes, self._frames_count)

    def lay(self, queue: np.void, index: int, sides: Side = Side.BOTH) -> None:
        """Fill in where the rings of a place are, and its descriptors."""
        super().lay(queue, index, sides)
        if Side.RX in sides and index < self.queues:
            ring = queue["rx"].view(FRAMES)
            ring["frame_bytes"], ring["count"] = self._place_bytes, self._frames_count

    def _resume_receiving(self, queue: np.void, memory: np.ndarray) -> None:
        queue["rx_dropped"] += packet_rings.resume_frames(queue["rx"].view(FRAMES), memory)

    def about(self) -> dict[str, object]:
        """Return what is told of it: as of any interface, and its latency."""
        return super().about() | {"latency": "low"}
