"""The scenarios of translated traffic: which trips each makes, one after the other, and what the table must hold then.

nat     a connection's SYN gets another source, from a range of addresses and ports; then its answer comes back
unnat   a packet goes through two logical routers: what un-translates finds nothing, then one translates its
        destination, the other its source; each of the zones holds as many connections
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

import numpy as np

from ..kernels.timeouts import DEFAULTS_MS, Timeout
from ..shm.layout import ACTION, CtState, Nat
from .trips import Leg, Stage

NAT_FIRST = int(ip_address("100.64.0.1"))
"""First of the addresses that sources get (RFC 6598: of nobody)."""
REAL, REAL_PORT = "172.16.0.10", 80
"""The server behind the one that all write to."""
UNNAT_ADDRESSES = 61
LOW_PORT, HIGH_PORT = 1024, 65_535
_NEW, _EST = CtState.TRK | CtState.NEW, CtState.TRK | CtState.EST
_RPL = _EST | CtState.RPL


@dataclass(frozen=True)
class NatPlan:
    """What was asked for."""

    threads: int = 1
    connections: int = 1_000_000
    addresses: int = 61
    ports: tuple[int, int] = (LOW_PORT, HIGH_PORT)
    fill: int = 0
    iterations: int = 1
    expectations: int = 0
    burst: int = 32
    seed: int = 1


class Phase(NamedTuple):
    """A packet of each of some connections, through some stages."""

    name: str  # of its figure, ns_per_<name>; "" when it only prepares
    leg: Leg
    stages: Sequence[Stage]
    first: int
    count: int
    packets: int = 0  # drawn at random; 0: one of each, in order
    keeps: bool = False  # how they come out is kept


def action(nat: int, address: int = 0, count: int = 1, ports: tuple[int, int] = (0, 0)) -> np.ndarray:
    """Return what a rule asks: ACTION[1]."""
    made = np.zeros(1, ACTION)
    made["nat"] = Nat.APPLY | nat
    if address:
        made["nat_first"], made["nat_last"] = (0, address), (0, address + count - 1)
    made["nat_ports"] = ports
    return made


class NatScenario(ABC):
    """What there is to know about a scenario; the parameters are its plan."""

    name: str
    unit: str
    """The phase whose figure is held against the floor."""
    last_timeout: Timeout
    """How long a connection stays that has gone through everything."""

    def __init__(self, plan: NatPlan) -> None:
        """Take the parameters."""
        self.plan = plan
        self.apply = action(0)

    @property
    @abstractmethod
    def zone_counts(self) -> list[int]:
        """How many connections each zone holds in the end, where no port ran out."""

    @property
    @abstractmethod
    def translated(self) -> int:
        """How many of them have a tuple of their own for their answers."""

    @abstractmethod
    def phases(self, index: int) -> Sequence[Phase]:
        """Return what a worker does, one phase after the other."""

    @property
    @abstractmethod
    def again(self) -> tuple[Leg, Sequence[Stage]]:
        """The packet, and its stages, by which a connection is looked up in the end; it makes none."""

    @property
    def timeout_ms(self) -> int:
        """How long a connection stays that has gone through everything."""
        return int(DEFAULTS_MS[self.last_timeout])

    @property
    def held(self) -> int:
        """Connections in the table at once."""
        return sum(self.zone_counts)

    def share(self, index: int) -> tuple[int, int]:
        """Return first number and count of a worker's part of all connections."""
        first = index * self.plan.connections // self.plan.threads
        return first, (index + 1) * self.plan.connections // self.plan.threads - first

    @property
    def packets_count(self) -> int:
        """Packets of all phases of all workers."""
        return sum(phase.packets or phase.count for index in range(self.plan.threads) for phase in self.phases(index))

    def figures(self, ns_of: Callable[[str], float]) -> dict[str, float]:
        """Return the figures that only this scenario has; ``ns_of`` tells what a packet of a phase took."""
        return {}


