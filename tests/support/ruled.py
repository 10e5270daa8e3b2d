"""Ports whose packets meet rules, in this very process: a table, one worker, a client of each port, and a reference.

The reference knows the same rules as plain values, and a tracker of its own table that is asked one packet at a time.
"""

import itertools
import os
import time

import numpy as np
import tables
from ports import receive
from zonetrack.clients.port import Queue, frames_of
from zonetrack.kernels import burst, poll
from zonetrack.kernels.words import u64
from zonetrack.service import rules_compile, rules_text
from zonetrack.service.rules import Names
from zonetrack.shm import port
from zonetrack.shm.layout import VERDICT, FrameFlag, Kind
from zonetrack.shm.loop import Loop
from zonetrack.shm.queues import Queues
from zonetrack.shm.rulebook import Rulebook

_numbers = itertools.count(1)


class Switch:
    """Some ports called a, b, c, ..., and rules."""

    def __init__(self, ports=2, text="", slots=64, zones=(), connections=500, queues=1, **more):
        self.table = tables.small(connections, **more)
        self.worker = tables.Participant(self.table, Kind.WORKER)
        self.instance = f"switch-{os.getpid()}-{next(_numbers)}"
        self.names = Names({chr(ord("a") + number): number + 1 for number in range(ports)})
        zones = [*zones, *[0] * (ports - len(zones))]
        self.ports = [
            port.create(self.instance, name, queues, zone, slots)
            for name, zone in zip(self.names.ports, zones, strict=True)
        ]
        self.queues = Queues(self.ports)
        self.rules = Rulebook(1)
        self.loop = Loop(self.queues, range(len(self.queues)), self.worker.me, self.rules)
        self.loop.record["sleep_ms"] = 0
        self.clients = {}
        if text:
            self.load(text)

    def load(self, text):
        """Publish rules given as text; returns their number."""
        return self.rules.publish(rules_compile.compile_rules(rules_text.read(text, self.names)))

    def client(self, name, queue=0):
        """Return the client of a port."""
        if (name, queue) not in self.clients:
            self.clients[name, queue] = Queue(name, queue, self.instance)
        return self.clients[name, queue]

    def send(self, name, packets, tag=0, flags=FrameFlag.COMMIT, queue=0):
        """Send packets into a port."""
        frames, kept = frames_of(packets)
        frames["flags"] = flags
        assert self.client(name, queue).send(frames, tag) == len(packets)
        del kept

    def poll(self, now_ms=None, rounds=64):
        """Let the worker work; returns the packets that it took."""
        now_ms = time.monotonic_ns() // 1_000_000 if now_ms is None else now_ms
        return int(poll.poll(self.worker.views, self.loop.record, u64(now_ms), u64(rounds), u64(0)))

    def came(self, name, queue=0):
        """Return what has come out of a port: the answers, DESCRIPTOR[n], and the frames that were output there."""
        descriptors, frames = receive(self.client(name, queue), 256)
        forwarded = descriptors["flags"] & FrameFlag.FORWARDED != 0
        assert not any(len(frame) for frame, out in zip(frames, forwarded, strict=True) if not out)
        return descriptors[~forwarded], [frame for frame, out in zip(frames, forwarded, strict=True) if out]

    def through(self, name, packets, now_ms=None):
        """Send packets into a port, and return their verdicts and what came out of each port."""
        for one in self.names.ports:
            self.client(one)
        self.send(name, packets)
        self.poll(now_ms)
        came = {one: self.came(one) for one in self.names.ports}
        return came[name][0]["verdict"], {one: frames for one, (_, frames) in came.items()}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for client in self.clients.values():
            client.close()
        for one in self.ports:
            one.unlink()


class Tracker:
    """A table of its own, asked one packet at a time: what a ct() is to the reference."""

    def __init__(self, connections=500, **more):
        self.table = tables.small(connections, **more)
        self.me = tables.Participant(self.table)

    def track(self, packet, zone, commit, now_ms, action=0):
        """Return the verdict, VERDICT[1], and the packet as it goes on."""
        frames, kept = frames_of([packet])
        kept = kept.copy()
        frames["address"] = kept.ctypes.data
        frames["zone"], frames["flags"], frames["action"] = zone, FrameFlag.COMMIT if commit else 0, action
        verdicts = np.zeros(1, VERDICT)
        burst.track_burst(self.me.views, u64(frames.ctypes.data), u64(1), u64(now_ms), u64(verdicts.ctypes.data))
        return verdicts[0], kept.tobytes()
