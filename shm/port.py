"""A port: one segment of rings and frames through which a client and the service hand each other packets.

Who may                    while                                  sees
    create, close, unlink  who holds the claim on the instance    -
    resume                 likewise, after who did                a port that its workers go on with
    attach                 anyone with rights to the segment      a READY port
    take a queue           one client at a time                   a lock on its byte of the segment's file

The segment is ``/zonetrack.<instance>.port-<name>``, mode 0600, or 0660 where a group is named: two pages that say what it
is, then each queue's two rings.  ``rx`` goes to the service, ``tx`` back to the client:

    RING rx | RING tx | DESCRIPTOR[slots] rx | DESCRIPTOR[slots] tx | frames rx | frames tx

All of it can be written by any client, at any time, with anything.  So the service takes sizes from the ``Port`` that it
made and never from the segment, keeps its cursors elsewhere (shm/queues), copies before it looks, and checks what it has
copied.  What a client breaks is its own port.

There is one thing that no check prevents: who may write a file may make it shorter, and whoever then touches what is gone
gets SIGBUS.  Zeros stand in for it (service/ports/torn), and the port is closed at the next look.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import weakref
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Self

import numpy as np
import posix_ipc  # pyright: ignore[reportMissingImports] - an extension module without stubs

from . import file_locks, header, mapping, space
from .errors import Forbidden, InUse, Missing, NoSpace, PortName, WrongSize
from .layout import (
    DESCRIPTOR_BYTES,
    END,
    FRAME_SLOT_BYTES,
    HEADER,
    HEADER_BYTES,
    PAGE_BYTES,
    PORT,
    PORT_REGION,
    PORT_SLOTS_MAX,
    QUEUES_MAX,
    RING,
    RING_BYTES,
    ZONES_MAX,
    PortKind,
    SegmentState,
)
from .segment import named

RX, TX = 0, 1
"""The rings of a queue: to the service, and back."""


class Side(IntFlag):
    """The two sides of a place: who polls it has one, who sends by it the other."""

    RX = 1
    TX = 2
    BOTH = 3


SLOTS_DEFAULT = 512
"""Frames in each ring: 1.1 MB, which stays in the second level of cache, and lasts 0.1 ms at 5 M packets/s."""
SLOTS_MIN = 4
"""Four descriptors fill whole lines, so that what follows them begins on one."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PREFIX = "port-"


def port_name(instance: str, name: str) -> str:
    """Return the name of a port's segment.

    Raises:
        InstanceName: no instance can be called so.
        PortName: no port can be called so.
    """
    if not _NAME.fullmatch(name):
        raise PortName(repr(name), "1 to 32 of A-Z a-z 0-9 _ -", repr(name))
    return named(instance, _PREFIX + name)


