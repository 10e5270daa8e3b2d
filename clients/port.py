"""A client's side of one queue of a port: send frames, receive them back with their verdicts, at full speed.

    with Queue("lab") as queue:
        sent = queue.send(frames, tag=100)          # FRAME[n]; as many as there is room for
        queue.wait(timeout_ms=100)
        count = queue.receive(answers)              # DESCRIPTOR[n], out

Frames come back in the order in which they were sent, each with its tag.  The service keeps no more answers than a ring
holds: who has no more packets under way than ``slots`` loses none.  Whoever had the queue before may have died in the
middle of anything, so a client begins where the service says it stands, and what still comes back for another is to be told
by its tag.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..kernels import ring
from ..kernels.words import u64
from ..shm import port
from ..shm.errors import InUse, Missing, SegmentError
from ..shm.layout import DESCRIPTOR, FRAME, RING, TIMESPEC, FrameFlag, Link
from ..shm.port import RX, TX
from ..shm.segment import INSTANCE_DEFAULT
from .errors import NothingMatchedError, ZonetrackError
from .nearest import hint

SPINS = 500
"""Looks before it sleeps: some tens of microseconds."""
WAIT_MS_MAX = 10
"""The longest sleep in one go, so that signals are seen."""


class PortClosedError(ZonetrackError):
    """The service has stopped, or was started anew: attach again."""


class Queue:
    """One queue of a port, ours until it is closed."""

    def __init__(self, name: str, queue: int = 0, instance: str = INSTANCE_DEFAULT) -> None:
        """Attach to a port, and take one of its queues.

        Args:
            name: of the port.
            queue: its index.
            instance: whose port it is.

        Raises:
            NothingMatchedError: there is no such port or queue.
            ZonetrackError: it has another client, or is not to be had.
        """
        try:
            self.port = port.attach(instance, name)
            self.port.take(queue)
        except Missing as error:
            there = port.names(instance)
            others = f"it has {', '.join(there)}" if there else "it has none: does it run, and with --port?"
            text = f"there is no port {name} of instance {instance}{hint(name, there)}; {others}"
            raise NothingMatchedError(text) from error
        except ValueError as error:
            raise NothingMatchedError(str(error)) from error
        except (InUse, SegmentError) as error:
            raise ZonetrackError(str(error)) from error
        self.index = queue
        self._out = self.port.end(queue, RX).view(np.recarray)[0]
        self._in = self.port.end(queue, TX).view(np.recarray)[0]
        self._until = np.zeros(1, TIMESPEC)
        self._outward, self._inward = (self._ring(side) for side in (RX, TX))
        self._begin_sending()
        self._begin_receiving()

    def _ring(self, side: int) -> np.void:
        place = self.port.extent.ring(self.index, side)[0]
        return self.port.memory[place : place + RING.itemsize].view(RING)[0]

    def _begin_sending(self) -> None:
        """Go on behind what the service has still to take, or, where that cannot be, where it stands."""
        produced, consumed = int(self._outward["produced"]), int(self._outward["consumed"])
        if not consumed <= produced <= consumed + self.slots:
            produced = consumed
        self._outward["produced"] = self._out["cursor"] = produced
        self._out["peer"], self._out["bad"] = consumed, 0

    def _begin_receiving(self) -> None:
        """Go on behind what the service has answered."""
        self._inward["consumed"] = self._in["cursor"] = self._in["peer"] = self._inward["produced"]
        self._in["bad"] = 0

    @property
    def slots(self) -> int:
        """Frames that each ring holds."""
        return self.port.slots

    @property
    def zone(self) -> int:
        """Zone of all packets."""
        return self.port.zone

    @property
    def ends(self) -> tuple[np.record, np.record]:
        """The END that puts in, and the END that takes out, for kernels."""
        return self._out, self._in

    @property
    def untaken(self) -> int:
        """Frames sent that the service has not taken yet."""
        return int(self._out["cursor"]) - int(self._outward["consumed"])

    def check(self) -> None:
        """Raise PortClosedError if the service takes nothing from here any more."""
        if not self.port.is_open:
            raise PortClosedError(f"port {self.port.name} of instance {self.port.instance} is closed")

    def send(self, frames: np.ndarray, tag: int = 0) -> int:
        """Send frames, as many as there is room for.

        Args:
            frames: FRAME[n], contiguous; of each, up to FRAME_SLOT_BYTES go.  Their zone is the port's, of their flags
                only COMMIT is heeded.
            tag: of the first; each has one more than the one before.

        Returns:
            How many went; 0 when the ring is full, or the service does not run.
        """
        if not len(frames):
            return 0
        assert frames.dtype == FRAME and frames.flags.c_contiguous
        sent = int(ring.put(self._out, u64(frames.ctypes.data), u64(len(frames)), u64(tag)))
        if self._out["bad"]:
            self._begin_sending()
        return sent

    def receive(self, answers: np.ndarray, frames: np.ndarray | None = None) -> int:
        """Receive what has come back.

        Args:
            answers: out, DESCRIPTOR[n].
            frames: out, u1[n, FRAME_SLOT_BYTES], where the frames are wanted too.

        Returns:
            How many came.
        """
        assert answers.dtype == DESCRIPTOR and answers.flags.c_contiguous
        assert frames is None or (len(frames) >= len(answers) and frames.flags.c_contiguous)
        into = 0 if frames is None else frames.ctypes.data
        came = int(ring.take(self._in, u64(answers.ctypes.data), u64(into), u64(len(answers))))
        if self._in["bad"]:
            self._begin_receiving()
        return came

    def wait(self, timeout_ms: int = WAIT_MS_MAX) -> int:
        """Wait until something has come back.

        Returns:
            How many frames there are to receive; 0 when the time is over.

        Raises:
            PortClosedError: nothing has come, and nothing will.
        """
        spins, end_ms = SPINS, time.monotonic_ns() // 1_000_000 + timeout_ms
        while True:
            now_ms = time.monotonic_ns() // 1_000_000
            moment_ms = min(end_ms, now_ms + WAIT_MS_MAX)
            self._until["seconds"], self._until["nanoseconds"] = moment_ms // 1_000, moment_ms % 1_000 * 1_000_000
            ready = int(ring.rest(self._in, u64(spins), u64(self._until.ctypes.data)))
            if ready or moment_ms >= end_ms:
                return ready
            if self._in["bad"]:
                self._begin_receiving()
            self.check()
            spins = 0

    def close(self) -> None:
        """Let another client have the queue."""
        self.port.give_back(self.index)

    def __enter__(self) -> Queue:
        """Close it at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()


def frames_of(packets: Sequence[bytes], link: Link = Link.ETHERNET) -> tuple[np.ndarray, np.ndarray]:
    """Return packets as FRAME[n], to be committed, and the bytes that those point to, to be kept as long."""
    lengths = np.array([len(packet) for packet in packets], "u8")
    data = np.frombuffer(b"".join(packets), "u1")
    frames = np.zeros(len(packets), FRAME)
    frames["address"] = data.ctypes.data + np.concatenate(([0], np.cumsum(lengths)[:-1])).astype("u8")
    frames["captured_bytes"] = frames["wire_bytes"] = lengths
    frames["link"], frames["flags"] = link, FrameFlag.COMMIT
    return frames, data
