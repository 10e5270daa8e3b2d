"""What a rule is: a table, a priority, what a packet must be like, and what then happens to it.

Values only: how people write them is in `rules_text` and `rules_file`, what workers read in `rules_compile`.  A port's
number counts the ports of the configuration from 1; ``Names`` knows it, and all else that has a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..clients.errors import Exit, ZonetrackError
from ..shm.layout import NO_TABLE, POLICIES_MAX, ZoneFrom

PRIORITY_DEFAULT = 32_768
"""As OpenFlow has it."""
PRIORITY_MAX = 65_535


class RulesError(ZonetrackError):
    """What is wrong with rules, a line for each complaint."""

    exit_code = Exit.FAILED

    def __init__(self, complaints: Iterable[str]) -> None:
        self.complaints = list(complaints)
        super().__init__("\n".join(self.complaints))


class Masked(NamedTuple):
    """A value under a mask."""

    value: int
    mask: int


class Span(NamedTuple):
    """Ports from one to another, both of them meant."""

    low: int
    high: int


Wanted = Masked | Span

BITS = {
    "src": 128,
    "dst": 128,
    "label": 128,
    "mark": 32,
    "zone": 16,
    "in_port": 16,
    "sport": 16,
    "dport": 16,
    "vlan": 13,
    "eth_type": 16,
    "tcp_flags": 12,
    "ct_state": 8,
    "protocol": 8,
    "frag": 2,
}
"""Of each field of FIELDS that a rule can ask for: how many bits of it can be set."""


class Output(NamedTuple):
    """Send it out of a port."""

    port: int


class InPort(NamedTuple):
    """Send it back to where it came from."""


class Normal(NamedTuple):
    """Do what a switch does: learn where it came from, send it where its address was seen, or everywhere."""


class Goto(NamedTuple):
    """Go on with a table; always the last action."""

    table: int


class CtClear(NamedTuple):
    """Forget that it was tracked."""


class Route(NamedTuple):
    """Send it a hop on its way."""

    source: int
    """Ethernet address of the router there."""
    destination: int
    """Of the next hop."""
    address: int
    """Of the router: who errors come from."""
    family: int
    mtu: int = 0
    """Of the next link; 0: whatever the port takes."""


class Answer(NamedTuple):
    """Answer who asks for an address of ours, or pings it."""

    source: int
    """The Ethernet address that has it."""
    address: int
    family: int


class Nat(NamedTuple):
    """What is rewritten: nothing but what was bound before, or a source or destination chosen from ranges."""

    way: str = ""
    """``src``, ``dst``, or nothing."""
    low: int = 0
    high: int = 0
    family: int = 0
    port_low: int = 0
    port_high: int = 0
    flags: tuple[str, ...] = ()


class Ct(NamedTuple):
    """Track it."""

    zone: int = 0
    zone_from: ZoneFrom = ZoneFrom.NUMBER
    commit: bool = False
    force: bool = False
    next_table: int = NO_TABLE
    mark: Masked | None = None
    label: Masked | None = None
    helper: int = 0
    policy: int | None = None
    nat: Nat | None = None


Action = Output | InPort | Normal | Goto | CtClear | Ct | Route | Answer


@dataclass(frozen=True)
class Rule:
    """One rule; without actions it drops."""

    table: int = 0
    priority: int = PRIORITY_DEFAULT
    cookie: int = 0
    match: Mapping[str, Wanted] = field(default_factory=dict)
    """By field of FIELDS; what is not there may be anything."""
    actions: tuple[Action, ...] = ()
    where: str = field(default="", compare=False)
    """Line of the file, for complaints."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What two rules must not both have: a packet could not tell which of them it has met."""
        return self.table, self.priority, tuple(sorted(self.match.items()))


@dataclass
class Names:
    """What words in rules stand for."""

    ports: dict[str, int] = field(default_factory=dict)
    """By name, from 1 in the order of the configuration."""
    policies: Mapping[str, int] = field(default_factory=dict)
    helpers: Mapping[str, int] = field(default_factory=dict)
    is_away: bool = False
    """Whether a port or policy that is not known will do, for rules that are checked away from their service."""

    def port(self, text: str) -> int:
        """Return the number of a port, by number or name.

        Raises:
            ValueError: there is none of that name.
        """
        if text.isdecimal():
            number = int(text)
            if not self.is_away and number not in self.ports.values():
                raise ValueError(f"there is no port {number}: {self._told()}")
            return number
        if text not in self.ports:
            if not self.is_away:
                raise ValueError(f"there is no port {text!r}: {self._told()}")
            self.ports[text] = 1 + max(self.ports.values(), default=0)
        return self.ports[text]

    def _told(self) -> str:
        return ", ".join(f"{number} is {name}" for name, number in self.ports.items()) or "the service has none"

    def port_name(self, number: int) -> str:
        """Return the name of a port, or its number where it has none."""
        return next((name for name, one in self.ports.items() if one == number), str(number))

    def policy(self, text: str) -> int:
        """Return the number of a timeout policy, by number or name."""
        if text.isdecimal() and int(text) < POLICIES_MAX:
            return int(text)
        if self.is_away and text not in self.policies and not text.isdecimal():
            return 0
        return _one(text, self.policies, "timeout policy")

    def helper(self, text: str) -> int:
        """Return the number of a helper by its name."""
        return _one(text, self.helpers, "helper")


def _one(text: str, known: Mapping[str, int], what: str) -> int:
    if text not in known:
        raise ValueError(f"there is no {what} {text!r}: {', '.join(known) or 'none is known'}")
    return known[text]


def name_of(number: int, known: Mapping[str, int]) -> str:
    """Return the name that stands for a number, or the number where none does."""
    return next((name for name, one in known.items() if one == number), str(number))