@dataclass(frozen=True)
class Extent:
    """The sizes of a port, and where everything is in its segment."""

    queues: int
    slots: int = SLOTS_DEFAULT

    def __post_init__(self) -> None:
        if not 1 <= self.queues <= QUEUES_MAX:
            raise ValueError(f"a port has 1 to {QUEUES_MAX} queues, not {self.queues}")
        if not SLOTS_MIN <= self.slots <= PORT_SLOTS_MAX or self.slots & self.slots - 1:
            raise ValueError(f"a ring has a power of two slots, {SLOTS_MIN} to {PORT_SLOTS_MAX}, not {self.slots}")

    @property
    def queue_bytes(self) -> int:
        """Bytes of a queue: both its rings, in whole pages."""
        return -(-2 * (RING_BYTES + self.slots * (DESCRIPTOR_BYTES + FRAME_SLOT_BYTES)) // PAGE_BYTES) * PAGE_BYTES

    @property
    def total_bytes(self) -> int:
        """Bytes of the segment."""
        return HEADER_BYTES + PAGE_BYTES + self.queues * self.queue_bytes

    def ring(self, queue: int, side: int) -> tuple[int, int, int]:
        """Return where a ring's RING, descriptors and frames begin; ``side`` is 0 for rx, 1 for tx."""
        base = HEADER_BYTES + PAGE_BYTES + queue * self.queue_bytes
        descriptors = base + 2 * RING_BYTES
        frames = descriptors + 2 * self.slots * DESCRIPTOR_BYTES
        return (
            base + side * RING_BYTES,
            descriptors + side * self.slots * DESCRIPTOR_BYTES,
            frames + side * self.slots * FRAME_SLOT_BYTES,
        )


@dataclass
class Port:
    """A port's segment, mapped."""

    instance: str
    name: str
    extent: Extent
    zone: int
    memory: np.ndarray = field(repr=False)
    descriptor: int
    kind: PortKind = PortKind.SHM
    _taken: dict[int, int] = field(default_factory=dict)
    """Descriptors that hold the locks on queues, by queue."""

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.descriptor)

    @property
    def queues(self) -> int:
        """How many queues it has."""
        return self.extent.queues

    @property
    def slots(self) -> int:
        """Frames in each of its rings."""
        return self.extent.slots

    @property
    def _header(self) -> np.ndarray:
        return self.memory[: HEADER.itemsize].view(HEADER)

    @property
    def is_open(self) -> bool:
        """Whether the service still takes packets from it, as far as the segment says."""
        return bool(self._header["state"][0] == SegmentState.READY)

    def point(self, end: np.ndarray, queue: int, side: int) -> None:
        """Put a ring's addresses into an END; its cursors are left as they are.

        Args:
            end: END, a record of an array.
            queue: index in this port.
            side: 0 for rx, 1 for tx.
        """
        base = self.memory.ctypes.data
        for name, offset in zip(("ring", "descriptors", "frames"), self.extent.ring(queue, side), strict=True):
            end[name] = base + offset
        end["slots"] = self.slots

    def end(self, queue: int, side: int) -> np.ndarray:
        """Return a new END of a ring, END[1], that has moved nothing."""
        made = np.zeros(1, END)
        self.point(made[0], queue, side)
        return made

    # -------------------------------------------------------------------------------------------- a client's
    def take(self, queue: int) -> None:
        """Be the client of a queue, until ``give_back`` or the end of this process.

        Raises:
            ValueError: there is no such queue.
            InUse: it has another client.
        """
        if not 0 <= queue < self.queues:
            raise ValueError(f"port {self.name} has queues 0 to {self.queues - 1}, not {queue}")
        own = file_locks.reopen(self.descriptor)
        if not file_locks.take(own, queue, 1):
            os.close(own)
            raise InUse(f"{self.name}, queue {queue}", "no other client", "one")
        self._taken[queue] = own

    def give_back(self, queue: int) -> None:
        """Let another client have a queue."""
        os.close(self._taken.pop(queue))

    # -------------------------------------------------------------------------------------------- the service's
    @property
    def total_bytes(self) -> int:
        """Bytes of the segment."""
        return self.extent.total_bytes

    def places(self, workers: int) -> int:
        """Return how many places it has: its queues, whatever the workers."""
        return self.queues

    def lay(self, queue: np.void, index: int, sides: Side = Side.BOTH) -> None:
        """Fill in what a QUEUE says of where its rings are."""
        if Side.RX in sides:
            self.point(queue["rx"], index, RX)
        if Side.TX in sides:
            self.point(queue["tx"], index, TX)

    def resume(self, queue: np.void, sides: Side = Side.BOTH) -> None:
        """Say in the rings where we are: whoever was here before may have died between its two stores."""
        for side, number, name, word in ((Side.RX, RX, "rx", "consumed"), (Side.TX, TX, "tx", "produced")):
            if side in sides:
                place = self.extent.ring(int(queue["index"]), number)[0]
                self.memory[place : place + RING.itemsize].view(RING)[word] = queue[name]["cursor"]

    def taken(self, index: int) -> int:
        """Return how many descriptors a client says to have taken out of the ring back of a queue."""
        place = self.extent.ring(index, TX)[0]
        return int(self.memory[place : place + RING.itemsize].view(RING)[0]["consumed"])

    def descriptors(self) -> list[int]:
        """Return the descriptor of its segment, for ``resume`` of this room."""
        return [self.descriptor]

    def about(self) -> dict[str, object]:
        """Return what is told of it: the frames that each ring holds, and whether a client has made it shorter."""
        return {"slots": self.slots, "is_whole": self.is_whole}

    def look(self, queue: np.void) -> None:
        """Close a port that a client has made shorter; what else there is to know of a ring stands in it."""
        if not self.is_whole:
            self.close()

    @property
    def is_whole(self) -> bool:
        """Whether all of its memory can be touched: no client has made the segment shorter."""
        return os.fstat(self.descriptor).st_size >= self.extent.total_bytes

    def close(self) -> None:
        """Tell clients that no more packets are taken."""
        header.write_state(
            self.descriptor, SegmentState.SEALED
        )  # through the file: the mapping may have lost its pages

    def unlink(self) -> None:
        """Close it, and remove its segment; who has it mapped keeps it, and sees that it is closed."""
        self.close()
        with contextlib.suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_shared_memory(port_name(self.instance, self.name))

    def __enter__(self) -> Self:
        """Remove it at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove it."""
        self.unlink()


