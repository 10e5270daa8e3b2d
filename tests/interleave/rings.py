"""Words beside the table, in every order that weak memory allows: rings, and the rules that workers go by.

Each play is a run from a seed, and returns how many shared accesses it made and how many workers were killed:

    client_ring     a client and a worker, which spins, then sleeps (kernels/ring)
    sleep           likewise where the worker waits for its queues (kernels/poll)
    rules           rules that are published while workers go by them (kernels/rulebook)
    packet_ring     the system hands packets over, and sends what it is given; workers die (tests/interleave/packet_ring)
    frame_ring      likewise, each frame by itself (tests/interleave/frame_ring)
    xdp_ring        likewise by the rings of AF_XDP (tests/interleave/xdp_rings)
"""

import contextlib
import itertools
import random
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from simulation import PAGE_SHIFT, Killed, Simulation
from zonetrack.kernels import futex, memory, poll, ring, rulebook
from zonetrack.kernels.words import ONE, ZERO, u64
from zonetrack.shm.layout import (
    DESCRIPTOR_BYTES,
    END,
    PAGE_BYTES,
    PIPE,
    POLL,
    QUEUE,
    RING_BYTES,
    TIMESPEC,
    WAIT,
    PortKind,
)

SLOTS, PACKETS = 4, 24


class Outcome(NamedTuple):
    """What a play came to."""

    accesses: int
    killed: int = 0
    slept: int = 0


class Words:
    """Pages of shared words, in the place of a table's."""

    def __init__(self, pages=1):
        block = np.zeros((pages + 1) * PAGE_BYTES, "u1")
        self.bytes = block[-block.ctypes.data % PAGE_BYTES :][: pages * PAGE_BYTES]
        self.base, self.end = self.bytes.ctypes.data, self.bytes.ctypes.data + pages * PAGE_BYTES
        view = memoryview(self.bytes).cast("B")
        words = (view.cast("Q"), view.cast("I"), self.base)
        self.pages = {(self.base >> PAGE_SHIFT) + page: words for page in range(pages)}
        self.own_low = self.own_high = 0
        self.table = SimpleNamespace(base={})

    def __contains__(self, address):
        return self.base <= address < self.end


