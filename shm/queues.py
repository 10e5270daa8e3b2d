"""The queues of all ports as the service keeps them: cursors and counters that no client can reach.

A port is whatever fills in a QUEUE and can be closed: ``Source`` says what is asked of it.  Its places are numbered through
with those of the others.  Of most ports a place is a queue, in and out; a device has a place for each worker at least, so
that each has its own way out, and those beyond its queues only send.

    Queues   shared by the keeper, which makes them before it forks or takes them over, and everybody it forks
    Loop     the private memory of one worker, which polls some of them

Each queue is written by the one worker that polls it.  When that dies, the next goes on at the same cursors: packets that
it had taken and not answered are lost, as a card would lose them; nothing is taken twice.  What a queue's record says of
where its rings are is true in the worker that polls it, and says nothing to others: each has them elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from .layout import (
    CACHED,
    CACHED_MAX,
    DESCRIPTOR,
    DIMENSIONS_MAX,
    FIELDS,
    FRAGMENTS_MAX,
    FRAME,
    FRAME_SLOT_BYTES,
    IS_OUTBOX,
    LINE_BYTES,
    OUTBOX,
    OUTLET,
    PASSAGE,
    PIPE,
    POLL,
    POLL_BURST_PACKETS,
    POLLED,
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
    PortKind,
    offset,
)
from .port import RX, TX
from .rulebook import Rulebook

__all__ = ["RX", "TX", "Loop", "Queues", "Source"]
BATCH_MAX = POLL_BURST_PACKETS
"""Frames of a queue that wait to be handed over at most."""
SPINS_MAX = 500
"""Looks at all queues before a worker sleeps: some tens of microseconds, what a wake-up would cost its client."""
SLEEP_MS = 10
SLEEP_MS_DEAF = 1
"""The longest sleep of a worker that cannot sleep on all its queues: words of too many rings, or of rings and devices."""
SLEPT_ON = (PortKind.PACKET, PortKind.TAP, PortKind.NFQUEUE, PortKind.XDP, PortKind.FRAMES)
"""Kinds of ports whose descriptors say when there is something."""
_POLLIN = 1
_FUTEX_32 = 2  # FUTEX2_SIZE_U32, shared between processes
_SYS_FUTEX_WAITV = 449


class Source(Protocol):
    """A port, as its queues and the keeper see it."""

    name: str
    zone: int
    kind: PortKind

    @property
    def queues(self) -> int:
        """How many queues packets come from."""
        ...

    @property
    def total_bytes(self) -> int:
        """Bytes of memory that it takes."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether all of its memory can be touched."""
        ...

    def places(self, workers: int) -> int:
        """Return how many places it has, for so many workers; the first ``queues`` of them receive."""
        ...

    def lay(self, queue: np.void, index: int) -> None:
        """Fill in what a QUEUE says of a place: its kind, and where its memory is."""
        ...

    def resume(self, queue: np.void) -> None:
        """Go on at a place where the worker before, which may have died in the middle of anything, has left it."""
        ...

    def look(self, queue: np.void) -> None:
        """See to what only a system call tells of a place: losses, errors, lengths; now and then, by its worker."""
        ...

    def about(self) -> dict[str, object]:
        """Return what is told of it beside name, kind and zone, in plain values."""
        ...

    def descriptors(self) -> list[int]:
        """Return what another process needs of it, to go on with it."""
        ...

    def close(self) -> None:
        """Take no more packets."""
        ...


