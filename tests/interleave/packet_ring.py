"""A packet socket's two rings, with the system as an actor: it hands blocks over, and sends frames when it is told to.

What packets say are shared words here too, so a worker that looks too early sees what was there before.  The system itself
is whole: who is killed in the middle of a system call has made it, or not.
"""

import random
import struct
from types import SimpleNamespace

import numpy as np
from simulation import Killed, Simulation
from zonetrack.kernels import memory, port_packet, sockets
from zonetrack.kernels.words import u64
from zonetrack.service.ports import packet_rings
from zonetrack.shm.layout import BLOCKS, FRAME, PLACE_HEAD_BYTES, PLACES, POLL_BURST_PACKETS, QUEUE
from zonetrack.shm.reasons import Reason

from .rings import Outcome, Words, swapped

BLOCK_BYTES, BLOCKS_COUNT, FIRST = 512, 4, 48
PLACE_BYTES, PLACES_COUNT = 64, 4
HEAD_BYTES, FRAME_BYTES, TOLD_BYTES = 48, 16, 10
BURST = 2
"""Packets that a worker takes at once, so that it comes back to a block."""
FILLED = (3, 1, 5, 2, 4)
"""Packets in each block that the system hands over."""
PLACES_AT, BELL = BLOCKS_COUNT * BLOCK_BYTES, 3072
"""Where places begin, and a word that says nothing: accesses between a store and what is noted of it, to die there."""
LOOKS = 3
AVAILABLE, SEND_REQUEST, SENDING = 0, 1, 2


class Ring:
    """The memory of both rings, the system's side of them, and what has come of each packet."""

    receiving = sending = port_packet
    burst = "_BURST", u64(BURST)
    """The name by which ``receiving`` knows how many packets it takes at once, and how many it shall."""

    def __init__(self, seed, filled):
        self.words, self.chance, self.filled = Words(), random.Random(seed), filled
        self.queue = np.zeros(1, QUEUE)
        self.address = u64(self.queue.ctypes.data)
        self.lay()
        self.frames = np.zeros(POLL_BURST_PACKETS, FRAME)
        self.loop = SimpleNamespace(frames=u64(self.frames.ctypes.data))
        self.taken, self.put, self.sent, self.lost = [], [], [], []
        self.head, self.flying, self.over = 0, [], False

    def lay(self):
        """Fill in where the rings are."""
        self.lay_receiving()
        self.places = self.queue[0]["tx"].view(PLACES)
        self.places["places"], self.places["place_bytes"] = self.words.base + PLACES_AT, PLACE_BYTES
        self.places["count"], self.places["length_max"] = PLACES_COUNT, FRAME_BYTES

    def lay_receiving(self):
        """Fill in where packets are received."""
        self.blocks = self.queue[0]["rx"].view(BLOCKS)
        self.blocks["blocks"], self.blocks["block_bytes"] = self.words.base, BLOCK_BYTES
        self.blocks["count"] = BLOCKS_COUNT

    # -------------------------------------------------------------------------------------------- the system
    def hand_over(self):
        """Fill blocks, as far as there is room."""
        number = 0
        for turn, count in enumerate(self.filled):
            block = self.words.base + turn % BLOCKS_COUNT * BLOCK_BYTES
            while memory.acquire32(u64(block + 8)):
                memory.relax()
            for i in range(count):
                at = block + FIRST + i * (HEAD_BYTES + FRAME_BYTES)
                following = HEAD_BYTES + FRAME_BYTES if i + 1 < count else 0
                head = (following, 0, 0, FRAME_BYTES, FRAME_BYTES, 0, HEAD_BYTES)
                for word, value in enumerate((*head, *[0] * 5, number, 0, 0, 0x08000000)):
                    memory.write32(u64(at + 4 * word), u64(value))
                number += 1
            memory.write32(u64(block + 12), u64(count))
            memory.write32(u64(block + 16), u64(FIRST))
            memory.write64(u64(block + 24), u64(turn + 1))
            memory.release32(u64(block + 8), u64(1))

    def send(self, descriptor):
        """The system call: take what was put, in order; now and then it will not."""
        simulation, me = memory.world, memory.world.current
        simulation.empty(me)
        me.horizon = me.latest = simulation.now
        if self.chance.random() < 0.2:
            return False
        while True:
            place = self.places_at(self.head)
            status, length = self.words.bytes[place : place + 8].view("u4").tolist()
            if status != SEND_REQUEST:
                return True
            assert length == FRAME_BYTES + TOLD_BYTES
            number = self.words.bytes[place + PLACE_HEAD_BYTES : place + PLACE_HEAD_BYTES + 4]
            self.sent.append(int.from_bytes(number, "little"))
            simulation.apply(me, self.words.base + place, 4, SENDING)
            self.flying.append(place)
            self.head += 1

    def ask(self, descriptor, polled):
        """Another system call, that says nothing."""
        simulation, me = memory.world, memory.world.current
        simulation.empty(me)
        me.horizon = me.latest = simulation.now

    def judge(self):
        """Look at what has been left when all is over."""

    def places_at(self, cursor):
        """Return where a place is in the memory."""
        return PLACES_AT + cursor % PLACES_COUNT * PLACE_BYTES

    def fly(self):
        """The device: gives places back, some time after it was given their frames."""
        while self.flying or not self.over:
            if self.flying:
                memory.release32(u64(self.words.base + self.flying.pop(0)), u64(AVAILABLE))
            else:
                memory.relax()

    # -------------------------------------------------------------------------------------------- a worker
    def has_come_to_the_end(self):
        """Return whether all packets have come."""
        return int(self.blocks["position"]) >> 32 >= len(self.filled)

    def has_sent_all(self):
        """Return whether the system has taken all that was put."""
        return self.head >= int(self.places["cursor"])

    def work(self):
        """Take what comes, and send it on, until there is no more."""
        port, address = self.receiving, self.address
        while not self.has_come_to_the_end():
            if not port.is_ready(address):
                memory.relax()
                continue
            for i in range(int(port.rx_burst(self.loop, address))):
                self.forward(port_packet.frame_at(self.loop.frames + u64(i * self.frames.itemsize)))
            port.release(address)
            self.sending.tx_burst(address)
        while not self.has_sent_all():
            self.sending.tx_burst(address)
            memory.relax()

    def forward(self, frame):
        """Send one packet on."""
        number = int(memory.le32(u64(frame.address)))
        self.taken.append(number)
        if self.sending.put(self.address, frame) == Reason.NONE:
            self.put.append(number)
        else:
            self.lost.append(number)

    def resume(self):
        """Who follows goes on, as service/ports/packet has it."""
        packet_rings.resume_receiving(self.blocks, self.words.bytes[:PLACES_AT])
        packet_rings.resume_sending(self.places, self.words.bytes[PLACES_AT:BELL])
        self.send(0)


