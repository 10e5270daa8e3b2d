"""Capture files: opened, mapped, and walked through, never read as a whole.

A ``Capture`` holds the mapping and the CAPTURE record that ``kernels.capture`` walks with.  What is wrong with a file
becomes a ``CaptureError``, which names the file and the byte.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator

import numpy as np

from ..clients.errors import ZonetrackError
from ..kernels import capture as walk
from ..kernels.capture import FAULTS, Fault
from ..shm.layout import CAPTURE, FRAME, INTERFACE, INTERFACES_MAX

SLICE_RECORDS = 1 << 16
"""Records that one call of a walking kernel looks at: about 10 ms when the file is in memory."""
SLICE_PACKETS = 4096


class CaptureError(ZonetrackError):
    """A capture file cannot be read, or not further than to some byte."""

    def __init__(self, path: str, offset: int, what: str) -> None:
        super().__init__(f"{path}: byte {offset:,}: {what}")
        self.path = path
        self.offset = offset
        self.what = what


class Capture:
    """An open capture file, with a walk that begins before its first packet."""

    def __init__(self, path: str, zone: int = 0, flags: int = 0, content: bytes | None = None) -> None:
        """Open and map a file.

        Args:
            path: of the file; it is named like this in errors.
            zone: zone of its packets.
            flags: FrameFlag bits of its packets.
            content: what would be in the file, which there is not then.

        Raises:
            CaptureError: the file cannot be opened, or does not begin like a capture.
        """
        self.path = path
        self._bytes = _map(path) if content is None else np.frombuffer(content, "u1")
        self._interfaces = np.zeros(INTERFACES_MAX, INTERFACE)
        # a record of an array of one: scalars of numpy are copies, records of a recarray are not
        self.walk = np.zeros(1, CAPTURE).view(np.recarray)[0]
        self.walk["address"] = self._bytes.ctypes.data
        self.walk["bytes"] = self._bytes.size
        self.walk["interfaces"] = self._interfaces.ctypes.data
        self.walk["zone"] = zone
        self.walk["frame_flags"] = flags
        self.rewind()

    def rewind(self) -> None:
        """Begin again before the first packet."""
        walk.begin(self.walk)
        self._refuse(Fault.NONE)

    @property
    def ended(self) -> bool:
        """Whether the walk has stopped, rightly or at a fault."""
        return self.walk["fault"] != Fault.NONE

    def check(self) -> None:
        """Raise the ``CaptureError`` of a walk that has stopped anywhere but at the end."""
        self._refuse(Fault.END)

    def _refuse(self, right: Fault) -> None:
        fault = Fault(self.walk["fault"])
        if fault not in (Fault.NONE, right):
            raise CaptureError(self.path, int(self.walk["position"]), FAULTS[fault])

    def slices(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield frames (FRAME[n]) and times (u64[n], ns) of all packets, slice by slice, up to the end or the fault.

        The arrays are used again for the next slice; addresses in frames hold until the capture is closed.
        """
        frames, times = np.zeros(SLICE_PACKETS, FRAME), np.zeros(SLICE_PACKETS, "u8")
        while not self.ended:
            found = int(
                walk.next_frames(
                    self.walk,
                    np.uint64(frames.ctypes.data),
                    np.uint64(times.ctypes.data),
                    np.uint64(SLICE_PACKETS),
                    np.uint64(SLICE_RECORDS),
                )
            )
            yield frames[:found], times[:found]

    def close(self) -> None:
        """Unmap the file; no frame of it may be read afterwards."""
        self._bytes = self._bytes[:0].copy()
        self.walk["bytes"] = self.walk["position"] = 0

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _map(path: str) -> np.ndarray:
    """Return the bytes of a file, u8[size], mapped."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise CaptureError(path, 0, "not a regular file")
            if status.st_size == 0:
                return np.zeros(0, "u1")
            mapping = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CaptureError(path, 0, error.strerror or str(error)) from error
    mapping.madvise(mmap.MADV_SEQUENTIAL)
    return np.frombuffer(mapping, "u1")
