"""A port whose client writes nonsense into its rings while a worker polls them, and takes its memory away at last.

The client has a neighbour with a port of its own, whose packets are all answered meanwhile.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal

import numpy as np
import tables
from forked import Child
from ports import Lab, datagrams, send
from zonetrack.clients.port import Queue
from zonetrack.service.ports import torn
from zonetrack.shm import port
from zonetrack.shm.layout import DESCRIPTOR, HEADER_BYTES, PAGE_BYTES
from zonetrack.shm.loop import Loop
from zonetrack.shm.port import RX, TX
from zonetrack.shm.queues import Queues

from . import mutation

SLOTS = 16
ANSWERED = 8
"""Packets of the neighbour in one case."""
SWEEP_SLOTS = 256


def spoil(chance, lab):
    """Write nonsense into a ring: cursors, descriptors, frames, or anything anywhere."""
    side = chance.choice((RX, TX))
    match chance.randrange(6):
        case 0 | 1:
            ring = lab.ring(side)
            name = chance.choice(("produced", "consumed", "waiting"))
            now = int(ring[name])
            wanted = (now + chance.choice((1, 2, SLOTS, SLOTS + 1, -1)), chance.choice(mutation.NUMBERS))
            ring[name] = np.uint64(chance.choice(wanted) & ((1 << 64) - 1))
        case 2 | 3:
            words = lab.descriptors(side).view("u1").reshape(-1)
            at = chance.randrange(len(words) - 8)
            words[at : at + 8] = np.frombuffer(chance.randbytes(8), "u1")
        case 4:
            for descriptor in lab.descriptors(side):
                descriptor["slot"] = chance.choice((0, SLOTS - 1, SLOTS, (1 << 32) - 1, chance.randrange(1 << 32)))
                descriptor["captured_bytes"] = chance.choice((0, 60, 2048, 1 << 20, (1 << 32) - 1))
                descriptor["wire_bytes"] = chance.choice((0, 60, 1500, (1 << 32) - 1))
        case _:
            memory = lab.port.memory
            at = chance.randrange(len(memory) - 64)
            memory[at : at + 64] = np.frombuffer(chance.randbytes(64), "u1")


class World:
    """Two ports of one worker, and a process that spoils one of them all the time."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.lab = Lab(slots=SLOTS)
        faulthandler.disable()
        torn.mend(self.lab.port.memory)
        self.other = port.create(self.lab.instance, "other", slots=SLOTS)
        self.lab.queues = Queues([self.lab.port, self.other])
        self.lab.loop = Loop(self.lab.queues, range(2), self.lab.worker.me)
        self.lab.loop.record["sleep_ms"] = 0
        self.neighbour = Queue("other", instance=self.lab.instance)
        self.bad = Child(lambda child: self._spoil(seed))

    def _spoil(self, seed):
        chance, parent = random.Random(-seed), os.getppid()
        while os.getppid() == parent:
            spoil(chance, self.lab)

    def one(self):
        """Spoil something here too, poll, and see that the neighbour is answered."""
        spoil(self.chance, self.lab)
        sent = send(self.neighbour, datagrams(ANSWERED, first=self.chance.randrange(4) * ANSWERED))
        assert sent == ANSWERED, f"{sent} packets of the neighbour found room"
        answers, came = np.zeros(ANSWERED, DESCRIPTOR), 0
        for _ in range(64):
            self.lab.poll(rounds=1, sweep_slots=SWEEP_SLOTS)
            came += self.neighbour.receive(answers)
            if came == ANSWERED:
                return
        raise AssertionError(f"{came} of {ANSWERED} packets of the neighbour were answered")

    def tear(self):
        """Take the port's memory away; the neighbour is answered all the same."""
        size = self.chance.choice((0, HEADER_BYTES, HEADER_BYTES + PAGE_BYTES, self.lab.port.total_bytes // 2))
        os.ftruncate(self.lab.port.descriptor, size)

    def close(self):
        """Leave nothing."""
        self.bad.kill()
        self.neighbour.close()
        self.other.unlink()
        self.lab.port.unlink()


def world(seed, cases, tick):
    """Spoil, poll and look so many times; the last tenth with the memory gone."""
    made = World(seed)
    try:
        for number in range(cases):
            if number == cases - cases // 10:
                made.bad.kill()  # by SIGBUS it would end by itself
                made.tear()
            made.one()
            tick()
        row = made.lab.queues.records[0]
        told = f"{row['rx_packets']:,} taken, {row['bad_slots']:,} bad slots, {row['bad_lengths']:,} bad lengths, "
        told += f"{row['rx']['bad_cursors'] + row['tx']['bad_cursors']:,} bad cursors"
        assert made.bad.wait() in (-signal.SIGKILL, 0)
    finally:
        made.close()
    made.lab.worker.run()
    tables.assert_at_rest(made.lab.table)
    return told
