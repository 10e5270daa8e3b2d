"""A TAP interface as a port: made by the service, up while it runs, gone with it (tun.rst of Linux).

Whatever is routed or bridged into the interface comes to the service, what the service sends comes out of it.  The system
deals flows out to the queues, and remembers for each by which queue it was answered.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...shm.layout import PortKind
from ...shm.queues import Side
from . import interface, steering
from .device import Device
from .errors import PortError, because
from .programs import filter_program

DEVICE = "/dev/net/tun"
TUNSETIFF, TUNATTACHFILTER = 0x400454CA, 0x401054D5
IFF_TAP, IFF_NO_PI, IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x0100
SIOCSIFFLAGS, SIOCSIFTXQLEN = 0x8914, 0x8943
WAITING_MAX = 10_000
"""Frames that the system keeps for a queue: at 0.5 M packets/s, 20 ms."""
COUNTERS = "/proc/self/net/dev"
TX_DROPPED = 11
"""Place among an interface's counters there: what came to it and found no room is what it could not transmit."""


class TapPort(Device):
    """The queues of a TAP interface, which goes with the last of them."""

    kind = PortKind.TAP

    def __init__(
        self, device: str, name: str = "", queues: int = 1, zone: int = 0, descriptors: Sequence[int] = ()
    ) -> None:
        """Make it, and switch it on.

        Args:
            device: name of the interface.
            name: of the port; the interface's where it has none.
            queues: of the interface.
            zone: of all packets that come from it.
            descriptors: of another object of these values; they belong to this one from now on.

        Raises:
            PortError: it cannot be.
        """
        super().__init__(f"tap:{device}", name or device, queues, zone)
        self.device = device
        with self._opening():
            self._queues = [self._keep(one) for one in descriptors] or [self._queue(queues) for _ in range(queues)]
            if not descriptors:
                self._switch_on()

    def _queue(self, queues: int) -> int:
        try:
            descriptor = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise because(self._spec, f"opening {DEVICE}", error) from error
        self._keep(descriptor)
        flags = IFF_TAP | IFF_NO_PI | (IFF_MULTI_QUEUE if queues > 1 else 0)
        try:
            fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", self.device.encode(), flags))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EBUSY):
                what = "it is there already, and is in use, or of another kind"
                raise PortError(f"port {self._spec}: {what}") from error
            raise because(self._spec, "making the interface", error) from error
        return descriptor

    def _switch_on(self) -> None:
        flags = interface.look(self._spec, self.device).is_up or interface.IFF_UP
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                length = struct.pack("16si20x", self.device.encode(), WAITING_MAX)
                fcntl.ioctl(control, SIOCSIFTXQLEN, length)
                fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", self.device.encode(), int(flags)))
        except OSError as error:
            raise because(self._spec, "switching the interface on", error) from error

    # ------------------------------------------------------------------------------------------------ the service's
    @property
    def total_bytes(self) -> int:
        """Bytes of memory: none of ours."""
        return 0

    def descriptors(self) -> list[int]:
        """Return the descriptors of all queues."""
        return list(self._queues)

    def lay(self, queue: np.void, index: int, sides: Side = Side.BOTH) -> None:
        """Fill in the descriptors of a place: one beyond the queues writes to another's."""
        if Side.RX in sides:
            queue["rx_descriptor"] = self._queues[index % len(self._queues)]
        if Side.TX in sides:
            queue["tx_descriptor"] = self._queues[index % len(self._queues)]

    def resume(self, queue: np.void, sides: Side = Side.BOTH) -> None:
        """Go on: nothing is left behind by who was here before."""

    def about(self) -> dict[str, object]:
        """Return what is told of it."""
        return {"device": self.device}

    def look(self, queue: np.void) -> None:
        """See to what only the system tells: frames for which it had no room, of all queues together, told at the first."""
        if queue["index"]:
            return
        for line in Path(COUNTERS).read_text().splitlines():
            called, _, counters = line.partition(":")
            if called.strip() == self.device:
                queue["rx_dropped"] = int(counters.split()[TX_DROPPED])

    def close(self) -> None:
        """Take no more: what waits already is still there."""
        program, kept = filter_program([(steering.RET_K, 0, 0, 0)])
        fcntl.ioctl(self._queues[0], TUNATTACHFILTER, program)
        del kept
