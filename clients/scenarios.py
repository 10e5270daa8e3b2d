"""The scenarios of the load test: what each sends, what one unit of it is, and what the table must hold afterwards.

Each is a list of runs: one packet, or a few in a row, of each connection of a range.  A worker carries out the runs of
``prepare`` first, then, with the clock running, those of ``perform``.  Connection numbers are dealt out so that no two
workers make the same tuple; the zone of a number does not depend on who sends it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..kernels.timeouts import DEFAULTS_MS, Timeout
from ..shm.layout import (
    BURST_PACKETS_MAX,
    DELETE_LIST_MAX,
    ENTRY_BYTES,
    SEGMENT,
    SEGMENT_SLOT_BYTES,
    Region,
)
from ..shm.views import Table
from .traffic import DATA, Packet

ELSEWHERE = 1 << 40
"""First of the connection numbers of which no scenario makes a record."""
STRANGERS = 1 << 32
"""How many of them are drawn from: so many that none comes twice while it would still be in a cache."""


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    threads: int = 1
    connections: int = 1_000_000
    zones: int = 1
    iterations: int = 1
    data_packets: int = 0
    limit: int | None = None
    timeout_ms: int | None = None
    burst: int = 32
    seed: int = 1


class Run(NamedTuple):
    """A range of connection numbers, and the packets that each of them sends."""

    packets: tuple[Packet, Packet]  # first and last, in one go for each burst
    first: int
    count: int
    end: int  # how many to send: all in order, or so many at random
    random: int = 0  # state of the draws, 0: in order
    iteration: int = 0
    sent_bytes: int = 0
    commits: bool = True
    rounds: int = 1  # times that all of it is done; more than one: DATA and its DATA_ACK in turn

    @property
    def packets_count(self) -> int:
        """Packets of the whole run."""
        return self.end * (self.packets[1] - self.packets[0] + 1) * self.rounds


class Scenario(ABC):
    """What there is to know about a scenario; the parameters are its plan."""

    name: str
    unit: str
    unit_packet: Packet
    """The last packet of a unit."""
    floor_lines: int
    """Adjacent lines that it touches, to choose the floor."""
    last_packet: Packet
    """What a connection that has gone through everything may still send ..."""
    last_timeout: Timeout
    """... and the time it has for that."""
    last_iteration = 0
    sent_bytes = 0
    """What the opener of a connection has sent in the end."""
    sweeps = False
    """Whether workers sweep between calls, and connections expire meanwhile."""

    def __init__(self, plan: Plan) -> None:
        """Take the parameters."""
        self.plan = plan

    @property
    def kept(self) -> int:
        """Connections that stand in the table at once, limits aside."""
        return self.plan.connections

    @property
    def held(self) -> int:
        """Connections that stand in the table at once."""
        return min(self.kept, self.limit)

    @property
    def limit(self) -> int:
        """The global limit: just above what is needed, for what is deleted counts until it is freed."""
        if self.plan.limit is not None:
            return self.plan.limit
        return self.kept + (self.plan.threads + 1) * (DELETE_LIST_MAX + BURST_PACKETS_MAX)

    @property
    def timeout_ms(self) -> int:
        """How long a connection stays that has gone through everything."""
        return self.plan.timeout_ms or int(DEFAULTS_MS[self.last_timeout])

    def share(self, index: int) -> tuple[int, int]:
        """Return first number and count of a worker's part of all connections."""
        first = index * self.plan.connections // self.plan.threads
        return first, (index + 1) * self.plan.connections // self.plan.threads - first

    def zone_offset(self, index: int) -> int:
        """Return what must be added to a number of a worker, modulo the zones, to get its zone."""
        return 0

    def prepare(self, index: int) -> Iterator[Run]:
        """Yield the runs of a worker before the clock starts."""
        first, count = self.share(index)
        yield Run((Packet.SYN, Packet.ACK), first, count, count)
        yield Run((Packet.DATA, Packet.ANSWER_ACK), first, count, count)

    @abstractmethod
    def perform(self, index: int) -> Iterator[Run]:
        """Yield the runs of a worker that are measured."""

    @property
    def packets_count(self) -> int:
        """Packets of all runs of all workers."""
        workers = range(self.plan.threads)
        return sum(
            run.packets_count for index in workers for part in (self.prepare, self.perform) for run in part(index)
        )

    @property
    def units(self) -> int:
        """Units of all workers."""
        return sum(run.packets_count for index in range(self.plan.threads) for run in self.perform(index))

    def zone_counts(self) -> np.ndarray:
        """Return how many connections each zone must hold at the end, if none has expired."""
        counts = np.zeros(self.plan.zones, "u8")
        for index in range(self.plan.threads):
            first, count = self.share(index)
            one = np.full(self.plan.zones, count // self.plan.zones, "u8")
            one[: count % self.plan.zones] += 1
            counts += np.roll(one, (first + self.zone_offset(index)) % self.plan.zones)
        return counts

    def touched_bytes(self, table: Table) -> int:
        """Return the bytes of the table that the scenario's packets read at random, those that build it included."""
        return self.held * ENTRY_BYTES + index_bytes(table)


def index_bytes(table: Table) -> int:
    """Return the bytes of the slots of all segments in use."""
    segments = table.array(Region.INDEX, "segments", SEGMENT)
    return int(np.count_nonzero(segments["owner"])) * SEGMENT_SLOT_BYTES


def draws(plan: Plan, index: int) -> int:
    """Return the state, not 0, with which a worker's draws begin."""
    return (plan.seed * 0x9E3779B97F4A7C15 + index * 0xD1B54A32D192ED03 + 1) % (1 << 64) or 1


class Hit(Scenario):
    """Packets of established connections, drawn at random."""

    name = "hit"
    unit = "packet"
    unit_packet = Packet.EITHER
    floor_lines = 4
    last_packet = Packet.ANSWER_ACK
    last_timeout = Timeout.TCP_ESTABLISHED

    def perform(self, index: int) -> Iterator[Run]:
        """Yield one run over all connections, whoever made them."""
        packets = self.share(index)[1] * self.plan.iterations
        yield Run((Packet.EITHER, Packet.EITHER), 0, self.plan.connections, packets, draws(self.plan, index))


class Miss(Hit):
    """Packets that have no connection and make none, in zones that hold others."""

    name = "miss"
    unit_packet = Packet.PROBE
    floor_lines = 2

    def perform(self, index: int) -> Iterator[Run]:
        """Yield one run over numbers that nobody has used."""
        packets = self.share(index)[1] * self.plan.iterations
        probe = (Packet.PROBE, Packet.PROBE)
        yield Run(probe, ELSEWHERE, STRANGERS, packets, draws(self.plan, index), commits=False)


class Handshake(Scenario):
    """Whole conversations, packet i of all connections before packet i + 1, with the same tuples again and again."""

    name = "handshake"
    unit = "connection"
    unit_packet = Packet.LAST_ACK
    floor_lines = 2
    last_packet = Packet.LAST_ACK
    last_timeout = Timeout.TCP_TIME_WAIT

    @property
    def kept(self) -> int:
        """Connections that stand in the table at once: each worker has its own."""
        return self.plan.threads * self.plan.connections

    @property
    def units(self) -> int:
        """Connections of all workers."""
        return self.kept * self.plan.iterations

    def __init__(self, plan: Plan) -> None:
        """Take the parameters."""
        super().__init__(plan)
        self.last_iteration = plan.iterations - 1
        self.sent_bytes = plan.data_packets * len(DATA)

    def share(self, index: int) -> tuple[int, int]:
        """Return first number and count of a worker's connections."""
        return index * self.plan.connections, self.plan.connections

    def zone_offset(self, index: int) -> int:
        """Return what makes connection j of a worker belong to zone j + worker x zones / workers."""
        return (index * self.plan.zones // self.plan.threads - self.share(index)[0]) % self.plan.zones

    def prepare(self, index: int) -> Iterator[Run]:
        """Yield nothing: all connections are made while the clock runs."""
        yield from ()

    def perform(self, index: int) -> Iterator[Run]:
        """Yield a run for each packet of each iteration, and one for all data with its ACKs.

        Each run is begun from Python, so a conversation with much data has no run for each packet of it.
        """
        first, count = self.share(index)
        for iteration in range(self.plan.iterations):
            for packet, sent_bytes, rounds in conversation(self.plan.data_packets):
                yield Run((packet, packet), first, count, count, 0, iteration, sent_bytes, rounds=rounds)


def conversation(data_packets: int) -> Iterator[tuple[Packet, int, int]]:
    """Yield the packets of a conversation, what the opener has sent when its number is written, and rounds."""
    yield from ((packet, 0, 1) for packet in (Packet.SYN, Packet.SYN_ACK, Packet.ACK))
    if data_packets:
        yield Packet.DATA, 0, 2 * data_packets
    sent_bytes = data_packets * len(DATA)
    yield from ((packet, sent_bytes, 1) for packet in (Packet.FIN, Packet.FIN_BACK, Packet.LAST_ACK))


class Scan(Handshake):
    """Short conversations, each with a tuple never used before: the sweep must keep up."""

    name = "scan"
    unit_packet = Packet.RST
    last_packet = Packet.RST
    last_timeout = Timeout.TCP_CLOSE
    sweeps = True

    @property
    def expiry_floor_s(self) -> float:
        """Seconds below which nobody gets who keeps to limit and timeouts.

        What is made within one timeout is all there at its end, so it is no more than the limit.
        """
        return (-(-self.units // self.limit) - 1) * self.timeout_ms / 1_000

    def perform(self, index: int) -> Iterator[Run]:
        """Yield one run: the four packets of a connection in a row, burst by burst."""
        first, count = self.share(index)
        yield Run((Packet.SYN, Packet.RST), first, count, count)


SCENARIOS: dict[str, type[Scenario]] = {scenario.name: scenario for scenario in (Hit, Miss, Handshake, Scan)}
