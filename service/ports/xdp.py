"""A network interface as a port whose frames the system does not see: sockets of AF_XDP (af_xdp.rst of Linux).

A program in the interface's driver (service/ports/redirect) hands the frames of each rx queue to a socket, through rings and
memory that driver, system and worker share.  Only this port has them then.  Where the driver can, the device writes into
that memory itself (mode ``zerocopy``); else frames are copied once (``copy``).

The keeper opens sockets, memory and program, and keeps them while workers come and go.  There is a socket for each rx queue,
and one worker may send by it, whoever receives; workers beyond that send by packet sockets (service/ports/packet).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import socket
import struct
import time
from collections.abc import Sequence

import numpy as np

from ...shm.layout import DIVERTED, INJECTED, XSK, PortKind
from ...shm.queues import Side
from .. import log
from . import interface, redirect, xdp_rings
from .device import Device
from .errors import PortError, because
from .packet import PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC, SOL_PACKET, PacketPort

AF_XDP, SOL_XDP = 44, 283
MMAP_OFFSETS, RX_RING, TX_RING, UMEM_REG, FILL_RING, COMPLETION_RING, STATISTICS = range(1, 8)
COPY, ZEROCOPY, USE_NEED_WAKEUP = 2, 4, 8
AT_RX, AT_TX, AT_FILL, AT_COMPLETION = 0, 0x80000000, 0x100000000, 0x180000000
"""Where the rings are mapped from: XDP_PGOFF_..., XDP_UMEM_PGOFF_..."""
MODES = {"copy": COPY, "zerocopy": ZEROCOPY}
RING_DEFAULT = 4096
"""Frames that wait for their worker: at 1 M packets/s, 4 ms."""
TX_COUNT = 1024
HEADROOM_BYTES = 256
"""Before each frame: XDP_PACKET_HEADROOM."""
ETHERNET_BYTES, TAG_BYTES = 14, 4
PLACE_BYTES = (2048, 4096)
LENGTH_MAX = PLACE_BYTES[-1] - HEADROOM_BYTES
RIGHTS = "the right to do that is missing: run as root, or give the program CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW"
MAP_POPULATE = 0x8000
LETTING_GO_S = 2.0
"""In which the system lets go of what a closed socket had: it does so by and by."""
_STATISTICS = struct.Struct("6Q")
_ADDRESS = struct.Struct("HHIII")
_libc = ctypes.CDLL(None, use_errno=True)
_log = log.logger("port")


class _BusyError(PortError):
    """Somebody else has an rx queue, or had it until now."""


class XdpPort(Device):
    """The sockets, rings and program of an interface; the program goes with its link."""

    kind = PortKind.XDP

    def __init__(
        self,
        device: str,
        name: str = "",
        queues: int = 1,
        zone: int = 0,
        workers: int = 1,
        mode: str = "copy",
        ring: int = RING_DEFAULT,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Open it; or go on with what another process has opened.

        Args:
            device: the interface.
            name: of the port; the interface's where it has none.
            queues: rx queues of the interface, from the first on; frames of others go on to the system.
            zone: of all packets that come from it.
            workers: each has a place to send from.
            mode: of MODES.
            ring: frames of a queue that wait at most, a power of two.
            descriptors: of another object of these values; they belong to this one from now on.

        Raises:
            PortError: it cannot be.
        """
        super().__init__(f"xdp:{device}", name or device, queues, zone)
        self.device = device
        self.interface = interface.look(self._spec, device)
        self._mode, self._ring = mode, ring
        self._sockets: list[socket.socket] = []
        self._maps: list[mmap.mmap] = []
        self._others: PacketPort | None = None
        self._place_bytes = self._place()
        self._own = np.zeros(queues, XSK)
        others = max(0, workers - queues)
        with self._opening():
            if descriptors:
                self._take_over(descriptors, workers if others else 0)
                return
            self._memory_file = self._keep(os.memfd_create("zonetrack.xdp"))
            os.ftruncate(self._memory_file, queues * self._frames_bytes)
            self._frames = self._map_frames()
            for index in range(queues):
                self._sockets.append(self._open(index))
            for index, one in enumerate(self._sockets):
                self._map_rings(index, one)
                self._offer_all(index)
            self._listener = self._house.enter_context(self._promiscuous())
            self._divert()
            if others:
                self._others = PacketPort(device, name, 0, zone, workers)
                self._house.callback(self._others.unlink)

    def _place(self) -> int:
        """Return the bytes of a place that the longest frame of the interface fits into."""
        if self.interface.hardware not in (interface.ETHERNET, interface.LOOPBACK):
            raise PortError(f"port {self._spec}: not an Ethernet interface (its type is {self.interface.hardware})")
        longest = self.interface.mtu + ETHERNET_BYTES + TAG_BYTES + HEADROOM_BYTES
        for size in PLACE_BYTES:
            if longest <= size:
                return size
        most = LENGTH_MAX - ETHERNET_BYTES - TAG_BYTES
        raise PortError(f"port {self._spec}: its MTU is {self.interface.mtu:,}, at most {most:,} is possible")

    def _take_over(self, descriptors: Sequence[int], workers: int) -> None:
        """Go on with what another process has made."""
        sockets, rest = descriptors[: self.queues], descriptors[self.queues :]
        self._sockets = [
            self._house.enter_context(socket.socket(AF_XDP, socket.SOCK_RAW, 0, fileno=one)) for one in sockets
        ]
        self._memory_file, self._sockets_map, self._link = (self._keep(one) for one in rest[:3])
        self._listener = self._house.enter_context(socket.socket(fileno=rest[3]))
        self._frames = self._map_frames()
        try:
            for index, one in enumerate(self._sockets):
                self._map_rings(index, one)
                redirect.lead(self._sockets_map, index, one.fileno())
        except OSError as error:
            raise because(self._spec, "its rings, as another process made them", error) from error
        if workers:
            self._others = PacketPort(self.device, self.name, 0, self.zone, workers, descriptors=rest[4:])
            self._house.callback(self._others.unlink)

    # ------------------------------------------------------------------------------------------------ opening
    @property
    def _frames_bytes(self) -> int:
        return (self._ring + TX_COUNT) * self._place_bytes

    def _map_frames(self) -> np.ndarray:
        return np.frombuffer(mmap.mmap(self._memory_file, self.queues * self._frames_bytes), "u1")

    def _open(self, index: int) -> socket.socket:
        """Return a socket for an rx queue; one that was closed just now lets go of it a little later."""
        until_s = time.monotonic() + LETTING_GO_S
        while True:
            try:
                return self._house.enter_context(self._bound(index))
            except _BusyError as error:
                if time.monotonic() > until_s:
                    raise PortError(str(error)) from error
                time.sleep(LETTING_GO_S / 100)

    def _bound(self, index: int) -> socket.socket:
        with contextlib.ExitStack() as house:
            made = house.enter_context(contextlib.closing(self._with_rings(index)))
            address = _ADDRESS.pack(AF_XDP, MODES[self._mode] | USE_NEED_WAKEUP, self.interface.index, index, 0)
            if _libc.bind(made.fileno(), ctypes.create_string_buffer(address, len(address)), len(address)):
                code = ctypes.get_errno()
                raise self._refused(index, OSError(code, os.strerror(code)))
            house.pop_all()
            return made

    def _with_rings(self, index: int) -> socket.socket:
        """Return a socket with memory and rings, to which nothing comes yet."""
        try:
            made = socket.socket(AF_XDP, socket.SOCK_RAW, 0)
        except OSError as error:
            raise because(self._spec, "opening a socket of AF_XDP", error) from error
        start = self._frames.ctypes.data + index * self._frames_bytes
        try:
            memory = struct.pack("QQIIII", start, self._frames_bytes, self._place_bytes, 0, 0, 0)
            made.setsockopt(SOL_XDP, UMEM_REG, memory)
            for option, size in (
                (FILL_RING, self._ring),
                (COMPLETION_RING, TX_COUNT),
                (RX_RING, self._ring),
                (TX_RING, TX_COUNT),
            ):
                made.setsockopt(SOL_XDP, option, size)
        except OSError as error:
            made.close()
            if error.errno == errno.ENOBUFS:
                raise PortError(
                    f"port {self._spec}: {self._frames_bytes:,} bytes cannot be locked in memory: raise RLIMIT_MEMLOCK"
                ) from error
            raise because(self._spec, "its rings", error) from error
        return made

    def _refused(self, index: int, error: OSError) -> PortError:
        """Return what to say of a queue that cannot be had."""
        if error.errno == errno.EINVAL:
            return PortError(f"port {self._spec}: {self.device} has no rx queue {index}: ask for queues={index or 1}")
        if error.errno == errno.EOPNOTSUPP and self._mode == "zerocopy":
            return PortError(f"port {self._spec}: the driver of {self.device} has no zero copy: say mode=copy")
        if error.errno == errno.EBUSY:
            return _BusyError(f"port {self._spec}: another program has rx queue {index} of {self.device}")
        return because(self._spec, f"having rx queue {index}", error)

    def _map_rings(self, index: int, of: socket.socket) -> None:
        """Map the rings of a socket, and note where their words are."""
        offsets = struct.unpack("16Q", of.getsockopt(SOL_XDP, MMAP_OFFSETS, 128))  # producer, consumer, entries, flags
        own = self._own[index]
        own["frames"] = self._frames.ctypes.data + index * self._frames_bytes
        own["place_bytes"], own["rx_count"], own["tx_count"] = self._place_bytes, self._ring, TX_COUNT
        for name, number, start, count, size in (
            ("rx", 0, AT_RX, self._ring, 16),
            ("tx", 1, AT_TX, TX_COUNT, 16),
            ("fill", 2, AT_FILL, self._ring, 8),
            ("sent", 3, AT_COMPLETION, TX_COUNT, 8),
        ):
            producer, consumer, entries, flags = offsets[4 * number : 4 * number + 4]
            rights = mmap.PROT_READ | mmap.PROT_WRITE
            ring = mmap.mmap(of.fileno(), entries + count * size, mmap.MAP_SHARED | MAP_POPULATE, rights, offset=start)
            self._maps.append(ring)
            at = np.frombuffer(ring, "u1").ctypes.data
            for word, place in (
                ("producer", producer),
                ("consumer", consumer),
                ("entries", entries),
                ("flags", flags),
            ):
                if f"{name}_{word}" in (XSK.names or ()):
                    own[f"{name}_{word}"] = at + place

    def _offer_all(self, index: int) -> None:
        """Let all places to receive in be received in."""
        xdp_rings.offer_all(self._own[index])

    def _promiscuous(self) -> socket.socket:
        """Return a socket while which is open the interface takes frames for other hosts, too."""
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        asked = struct.pack("iHH8x", self.interface.index, PACKET_MR_PROMISC, 0)
        try:
            made.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, asked)
        except OSError as error:
            made.close()
            raise because(self._spec, "taking what is for other hosts", error) from error
        return made

    def _divert(self) -> None:
        """Put the program into the interface, and the sockets into its map."""
        doing = "loading its program"
        try:
            self._sockets_map = self._keep(redirect.make_map(self.queues))
            for index, one in enumerate(self._sockets):
                redirect.lead(self._sockets_map, index, one.fileno())
            doing = "attaching its program"
            self._link = self._keep(self._attach())
        except OSError as error:
            if redirect.is_refused(error):
                raise PortError(f"port {self._spec}: {doing}: {RIGHTS}") from error
            if error.errno in (errno.EBUSY, errno.EEXIST):
                raise PortError(f"port {self._spec}: another program is attached to {self.device} already") from error
            raise because(self._spec, doing, error) from error

    def _attach(self) -> int:
        try:
            return redirect.attach(self.interface.index, self._sockets_map, redirect.DRIVER_MODE)
        except OSError as error:
            if self._mode == "zerocopy" or error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ERANGE):
                raise
        _log.info("port %s: its driver runs no programs; the system does, after it", self.name)
        return redirect.attach(self.interface.index, self._sockets_map, redirect.SKB_MODE)

    # ------------------------------------------------------------------------------------------------ the service's
    @property
    def total_bytes(self) -> int:
        """Bytes of frames and rings."""
        others = self._others.total_bytes if self._others else 0
        return self._frames.size + sum(map(len, self._maps)) + others

    def descriptors(self) -> list[int]:
        """Return what another process needs: sockets, memory, the program's map and link, and what others send by."""
        others = self._others.descriptors() if self._others else []
        sockets = [one.fileno() for one in self._sockets]
        return [*sockets, self._memory_file, self._sockets_map, self._link, self._listener.fileno(), *others]

    def lay(self, queue: np.void, index: int, sides: Side = Side.BOTH) -> None:
        """Fill in where the rings of a place are; one beyond the queues only sends, by a packet socket."""
        if index >= self.queues:
            assert self._others is not None
            queue["kind"] = PortKind.PACKET
            self._others.lay(queue, index, sides)
            return
        rings, descriptor = self._own[index : index + 1].ctypes.data, self._sockets[index].fileno()
        if Side.RX in sides:
            queue["rx"].view(DIVERTED)["rings"], queue["rx_descriptor"] = rings, descriptor
        if Side.TX in sides:
            queue["tx"].view(INJECTED)["rings"], queue["tx_descriptor"] = rings, descriptor
            self._measure(queue, self.interface.mtu)

    def _measure(self, queue: np.void, mtu: int) -> None:
        queue["tx"].view(INJECTED)["length_max"] = mtu + ETHERNET_BYTES

    def resume(self, queue: np.void, sides: Side = Side.BOTH) -> None:
        """Go on where the worker before may have died: what it had in hand is lost, and counted (kernels/port_xdp)."""
        index = int(queue["index"])
        if index >= self.queues:
            assert self._others is not None
            self._others.resume(queue, sides)
            return
        own = self._own[index]
        if Side.RX in sides:
            queue["causes"][2] += xdp_rings.resume_receiving(own, queue["rx"].view(DIVERTED))
        if Side.TX in sides:
            xdp_rings.resume_sending(own, queue["tx"].view(INJECTED))
            with contextlib.suppress(OSError):
                self._sockets[index].send(b"", socket.MSG_DONTWAIT)  # what it had not handed over

    def look(self, queue: np.void) -> None:
        """See to what only system calls tell: frames for which there was no room, errors, the MTU."""
        index = int(queue["index"])
        if index >= self.queues:
            assert self._others is not None
            self._others.look(queue)
            return
        of = self._sockets[index]
        dropped, _, bad, full, starved, _ = _STATISTICS.unpack(of.getsockopt(SOL_XDP, STATISTICS, _STATISTICS.size))
        queue["causes"][:2], queue["causes"][3] = (full, starved), bad
        queue["rx_dropped"] = dropped + full + int(queue["causes"][2])
        wrong = of.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if wrong:
            _log.warning("port %s, queue %d: %s", self.name, index, os.strerror(wrong))
        mtu = interface.mtu(self.device)
        if mtu:
            self._measure(queue, mtu)

    def about(self) -> dict[str, object]:
        """Return what is told of it: the interface, what that leaves to its device, and how frames come."""
        return {"device": self.device, "offloads": list(self.interface.offloads), "mode": self._mode}

    def close(self) -> None:
        """Take no more: what comes now goes on to the system."""
        for index in range(self.queues):
            redirect.let_go(self._sockets_map, index)