class Queues:
    """The queues of some ports, numbered through."""

    def __init__(
        self,
        ports: Sequence[Source],
        flags: int = FrameFlag.COMMIT,
        workers: int = 1,
        descriptor: int | None = None,
        batch_max: int = BATCH_MAX,
        flush_interval_us: int = 0,
    ) -> None:
        """Make them, all at the beginning of their rings; or take them over where they stand.

        Args:
            ports: made by this process, or taken over.
            flags: FrameFlag bits that their packets may have.
            workers: how many there are.
            descriptor: of the memory of queues of the same ports; it belongs to this object from now on.
            batch_max: frames that wait for a queue at most.
            flush_interval_us: that they may wait while there are packets; 0: to the end of a round over all queues.

        Raises:
            ValueError: they have more queues than there may be.
        """
        places = [(number, index) for number, port in enumerate(ports) for index in range(port.places(workers))]
        if len(places) > QUEUES_MAX:
            raise ValueError(f"{len(places)} queues, at most {QUEUES_MAX} are possible")
        self.ports, self.workers = list(ports), workers
        self.batch_max, self.flush_interval_us = batch_max, flush_interval_us
        size = max(1, len(places)) * QUEUE_BYTES
        self.descriptor = os.memfd_create("zonetrack.queues") if descriptor is None else descriptor
        weakref.finalize(self, os.close, self.descriptor)
        if descriptor is None:
            os.ftruncate(self.descriptor, size)
            os.posix_fallocate(self.descriptor, 0, size)
        self.records = np.frombuffer(mmap.mmap(self.descriptor, size), QUEUE, len(places))
        if descriptor is not None:
            return
        for record, (number, index) in zip(self.records, places, strict=True):
            port = ports[number]
            record["zone"], record["port"], record["index"] = port.zone, number, index
            record["kind"], record["receives"] = port.kind, index < port.queues
            record["frame_flags"] = flags
            record["shared"] = port.kind == PortKind.SHM and port.queues < workers
            port.lay(record, index)

    def __len__(self) -> int:
        return len(self.records)

    def number(self, port: int, index: int) -> int:
        """Return the number of a queue of a port."""
        return sum(each.places(self.workers) for each in self.ports[:port]) + index

    def deal(self) -> list[list[int]]:
        """Deal the places out to the workers: the numbers of each.

        Those that receive go round, so that no worker has two more than another; of those that only send, each port's go to
        the workers that have none of that port yet.
        """
        dealt: list[list[int]] = [[] for _ in range(self.workers)]
        receiving = [number for number, record in enumerate(self.records) if record["receives"]]
        for turn, number in enumerate(receiving):
            dealt[turn % self.workers].append(number)
        for number, record in enumerate(self.records):
            if record["receives"]:
                continue
            port = record["port"]
            have = [sum(1 for own in one if self.records["port"][own] == port) for one in dealt]
            dealt[have.index(min(have))].append(number)
        return dealt

    def named(self, numbers: Sequence[int]) -> list[tuple[str, int]]:
        """Return port and index of the queues that packets come from among some places."""
        records = self.records
        receiving = [number for number in numbers if records["receives"][number]]
        return [(self.ports[int(records["port"][one])].name, int(records["index"][one])) for one in receiving]


