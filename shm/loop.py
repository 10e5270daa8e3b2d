"""The loop of a worker: its private memory, and the queues that it polls, which it takes over and gives up as they stand.

When a worker dies, the next goes on at the same cursors: packets that it had taken and not answered are lost, as a card
would lose them; nothing is taken twice.

Which worker polls a queue may change while packets come.  By which places a worker sends does not: those are dealt once.  So
of a place `rx` may be one worker's and `tx` another's; where both write into `tx`, as with the answers to clients, the place
is shared from then on.

    QUEUE.wanted    QUEUE.holder
    A               A               A polls it
    B               A               A polls it no more, hands over all that it sends, and waits for clients to take that
    B               0               nobody has it: B takes it at its next call
    B               B               B polls it, from where A was

A worker that dies holds what it held; its successor gives it up.
"""

from __future__ import annotations

import ctypes
import errno
import time
from collections.abc import Collection, Sequence
from typing import Any

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
    MEASURED_EVERY,
    OUTBOX,
    OUTLET,
    PASSAGE,
    PERF,
    PIPE,
    POLL,
    POLL_BURST_PACKETS,
    POLLED,
    QUEUE_BYTES,
    QUEUED,
    RING,
    STAMPS_MAX,
    TIMESPEC,
    VERDICT,
    WAIT,
    WAITING,
    WAITS_MAX,
    PortKind,
    offset,
)
from .port import Side
from .queues import Queues, Source
from .rulebook import Rulebook

SPINS_MAX = 500
"""Looks at all queues before a worker sleeps: some tens of microseconds, what a wake-up would cost its client."""
SLEEP_MS = 10
SLEEP_MS_DEAF = 1
"""The longest sleep of a worker that cannot sleep on all its queues: words of too many rings, or of rings and devices."""
DRAIN_S = 0.1
"""That a worker waits for clients to take what it has sent before it gives a queue up."""
SLEPT_ON = (PortKind.PACKET, PortKind.TAP, PortKind.NFQUEUE, PortKind.XDP, PortKind.FRAMES)
"""Kinds of ports whose descriptors say when there is something."""
_POLLIN = 1
_FUTEX_32 = 2  # FUTEX2_SIZE_U32, shared between processes
_SYS_FUTEX_WAITV = 449


def on_a_line(dtype: np.dtype, count: int) -> np.ndarray:
    """Return zeros[count] that begin at a cache line."""
    block = np.zeros(count * dtype.itemsize + LINE_BYTES, "u1")
    return block[-block.ctypes.data % LINE_BYTES :][: count * dtype.itemsize].view(dtype)


def _sides(number: int, sends: Collection[int], polls: Collection[int]) -> Side:
    """Return which sides of a place are ours."""
    return (Side.RX if number in polls else Side(0)) | (Side.TX if number in sends else Side(0))


