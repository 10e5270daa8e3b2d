"""Devices as ports, in this very process: a table, one worker, the rules, and whatever frames a test sends there."""

import contextlib
import itertools
import os
import time

import tables
from eventually import until
from wires import Wires, run
from zonetrack.clients.port import Queue
from zonetrack.kernels import poll
from zonetrack.kernels.words import u64
from zonetrack.service import rules_compile, rules_text
from zonetrack.service.ports.packet import PacketPort
from zonetrack.service.rules import Names
from zonetrack.shm import port
from zonetrack.shm.layout import Kind
from zonetrack.shm.loop import Loop
from zonetrack.shm.queues import Queues
from zonetrack.shm.rulebook import Rulebook

_numbers = itertools.count(1)


class Devices:
    """Ports that were opened, the rules that their packets meet, and one worker."""

    run = staticmethod(run)

    def __init__(self, ports, text="", connections=500):
        self.house = contextlib.ExitStack()
        self.ports = [self.house.enter_context(one) for one in ports]
        self.table = tables.small(connections)
        self.worker = tables.Participant(self.table, Kind.WORKER)
        self.rules = Rulebook(1)
        self.queues = Queues(self.ports)
        self.take_over()
        if text:
            self.publish(text)

    def publish(self, text):
        """Have rules hold."""
        names = Names({made.name: number + 1 for number, made in enumerate(self.ports)})
        self.rules.publish(rules_compile.compile_rules(rules_text.read(text, names)))

    def take_over(self):
        """Be the next worker, where the one before is dead."""
        self.loop = Loop(self.queues, range(len(self.queues)), self.worker.me, self.rules)
        self.loop.record["sleep_ms"] = 5

    def poll(self, rounds=64):
        """Let the worker work; returns the packets that it took."""
        now_ms = time.monotonic_ns() // 1_000_000
        return int(poll.poll(self.worker.views, self.loop.record, u64(now_ms), u64(rounds), u64(0)))

    def take(self, count):
        """Let the worker work until it took so many packets."""
        taken = 0

        def enough():
            nonlocal taken
            taken += self.poll()
            return taken >= count

        until(enough, lambda: f"only {taken} of {count} packets came")
        return taken

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.house.close()


class Gateway(Devices):
    """Interfaces called near0, near1, ... at whose other ends a test is, and ports in shared memory with clients of it."""

    def __init__(self, ports=1, text="", connections=500, shared=(), mtu=1500, **options):
        self.wires = Wires(ports, mtu)
        self.instance = f"gateway-{os.getpid()}-{next(_numbers)}"
        try:
            opened = [PacketPort(f"near{number}", **options) for number in range(ports)]
            opened += [port.create(self.instance, name, slots=64) for name in shared]
            super().__init__(opened, text, connections)
        except BaseException:
            self.wires.__exit__()
            raise
        self.house.enter_context(self.wires)

    def client(self, name):
        """Return the client of a port in shared memory."""
        return self.house.enter_context(Queue(name, 0, self.instance))
