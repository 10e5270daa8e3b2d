"""The queues of all ports as the service keeps them: cursors and counters that no client can reach.

A port is whatever fills in a QUEUE and can be closed: ``Source`` says what is asked of it.  Its places are numbered through
with those of the others.  Of most ports a place is a queue, in and out; a device has a place for each worker at least, so
that each has its own way out, and those beyond its queues only send.

The keeper makes them before it forks, or takes them over; everybody it forks shares them.  Each queue is written by the one
worker that polls it (shm/loop), which may be another from time to time: QUEUE.wanted says who shall, QUEUE.holder who does.
What a queue's record says of where its rings are is true in that worker, and says nothing to others: they have them
elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from .layout import PERF, POLL_BURST_PACKETS, QUEUE, QUEUE_BYTES, QUEUES_HEAD, QUEUES_MAX, FrameFlag, PortKind
from .port import Side
from .unnamed import Unnamed

BATCH_MAX = POLL_BURST_PACKETS
"""Frames of a queue that wait to be handed over at most."""


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

    def lay(self, queue: np.void, index: int, sides: Side = Side.BOTH) -> None:
        """Fill in what a QUEUE says of a place: its kind, and where its memory is; of a side that is another's, nothing."""
        ...

    def resume(self, queue: np.void, sides: Side = Side.BOTH) -> None:
        """Go on at a place where the worker before, which may have died in the middle of anything, has left it; a side that
        is another's is left alone, for he may be at work there."""
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


class Queues(Unnamed):
    """The queues of some ports, numbered through."""

    def __init__(
        self,
        ports: Sequence[Source],
        flags: int = FrameFlag.COMMIT,
        workers: int = 1,
        descriptor: int | None = None,
        batch_max: int = BATCH_MAX,
        flush_interval_us: int = 0,
        assigned: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Make them, all at the beginning of their rings; or take them over where they stand.

        Args:
            ports: made by this process, or taken over.
            flags: FrameFlag bits that their packets may have.
            workers: how many there are.
            descriptor: of the memory of queues of the same ports; it belongs to this object from now on.
            batch_max: frames that wait for a queue at most.
            flush_interval_us: that they may wait while there are packets; 0: to the end of a round over all queues.
            assigned: workers by port and queue; who is not named is dealt out.

        Raises:
            ValueError: they have more queues than there may be, or what is assigned is not there.
        """
        places = [(number, index) for number, port in enumerate(ports) for index in range(port.places(workers))]
        if len(places) > QUEUES_MAX:
            raise ValueError(f"{len(places)} queues, at most {QUEUES_MAX} are possible")
        self.ports, self.workers = list(ports), workers
        self.batch_max, self.flush_interval_us = batch_max, flush_interval_us
        head = len(places) * QUEUE_BYTES
        perf = head + QUEUES_HEAD.itemsize
        size = perf + workers * PERF.itemsize
        super().__init__("queues", size, descriptor)
        if descriptor is None:
            os.posix_fallocate(self.descriptor, 0, size)
        self.records = np.frombuffer(self.memory, QUEUE, len(places))
        self.head = np.frombuffer(self.memory, QUEUES_HEAD, 1, head)[0]
        self.perf = np.frombuffer(self.memory, PERF, workers, perf)
        if descriptor is not None:
            return
        for record, (number, index) in zip(self.records, places, strict=True):
            port = ports[number]
            record["zone"], record["port"], record["index"] = port.zone, number, index
            record["kind"], record["receives"] = port.kind, index < port.queues
            record["frame_flags"] = flags
            record["shared"] = port.kind == PortKind.SHM and port.queues < workers
            port.lay(record, index)
        wanted = self.find(assigned or {})
        for worker, own in enumerate(self.deal()):
            for number in own:
                record = self.records[number]
                if record["receives"]:
                    record["holder"] = record["wanted"] = wanted.get(number, worker) + 1
                    if record["holder"] != worker + 1:
                        self.share(number)

    # ------------------------------------------------------------------------------------------------ who polls
    def find(self, assigned: Mapping[tuple[str, int], int]) -> dict[int, int]:
        """Return workers by the numbers of queues, from workers by port and queue.

        Raises:
            ValueError: there is no such queue, or no such worker.
        """
        found = {}
        for (name, index), worker in assigned.items():
            port = next((number for number, one in enumerate(self.ports) if one.name == name), None)
            if port is None:
                there = ", ".join(one.name for one in self.ports) or "none"
                raise ValueError(f"there is no port {name!r}; there are: {there}")
            if not 0 <= index < self.ports[port].queues:
                raise ValueError(f"port {name} has {self.ports[port].queues} queues to receive by, not a queue {index}")
            if not 0 <= worker < self.workers:
                raise ValueError(f"there are workers 0 to {self.workers - 1}, not a worker {worker}")
            found[self.number(port, index)] = worker
        return found

    def assign(self, wanted: Mapping[int, int]) -> None:
        """Let workers poll queues, both by their numbers, as soon as who polls them now has given them up."""
        for number, worker in wanted.items():
            self.records["wanted"][number] = worker + 1
        self.head["assignments"] += 1

    def held_by(self, worker: int) -> list[int]:
        """Return the numbers of the queues that a worker polls."""
        return np.flatnonzero(self.records["holder"] == worker + 1).tolist()

    def is_settled(self, numbers: Iterable[int]) -> bool:
        """Return whether all of some queues are polled by whom they are to be polled by."""
        return all(self.records["holder"][one] == self.records["wanted"][one] for one in numbers)

    def share(self, number: int) -> None:
        """Let a place be sent by by others than who polls it, where who polls it answers there too."""
        if self.records["kind"][number] == PortKind.SHM:
            self.records["shared"][number] = 1

    def measure(self, on: bool) -> None:
        """Have workers count what comes and goes, and measure what it takes; or only what is lost."""
        self.records["unmeasured"] = not on
        self.head["unmeasured"] = not on

    def stay_awake(self, on: bool) -> None:
        """Have workers look for packets all the time, or sleep where there are none."""
        self.head["awake"] = on

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
