"""A port whose service runs in this very process: a table, a worker's loop, and clients."""

import faulthandler
import itertools
import os
import time

import forked
import numpy as np
import tables
from zonetrack.clients.port import Queue, frames_of
from zonetrack.kernels import poll
from zonetrack.kernels.words import u64
from zonetrack.service.ports import torn
from zonetrack.shm import port
from zonetrack.shm.layout import DESCRIPTOR, FRAME_SLOT_BYTES, RING, Kind
from zonetrack.shm.loop import Loop
from zonetrack.shm.queues import Queues

_numbers = itertools.count(1)


def datagrams(count, first=0, payload=b"hello", sport=5000):
    """Return UDP packets, each of a connection of its own: Ethernet, IPv4, checksums right or left out."""
    return [
        udp(b"\x0a\0" + (first + i).to_bytes(2, "big"), b"\x0a\x01\0\x01", sport, 53, payload) for i in range(count)
    ]


def udp(src, dst, sport, dport, payload=b""):
    """Return a UDP datagram as a frame; its UDP checksum is left out, as RFC 768 allows."""
    words = sport.to_bytes(2, "big") + dport.to_bytes(2, "big") + (8 + len(payload)).to_bytes(2, "big") + b"\0\0"
    head = b"\x45\0" + (28 + len(payload)).to_bytes(2, "big") + b"\0\0\x40\0\x40\x11\0\0" + src + dst
    total = sum(int.from_bytes(head[i : i + 2], "big") for i in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return bytes.fromhex("020000000002 020000000001 0800") + (
        head[:10] + checksum.to_bytes(2, "big") + head[12:] + words + payload
    )


class Lab:
    """A port named lab, the table behind it, and one worker that polls all its queues when told."""

    def __init__(self, queues=1, slots=8, zone=0, connections=2000):
        self.table = tables.small(connections)
        self.worker = tables.Participant(self.table, Kind.WORKER)
        self.instance = f"lab-{os.getpid()}-{next(_numbers)}"
        self.port = port.create(self.instance, "lab", queues, zone, slots)
        self.queues = Queues([self.port])
        self.loop = Loop(self.queues, range(queues), self.worker.me)
        self.loop.record["sleep_ms"] = 0  # what has nothing to do returns at once

    def poll(self, rounds=64, sweep_slots=0, now_ms=None):
        """Let the worker work; returns the packets that it took."""
        now_ms = time.monotonic_ns() // 1_000_000 if now_ms is None else now_ms
        return int(poll.poll(self.worker.views, self.loop.record, u64(now_ms), u64(rounds), u64(sweep_slots)))

    def client(self, queue=0):
        """Return a client of a queue."""
        return Queue("lab", queue, self.instance)

    def ring(self, side, queue=0):
        """Return the RING of a queue, which anybody may write."""
        place = self.port.extent.ring(queue, side)[0]
        return self.port.memory[place : place + RING.itemsize].view(RING)[0]

    def descriptors(self, side, queue=0):
        """Return the descriptors of a ring, DESCRIPTOR[slots], which anybody may write."""
        place = self.port.extent.ring(queue, side)[1]
        return self.port.memory[place : place + self.port.slots * DESCRIPTOR.itemsize].view(DESCRIPTOR)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.port.unlink()


def send(client, packets, tag=0):
    """Send packets; returns how many went."""
    frames, kept = frames_of(packets)
    sent = client.send(frames, tag)
    del kept
    return sent


def receive(client, count=64):
    """Receive what there is, DESCRIPTOR[n] and the bytes of each."""
    answers, frames = np.zeros(count, DESCRIPTOR), np.zeros((count, FRAME_SLOT_BYTES), "u1")
    came = client.receive(answers, frames)
    return answers[:came], [
        bytes(frame[:length]) for frame, length in zip(frames, answers["captured_bytes"][:came].tolist(), strict=False)
    ]


def working(lab):
    """Return a child process that polls a lab's queues until it is killed, or nobody is left to kill it."""

    def work(child):
        faulthandler.disable()  # some are made to die
        torn.mend(lab.port.memory)
        lab.loop = Loop(lab.queues, range(len(lab.queues)), lab.worker.me)
        parent = os.getppid()
        lab.poll()
        child.say("polls")
        while os.getppid() == parent:
            lab.poll()

    child = forked.Child(work)
    assert child.hear() == "polls"
    return child
