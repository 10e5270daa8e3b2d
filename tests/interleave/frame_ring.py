"""A packet socket's ring with a place for each frame (TPACKET_V2), with the system as an actor; as packet_ring else.

The system fills places in turn, and waits at one that it was not given back: so a worker that is not where the system is
gets each frame a turn of the ring late.  That is what is looked for, beside frames that are lost or come twice.
"""

import random

from zonetrack.kernels import memory, port_frames
from zonetrack.kernels.words import u64
from zonetrack.service.ports import packet_rings
from zonetrack.shm.layout import FRAMES

from .packet_ring import BELL, BURST, FRAME_BYTES, PLACES_AT, Ring, pass_through

PLACE_BYTES, COUNT, FRAMES_COUNT = 128, 4, 14
_HEAD_BYTES = 48


class FrameRing(Ring):
    """Such a ring, and the one that frames leave by."""

    receiving = port_frames
    burst = ("POLL_BURST_PACKETS", BURST)

    def lay_receiving(self):
        """Fill in where packets are received."""
        self.ring = self.queue[0]["rx"].view(FRAMES)
        self.ring["frames"], self.ring["frame_bytes"], self.ring["count"] = self.words.base, PLACE_BYTES, COUNT

    def hand_over(self):
        """Fill places, as far as there is room."""
        for number in range(sum(self.filled)):
            at = self.words.base + number % COUNT * PLACE_BYTES
            while memory.acquire32(u64(at)):
                memory.relax()
            for word, value in ((1, FRAME_BYTES), (2, FRAME_BYTES), (3, _HEAD_BYTES), (_HEAD_BYTES // 4, number)):
                memory.write32(u64(at + 4 * word), u64(value))
            memory.release32(u64(at), u64(1))
            for _ in range(random.Random(number).choice((0, 0, 0, 9))):
                memory.relax()

    def has_come_to_the_end(self):
        """Return whether all frames have come."""
        return int(self.ring["position"]) >= sum(self.filled)

    def judge(self):
        """The worker is where the system is, and has given all back."""
        assert self.ring["position"] == self.ring["returned"] == sum(self.filled)
        assert not self.words.bytes[: COUNT * PLACE_BYTES].view("u4")[:: PLACE_BYTES // 4].any()

    def resume(self):
        """Who follows goes on, as service/ports/prompt has it."""
        packet_rings.resume_frames(self.ring, self.words.bytes[:PLACES_AT])
        packet_rings.resume_sending(self.places, self.words.bytes[PLACES_AT:BELL])
        self.send(0)


def frame_ring(seed, lives=None, filled=(FRAMES_COUNT,), **how):
    """Pass packets through both rings in one order; arguments as of ``packet_ring.pass_through``."""
    return pass_through(FrameRing(seed, filled), seed, lives, **how)