class Loop:
    """The private memory of a worker's loop; ``record`` is what ``kernels.poll`` gets."""

    def __init__(
        self,
        queues: Queues,
        numbers: Sequence[int],
        owner: int = 0,
        rules: Rulebook | None = None,
        worker: int = 0,
        polls: Sequence[int] | None = None,
    ) -> None:
        """Take over some queues, at the cursors where they stand.

        Args:
            queues: of the service.
            numbers: of the places that this worker sends by; nobody else does, but where they are shared.  Those of a port
                that was made shorter are left out, and the port is closed.
            owner: owner id of this worker.
            rules: of the service; None where there never are any.
            worker: number of this worker in it.
            polls: numbers of the queues that it polls; None: those of its places that receive.
        """
        n = POLL_BURST_PACKETS
        self.queues, self.worker, self.owner = queues, worker, owner
        self.numbers = numbers = [number for number in numbers if self._is_whole(number)]
        if polls is None:
            polls = [number for number in numbers if queues.records["receives"][number]]
        self.polls = polls = [number for number in polls if self._is_whole(number)]
        self._leaving: dict[int, int] = {}
        """Places by which something was sent before a queue is given up: what a client has to have taken until then."""
        self._leaves_s = 0.0
        self.record = np.zeros(1, POLL).view(np.recarray)[0]
        self._lay(numbers, polls)
        block = np.zeros((n + 1) * FRAME_SLOT_BYTES + LINE_BYTES, "u1")  # and a place for a part of a long frame
        self._arrays = {
            "descriptors": np.zeros(n, DESCRIPTOR),
            "frames": np.zeros(n + 1, FRAME),
            "bytes": block[-block.ctypes.data % LINE_BYTES :],
            "verdicts": np.zeros(n + 1, VERDICT),
            "timeout": np.zeros(1, TIMESPEC),
            "waiting": np.zeros(FRAGMENTS_MAX, WAITING),
        }
        for name, array in self._arrays.items():
            self.record[name] = array.ctypes.data
        self.rules = Rulebook(1) if rules is None else rules
        self._unlock(worker)
        self.pipe = self._pipe(worker)
        self.record["pipe"] = self.pipe.ctypes.data
        self.record["perf"] = queues.perf.ctypes.data + worker % queues.workers * PERF.itemsize
        self.measure()
        for number in numbers:
            record = queues.records[number]
            record["touched"] = 0
            if not record["shared"]:
                record["pending"] = 0  # what the one before us had not handed over is lost with it
        self._resume(numbers, polls)
        self._listen()

    # ------------------------------------------------------------------------------------------------ which queues
    def _lay(self, sends: Collection[int], polls: Collection[int]) -> None:
        """Say of places where they stand in this process, on the sides that are ours."""
        for number in dict.fromkeys([*sends, *polls]):
            record = self.queues.records[number]
            # the cursors of a client's rings may be moved by others at this moment; where those are, they are for all
            sides = Side.BOTH if record["kind"] == PortKind.SHM else _sides(number, sends, polls)
            self._port_of(record).lay(record, int(record["index"]), sides)

    def _resume(self, sends: Collection[int], polls: Collection[int]) -> None:
        """Go on at places where the worker before has left them, on the sides that are ours."""
        for number in dict.fromkeys([*sends, *polls]):
            record = self.queues.records[number]
            sides = _sides(number, sends, polls)
            if record["kind"] == PortKind.SHM:
                # who polls answers, too; what several send by is as it should be, or is somebody's who has locked it
                sides = (Side.RX if record["shared"] else Side.BOTH) if number in polls else Side(0)
            self._port_of(record).resume(record, sides)

    def _listen(self) -> None:
        """Poll the queues that are ours now."""
        self._arrays["queues"] = self._addresses(self.polls)
        self._arrays["polled"], self._arrays["waits"] = self._polled(self.polls), self._waits(self.polls)
        for name in ("queues", "polled", "waits"):
            self.record[name] = self._arrays[name].ctypes.data
        self.record["queue_count"] = len(self.polls)
        self.record["spins_max"] = SPINS_MAX // max(1, len(self.polls))
        for number in self.polls:
            self.queues.records["owner"][number] = self.owner

    def measure(self) -> None:
        """Measure, or do not, as the queues say now."""
        self.record["measured_at"] = MEASURED_EVERY if self.queues.head["unmeasured"] else MEASURED_EVERY - 1

    def settle(self) -> bool:
        """Give up queues that others are to poll, and take those that were given up for us; between two calls of the loop.

        Returns:
            Whether nothing is left to be done: else this is to be called again after the next call.
        """
        records, me = self.queues.records, self.worker + 1
        held = self.queues.held_by(self.worker)
        given = [number for number in held if records["wanted"][number] != me]
        asked = np.flatnonzero((records["wanted"] == me) & (records["holder"] != me)).tolist()
        taken = [number for number in asked if not records["holder"][number] and self._is_whole(number)]
        records["holder"][taken] = me
        self._lay((), taken)
        self._resume((), taken)
        polls = [number for number in [*held, *taken] if number not in given and self._is_whole(number)]
        if any(number in self.polls for number in given):
            self._leaves_s, self._leaving = time.monotonic() + DRAIN_S, {}
            self.pipe["flush_interval_ns"] = 0
        elif given and self._is_drained(given):
            self._give(given)
            given = []
        if not given:
            self.pipe["flush_interval_ns"] = 1_000 * self.queues.flush_interval_us
        if polls != self.polls:
            self.polls = polls
            self._listen()
        return not given and len(taken) == len(asked)

    def _is_drained(self, given: Sequence[int]) -> bool:
        """Return whether all that we have sent has left, and clients have taken it, or do not take anything, and what came
        by queues that are given up has its verdict, or has waited for it."""
        waiting, late = self._waiting_to_leave(), time.monotonic() >= self._leaves_s
        if not np.isin(waiting, self._addresses(self._devices(self._sent_by))).all():
            return False
        if late or len(waiting):
            return late
        if not self._leaving:
            records = self.queues.records
            rings = [number for number in self._sent_by if records["kind"][number] == PortKind.SHM]
            self._leaving = {number: int(records["tx"]["cursor"][number]) for number in rings}
        return all(self._has_taken(number, cursor) for number, cursor in self._leaving.items()) and not any(
            self._owes_verdicts(number) for number in given
        )

    def _waiting_to_leave(self) -> np.ndarray:
        """Return the addresses of what is to be handed over: after a round, queues of devices that would not take it yet."""
        return self._pipe_arrays["touched"][: int(self.pipe["touched_count"][0])]

    def _owes_verdicts(self, number: int) -> bool:
        """Return whether packets of a queue wait elsewhere until it is said whether they may go on: fragments, that is."""
        record = self.queues.records[number]
        return bool(record["kind"] == PortKind.NFQUEUE and record["rx"].view(QUEUED)["unanswered"])

    def _has_taken(self, number: int, cursor: int) -> bool:
        """Return whether a client says that it has taken what stood before a place in its ring."""
        record = self.queues.records[number]
        port: Any = self._port_of(record)
        return not port.is_whole or (port.taken(int(record["index"])) - cursor) & (1 << 63) == 0

    def _give(self, numbers: Sequence[int]) -> None:
        """Let others have queues: what they and we will send by their places is kept apart by a lock.

        Of fragments that wait for a verdict elsewhere we say nothing any more: who has the queue next drops them.
        """
        for number in numbers:
            self.queues.share(number)
        waiting = self._arrays["waiting"]
        owed = self._addresses([number for number in numbers if self._owes_verdicts(number)])
        waiting["queue"][np.isin(waiting["queue"], owed)] = 0
        waits = self._waiting_to_leave()
        self._lay_outlets(self.pipe)
        self._pipe_arrays["touched"][: len(waits)] = waits
        self.queues.records["owner"][numbers] = 0
        self.queues.records["holder"][numbers] = 0

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
        return np.uint64(self.queues.records.ctypes.data) + QUEUE_BYTES * np.array(numbers, "u8")

    def look(self) -> None:
        """See to what only system calls tell of our queues: losses and errors."""
        self.record["troubled"] = 0
        only_sends = [number for number in self.numbers if not self.queues.records["receives"][number]]
        for number in [*self.polls, *only_sends]:
            record = self.queues.records[number]
            record["troubled"] = 0
            self._port_of(record).look(record)

    def _pipe(self, worker: int) -> np.ndarray:
        """Return what the pipeline works with, PIPE[1]: it goes by nothing yet."""
        n = POLL_BURST_PACKETS
        pipe = np.zeros(1, PIPE)
        self._pipe_arrays = {
            "fields": np.zeros(n, FIELDS),
            "passages": np.zeros(n, PASSAGE),
            "frames": np.zeros(n, FRAME),
            "verdicts": np.zeros(n, VERDICT),
            "places": np.zeros(n, "u8"),
            "stamps": np.zeros(STAMPS_MAX, "u8"),
            "rows": np.zeros(DIMENSIONS_MAX, "u8"),
            "cache": on_a_line(CACHED, CACHED_MAX),
        }
        for name, array in self._pipe_arrays.items():
            pipe[name] = array.ctypes.data
        pipe["published"], pipe["slots"] = self.rules.published_address, self.rules.slots_address
        pipe["acknowledged"], pipe["worker"] = self.rules.acknowledged_address(worker), worker
        pipe["batch_max"], pipe["flush_interval_ns"] = self.queues.batch_max, 1_000 * self.queues.flush_interval_us
        pipe["learned"], pipe["port_count"] = self.rules.learned_address, len(self.queues.ports)
        self._lay_outlets(pipe)
        return pipe

    def _lay_outlets(self, pipe: np.ndarray) -> None:
        """Say by which places frames leave."""
        n, ports = POLL_BURST_PACKETS, len(self.queues.ports)
        outlets = np.zeros(ports + 1, OUTLET)
        by_port = [self._sends_by(port, self.worker) for port in range(ports)]
        outlets["count"][1:] = [len(own) for own in by_port]
        outlets["first"][1:] = np.cumsum([0, *map(len, by_port)])[:-1]
        self._sent_by = [number for own in by_port for number in own]
        addresses = self._addresses(self._sent_by)
        shared = self.queues.records["shared"][self._sent_by] == 1
        self._boxes = np.zeros(int(np.count_nonzero(shared)), OUTBOX)
        self._box_arrays = []
        for box, address in zip(self._boxes, addresses[shared], strict=True):
            kept = np.zeros(n, DESCRIPTOR), np.zeros(n * FRAME_SLOT_BYTES, "u1")
            self._box_arrays.append(kept)
            box["queue"], box["descriptors"], box["bytes"] = address, kept[0].ctypes.data, kept[1].ctypes.data
        places = self._boxes.ctypes.data + OUTBOX.itemsize * np.arange(len(self._boxes), dtype="u8")
        addresses[shared] = places | np.uint64(IS_OUTBOX)
        # beside what frames leave by, answers wait in the queues that are polled: any of all, in time
        touched = np.zeros(len(self.queues) + len(self._boxes) + 1, "u8")
        self._pipe_arrays |= {"outlets": outlets, "outlet_queues": addresses, "touched": touched}
        for name in ("outlets", "outlet_queues", "touched"):
            pipe[name] = self._pipe_arrays[name].ctypes.data

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

    def _devices(self, numbers: Sequence[int]) -> list[int]:
        """Return which of some queues are those of devices."""
        return [number for number in numbers if self.queues.records["kind"][number] in SLEPT_ON]

    def _polled(self, receiving: Sequence[int]) -> np.ndarray:
        """Return the descriptors to sleep on, and note whose they are."""
        devices = self._devices(receiving)
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
