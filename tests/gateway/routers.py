"""Two logical routers (docs/examples/two-routers.rules) in a real service: every connection seen from both ends.

Each host inside opens connections to one server outside, which answers what it sees, through other queues than the packets
came from: so each step of a connection is taken by whichever worker has that queue.  Then hosts outside reach the service
inside.  In the end the table holds two records for each connection, one for each router, and nothing else.
"""

from __future__ import annotations

import itertools
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import checkout
import numpy as np
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from services import Service
from zonetrack.clients.port import Queue, frames_of
from zonetrack.service import audit
from zonetrack.shm.layout import BLOCK_RECORDS, DESCRIPTOR, FRAME_SLOT_BYTES, GLOBAL, FrameFlag, Region

RULES = checkout.ROOT / "docs" / "examples" / "two-routers.rules"
SERVER, PUBLIC = "198.51.100.7", "203.0.113.1"
"""Who is spoken to outside, and as whom."""
SERVICE, REAL = "203.0.113.10", "10.0.0.10"
"""What is reached from outside, and what it really is."""
SLOTS = 16
FLOWS_PER_QUEUE = 2
WAIT_MS = 50
IDLE_MAX = 2000
"""Waits in vain until a packet counts as lost: 100 s."""


@dataclass(frozen=True)
class Report:
    """What went through."""

    workers: int
    queues: int
    connections: int
    packets: int

    def __str__(self) -> str:
        return (
            f"{self.workers} workers on {self.queues} queues: {self.connections} connections through two routers, "
            f"{self.packets} packets, each as it had to be"
        )


def segment(src: str, sport: int, dst: str, dport: int, flags: str, seq: int, ack: int = 0) -> bytes:
    """Return a frame."""
    ethernet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    tcp = TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack, window=9000)
    return bytes(ethernet / IP(src=src, dst=dst) / tcp)


def read(data: bytes) -> Any:
    """Return the IP packet in a frame; its checksums are right."""
    packet = Ether(data)
    again = packet.copy()
    del again[IP].chksum, again[TCP].chksum
    assert bytes(again) == data, "a checksum is wrong"
    return packet[IP]


def ends(packet: Any) -> tuple[str, int, str, int]:
    """Return who sends to whom."""
    return packet.src, packet[TCP].sport, packet.dst, packet[TCP].dport


