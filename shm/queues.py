"""The queues of all ports as the service keeps them: cursors and counters that no client can reach.

    Queues   shared by the keeper, which makes them before it forks, and everybody it forks
    Loop     the private memory of one worker, which polls some of them

Each queue is written by the one worker that polls it.  When that dies, the next goes on at the same cursors: packets that
it had taken and not answered are lost, as a card would lose them; nothing is taken twice.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Sequence

import numpy as np

from .layout import (
    DESCRIPTOR,
    DIMENSIONS_MAX,
    FIELDS,
    FRAGMENTS_MAX,
    FRAME,
    FRAME_SLOT_BYTES,
    LINE_BYTES,
    OUTLET,
    PASSAGE,
    PIPE,
    POLL,
    POLL_BURST_PACKETS,
    QUEUE,
    QUEUE_BYTES,
    QUEUES_MAX,
    RING,
    STAMPS_MAX,
    TIMESPEC,
    VERDICT,
    WAIT,
    WAITING,
    WAITS_MAX,
    FrameFlag,
    offset,
)
from .port import Port
from .rulebook import Rulebook

RX, TX = 0, 1
SPINS_MAX = 500
"""Looks at all queues before a worker sleeps: some tens of microseconds, what a wake-up would cost its client."""
SLEEP_MS = 10
SLEEP_MS_DEAF = 1
"""The longest sleep of a worker that cannot sleep on the words of all its queues."""
_FUTEX_32 = 2  # FUTEX2_SIZE_U32, shared between processes
_SYS_FUTEX_WAITV = 449


class Queues:
    """The queues of some ports, numbered through."""

    def __init__(self, ports: Sequence[Port], flags: int = FrameFlag.COMMIT) -> None:
        """Make them, all at the beginning of their rings.

        Args:
            ports: made by this process.
            flags: FrameFlag bits that their packets may have.

        Raises:
            ValueError: they have more queues than there may be.
        """
        places = [(number, index) for number, port in enumerate(ports) for index in range(port.queues)]
        if len(places) > QUEUES_MAX:
            raise ValueError(f"{len(places)} queues, at most {QUEUES_MAX} are possible")
        self.ports = list(ports)
        self.records = np.frombuffer(mmap.mmap(-1, max(1, len(places)) * QUEUE_BYTES), QUEUE, len(places))
        for record, (number, index) in zip(self.records, places, strict=True):
            port = ports[number]
            port.point(record["rx"], index, RX)
            port.point(record["tx"], index, TX)
            record["zone"], record["port"], record["index"] = port.zone, number, index
            record["frame_flags"] = flags

    def __len__(self) -> int:
        return len(self.records)

    def number(self, port: int, index: int) -> int:
        """Return the number of a queue of a port."""
        return sum(each.queues for each in self.ports[:port]) + index


class Loop:
    """The private memory of a worker's loop; ``record`` is what ``kernels.poll`` gets."""

    def __init__(
        self,
        queues: Queues,
        numbers: Sequence[int],
        owner: int = 0,
        rules: Rulebook | None = None,
        worker: int = 0,
    ) -> None:
        """Take over some queues, at the cursors where they stand.

        Args:
            queues: of the service.
            numbers: of those that this worker polls; nobody else does.  Those of a port that was made shorter are left
                out, and the port is closed.
            owner: owner id of this worker.
            rules: of the service; None where there never are any.
            worker: number of this worker in it.
        """
        n = POLL_BURST_PACKETS
        self.queues = queues
        self.numbers = numbers = [number for number in numbers if self._is_whole(number)]
        self.mine = queues.records[numbers]  # a copy, for what does not change
        self.record = np.zeros(1, POLL).view(np.recarray)[0]
        block = np.zeros(n * FRAME_SLOT_BYTES + LINE_BYTES, "u1")
        self._arrays = {
            "queues": queues.records.ctypes.data + QUEUE_BYTES * np.array(numbers, "u8"),
            "descriptors": np.zeros(n, DESCRIPTOR),
            "frames": np.zeros(n, FRAME),
            "bytes": block[-block.ctypes.data % LINE_BYTES :],
            "verdicts": np.zeros(n, VERDICT),
            "waits": self._waits(),
            "timeout": np.zeros(1, TIMESPEC),
            "waiting": np.zeros(FRAGMENTS_MAX, WAITING),
        }
        for name, array in self._arrays.items():
            self.record[name] = array.ctypes.data
        self.rules = Rulebook(1) if rules is None else rules
        self.pipe = self._pipe(worker)
        self.record["pipe"] = self.pipe.ctypes.data
        self.record["queue_count"] = len(numbers)
        self.record["spins_max"] = SPINS_MAX // max(1, len(numbers))
        for number in numbers:
            queues.records["owner"][number] = owner
            queues.records["pending"][number] = 0  # what the one before us had not handed over is lost with it
            self._resume(queues.records[number])

    def _pipe(self, worker: int) -> np.ndarray:
        """Return what the pipeline works with, PIPE[1]: it goes by nothing yet."""
        n, ports = POLL_BURST_PACKETS, len(self.queues.ports)
        pipe = np.zeros(1, PIPE)
        outlets = np.zeros(ports + 1, OUTLET)
        by_port = [[number for number in self.numbers if self._port(number) == port] for port in range(ports)]
        outlets["count"][1:] = [len(own) for own in by_port]
        outlets["first"][1:] = np.cumsum([0, *map(len, by_port)])[:-1]
        order = np.array([number for own in by_port for number in own], "u8")
        self._pipe_arrays = {
            "fields": np.zeros(n, FIELDS),
            "passages": np.zeros(n, PASSAGE),
            "frames": np.zeros(n, FRAME),
            "verdicts": np.zeros(n, VERDICT),
            "places": np.zeros(n, "u8"),
            "stamps": np.zeros(STAMPS_MAX, "u8"),
            "rows": np.zeros(DIMENSIONS_MAX, "u8"),
            "outlets": outlets,
            "outlet_queues": np.uint64(self.queues.records.ctypes.data) + np.uint64(QUEUE_BYTES) * order,
            "touched": np.zeros(len(self.numbers) + 1, "u8"),
        }
        for name, array in self._pipe_arrays.items():
            pipe[name] = array.ctypes.data
        pipe["published"], pipe["slots"] = self.rules.published_address, self.rules.slots_address
        pipe["acknowledged"], pipe["worker"] = self.rules.acknowledged_address(worker), worker
        pipe["learned"], pipe["port_count"] = self.rules.learned_address, ports
        return pipe

    def _port(self, number: int) -> int:
        """Return the number of a queue's port, from 0."""
        return int(self.queues.records["port"][number])

    def _is_whole(self, number: int) -> bool:
        """Whether a queue can be polled; the port of one that cannot is closed."""
        port = self.queues.ports[int(self.queues.records["port"][number])]
        if not port.is_whole:
            port.close()
        return port.is_whole

    def _waits(self) -> np.ndarray:
        """Return the words to sleep on, and note how long."""
        words = self.mine["rx"]["ring"] + offset(RING, "waiting")
        deaf = len(words) > WAITS_MAX or (len(words) > 1 and not _can_wait_for_many())
        if deaf:
            words = words[:1]
        if len(words) == 0:
            self._nothing = np.ones(1, "u8")  # a word that stays as it is
            words = np.array([self._nothing.ctypes.data], "u8")
        waits = np.zeros(len(words), WAIT)
        waits["value"], waits["address"], waits["flags"] = 1, words, _FUTEX_32
        self.record["wait_count"] = len(words)
        self.record["sleep_ms"] = SLEEP_MS_DEAF if deaf else SLEEP_MS
        return waits

    def _resume(self, queue: np.void) -> None:
        """Say in the rings where we are: whoever was here before may have died between its two stores."""
        port = self.queues.ports[int(queue["port"])]
        for side, name, word in ((RX, "rx", "consumed"), (TX, "tx", "produced")):
            place = port.extent.ring(int(queue["index"]), side)[0]
            ring = port.memory[place : place + RING.itemsize].view(RING)
            ring[word] = queue[name]["cursor"]


def _can_wait_for_many() -> bool:
    """Whether the kernel has futex_waitv (Linux 5.16): asked to wait for nothing, one that has it says EINVAL."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(ctypes.c_long(_SYS_FUTEX_WAITV), None, 0, 0, None, 1)
    return ctypes.get_errno() == errno.EINVAL