class Seen:
    """The bytes of the rings as shared words, and others as they are; a release is followed by a look at the bell."""

    def __init__(self, words):
        self.words = words
        self.before = {
            name: getattr(memory, name) for name in ("le16", "le32", "le64", "be16", "set_le16", "release32")
        }

    def patches(self):
        """Return what stands in for names of kernels/memory."""
        return {
            "le16": lambda address: u64(int.from_bytes(self._bytes("le16", address, 2), "little")),
            "be16": lambda address: u64(int.from_bytes(self._bytes("be16", address, 2), "big")),
            "le32": lambda address: (
                memory.read32(address) if int(address) in self.words else self._plain("le32", address)
            ),
            "le64": lambda address: (
                memory.read64(address) if int(address) in self.words else self._plain("le64", address)
            ),
            "set_le16": self._set_le16,
            "set_le32": memory.write32,
            "set_le64": memory.write64,
            "copy": self._copy,
            "release32": self._release32,
        }

    def _plain(self, name, address):
        return self.before[name](address)

    def _bytes(self, name, address, size):
        at = int(address)
        if at not in self.words:
            return int(self._plain(name, address)).to_bytes(size, "big" if name == "be16" else "little")
        return struct.pack("<I", int(memory.read32(u64(at & ~3))))[at & 3 :][:size]

    def _copy(self, destination, source, size):
        for i in range(0, int(size), 4):
            word = memory.read32(source + u64(i))
            if int(destination) & 3 == 0:
                memory.write32(destination + u64(i), word)
                continue
            self._set_le16(destination + u64(i), word & u64(0xFFFF))
            self._set_le16(destination + u64(i + 2), word >> u64(16))

    def _set_le16(self, address, value):
        """Store a half of a word that nobody else writes."""
        if int(address) not in self.words:
            self.before["set_le16"](address, value)
            return
        word, shift = address & ~u64(3), u64(8 * (int(address) & 2))
        memory.write32(word, (memory.read32(word) & ~(u64(0xFFFF) << shift)) | (value << shift))

    def _release32(self, address, value):
        self.before["release32"](address, value)
        for _ in range(LOOKS):
            memory.acquire32(u64(self.words.base + BELL))


def packet_ring(seed, lives=None, filled=FILLED, **how):
    """Pass packets through both rings in one order; arguments as of ``pass_through``."""
    return pass_through(Ring(seed, filled), seed, lives, **how)


def pass_through(ring, seed, lives=None, **how):
    """Pass packets through rings in one order.

    Args:
        ring: they, and the system's side of them.
        seed: decides everything.
        lives: how many accesses each of the first workers lives; None: the seed draws that.
        how: of the simulation.
    """
    if lives is None:
        chance = ring.chance
        lives = [
            chance.choice((int(300 ** chance.random()), chance.randrange(1, 600)))
            for _ in range(chance.choice((0, 1, 1, 2, 3)))
        ]
    lives = list(lives)
    deaths = 0

    def body():
        nonlocal deaths
        me = memory.world.current
        while True:
            me.left = lives.pop(0) if lives else 0
            try:
                ring.work()
            except Killed:
                me.left = 0
                memory.world.empty(me)
                deaths += 1
                ring.resume()
                continue
            break
        ring.over = True

    simulation = Simulation(ring.words, seed, **how)
    with (
        swapped(memory, **Seen(ring.words).patches()),
        swapped(sockets, send_ring=ring.send, can_be_read=ring.ask),
        swapped(ring.receiving, **dict([ring.burst])),
    ):
        simulation.run(ring.hand_over, ring.fly, body)
    ring.judge()
    # none twice, none out of turn; a death takes along what was in hand, and a full ring what it has no room for
    assert ring.taken == sorted(set(ring.taken)), f"seed {seed}: taken {ring.taken}"
    lost = sum(ring.filled) - len(ring.taken)
    assert lost <= BURST * deaths, f"seed {seed}: taken {ring.taken}, {deaths} deaths"
    assert ring.sent == sorted(set(ring.sent)), f"seed {seed}: sent {ring.sent}"
    assert set(ring.put) <= set(ring.sent) <= set(ring.taken) - set(ring.lost), f"seed {seed}: {ring.put} {ring.sent}"
    assert len(ring.sent) - len(ring.put) <= deaths
    return Outcome(simulation.accesses, deaths)