class NatCommits(NatScenario):
    """Connections to one server, each with a port of its own on one of some addresses; then their answers."""

    name = "nat"
    unit = "connection"
    last_timeout = Timeout.TCP_SYN_RECV

    def __init__(self, plan: NatPlan) -> None:
        """Take the parameters."""
        super().__init__(plan)
        self.source = action(Nat.SOURCE, NAT_FIRST, plan.addresses, plan.ports)

    @property
    def ports(self) -> int:
        """Ports of all addresses together."""
        return self.plan.addresses * (self.plan.ports[1] - self.plan.ports[0] + 1)

    @property
    def filled(self) -> int:
        """Ports that are taken before anything is measured."""
        return self.ports * self.plan.fill // 100

    @property
    def zone_counts(self) -> list[int]:
        """All are in one zone."""
        return [self.filled if self.plan.fill else self.plan.connections]

    @property
    def translated(self) -> int:
        """All are."""
        return self.zone_counts[0]

    @property
    def commit(self) -> Stage:
        """The stage that gives a connection its source."""
        return Stage(0, _NEW | CtState.SNAT, True, True, self.source)

    def phases(self, index: int) -> list[Phase]:
        """Make the connections, then answer each."""
        first, count = self.share(index)
        return [
            Phase("connection", Leg.SYN, (self.commit,), first, count, keeps=True),
            Phase(
                "reply", Leg.SYN_ACK, (Stage(0, _RPL | CtState.DNAT, True, False, self.apply),), first, count, 0, True
            ),
        ]

    @property
    def again(self) -> tuple[Leg, Sequence[Stage]]:
        """What the opener says to the answer."""
        return Leg.ACK, (Stage(0, _EST | CtState.SNAT, True, False, self.apply),)


class Unnat(NatScenario):
    """Packets through UNSNAT, DNAT, UNDNAT, SNAT of two routers, as OVN builds them."""

    name = "unnat"
    unit = "packet"
    last_timeout = Timeout.TCP_ESTABLISHED
    MISSING = (0, 1, 2, 3)
    """Zones in which its packets find nothing: UNSNAT and UNDNAT of both routers."""
    DNAT, SNAT = 4, 5

    def __init__(self, plan: NatPlan) -> None:
        """Take the parameters."""
        super().__init__(plan)
        real = int(ip_address(REAL))
        self.destination = action(Nat.DESTINATION, real, 1, (REAL_PORT, REAL_PORT))
        self.source = action(Nat.SOURCE, NAT_FIRST, UNNAT_ADDRESSES, (LOW_PORT, HIGH_PORT))

    @property
    def zone_counts(self) -> list[int]:
        """Each zone holds as many."""
        return [self.plan.connections] * (len(self.MISSING) + 2)

    @property
    def translated(self) -> int:
        """Those of the two zones that translate."""
        return 2 * self.plan.connections

    @property
    def missing(self) -> list[Stage]:
        """The stages that find nothing."""
        return [Stage(zone, _NEW, False, False, self.apply) for zone in self.MISSING]

    def forward(self, ct_state: int) -> list[Stage]:
        """Return the way out: UNSNAT, DNAT, UNDNAT of the first router, UNSNAT, UNDNAT, SNAT of the second."""
        unsnat, undnat, *second = self.missing
        dnat = Stage(self.DNAT, ct_state | CtState.DNAT, True, True, self.destination)
        snat = Stage(self.SNAT, ct_state | CtState.SNAT, True, True, self.source)
        return [unsnat, dnat, undnat, *second, snat]

    @property
    def back(self) -> list[Stage]:
        """The way home: what was translated last is undone first."""
        return [
            Stage(self.SNAT, _RPL | CtState.DNAT, True, False, self.apply),
            Stage(self.DNAT, _RPL | CtState.SNAT, True, False, self.apply),
        ]

    def phases(self, index: int) -> list[Phase]:
        """Fill the zones, establish the connections, then send packets of any of them."""
        first, count = self.share(index)
        packets = count * self.plan.iterations
        others = [
            Phase("", Leg.SYN, (Stage(zone, _NEW, True, True),), (1 + zone << 32) + first, count)
            for zone in self.MISSING
        ]
        return [
            *others,
            Phase("", Leg.SYN, self.forward(_NEW), first, count, keeps=True),
            Phase("", Leg.SYN_ACK, self.back, first, count, keeps=True),
            Phase("", Leg.ACK, self.forward(_EST), first, count, keeps=True),
            Phase("packet", Leg.ACK, self.forward(_EST), 0, self.plan.connections, packets),
            Phase("miss", Leg.ACK, self.missing, 0, self.plan.connections, packets),
        ]

    @property
    def again(self) -> tuple[Leg, Sequence[Stage]]:
        """A packet by the way out."""
        return Leg.ACK, self.forward(_EST)

    def figures(self, ns_of: Callable[[str], float]) -> dict[str, float]:
        """Return what one of the stages takes that find nothing."""
        return {"ns_per_miss_stage": ns_of("miss") / len(self.MISSING)}


NAT_SCENARIOS: dict[str, type[NatScenario]] = {scenario.name: scenario for scenario in (NatCommits, Unnat)}
