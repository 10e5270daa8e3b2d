"""Both ends of a gateway in one process: it sends, takes what arrives, and sends back where a client in between is to.

One process, for on a machine of few processors several that wait for each other measure its scheduler: what has arrived
would lie there until its receiver has its turn.  So each round sends a burst and takes what there is, and the gateway has a
processor of its own, where there are two.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..kernels.words import u64
from ..shm.layout import DESCRIPTOR, FRAME_SLOT_BYTES, TIMESPEC, VERDICT, FrameFlag
from ..shm.loop import Loop
from . import forward_traffic
from .port import Queue, frames_of

if TYPE_CHECKING:
    from .forward_trial import Stage

BATCH = 32
BATCH_CLIENT = 256
SETTLE_S = 30.0
"""Without a packet, after the last was sent: what is not here then is gone, however busy the machine is."""
LOOK_S = 0.1
"""Between two looks at what the receiver has lost itself, when nothing comes."""
Step = Callable[[], int]


def stay(alone: bool) -> None:
    """Have this process run on the first processor that it may, or on all but that one, where there are several."""
    first, *others = sorted(os.sched_getaffinity(0))
    if others:
        os.sched_setaffinity(0, [first] if alone else others)


class Ends:
    """What sends packets of some flows into a stage, and takes them out of it."""

    def __init__(self, stage: Stage, flows: int) -> None:
        """Attach to both ends, and to what is in between."""
        self._stage = stage
        self._frames, self._kept = forward_traffic.flows_of(flows, stage.frame_bytes)
        self._spec, self._verdict = np.zeros(1, TIMESPEC), np.zeros(1, VERDICT)
        self._at = u64(self._spec.ctypes.data)
        self._is_client = stage.source is None
        self._send = self._by_a_client() if self._is_client else self._by_a_wire()
        self._steps: list[Step] = []
        self._looks: list[Callable[[], None]] = []
        if stage.sink is not None:
            self._steps.append(self._from_a_wire())
        elif stage.is_taken_by_a_client:
            self._steps.append(self._from_a_client())
        if stage.bounces:
            self._steps.append(self._bouncing())

    # ------------------------------------------------------------------------------------------------ each end
    def _by_a_client(self) -> Callable[[int, int], int]:
        queue = Queue("first", 0, self._stage.instance)
        # of few flows as many rounds as a batch holds
        frames = np.tile(self._frames, -(-BATCH_CLIENT // len(self._frames)))

        def send(first: int, count: int) -> int:
            start = first % len(frames)
            part = frames[start : start + count]
            forward_traffic.stamp(u64(part.ctypes.data), u64(len(part)), self._at)
            return queue.send(part)

        return send

    def _by_a_wire(self) -> Callable[[int, int], int]:
        queues = self._stage.source_queues
        queues.ports[0].resume(queues.records[0])
        frames, flows = u64(self._frames.ctypes.data), u64(len(self._frames))
        address, verdict = u64(queues.records.ctypes.data), u64(self._verdict.ctypes.data)
        return lambda first, count: int(
            forward_traffic.offer(address, frames, flows, u64(first), u64(count), self._at, verdict)
        )

    def _from_a_wire(self) -> Step:
        queues = self._stage.sink_queues
        loop, address = Loop(queues, [0]), u64(queues.records.ctypes.data)
        self._looks.append(loop.look)
        counts = u64(self._stage.counts.ctypes.data)
        return lambda: int(forward_traffic.collect(loop.record, address, counts, self._at))

    def _from_a_client(self) -> Step:
        queue, counts = Queue("lab", 0, self._stage.instance), u64(self._stage.counts.ctypes.data)
        answers, slots = _room()

        def take() -> int:
            came = queue.receive(answers, slots)
            if came:
                forward_traffic.note(u64(slots.ctypes.data), u64(came), counts, self._at)
            return came

        return take

    def _bouncing(self) -> Step:
        """Return what sends back what comes, as far as there is room, before it takes more."""
        queue = Queue("lab", 0, self._stage.instance)
        answers, slots = _room()
        frames, kept = frames_of([bytes(self._stage.frame_bytes)] * BATCH_CLIENT)
        frames["address"] = slots.ctypes.data + FRAME_SLOT_BYTES * np.arange(BATCH_CLIENT, dtype="u8")
        frames["flags"] |= np.uint8(FrameFlag.QUIET)
        del kept
        first = end = 0

        def bounce() -> int:
            nonlocal first, end
            if first == end:
                first, end = 0, queue.receive(answers, slots)
            went = queue.send(frames[first:end]) if first < end else 0
            first += went
            return went

        return bounce

    # ------------------------------------------------------------------------------------------------ all of it
    def _take(self) -> int:
        return sum(step() for step in self._steps)

    def look(self) -> None:
        """See what the receiver had no room for itself."""
        for look in self._looks:
            look()

    def send(self, seconds: float, rate: float) -> None:
        """Send for some seconds, at a rate in packets/s, 0: as fast as may be, and take what comes meanwhile.

        A packet at least, however late the processor is ours.  The stage's control says how many were sent in which time.
        """
        control, most = self._stage.control, BATCH_CLIENT if self._is_client else BATCH
        began = time.perf_counter()
        sent = 0
        while ((passed := time.perf_counter() - began) < (seconds if sent else SETTLE_S)) and not control["over"]:
            count = min(most, max(1, int(rate * min(passed, seconds))) - sent) if rate else most
            went = self._send(sent, count) if count > 0 else 0
            sent += went
            if not self._take() and not went:
                os.sched_yield()
        control["elapsed_ns"] = int((time.perf_counter() - began) * 1e9)
        control["sent"] = sent

    def run(self, seconds: float, rate: float) -> None:
        """Send, and take until all is here or lost, or nothing comes any more; then it is over."""
        control, gone = self._stage.control, self._stage.gone()
        self.send(seconds, rate)
        last = looked = time.perf_counter()
        while (now := time.perf_counter()) - last < SETTLE_S and not control["over"]:
            if self._take():
                last = now
            elif self._stage.gone() - gone >= control["sent"]:
                break
            else:
                self._send(0, 0)  # what the system would not take before
                os.sched_yield()
            if now - looked >= LOOK_S:
                self.look()
                looked = now
        self.look()
        control["over"] = 1


def _room() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(BATCH_CLIENT, DESCRIPTOR), np.zeros((BATCH_CLIENT, FRAME_SLOT_BYTES), "u1")