def on_a_line(dtype: np.dtype, count: int) -> np.ndarray:
    """Return zeros[count] that begin at a cache line."""
    block = np.zeros(count * dtype.itemsize + LINE_BYTES, "u1")
    return block[-block.ctypes.data % LINE_BYTES :][: count * dtype.itemsize].view(dtype)


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
        self.record = np.zeros(1, POLL).view(np.recarray)[0]
        receiving = [number for number in numbers if queues.records["receives"][number]]
        for number in numbers:
            record = queues.records[number]
            self._port_of(record).lay(record, int(record["index"]))  # where it stands in this process
        block = np.zeros(n * FRAME_SLOT_BYTES + LINE_BYTES, "u1")
        self._arrays = {
            "queues": self._addresses(receiving),
            "descriptors": np.zeros(n, DESCRIPTOR),
            "frames": np.zeros(n, FRAME),
            "bytes": block[-block.ctypes.data % LINE_BYTES :],
            "verdicts": np.zeros(n, VERDICT),
            "polled": self._polled(receiving),
            "waits": self._waits(receiving),
            "timeout": np.zeros(1, TIMESPEC),
            "waiting": np.zeros(FRAGMENTS_MAX, WAITING),
        }
        for name, array in self._arrays.items():
            self.record[name] = array.ctypes.data
        self.rules = Rulebook(1) if rules is None else rules
        self._unlock(worker)
        self.pipe = self._pipe(worker)
        self.record["pipe"] = self.pipe.ctypes.data
        self.record["queue_count"] = len(receiving)
        self.record["spins_max"] = SPINS_MAX // max(1, len(receiving))
        for number in numbers:
            record = queues.records[number]
            record["owner"] = owner
            record["touched"] = 0
            if not record["shared"]:
                record["pending"] = 0  # what the one before us had not handed over is lost with it
            self._port_of(record).resume(record)

    def _unlock(self, worker: int) -> None:
        """Give back the rings that the worker before us had locked when it died."""
        for record in self.queues.records[self.queues.records["lock"] == worker + 1]:
            own = self.queues.records[self.queues.number(int(record["port"]), int(record["index"]))]
            own["pending"] = 0
            self._port_of(own).lay(own, int(own["index"]))
            self._port_of(own).resume(own)
            own["lock"] = 0

    def _port_of(self, record: np.void) -> Source:
        return self.queues.ports[int(record["port"])]

    def _addresses(self, numbers: Sequence[int]) -> np.ndarray:
        return self.queues.records.ctypes.data + QUEUE_BYTES * np.array(numbers, "u8")

    def look(self) -> None:
        """See to what only system calls tell of our queues: losses and errors."""
        self.record["troubled"] = 0
        for number in self.numbers:
            record = self.queues.records[number]
            record["troubled"] = 0
            self._port_of(record).look(record)

    def _pipe(self, worker: int) -> np.ndarray:
        """Return what the pipeline works with, PIPE[1]: it goes by nothing yet."""
        n, ports = POLL_BURST_PACKETS, len(self.queues.ports)
        pipe = np.zeros(1, PIPE)
        outlets = np.zeros(ports + 1, OUTLET)
        by_port = [self._sends_by(port, worker) for port in range(ports)]
        outlets["count"][1:] = [len(own) for own in by_port]
        outlets["first"][1:] = np.cumsum([0, *map(len, by_port)])[:-1]
        order = np.array([number for own in by_port for number in own], "u8")
        addresses = self._addresses(order.tolist())
        shared = self.queues.records["shared"][order] == 1
        self._boxes = np.zeros(int(np.count_nonzero(shared)), OUTBOX)
        self._box_arrays = []
        for box, address in zip(self._boxes, addresses[shared], strict=True):
            kept = np.zeros(n, DESCRIPTOR), np.zeros(n * FRAME_SLOT_BYTES, "u1")
            self._box_arrays.append(kept)
            box["queue"], box["descriptors"], box["bytes"] = address, kept[0].ctypes.data, kept[1].ctypes.data
        places = self._boxes.ctypes.data + OUTBOX.itemsize * np.arange(len(self._boxes), dtype="u8")
        addresses[shared] = places | np.uint64(IS_OUTBOX)
        self._pipe_arrays = {
            "fields": np.zeros(n, FIELDS),
            "passages": np.zeros(n, PASSAGE),
            "frames": np.zeros(n, FRAME),
            "verdicts": np.zeros(n, VERDICT),
            "places": np.zeros(n, "u8"),
            "stamps": np.zeros(STAMPS_MAX, "u8"),
            "rows": np.zeros(DIMENSIONS_MAX, "u8"),
            "cache": on_a_line(CACHED, CACHED_MAX),
            "outlets": outlets,
            "outlet_queues": addresses,
            "touched": np.zeros(len(self.numbers) + len(self._boxes) + 1, "u8"),
        }
        for name, array in self._pipe_arrays.items():
            pipe[name] = array.ctypes.data
        pipe["published"], pipe["slots"] = self.rules.published_address, self.rules.slots_address
        pipe["acknowledged"], pipe["worker"] = self.rules.acknowledged_address(worker), worker
        pipe["batch_max"], pipe["flush_interval_ns"] = self.queues.batch_max, 1_000 * self.queues.flush_interval_us
        pipe["learned"], pipe["port_count"] = self.rules.learned_address, ports
        return pipe

    def _sends_by(self, port: int, worker: int) -> list[int]:
        """Return the places of a port that a worker sends by: its own, or one that is shared."""
        own = [number for number in self.numbers if self._port(number) == port]
        first = self.queues.number(port, 0)
        count = self.queues.ports[port].places(self.queues.workers)
        if not own and count and self.queues.records["shared"][first]:
            place = first + worker % count
            record = self.queues.records[place]
            if self._is_whole(place):
                self._port_of(record).lay(record, int(record["index"]))
                return [place]
        return own

    def _port(self, number: int) -> int:
        """Return the number of a queue's port, from 0."""
        return int(self.queues.records["port"][number])

    def _is_whole(self, number: int) -> bool:
        """Whether a queue can be polled; the port of one that cannot is closed."""
        port = self._port_of(self.queues.records[number])
        if not port.is_whole:
            port.close()
        return port.is_whole

    def _polled(self, receiving: Sequence[int]) -> np.ndarray:
        """Return the descriptors to sleep on, and note whose they are."""
        devices = [number for number in receiving if self.queues.records["kind"][number] in SLEPT_ON]
        polled = np.zeros(len(devices), POLLED)
        polled["descriptor"], polled["events"] = self.queues.records["rx_descriptor"][devices], _POLLIN
        self._polled_queues = self._addresses(devices)
        self.record["polled_queues"] = self._polled_queues.ctypes.data
        self.record["polled_count"] = len(devices)
        return polled

    def _waits(self, receiving: Sequence[int]) -> np.ndarray:
        """Return the words to sleep on, and note how long."""
        rings = [number for number in receiving if self.queues.records["kind"][number] == PortKind.SHM]
        words = self.queues.records["rx"]["ring"][rings] + offset(RING, "waiting")
        deaf = (
            (len(words) > 0 and self.record["polled_count"] > 0)
            or len(words) > WAITS_MAX
            or (len(words) > 1 and not _can_wait_for_many())
        )
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


def _can_wait_for_many() -> bool:
    """Whether the kernel has futex_waitv (Linux 5.16): asked to wait for nothing, one that has it says EINVAL."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(ctypes.c_long(_SYS_FUTEX_WAITV), None, 0, 0, None, 1)
    return ctypes.get_errno() == errno.EINVAL
