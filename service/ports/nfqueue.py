"""Queues of the host's firewall as a port: it routes, and asks us what shall become of each packet (nfnetlink_queue).

A rule of the firewall puts packets into a queue (``iptables -A FORWARD -j NFQUEUE --queue-num 5``, ``nft ... queue num 5``);
several queues share them by flow, ``--queue-balance 5:8``.  A socket for each queue receives them and sends verdicts.

The keeper opens the sockets, and memory in which messages are received, and keeps both while workers come and go.  So it is
known what a worker that died had in hand: those packets are dropped, and counted; the queue goes on with the next.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...shm.layout import POLL_BURST_PACKETS, QUEUED, QUEUED_ANSWERS_BYTES, QUEUED_MESSAGE_BYTES, PortKind
from ...shm.queues import Side
from .device import Device
from .errors import PortError, because

NETLINK_NETFILTER = 12
SUBSYSTEM_QUEUE = 3
PACKET, VERDICT, CONFIG, VERDICT_BATCH = range(4)
CFG_CMD, CFG_PARAMS, CFG_LENGTH, CFG_MASK, CFG_FLAGS = range(1, 6)
VERDICT_HEADER, PACKET_HEADER = 2, 1
CMD_BIND, CMD_FAMILY_BIND, COPY_PACKET = 1, 3, 2
NO_CHANGE = struct.pack(">BBH", CMD_FAMILY_BIND, 0, socket.AF_INET)
"""A command that has no effect any more, but an answer where there is a subsystem."""
FAIL_OPEN, GSO = 1, 4
DROP = 0
NLM_F_REQUEST, NLM_F_ACK = 1, 4
QUIETLY = 1
"""Sequence number of a verdict whose packets may be gone already (kernels/port_nfqueue)."""
SO_RCVBUFFORCE, SO_SNDBUFFORCE, SOL_NETLINK, NETLINK_NO_ENOBUFS = 33, 32, 270, 5
RECEIVE_BUFFER_BYTES = 1 << 25
SEND_BUFFER_BYTES = 2 * QUEUED_ANSWERS_BYTES
NUMBERS = 1 << 16
LENGTH_DEFAULT = 4096
"""Packets that wait for a verdict: at 0.3 M packets/s, 14 ms."""
COPIED_MAX = 0xFFFF
LISTED = "/proc/thread-self/net/netfilter/nfnetlink_queue"
"""Of a queue: number, who listens, packets that wait, mode, range, dropped because it was full, or the socket was, ..."""

_HEADERS = POLL_BURST_PACKETS * (64 + 16)
_MESSAGES = POLL_BURST_PACKETS * QUEUED_MESSAGE_BYTES
_QUEUE_BYTES = (2 * _MESSAGES + _HEADERS + QUEUED_ANSWERS_BYTES + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE


def attribute(kind: int, content: bytes) -> bytes:
    """Return an attribute of netlink."""
    return struct.pack("HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def message(kind: int, number: int, attributes: bytes, flags: int, sequence: int = 0) -> bytes:
    """Return a message to a queue."""
    body = struct.pack(">BBH", 0, 0, number) + attributes
    return struct.pack("IHHII", 16 + len(body), SUBSYSTEM_QUEUE << 8 | kind, NLM_F_REQUEST | flags, sequence, 0) + body


def connect() -> socket.socket:
    """Return a socket to the subsystem.

    Raises:
        OSError: there is none, or no right to it.
    """
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    made.bind((0, 0))
    return made


def ask(of: socket.socket, number: int, attributes: bytes) -> None:
    """Configure a queue to which nothing comes yet, so that what is heard is the answer.

    Raises:
        OSError: the system refuses.
    """
    of.send(message(CONFIG, number, attributes, NLM_F_ACK))
    answer = of.recv(4096)
    code = -struct.unpack_from("i", answer, 16)[0]
    if code:
        raise OSError(code, os.strerror(code))


class NfqueuePort(Device):
    """Some queues of the firewall, with numbers in a row.

    When they are closed what waits is dropped, and then the firewall does as its rule says.
    """

    kind = PortKind.NFQUEUE

    def __init__(
        self,
        first: int,
        name: str = "",
        queues: int = 1,
        zone: int = 0,
        length: int = LENGTH_DEFAULT,
        fail_open: bool = False,
        gso: bool = True,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Open it; or go on with what another process has opened.

        Args:
            first: number of the first queue.
            name: of the port.
            queues: how many there are.
            zone: of all packets that come from it.
            length: packets of a queue that wait for a verdict at most.
            fail_open: whether packets that find no room go on, instead of being dropped.
            gso: whether segments that were joined come as one packet.
            descriptors: of another object of these values; they belong to this one from now on.

        Raises:
            PortError: it cannot be.
        """
        super().__init__(f"nfqueue:{first}", name or f"nfqueue{first}", queues, zone)
        self.first = first
        self._length, self._fail_open, self._gso = length, fail_open, gso
        self._sockets: list[socket.socket] = []
        if first + queues > NUMBERS:
            raise PortError(f"port {self._spec}: there is no queue {first + queues - 1}: they end at {NUMBERS - 1}")
        with self._opening():
            if descriptors:
                *sockets, memory = descriptors
                self._file = self._keep(memory)
                self._sockets = [self._house.enter_context(socket.socket(fileno=one)) for one in sockets]
                self._memory = self._map()
                for number, one in enumerate(self._sockets):
                    self._set_length(one, number, length)
                return
            self._file = self._keep(os.memfd_create("zonetrack.nfqueue"))
            os.ftruncate(self._file, queues * _QUEUE_BYTES)
            self._memory = self._map()
            for number in range(queues):
                self._sockets.append(self._open(first + number))
            for number, one in enumerate(self._sockets):
                self._begin(one, first + number)

    def _map(self) -> np.ndarray:
        return np.frombuffer(mmap.mmap(self._file, self.queues * _QUEUE_BYTES), "u1")

    # ------------------------------------------------------------------------------------------------ opening
    def _open(self, number: int) -> socket.socket:
        """Return a socket that listens to a queue, to which nothing comes yet."""
        try:
            made = connect()
        except OSError as error:
            if error.errno == errno.EPROTONOSUPPORT:
                raise PortError(f"port {self._spec}: this kernel has no nfnetlink") from error
            raise because(self._spec, "opening a netlink socket", error) from error
        self._house.enter_context(made)
        try:
            made.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
            ask(made, number, attribute(CFG_CMD, struct.pack(">BBH", CMD_BIND, 0, 0)))
            made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
            made.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
            flags = (FAIL_OPEN if self._fail_open else 0) | (GSO if self._gso else 0)
            ask(
                made,
                number,
                attribute(CFG_LENGTH, struct.pack(">I", self._length))
                + attribute(CFG_FLAGS, struct.pack(">I", flags))
                + attribute(CFG_MASK, struct.pack(">I", FAIL_OPEN | GSO)),
            )
        except OSError as error:
            raise self._refused(number, error) from error
        return made

    def _refused(self, number: int, error: OSError) -> PortError:
        if error.errno == errno.EPERM and number in listed():
            return PortError(f"port {self._spec}: another program listens to queue {number} already")
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return PortError(f"port {self._spec}: this kernel has no queues of its firewall (nfnetlink_queue)")
        return because(self._spec, f"listening to queue {number}", error)

    def _begin(self, of: socket.socket, number: int) -> None:
        """Let packets come."""
        of.send(message(CONFIG, number, attribute(CFG_PARAMS, struct.pack(">IB", COPIED_MAX, COPY_PACKET)), 0))

    def _set_length(self, of: socket.socket, number: int, length: int) -> None:
        of.send(message(CONFIG, self.first + number, attribute(CFG_LENGTH, struct.pack(">I", length)), 0))

    # ------------------------------------------------------------------------------------------------ the service's
    @property
    def total_bytes(self) -> int:
        """Bytes of the memory that messages are received in."""
        return self._memory.size

    def places(self, workers: int) -> int:
        """Return how many places it has: its queues, for verdicts go where the packets came from."""
        return self.queues

    def descriptors(self) -> list[int]:
        """Return the descriptors of all sockets, and of the memory."""
        return [*(one.fileno() for one in self._sockets), self._file]

    def _messages(self, index: int) -> np.ndarray:
        start = index * _QUEUE_BYTES
        return self._memory[start : start + _MESSAGES].reshape(POLL_BURST_PACKETS, QUEUED_MESSAGE_BYTES)

    def lay(self, queue: np.void, index: int, sides: Side = Side.BOTH) -> None:
        """Fill in where the memory of a place is, and what messages are received by: verdicts are of who polls it, too."""
        if Side.RX not in sides:
            return
        queued = queue["rx"].view(QUEUED)
        start = self._memory.ctypes.data + index * _QUEUE_BYTES
        queued["messages"], queued["copies"] = start, start + _MESSAGES
        queued["headers"] = headers = start + 2 * _MESSAGES
        queued["answers"] = start + 2 * _MESSAGES + _HEADERS
        queued["number"] = self.first + index
        queue["rx_descriptor"] = queue["tx_descriptor"] = self._sockets[index].fileno()
        offset = index * _QUEUE_BYTES + 2 * _MESSAGES
        words = self._memory[offset : offset + _HEADERS].view("u8")
        vectors = headers + 64 * POLL_BURST_PACKETS
        for number in range(POLL_BURST_PACKETS):
            words[8 * number + 2 : 8 * number + 4] = vectors + 16 * number, 1
            place = 8 * POLL_BURST_PACKETS + 2 * number
            words[place : place + 2] = start + number * QUEUED_MESSAGE_BYTES, QUEUED_MESSAGE_BYTES

    def resume(self, queue: np.void, sides: Side = Side.BOTH) -> None:
        """Go on: what the worker before had in hand when it died is dropped, up to the last packet that it received."""
        if Side.RX not in sides:
            return
        queued, index = queue["rx"].view(QUEUED), int(queue["index"])
        abandoned = int(queued["unanswered"])
        queued["unanswered"] = queued["answered"] = queued["cursor"] = 0
        queue["pending"] = 0
        last = self._last(index)
        if abandoned and last is not None:
            queue["causes"][2] += abandoned
            verdict = attribute(VERDICT_HEADER, struct.pack(">II", DROP, last))
            self._sockets[index].send(message(VERDICT_BATCH, self.first + index, verdict, 0, QUIETLY))

    def _last(self, index: int) -> int | None:
        """Return the number of the last packet that was received of a queue: numbers grow, modulo 2**32."""
        last = None
        for one in self._messages(index):
            # struct nlmsghdr, struct nfgenmsg, and the attribute that always comes first
            (kind,), (first,) = struct.unpack_from("H", one, 4), struct.unpack_from("H", one, 22)
            if kind != SUBSYSTEM_QUEUE << 8 | PACKET or first != PACKET_HEADER:
                continue
            (number,) = struct.unpack_from(">I", one, 24)
            if last is None or 0 < (number - last) % 2**32 < 2**31:
                last = number
        return last

    def look(self, queue: np.void) -> None:
        """See to what only the system tells: packets for which there was no room, in the queue or in the socket's buffer."""
        row = listed().get(self.first + int(queue["index"]))
        if row:
            queue["causes"][:2] = row[5:7]
        queue["rx_dropped"] = queue["causes"][:3].sum()

    def about(self) -> dict[str, object]:
        """Return what is told of it."""
        numbers = f"{self.first}:{self.first + self.queues - 1}" if self.queues > 1 else str(self.first)
        return {"device": numbers, "length": self._length, "fail_open": self._fail_open, "gso": self._gso}

    def close(self) -> None:
        """Take no more: what comes now finds no room."""
        for number, one in enumerate(self._sockets):
            self._set_length(one, number, 0)


def listed() -> dict[int, list[int]]:
    """Return what the system tells of the queues that somebody listens to, by their numbers."""
    try:
        lines = Path(LISTED).read_text().splitlines()
    except OSError:
        return {}
    rows = [list(map(int, line.split())) for line in lines]
    return {row[0]: row for row in rows}
