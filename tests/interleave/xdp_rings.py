"""The four rings of a socket of AF_XDP, with the system as an actor: it receives into places, and sends when it is told to.

All cursors and entries, and the frames, are shared words.  The system keeps its own cursors to itself, as a driver does, and
looks whether a place that it is given is one that it may have.
"""

import numpy as np
from zonetrack.kernels import memory, port_xdp
from zonetrack.kernels.words import u64
from zonetrack.service.ports import xdp_rings
from zonetrack.service.ports.xdp_rings import CURSORS
from zonetrack.shm.layout import DIVERTED, INJECTED, XSK

from .packet_ring import FRAME_BYTES, Ring, pass_through

COUNT, PLACE_BYTES, HEADROOM_BYTES = 4, 64, 16
FRAMES_COUNT = 14
SENT_AT_ONCE_MAX = 2
RINGS_AT = 2 * COUNT * PLACE_BYTES
WORDS_AT = RINGS_AT + COUNT * (16 + 16 + 8 + 8)
NEEDS_WAKEUP = 1


class XdpRings(Ring):
    """The memory of them, the system's side, and what has come of each frame."""

    receiving = sending = port_xdp

    def __init__(self, seed, filled):
        super().__init__(seed, filled)
        self.came = self.filled_up = self.consumed = self.gone = self.start

    def lay(self):
        """Fill in where the rings are, and offer all places; cursors begin anywhere."""
        xsk = self.xsk = np.zeros(1, XSK)[0]
        self.kept, self.own = self.queue[0]["rx"].view(DIVERTED), self.queue[0]["tx"].view(INJECTED)
        self.kept["rings"] = self.own["rings"] = xsk.__array_interface__["data"][0]
        base, at = self.words.base, self.words.base + RINGS_AT
        xsk["frames"], xsk["place_bytes"], self.own["length_max"] = base, PLACE_BYTES, FRAME_BYTES
        xsk["rx_count"] = xsk["tx_count"] = COUNT
        for name, size in (("rx_entries", 16), ("tx_entries", 16), ("fill_entries", 8), ("sent_entries", 8)):
            xsk[name], at = at, at + COUNT * size
        words = [name for name in XSK.names if name.endswith(("producer", "consumer", "flags"))]
        for number, name in enumerate(words):
            xsk[name] = base + WORDS_AT + 64 * number
        xdp_rings.offer_all(xsk)
        self.start = self.chance.choice((0, CURSORS - 6))
        for name in words:
            word = xdp_rings.words(int(xsk[name]))
            word[0] = NEEDS_WAKEUP if name.endswith("flags") else (int(word[0]) + self.start) % CURSORS
        self.kept["position"] = self.start

    def _at(self, name, cursor=0, size=0):
        return u64(int(self.xsk[name]) + cursor % COUNT * size)

    # -------------------------------------------------------------------------------------------- the system
    def hand_over(self):
        """Receive frames into the places that are offered."""
        for number in range(sum(self.filled)):
            while memory.acquire32(self._at("fill_producer")) == self.filled_up:
                memory.relax()
            at = int(memory.read64(self._at("fill_entries", self.filled_up, 8)))
            self.filled_up = (self.filled_up + 1) % CURSORS
            assert at in range(0, COUNT * PLACE_BYTES, PLACE_BYTES), f"a place at {at} is offered"
            memory.write32(u64(self.words.base + at + HEADROOM_BYTES), u64(number))
            entry = self._at("rx_entries", self.came, 16)
            memory.write64(entry, u64(at + HEADROOM_BYTES))
            memory.write32(entry + u64(8), u64(FRAME_BYTES))
            self.came = (self.came + 1) % CURSORS
            memory.release32(self._at("rx_producer"), u64(self.came))

    def send(self, descriptor):
        """The system call: take what was put, in order, some at a time; now and then it will not."""
        self.ask(0, 0)
        if self.chance.random() < 0.2:
            return False
        produced = xdp_rings.words(int(self.xsk["tx_producer"]))
        for _ in range(SENT_AT_ONCE_MAX):
            if self.consumed == produced[0]:
                break
            at = int(xdp_rings.words(int(self._at("tx_entries", self.consumed, 16)), "u8")[0])
            assert at in range(COUNT * PLACE_BYTES, RINGS_AT, PLACE_BYTES) and at not in self.flying, f"{at} is to go"
            self.sent.append(int(xdp_rings.words(self.words.base + at)[0]))
            self.consumed = (self.consumed + 1) % CURSORS
            memory.world.apply(memory.world.current, int(self.xsk["tx_consumer"]), 4, self.consumed)
            self.flying.append(at)
        return True

    def fly(self):
        """The device: tells of places whose frames have gone."""
        while self.flying or not self.over:
            if not self.flying:
                memory.relax()
                continue
            memory.write64(self._at("sent_entries", self.gone, 8), u64(self.flying.pop(0)))
            self.gone = (self.gone + 1) % CURSORS
            memory.release32(self._at("sent_producer"), u64(self.gone))

    # -------------------------------------------------------------------------------------------- a worker
    def has_come_to_the_end(self):
        """Return whether all frames have come."""
        return (int(self.kept["position"]) - self.start) % CURSORS == sum(self.filled)

    def has_sent_all(self):
        """Return whether the system has taken all that was put."""
        return self.consumed == xdp_rings.words(int(self.xsk["tx_producer"]))[0]

    def resume(self):
        """Who follows goes on, as service/ports/xdp has it."""
        xdp_rings.resume_receiving(self.xsk, self.kept)
        xdp_rings.resume_sending(self.xsk, self.own)
        self.send(0)

    def judge(self):
        """Both equations hold; each place to receive in is offered once, and each that was sent from has come home once."""
        fill, rx, tx, sent = (
            int(xdp_rings.words(int(self.xsk[name]))[0])
            for name in ("fill_producer", "rx_consumer", "tx_producer", "sent_consumer")
        )
        assert (fill - rx) % CURSORS == COUNT and rx == self.came == self.kept["position"]
        assert (tx - sent) % CURSORS == self.own["fresh"] and tx == self.gone
        offered = xdp_rings.words(int(self.xsk["fill_entries"]), "u8", COUNT).tolist()
        assert sorted(offered) == list(range(0, COUNT * PLACE_BYTES, PLACE_BYTES)), f"offered: {offered}"
        home = [
            int(xdp_rings.words(int(self._at("sent_entries", sent + i, 8)), "u8")[0])
            for i in range(int(self.own["fresh"]))
        ]
        assert len(set(home)) == len(home), f"home: {home}"


def xdp_ring(seed, lives=None, filled=(FRAMES_COUNT,), **how):
    """Pass packets through the rings in one order; arguments as of ``packet_ring.pass_through``."""
    return pass_through(XdpRings(seed, filled), seed, lives, **how)
