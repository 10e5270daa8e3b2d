"""A producer and a consumer of a ring, in every order that weak memory allows: nothing lost, nothing twice, none asleep."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from simulation import ACQUIRE, PAGE_SHIFT, RELEASE, Broken, Simulation
from zonetrack.kernels import futex, memory, ring
from zonetrack.kernels.words import ONE, ZERO, u64
from zonetrack.shm.layout import DESCRIPTOR_BYTES, END, PAGE_BYTES, RING_BYTES

from .plays import SEEDS

SLOTS = 4
PACKETS = 24
SEEDS_MAX = 3000


class Memory:
    """The words of a ring, as a simulation wants them: in the place of a table's."""

    def __init__(self):
        block = np.zeros(2 * PAGE_BYTES, "u1")
        self.bytes = block[-block.ctypes.data % PAGE_BYTES :][:PAGE_BYTES]
        self.base = self.bytes.ctypes.data
        view = memoryview(self.bytes).cast("B")
        self.pages = {self.base >> PAGE_SHIFT: (view.cast("Q"), view.cast("I"), self.base)}
        self.own_low = self.own_high = 0
        self.table = SimpleNamespace(base={})

    def end(self):
        """Return an END that has moved nothing; frames are not simulated, and nobody looks at them."""
        made = np.zeros(1, END).view(np.recarray)[0]
        made["ring"], made["slots"] = self.base, SLOTS
        made["descriptors"] = self.base + RING_BYTES
        assert RING_BYTES + SLOTS * DESCRIPTOR_BYTES <= PAGE_BYTES
        return made


class Sleepers:
    """What the kernel does about futexes: looks and falls asleep in one step, with all earlier stores done."""

    def __init__(self, words):
        self.words, self.asleep, self.numbers, self.slept = words, set(), itertools.count(), 0

    def wait(self, word, value, timeout):
        memory.world.fence(True)
        if self.words.bytes[int(word) - self.words.base :][:4].view("u4")[0] != value:
            return
        me = next(self.numbers)
        self.asleep.add(me)
        self.slept += 1
        while me in self.asleep:
            memory.world.relax()

    def wake(self, word):
        memory.world.fence(True)
        self.asleep.clear()


def play(seed, monkeypatch, bursts=(1, 2, 4), **how):
    """Send packets through a ring in one order; returns how often the consumer slept."""
    words = Memory()
    producer, consumer, sleepers, came = words.end(), words.end(), Sleepers(words), []
    monkeypatch.setattr(futex, "wait", sleepers.wait)
    monkeypatch.setattr(futex, "wake", sleepers.wake)

    def produce():
        sent, sizes = 0, itertools.cycle(bursts)
        while sent < PACKETS:
            count = min(next(sizes), PACKETS - sent, int(ring.room(producer, u64(1))))
            if count == 0:
                memory.relax()
                continue
            for i in range(count):
                position = producer.cursor + u64(i)
                ring.write(ring.descriptor_of(producer, position), u64(1000 + sent + i), *[ZERO] * 5)
            ring.produce(producer, u64(count))
            ring.wake(producer)
            sent += count

    def consume():
        while len(came) < PACKETS:
            ready = int(ring.rest(consumer, ONE, ZERO))
            for i in range(ready):
                came.append(int(ring.fetch(ring.descriptor_of(consumer, consumer.cursor + u64(i)))[0]))
            if ready:
                ring.consume(consumer, u64(ready))

    Simulation(words, seed, **how).run(produce, consume)
    assert came == list(range(1000, 1000 + PACKETS)), f"seed {seed}: {came}"
    assert (producer["bad_cursors"], consumer["bad_cursors"]) == (0, 0)
    return sleepers.slept


def is_found(monkeypatch, **how):
    """Return whether some seed shows a fault."""
    for seed in range(SEEDS_MAX):
        try:
            play(seed, monkeypatch, **how)
        except (AssertionError, Broken):
            return True
    return False


def test_nothing_is_lost_or_seen_twice_and_nobody_sleeps_for_ever(monkeypatch):
    slept = [play(seed, monkeypatch) for seed in range(round(200 * SEEDS))]
    assert sum(slept) > len(slept)


@pytest.mark.parametrize("order", [RELEASE, ACQUIRE])
def test_plain_accesses_are_found(monkeypatch, order):
    assert is_found(monkeypatch, forget=[order])


def test_missing_fences_are_found(monkeypatch):
    """Each side stores, then looks at what the other stores: without fences both may miss it."""
    monkeypatch.setattr(memory, "fence_full", lambda: None)
    assert is_found(monkeypatch)


def test_descriptors_that_are_handed_over_too_early_are_found(monkeypatch):
    right = ring.room
    monkeypatch.setattr(ring, "room", lambda end, wanted: right(end, wanted) + ONE)
    assert is_found(monkeypatch)