@contextlib.contextmanager
def swapped(module, **values):
    """Let names of a module be others until the end of the block."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


class Sleepers:
    """What the kernel does about futexes: looks and falls asleep in one step, with all earlier stores done."""

    def __init__(self, words):
        self.words, self.asleep, self.numbers, self.slept = words, set(), itertools.count(), 0

    def wait(self, word, value, timeout):
        """Sleep while a word has a value."""
        memory.world.fence(True)
        if self.words.bytes[int(word) - self.words.base :][:4].view("u4")[0] != value:
            return
        me = next(self.numbers)
        self.asleep.add(me)
        self.slept += 1
        while me in self.asleep:
            memory.world.relax()

    def wake(self, word):
        """Wake all."""
        memory.world.fence(True)
        self.asleep.clear()


# ------------------------------------------------------------------------------------------------ a client and a worker
class _Channel:
    """A ring whose producer is a client; what came, in order."""

    def __init__(self, bursts):
        self.words, self.bursts, self.came = Words(), bursts, []
        self.producer, self.sleepers = self.end(np.zeros(1, END).view(np.recarray)[0]), Sleepers(self.words)

    def end(self, made):
        """Fill an END that has moved nothing; frames are not simulated, and nobody looks at them."""
        made["ring"], made["slots"] = self.words.base, SLOTS
        made["descriptors"] = self.words.base + RING_BYTES
        assert RING_BYTES + SLOTS * DESCRIPTOR_BYTES <= PAGE_BYTES
        return made

    def produce(self):
        """Be the client."""
        end, sent, sizes = self.producer, 0, itertools.cycle(self.bursts)
        while sent < PACKETS:
            count = min(next(sizes), PACKETS - sent, int(ring.room(end, u64(1))))
            if count == 0:
                memory.relax()
                continue
            for i in range(count):
                position = end.cursor + u64(i)
                ring.write(ring.descriptor_of(end, position), u64(1000 + sent + i), *[ZERO] * 5)
            ring.produce(end, u64(count))
            ring.wake(end)
            sent += count

    def take(self, end, ready):
        """Take some descriptors out."""
        for i in range(ready):
            self.came.append(int(ring.fetch(ring.descriptor_of(end, end.cursor + u64(i)))[0]))
        if ready:
            ring.consume(end, u64(ready))

    def run(self, seed, consume, end, how):
        """Run both; returns what it came to."""
        simulation = Simulation(self.words, seed, **how)
        with swapped(futex, wait=self.sleepers.wait, wake=self.sleepers.wake):
            simulation.run(self.produce, consume)
        assert self.came == list(range(1000, 1000 + PACKETS)), f"seed {seed}: {self.came}"
        assert (self.producer["bad_cursors"], end["bad_cursors"]) == (0, 0)
        return Outcome(simulation.accesses, slept=self.sleepers.slept)


def client_ring(seed, bursts=(1, 2, 4), **how):
    """Send packets through a ring in one order."""
    channel = _Channel(bursts)
    end = channel.end(np.zeros(1, END).view(np.recarray)[0])

    def consume():
        while len(channel.came) < PACKETS:
            channel.take(end, int(ring.rest(end, ONE, ZERO)))

    return channel.run(seed, consume, end, how)


def sleep(seed, bursts=(1, 2, 4), **how):
    """Likewise, where the worker has a queue among those that it waits for."""
    channel = _Channel(bursts)
    queue, loop = np.zeros(1, QUEUE), np.zeros(1, POLL)
    queue["kind"], queue["receives"] = PortKind.SHM, 1
    channel.end(queue[0]["rx"])
    end = ring.end_at(u64(queue.ctypes.data))
    addresses, waits, timeout = np.array([queue.ctypes.data], "u8"), np.zeros(1, WAIT), np.zeros(1, TIMESPEC)
    waits["address"] = channel.words.base + int(ring.WAITING)
    loop["queues"], loop["queue_count"] = addresses.ctypes.data, 1
    loop["waits"], loop["wait_count"], loop["timeout"] = waits.ctypes.data, 1, timeout.ctypes.data
    hand = memory.record_at(POLL)(u64(loop.ctypes.data))

    def consume():
        while len(channel.came) < PACKETS:
            ready = int(ring.filled(end, ONE))
            if ready:
                channel.take(end, ready)
            else:
                poll._sleep(hand, ZERO, ONE)

    outcome = channel.run(seed, consume, end, how)
    assert int(channel.words.bytes[int(ring.WAITING) :][:4].view("u4")[0]) == 0
    return outcome


# ------------------------------------------------------------------------------------------------ rules
SLOT_BYTES, TEXT_WORDS, GENERATIONS, LOOKS = 512, 6, 8, 5
TEXT = 256
"""Where in a generation the words stand that a worker reads here; what comes before has the same sizes in all."""


def rules(seed, workers=2, **how):
    """Publish rules, while workers go by them, die and are followed."""
    words, chance = Words(), random.Random(seed)
    published, slots = words.base, words.base + 1024
    acknowledged = [words.base + 64 * (1 + worker) for worker in range(workers)]
    over, killed = [], []

    def publish():
        # shm.rulebook.Rulebook.publish, in single accesses
        word = 0
        for number in range(1, GENERATIONS + 1):
            slot = 1 - (word & 1) if word else 0
            memory.fence_full()  # F1
            while any(held and held & 1 == slot for held in map(_word, acknowledged)):
                memory.relax()
            for i in range(TEXT_WORDS):
                memory.write64(u64(slots + slot * SLOT_BYTES + TEXT + 8 * i), u64(number))
            word = number << 1 | slot
            memory.release64(u64(published), u64(word))  # R1
            for _ in range(chance.choice((0, 0, 1, 4))):  # until the next publication
                memory.relax()
        over.append(True)

    def follow(worker):
        lives = [int(200 ** chance.random()) for _ in range(chance.choice((0, 0, 1, 2)))]

        def live():
            pipe = np.zeros(1, PIPE)
            pipe["published"], pipe["acknowledged"], pipe["slots"] = published, acknowledged[worker], slots
            hand = memory.record_at(PIPE)(u64(pipe.ctypes.data))
            while True:
                last = bool(over)
                if rulebook.pick_up(hand) and hand.word:
                    for _ in range(LOOKS):
                        told = {int(memory.read64(hand.generation + u64(TEXT + 8 * i))) for i in range(TEXT_WORDS)}
                        assert told == {int(hand.word) >> 1}, f"rules {int(hand.word) >> 1} are {told} now"
                if last:
                    break
                memory.relax()

        def body():
            me = memory.world.current
            while True:
                me.left = lives.pop(0) if lives else 0
                try:
                    live()
                except Killed:
                    me.left = 0
                    memory.world.empty(me)
                    me.horizon = me.latest = memory.world.now
                    killed.append(worker)
                    continue
                break
            me.left = 0
            memory.release64(u64(acknowledged[worker]), ZERO)  # the keeper says so of one that ends

        return body

    simulation = Simulation(words, seed, **how)
    with swapped(rulebook, _SLOT_BYTES=u64(SLOT_BYTES)):
        simulation.run(publish, *(follow(worker) for worker in range(workers)))
    return Outcome(simulation.accesses, len(killed))


def _word(address):
    return int(memory.acquire64(u64(address)))
