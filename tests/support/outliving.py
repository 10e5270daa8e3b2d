"""Traffic of real clients through the queues of a service, and the ends of its processes: for tests of who outlives whom."""

import os
import select

import numpy as np
import ports
from zonetrack.clients.port import Queue, frames_of
from zonetrack.shm import roster
from zonetrack.shm.layout import DESCRIPTOR

PATIENCE_MS = 60_000
FLOWS = 200
"""Of each queue."""


class Clients:
    """A client of each queue, which asks and answers in the same flows."""

    def __init__(self, instance, queues=2):
        self.queues = [Queue("lab", number, instance) for number in range(queues)]

    def through(self, number, packets):
        """Send packets through a queue; return the ct_state of each, when all have come back."""
        queue, room, said = self.queues[number], np.zeros(1024, DESCRIPTOR), {}
        frames, kept = frames_of(packets)
        sent = 0
        while len(said) < len(packets):
            sent += queue.send(frames[sent:], tag=sent)
            came = room[: queue.receive(room)]
            said.update(zip(came["tag"].tolist(), came["verdict"]["ct_state"].tolist(), strict=True))
            assert len(came) or queue.wait(PATIENCE_MS), "no answer"
        del kept
        return np.array([said[i] for i in range(len(packets))])

    def asked(self):
        """Open flows, or go on with them, through each queue."""
        return np.concatenate([self.through(n, ports.datagrams(FLOWS, n * FLOWS)) for n in range(len(self.queues))])

    def answered(self):
        """Answer in each of them."""
        said = []
        for number in range(len(self.queues)):
            flows = range(number * FLOWS, (number + 1) * FLOWS)
            said.append(self.through(number, [
                ports.udp(b"\x0a\x01\0\x01", b"\x0a\0" + i.to_bytes(2, "big"), 53, 5000, b"answer") for i in flows
            ]))  # fmt: skip
        return np.concatenate(said)

    def close(self):
        """Hang up."""
        for queue in self.queues:
            queue.close()


class Traffic(Clients):
    """Such clients of a service where flows live for an hour, however slow the machine."""

    def __init__(self, service, queues=2):
        with service.ask() as ct:
            ct.timeouts.set("default", {"udp": 3600, "udp_stream": 3600})
        super().__init__(service.instance, queues)


def processes(service):
    """Return the pids on the roster by kind."""
    found = {}
    for place in roster.present(service.table):
        if place.alive:
            found.setdefault(place.kind, set()).add(place.pid)
    return found


def ends(pids):
    """Return descriptors that can be read once processes have ended."""
    return [os.pidfd_open(pid) for pid in pids]


def all_ended(pidfds):
    """Wait until all have."""
    for pidfd in pidfds:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        assert poller.poll(PATIENCE_MS)
        os.close(pidfd)
    return True