def create(
    instance: str, name: str, queues: int = 1, zone: int = 0, slots: int = SLOTS_DEFAULT, group: int | None = None
) -> Port:
    """Make a port; one of that name, which a dead service left, is closed and replaced.

    Args:
        instance: its name; the caller holds the claim on it.
        name: of the port.
        queues: each has a ring either way, and one client.
        zone: of all packets that come from it.
        slots: frames in each ring, a power of two.
        group: id of a group whose members may be clients too.

    Raises:
        NoSpace: there is too little memory.
        Forbidden: it cannot be made, or a leftover cannot be removed.
        ValueError: no port has such sizes or such a zone.
    """
    extent, path = Extent(queues, slots), port_name(instance, name)
    if not 0 <= zone < ZONES_MAX:
        raise ValueError(f"a zone is 0 to {ZONES_MAX - 1}, not {zone}")
    remove(instance, name)
    try:
        made = posix_ipc.SharedMemory(path, posix_ipc.O_CREX, mode=0o600)
    except (posix_ipc.Error, OSError) as error:
        raise Forbidden(path, "to make it", str(error)) from error
    port = None
    try:
        # rights are given when the port can be used
        space.demand(path, extent.total_bytes, space.shared_memory(made.fd), space.machine(), *space.groups())
        os.ftruncate(made.fd, extent.total_bytes)
        header.write(made.fd, header.blank(PORT_REGION, header.new_generation(), extent.total_bytes))
        port = Port(instance, name, extent, zone, _map(path, made.fd, extent.total_bytes, reserve=True), made.fd)
        about = np.zeros(1, PORT)
        about["queues"], about["slots"], about["zone"] = queues, slots, zone
        about["name"][0, : len(name)] = np.frombuffer(name.encode(), "u1")
        port.memory[HEADER_BYTES : HEADER_BYTES + PORT.itemsize] = about.view("u1")
        port._header["state"] = SegmentState.READY
        if group is not None:
            os.fchown(made.fd, -1, group)
            os.fchmod(made.fd, 0o660)
    except BaseException:
        if port is None:
            os.close(made.fd)
        posix_ipc.unlink_shared_memory(path)
        raise
    return port


def resume(instance: str, name: str, queues: int, zone: int, slots: int, descriptor: int) -> Port:
    """Go on with a port that another process of this service made, in the same sizes; it is open afterwards.

    Args:
        instance: its name; the caller holds the claim on it.
        name: of the port.
        queues: see ``create``.
        zone: likewise.
        slots: likewise.
        descriptor: of its segment; it belongs to the port from now on.

    Raises:
        WrongSize: a client has made the segment shorter.
    """
    extent, path = Extent(queues, slots), port_name(instance, name)
    size = os.fstat(descriptor).st_size
    if size < extent.total_bytes:
        os.close(descriptor)
        raise WrongSize(path, extent.total_bytes, size)
    made = Port(instance, name, extent, zone, _map(path, descriptor, extent.total_bytes, reserve=False), descriptor)
    header.write_state(descriptor, SegmentState.READY)
    return made


def attach(instance: str, name: str) -> Port:
    """Attach to a port as a client; then ``take`` a queue.

    Raises:
        Missing: there is none; the text names those that there are.
        Forbidden: the operating system refuses.
        SegmentError: another child, for each way in which it does not fit this program.
    """
    path = port_name(instance, name)
    try:
        descriptor = posix_ipc.SharedMemory(path).fd
    except posix_ipc.ExistentialError:
        there = ", ".join(names(instance)) or "none"
        raise Missing(path, f"a port {name} of instance {instance}", there) from None
    except (posix_ipc.PermissionsError, OSError) as error:
        raise Forbidden(path, "to read and write it", str(error)) from error
    try:
        header.check(path, descriptor, PORT_REGION, {SegmentState.READY})
        about = np.frombuffer(os.pread(descriptor, PORT.itemsize, HEADER_BYTES), PORT)[0]
        size = os.fstat(descriptor).st_size
        try:
            extent = Extent(int(about["queues"]), int(about["slots"]))
        except ValueError as error:
            raise WrongSize(path, "the sizes of a port", str(error)) from None
        if extent.total_bytes != size:
            raise WrongSize(path, extent.total_bytes, size)
        memory = _map(path, descriptor, size, reserve=False)
    except BaseException:
        os.close(descriptor)
        raise
    return Port(instance, name, extent, int(about["zone"]), memory, descriptor)


def names(instance: str) -> list[str]:
    """Return the names of an instance's ports."""
    prefix = port_name(instance, "x")[1:-1]
    return sorted(path.name.removeprefix(prefix) for path in space.SHARED_MEMORY.glob(f"{prefix}*"))


def remove(instance: str, name: str) -> None:
    """Close and unlink a port that a dead service left, if there is one; the caller holds the claim on the instance.

    Raises:
        Forbidden: it is another user's.
    """
    path = port_name(instance, name)
    try:
        left = posix_ipc.SharedMemory(path).fd
        try:
            if header.is_ours(header.read(left)):
                header.write_state(left, SegmentState.SEALED)
        finally:
            os.close(left)
        posix_ipc.unlink_shared_memory(path)
    except posix_ipc.ExistentialError:
        return
    except (posix_ipc.PermissionsError, OSError) as error:
        raise Forbidden(path, "to unlink it", str(error)) from error


def _map(path: str, descriptor: int, size: int, *, reserve: bool) -> np.ndarray:
    try:
        return mapping.shared(descriptor, size, reserve=reserve)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        free = space.shared_memory(descriptor)
        raise NoSpace(path, size, free.free, free.where) from error
