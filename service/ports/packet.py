"""A network interface as a port: packet sockets, and the rings that the system shares with us (packet(7)).

A socket for each queue receives into a ring of TPACKET_V3; together they are a group that deals packets out
(service/ports/steering).  A socket for each place sends out of a ring of TPACKET_V2, past the queueing discipline.

The keeper opens all of them and keeps them open while workers come and go: were a member of the group closed, the flows of
all others would be dealt out anew.  So a worker's death loses nothing but what it had in hand.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import socket
import struct
from collections.abc import Sequence

import numpy as np

from ...shm.layout import BLOCKS, PLACE_HEAD_BYTES, PLACES, PortKind
from ...shm.queues import Side
from .. import log
from . import interface, packet_rings, steering
from .device import Device
from .errors import PortError, because
from .programs import filter_program

SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 1, 5, 6, 10
PACKET_TX_RING, PACKET_LOSS, PACKET_FANOUT, PACKET_QDISC_BYPASS = 13, 14, 18, 20
PACKET_FANOUT_DATA, PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR = 22, 23, 15
PACKET_MR_PROMISC = 1
TPACKET_V2, TPACKET_V3 = 1, 2
FANOUT_HASH, FANOUT_CBPF = 0, 6
FANOUT_UNIQUE, FANOUT_DEFRAG = 0x2000, 0x8000
ETH_P_ALL = 3
SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_SNDBUFFORCE = 26, 27, 32
MAP_POPULATE = 0x8000

BLOCK_BYTES = 1 << 17
"""Holds the longest frame there is, or some 800 of 64 bytes.  A block that is handed over every millisecond has few frames
at low rates: many small blocks last longer than few large ones while a worker waits for its processor."""
RING_MB_DEFAULT = 16
"""Of a queue: at 1 M packets/s of 64 bytes, 0.1 s."""
RETIRE_MS_DEFAULT = 1
"""After which a block that is not full is handed over: the latency of a packet that comes alone."""
PLACES_COUNT = 1024
PLACE_BYTES_MIN = 2048
ETHERNET_BYTES, TAG_BYTES = 14, 4
SEND_BUFFER_BYTES = 1 << 24
FANOUTS = {"addresses": FANOUT_CBPF, "flows": FANOUT_HASH}
"""How packets are dealt out: by their addresses; or by addresses and ports, which spreads them more, and apart from
fragments and errors that belong to them."""
STATISTICS_BYTES = 12
"""Of a ring of TPACKET_V3; of one of TPACKET_V2 there are the first eight."""
_PLACES, _STATISTICS = struct.Struct("4I"), struct.Struct("2I")
_log = log.logger("port")
_RELEASE = re.compile("[0-9]+")


def tells_segments() -> bool:
    """Return whether this system can tell how frames are to be cut, of UDP too (Linux 6.2): what it cannot tell it drops."""
    return tuple(map(int, _RELEASE.findall(os.uname().release)[:2])) >= (6, 2)


class PacketPort(Device):
    """The sockets and rings of an interface."""

    kind = PortKind.PACKET

    def __init__(
        self,
        device: str,
        name: str = "",
        queues: int = 1,
        zone: int = 0,
        workers: int = 1,
        ring_mb: int = RING_MB_DEFAULT,
        retire_ms: int = RETIRE_MS_DEFAULT,
        fanout: str = "addresses",
        outgoing: bool = False,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Open it; or go on with what another process has opened.

        Args:
            device: the interface.
            name: of the port; the interface's where it has none.
            queues: sockets that receive.
            zone: of all packets that come from it.
            workers: each has a place to send from.
            ring_mb: of a queue, a power of two.
            retire_ms: the longest that a packet waits for its block to be handed over.
            fanout: of FANOUTS.
            outgoing: whether packets that this host sends are received too.
            descriptors: of another object of these values; they belong to this one from now on.

        Raises:
            PortError: it cannot be.
        """
        super().__init__(f"afpacket:{device}", name or device, queues, zone)
        self.device = device
        self.interface = interface.look(self._spec, device)
        self._rx: list[socket.socket] = []
        self._tx: list[socket.socket] = []
        self._memory: list[mmap.mmap] = []
        self._blocks_count = ring_mb * (1 << 20) // BLOCK_BYTES
        self._place_bytes = PLACE_BYTES_MIN
        while self._place_bytes < self.interface.mtu + PLACE_HEAD_BYTES + ETHERNET_BYTES + TAG_BYTES:
            self._place_bytes *= 2
        self._check()
        with self._opening():
            if descriptors:
                self._take_over(descriptors)
                return
            for _ in range(queues):
                self._rx.append(self._receiver(retire_ms, outgoing))
            self._join(FANOUTS[fanout])
            for _ in range(self.places(workers)):
                self._tx.append(self._sender())

    def _check(self) -> None:
        """Complain of an interface whose frames are not Ethernet's, and say what it does to frames."""
        if self.interface.hardware not in (interface.ETHERNET, interface.LOOPBACK):
            raise PortError(f"port {self._spec}: not an Ethernet interface (its type is {self.interface.hardware})")
        joins = [offload for offload in interface.JOINS if offload in self.interface.offloads]
        if joins:
            _log.warning(
                "port %s joins segments to frames longer than its MTU, which are cut again to be output: ethtool -K %s %s",
                self.name,
                self.device,
                " ".join(f"{offload} off" for offload in joins),
            )
        if not self.interface.is_up:
            _log.warning("port %s: the interface is down", self.name)

    def _take_over(self, descriptors: Sequence[int]) -> None:
        """Go on with sockets that another process has made."""
        sockets = [self._house.enter_context(socket.socket(fileno=one)) for one in descriptors]
        self._rx, self._tx = sockets[: self.queues], sockets[self.queues :]
        for one in self._rx:
            with contextlib.suppress(OSError):  # there is none, unless it was being closed
                one.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        try:
            for one in self._rx:
                self._map(one, self._blocks_count * BLOCK_BYTES)
            for one in self._tx:
                self._map(one, PLACES_COUNT * self._place_bytes)
        except OSError as error:
            raise because(self._spec, "its rings, as another process made them", error) from error

    # ------------------------------------------------------------------------------------------------ opening
    def _socket(self) -> socket.socket:
        try:
            # protocol 0: nothing comes before it is bound
            return self._house.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        except OSError as error:
            raise because(self._spec, "opening a packet socket", error) from error

    def _map(self, of: socket.socket, size: int) -> mmap.mmap:
        made = mmap.mmap(of.fileno(), size, mmap.MAP_SHARED | MAP_POPULATE, mmap.PROT_READ | mmap.PROT_WRITE)
        self._memory.append(made)
        return made

    def _receiver(self, retire_ms: int, outgoing: bool) -> socket.socket:
        of = self._socket()
        size = self._blocks_count * BLOCK_BYTES
        try:
            version, ring = self._ring(retire_ms)
            of.setsockopt(SOL_PACKET, PACKET_VERSION, version)
            of.setsockopt(SOL_PACKET, PACKET_VNET_HDR, int(tells_segments()))
            of.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, int(not outgoing))
            of.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
            self._map(of, size)
            of.bind((self.device, ETH_P_ALL))
            promiscuous = struct.pack("iHH8x", self.interface.index, PACKET_MR_PROMISC, 0)
            of.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, promiscuous)
        except OSError as error:
            raise because(self._spec, f"a ring of {size:,} bytes to receive in", error) from error
        return of

    def _ring(self, retire_ms: int) -> tuple[int, bytes]:
        """Return the version of the rings to receive in, and how one is asked for."""
        frame_bytes = PLACE_BYTES_MIN
        frames = BLOCK_BYTES // frame_bytes * self._blocks_count
        return TPACKET_V3, struct.pack("7I", BLOCK_BYTES, self._blocks_count, frame_bytes, frames, retire_ms, 0, 0)

    def _join(self, mode: int) -> None:
        """Make a group of the sockets that receive."""
        if self.queues < 2:
            return
        try:
            flags = FANOUT_UNIQUE | (FANOUT_DEFRAG if mode == FANOUT_HASH else 0)
            self._rx[0].setsockopt(SOL_PACKET, PACKET_FANOUT, struct.pack("I", (mode | flags) << 16))
            group = self._rx[0].getsockopt(SOL_PACKET, PACKET_FANOUT) & 0xFFFF
            if mode == FANOUT_CBPF:
                program, kept = filter_program(steering.assemble(steering.PROGRAM))
                self._rx[0].setsockopt(SOL_PACKET, PACKET_FANOUT_DATA, program)
                del kept
            for other in self._rx[1:]:
                flags &= ~FANOUT_UNIQUE
                other.setsockopt(SOL_PACKET, PACKET_FANOUT, struct.pack("I", group | (mode | flags) << 16))
        except OSError as error:
            raise because(self._spec, f"dealing packets out to {self.queues} queues", error) from error

    def _sender(self) -> socket.socket:
        of = self._socket()
        size = PLACES_COUNT * self._place_bytes
        try:
            of.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
            of.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
            of.setsockopt(SOL_PACKET, PACKET_LOSS, 1)  # a frame that is wrong does not stop those behind it
            with contextlib.suppress(OSError):
                of.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            with contextlib.suppress(OSError):
                of.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
            block_bytes = max(1 << 16, self._place_bytes)
            ring = _PLACES.pack(block_bytes, size // block_bytes, self._place_bytes, PLACES_COUNT)
            of.setsockopt(SOL_PACKET, PACKET_TX_RING, ring)
            self._map(of, size)
            of.bind((self.device, 0))
        except OSError as error:
            raise because(self._spec, f"a ring of {size:,} bytes to send from", error) from error
        return of

    # ------------------------------------------------------------------------------------------------ the service's
    @property
    def total_bytes(self) -> int:
        """Bytes of all rings."""
        return sum(map(len, self._memory))

    def descriptors(self) -> list[int]:
        """Return the descriptors of all sockets: those that receive, then those that send."""
        return [one.fileno() for one in (*self._rx, *self._tx)]

    def lay(self, queue: np.void, index: int, sides: Side = Side.BOTH) -> None:
        """Fill in where the rings of a place are, and its descriptors."""
        if Side.RX in sides and index < self.queues:
            blocks = queue["rx"].view(BLOCKS)
            blocks["blocks"] = np.frombuffer(self._memory[index], "u1").ctypes.data
            blocks["block_bytes"], blocks["count"] = BLOCK_BYTES, self._blocks_count
            queue["tells_segments"] = self._rx[index].getsockopt(SOL_PACKET, PACKET_VNET_HDR)
            queue["rx_descriptor"] = self._rx[index].fileno()
        if Side.TX in sides:
            places = queue["tx"].view(PLACES)
            places["places"] = np.frombuffer(self._memory[self.queues + index], "u1").ctypes.data
            places["place_bytes"], places["count"] = self._place_bytes, PLACES_COUNT
            queue["tx_descriptor"] = self._tx[index].fileno()
            self._measure(queue, self.interface.mtu)

    def _measure(self, queue: np.void, mtu: int) -> None:
        queue["tx"].view(PLACES)["length_max"] = mtu + ETHERNET_BYTES

    def resume(self, queue: np.void, sides: Side = Side.BOTH) -> None:
        """Go on where the worker before may have died: see service/ports/packet_rings."""
        index = int(queue["index"])
        if Side.RX in sides and index < self.queues:
            self._resume_receiving(queue, np.frombuffer(self._memory[index], "u1"))
        if Side.TX in sides:
            memory = np.frombuffer(self._memory[self.queues + index], "u1")
            packet_rings.resume_sending(queue["tx"].view(PLACES), memory)
            with contextlib.suppress(OSError):
                self._tx[index].send(b"", socket.MSG_DONTWAIT)  # what it had not handed over

    def _resume_receiving(self, queue: np.void, memory: np.ndarray) -> None:
        packet_rings.resume_receiving(queue["rx"].view(BLOCKS), memory)

    def look(self, queue: np.void) -> None:
        """See to what only system calls tell: packets for which the ring had no room, errors, the MTU."""
        index = int(queue["index"])
        wrong = self._tx[index].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if index < self.queues:
            of = self._rx[index]
            _, dropped = _STATISTICS.unpack_from(of.getsockopt(SOL_PACKET, PACKET_STATISTICS, STATISTICS_BYTES))
            queue["rx_dropped"] += dropped
            wrong = of.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or wrong
        if wrong:
            said = (
                "the interface is down or gone" if wrong in (errno.ENETDOWN, errno.ENODEV, errno.ENXIO) else str(wrong)
            )
            _log.warning("port %s, queue %d: %s", self.name, index, said)
        mtu = interface.mtu(self.device)
        if mtu:
            self._measure(queue, mtu)

    def about(self) -> dict[str, object]:
        """Return what is told of it: the interface, and what that leaves to its device."""
        return {"device": self.device, "offloads": list(self.interface.offloads)}

    def close(self) -> None:
        """Receive no more: what is in the rings already is still there."""
        program, kept = filter_program([(steering.RET_K, 0, 0, 0)])
        for one in self._rx:
            one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        del kept