class Routers:
    """A service with the two routers, and a client of each of its queues."""

    def __init__(self, directory: Path, workers: int, queues: int) -> None:
        """Start it.

        Args:
            directory: for its socket.
            workers: how many.
            queues: of both ports together.
        """
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a descriptor for each queue
        self.workers, self.queues, self.packets = workers, queues, 0
        each = queues // 2
        self.flows = FLOWS_PER_QUEUE * each
        self.service = Service(
            directory,
            *("--workers", workers, "--fresh", "--max-connections", 4 * self.flows + 4 * BLOCK_RECORDS * workers),
            *(f"--port=shm:{name},queues={each},slots={SLOTS}" for name in ("lan", "wan")),
            environment={"ZONETRACK_RULES": str(RULES), "ZONETRACK_EXTENSION_SHARE": "1000"},
        )
        self.clients: dict[str, list[Queue]] = {}

    def __enter__(self) -> Routers:
        self.service.until_ready()
        for name in ("lan", "wan"):
            self.clients[name] = [Queue(name, i, self.service.instance) for i in range(self.queues // 2)]
        return self

    def __exit__(self, *exception: object) -> None:
        for queue in itertools.chain.from_iterable(self.clients.values()):
            queue.close()
        self.service.close()

    # ------------------------------------------------------------------------------------------------ packets
    def _send(self, name: str, shift: int, packets: list[bytes]) -> None:
        """Send packets, so many into each queue, into those ``shift`` places further."""
        queues = self.clients[name]
        for first in range(0, len(packets), FLOWS_PER_QUEUE):
            frames, kept = frames_of(packets[first : first + FLOWS_PER_QUEUE])
            queue = queues[(first // FLOWS_PER_QUEUE + shift) % len(queues)]
            assert queue.send(frames) == len(frames)
            del kept

    def _received(self, name: str) -> Iterator[tuple[np.void, bytes]]:
        """Yield what has come out of a port."""
        answers, frames = np.zeros(SLOTS, DESCRIPTOR), np.zeros((SLOTS, FRAME_SLOT_BYTES), "u1")
        for queue in self.clients[name]:
            for i in range(queue.receive(answers, frames)):
                yield answers[i].copy(), frames[i, : answers["captured_bytes"][i]].tobytes()

    def through(self, name: str, shift: int, packets: list[bytes]) -> list[Any]:
        """Send packets into a port; returns what came out of the other, read."""
        other = {"lan": "wan", "wan": "lan"}[name]
        self._send(name, shift, packets)
        came: list[Any] = []
        answered = idle = 0
        while len(came) < len(packets) or answered < len(packets):
            before = len(came) + answered
            for descriptor, _ in self._received(name):
                assert not descriptor["flags"] & FrameFlag.FORWARDED, "came back to where it was sent"
                assert descriptor["verdict"]["reason"] == 0, descriptor["verdict"]
                answered += 1
            for descriptor, data in self._received(other):
                assert descriptor["flags"] & FrameFlag.FORWARDED
                came.append(read(data))
            if len(came) + answered == before:
                idle += 1
                assert idle < IDLE_MAX, f"{len(packets) - len(came)} of {len(packets)} packets were lost"
                self.clients[other][idle % len(self.clients[other])].wait(WAIT_MS)
        assert len(came) == answered == len(packets)
        self.packets += len(packets)
        return came

    # ------------------------------------------------------------------------------------------------ connections
    def from_inside(self) -> None:
        """Open connections from inside: all have one address outside, and each a port of its own."""
        hosts = [(f"10.1.{f >> 8}.{f & 255}", 4000 + f) for f in range(self.flows)]
        syns = [segment(*host, SERVER, 80, "S", 1000 + f) for f, host in enumerate(hosts)]
        seen = {packet[TCP].seq - 1000: packet for packet in self.through("lan", 0, syns)}
        assert sorted(seen) == list(range(self.flows))
        assert {(packet.src, packet.dst, packet[TCP].dport) for packet in seen.values()} == {(PUBLIC, SERVER, 80)}
        ports = [seen[f][TCP].sport for f in range(self.flows)]
        assert len(set(ports)) == self.flows

        synacks = [segment(SERVER, 80, PUBLIC, port, "SA", 9000 + f, 1001 + f) for f, port in enumerate(ports)]
        for packet in self.through("wan", 1, synacks):
            f = packet[TCP].seq - 9000
            assert ends(packet) == (SERVER, 80, *hosts[f]) and packet[TCP].ack == 1001 + f

        acks = [segment(*host, SERVER, 80, "A", 1001 + f, 9001 + f) for f, host in enumerate(hosts)]
        for packet in self.through("lan", 2, acks):
            assert ends(packet) == (PUBLIC, ports[packet[TCP].seq - 1001], SERVER, 80)

    def from_outside(self) -> None:
        """Open connections from outside to the service inside."""
        hosts = [(f"192.0.{2 + (f >> 8)}.{f & 255}", 5000 + f) for f in range(self.flows)]
        syns = [segment(*host, SERVICE, 80, "S", 1000 + f) for f, host in enumerate(hosts)]
        for packet in self.through("wan", 0, syns):
            assert ends(packet) == (*hosts[packet[TCP].seq - 1000], REAL, 80)
        synacks = [segment(REAL, 80, *host, "SA", 9000 + f, 1001 + f) for f, host in enumerate(hosts)]
        for packet in self.through("lan", 3, synacks):
            assert ends(packet) == (SERVICE, 80, *hosts[packet[TCP].seq - 9000])

    def end(self) -> Report:
        """Stop the service; what it leaves behind is whole, and is what was made."""
        assert len(self.service.workers()) == self.workers
        assert self.service.stop() == 0
        table = self.service.table
        assert audit.at_rest(table) is None
        held = int(table.array(Region.CONTROL, "globals", GLOBAL)["count"][0])
        assert held == 4 * self.flows, f"{held} records, expected {4 * self.flows}"
        return Report(self.workers, self.queues, 2 * self.flows, self.packets)


def run(directory: Path, workers: int, queues: int, say: Callable[[str], object] = lambda line: None) -> Report:
    """Take connections through both routers, both ways; returns what went through."""
    with Routers(directory, workers, queues) as routers:
        say("ready")
        routers.from_inside()
        say("connections from inside")
        routers.from_outside()
        say("connections from outside")
        return routers.end()
