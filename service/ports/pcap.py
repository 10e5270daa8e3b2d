"""Capture files as a port: one whose packets come in, one that what goes out is written to.

The file that is read, pcap or pcapng, must be right to its end: its packets are found when it is opened (32 bytes for each),
and come once, as fast as they are taken: for tests, and for what a firewall would have made of a capture.  The file that is
written is a pcap of nanoseconds, begun anew.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence

import numpy as np

from ...shm.layout import FRAME, PLACES, FrameFlag, PortKind
from ...shm.queues import Side
from ..captures import Capture, CaptureError
from .device import Device
from .errors import PortError, because

BUFFER_BYTES = 1 << 18
"""Of a worker: the longest frame four times, or 32 of the usual ones many times over."""
HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1)
"""Of a pcap file of nanoseconds, of Ethernet frames."""


class PcapPort(Device):
    """A file that is read, and one that is written; either may be missing."""

    kind = PortKind.PCAP

    def __init__(
        self,
        device: str,
        name: str,
        zone: int = 0,
        workers: int = 1,
        out: str = "",
        descriptors: Sequence[int] = (),
    ) -> None:
        """Open it.

        Args:
            device: the file that is read; ``-``: none.
            name: of the port.
            zone: of all packets that come from it.
            workers: each has a buffer.
            out: the file that is written, where there is one.
            descriptors: of another object of these values; they belong to this one from now on.

        Raises:
            PortError: it cannot be.
        """
        super().__init__(f"pcap:{device}", name, int(device != "-"), zone)
        self.device, self.out = device, out
        self._bytes, self._frames = np.zeros(0, "u1"), np.zeros(0, FRAME)
        self._reader: np.void | None = None
        self._out = -1
        with self._opening():
            if device != "-":
                self._read()
            if descriptors:
                self._out = self._keep(*descriptors)
            elif out:
                self._write()
        buffers = self.places(workers) if out else 0
        self._buffers = np.frombuffer(mmap.mmap(-1, max(1, buffers) * BUFFER_BYTES), "u1")

    def _read(self) -> None:
        """Map the file, and find its packets."""
        flags = FrameFlag.COMMIT | FrameFlag.IN_PLACE
        try:
            with Capture(self.device, self.zone, flags) as capture, open(self.device, "rb") as file:
                found = [frames.copy() for frames, _ in capture.slices()]
                capture.check()
                # copy on write: a packet that is changed is changed here alone; the file must not be made shorter meanwhile
                size = os.fstat(file.fileno()).st_size
                self._bytes = np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY), "u1")
                self._frames = np.concatenate([np.zeros(0, FRAME), *found])
                moved = (self._bytes.ctypes.data - int(capture.walk["address"])) % 2**64
                self._frames["address"] += np.uint64(moved)
        except CaptureError as error:
            raise PortError(f"port {self._spec}: {error}") from error

    def _write(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        try:
            self._out = self._keep(os.open(self.out, flags, 0o600))
            os.write(self._out, HEADER)
        except OSError as error:
            raise because(self._spec, f"writing {self.out}", error) from error

    # ------------------------------------------------------------------------------------------------ the service's
    @property
    def total_bytes(self) -> int:
        """Bytes of its buffers, and of what is known of its packets."""
        return self._buffers.size + self._frames.nbytes

    def descriptors(self) -> list[int]:
        """Return the descriptor of the file that is written, where there is one."""
        return [self._out] if self.out else []

    def lay(self, queue: np.void, index: int, sides: Side = Side.BOTH) -> None:
        """Fill in where the walk and the buffer of a place are."""
        if Side.RX in sides and index < self.queues:
            walk = queue["rx"].view(PLACES)
            walk["places"], walk["count"] = self._frames.ctypes.data, len(self._frames)
            self._reader = walk
        if Side.TX in sides and self.out:
            places = queue["tx"].view(PLACES)
            places["places"], places["place_bytes"] = self._buffers.ctypes.data + index * BUFFER_BYTES, BUFFER_BYTES
            places["count"] = 1
            queue["tx_descriptor"] = self._out

    def resume(self, queue: np.void, sides: Side = Side.BOTH) -> None:
        """Go on: what a worker that died had not written is lost with it."""
        if Side.TX in sides:
            queue["tx"].view(PLACES)["cursor"] = 0

    def about(self) -> dict[str, object]:
        """Return what is told of it."""
        ended = self._reader is None or bool(self._reader["cursor"] >= self._reader["count"])
        return {"device": self.device, "out": self.out, "ended": ended}

    def look(self, queue: np.void) -> None:
        """See to nothing."""

    def close(self) -> None:
        """Read no more."""
        if self._reader is not None:
            self._reader["count"] = 0
        self._frames = self._frames[:0]
