"""Sending captured packets through a port, no faster than wished and no faster than verdicts come back.

No more packets are under way than the port holds, so the service never lacks room for an answer.  What does not come back
all the same was under way when a worker died; a packet behind it, or time, tells so.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

import numpy as np

from ..shm.layout import DESCRIPTOR, VERDICT
from .errors import ZonetrackError
from .port import Queue

PATIENCE_S = 1.0
"""How long nothing may come back before what is under way is lost: a worker is back in a tenth of it."""
GIVE_UP_S = 10.0
"""How long nothing may be taken before the port is given up."""
PAUSE_S = 0.01
"""The longest pause between two packets, so that a signal is seen."""


@dataclass
class Tally:
    """What has become of packets."""

    sent: int = 0
    returned: int = 0

    @property
    def lost(self) -> int:
        """Packets that did not come back."""
        return self.sent - self.returned


class Sending:
    """A queue, and how packets are sent through it."""

    def __init__(self, queue: Queue, rate: float | None = None) -> None:
        """Prepare.

        Args:
            queue: of a port.
            rate: packets a second at most; None for as fast as they come back.
        """
        self.queue = queue
        self.rate = rate
        self.tally = Tally()
        self._answers = np.zeros(queue.slots, DESCRIPTOR)
        self._tag = secrets.randbits(31) << 32  # what comes back for who had the queue before has other tags
        self._clear()
        self._began = time.monotonic()

    def _clear(self) -> None:
        """Let pass what is under way for who had the queue before: its answers would take the room of ours."""
        patient_until = time.monotonic() + PATIENCE_S
        while time.monotonic() < patient_until:
            if not self.queue.receive(self._answers) and not self.queue.wait(1) and not self.queue.untaken:
                return

    def send(self, frames: np.ndarray) -> np.ndarray:
        """Send frames, and wait for what becomes of them.

        Args:
            frames: FRAME[n].

        Returns:
            VERDICT[n]; zero for packets that were lost.

        Raises:
            PortClosedError: the service has stopped.
            ZonetrackError: it does not take packets.
        """
        verdicts, sent, settled = np.zeros(len(frames), VERDICT), 0, 0
        moved = time.monotonic()
        while settled < len(frames):
            wanted = min(len(frames) - sent, self.queue.slots - (sent - settled), self._allowed())
            went = self.queue.send(frames[sent : sent + wanted], self._tag + sent) if wanted else 0
            sent += went
            self.tally.sent += went
            came = self._receive(verdicts, settled)
            if went or came > settled:
                settled, moved = max(settled, came), time.monotonic()
            elif sent > settled:
                settled = self._wait(sent, settled, wanted, moved)
            elif wanted == 0:
                time.sleep(min(PAUSE_S, 1 / self.rate if self.rate else PAUSE_S))
            else:
                self._refused(moved)
        self._tag += len(frames)
        return verdicts

    def _allowed(self) -> int:
        """Return how many packets may be sent by now."""
        if self.rate is None:
            return self.queue.slots
        return max(0, 1 + int((time.monotonic() - self._began) * self.rate) - self.tally.sent)

    def _receive(self, verdicts: np.ndarray, settled: int) -> int:
        """Note the verdicts that have come; returns how many packets are settled: they, and all before them."""
        came = self.queue.receive(self._answers)
        answers = self._answers[:came]
        places = answers["tag"] - np.uint64(self._tag)
        ours = places < len(verdicts)
        if not ours.any():
            return settled
        verdicts[places[ours]] = answers["verdict"][ours]
        self.tally.returned += int(np.count_nonzero(ours))
        return int(places[ours].max()) + 1

    def _wait(self, sent: int, settled: int, wanted: int, moved: float) -> int:
        """Wait for what is under way; returns how many packets are settled."""
        pause_ms = 10 if self.rate is None or wanted == 0 else 1
        if self.queue.wait(pause_ms) or time.monotonic() - moved < PATIENCE_S:
            return settled
        if self.queue.untaken:
            self._refused(moved)
            return settled
        return sent

    def _refused(self, moved: float) -> None:
        """Nothing can be sent, or nothing is taken: wait, but not for ever."""
        self.queue.check()
        if time.monotonic() - moved > GIVE_UP_S:
            raise ZonetrackError(f"port {self.queue.port.name} has taken no packet for {GIVE_UP_S:.0f} s")
        self.queue.wait()
