"""Filters: which connections a client means, from the map that comes over the wire to the FILTER that a walk compares.

    zone             number
    proto            name or number
    src, dst         address or prefix, of who opened the connection and of the other side
    reply_src, reply_dst  likewise, of the reply's tuple
    sport, dport     number
    state            name of a TCP state, as it is shown; of an SCTP state where proto says so, or TCP has none of that name
    mark             number, [value, mask], or the text value/mask
    unreplied        true: only those to which nobody has answered

All that are given must hold.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..clients.connections import COALESCED, PEER_STATES, PROTOCOLS, SCTP_STATES, TCP_STATES
from ..clients.errors import BadParameterError, UnknownParameterError
from ..shm.layout import FILTER, Status
from .parameters import bad, flag, hint, nearest, whole, zone

NUMBERS = {name: number for number, name in PROTOCOLS.items()}
TCP, SCTP = NUMBERS["tcp"], NUMBERS["sctp"]
ADDRESSES = ("src", "dst", "reply_src", "reply_dst")
STATES: dict[int, dict[str, tuple[int, int]]] = {
    TCP: {
        name: (
            1 << TCP_STATES.index(name) if name in TCP_STATES else 0,
            sum(1 << number for number, peer in enumerate(PEER_STATES) if name in (peer, COALESCED.get(peer))),
        )
        for name in dict.fromkeys((*TCP_STATES, *PEER_STATES))
    },
    SCTP: {name: (1 << number, 0) for number, name in enumerate(SCTP_STATES)},
}
"""By protocol, the states of a name as bit sets: of the `netfilter` profile, and in `ovs` the higher of both sides'."""
_FAMILY_SHIFT, _PROTOCOL_SHIFT, _ZONE_SHIFT = 0, 8, 16
_WORD = (1 << 64) - 1
_port = whole(0, 0xFFFF)
_protocol_number = whole(0, 0xFF)
_u32 = whole(0, 0xFFFFFFFF)


class Wanted(NamedTuple):
    """Which connections are meant."""

    record: np.record
    """The FILTER."""
    names: frozenset[str]
    """What of them is said; nothing: all are meant."""
    zone: int | None

    @property
    def is_counted(self) -> bool:
        """Whether the table keeps a count of just these."""
        return self.names <= {"zone"}


def read(name: str, value: Any) -> Wanted:
    """Read a filter.

    Raises:
        UnknownParameterError: there is nothing of such a name to filter by.
        BadParameterError: a value will not do, or no connection could have them all.
    """
    if type(value) is not dict:
        raise bad(name, "a map", value)
    wanted = np.zeros(1, FILTER).view(np.recarray)[0]
    for key, one in sorted(value.items(), key=lambda item: item[0] == "state"):  # proto says whose state it is
        if key not in READERS:
            near = nearest(key, READERS)
            raise UnknownParameterError(
                f"{name} has no {key[:100]!r}{hint(near)}", {"parameter": f"{name}.{key[:100]}"} | near
            )
        READERS[key](wanted, f"{name}.{key}", one)
    return Wanted(wanted, frozenset(value), value.get("zone"))


def _say(wanted: np.record, name: str, shift: int, mask: int, value: int) -> None:
    """Write a part of the key's last word."""
    before, known = int(wanted["last"]), int(wanted["last_mask"]) >> shift & mask
    if known and before >> shift & mask != value:
        raise BadParameterError(f"{name}: no connection can be all that was asked for", {"parameter": name})
    wanted["last"] = before | value << shift
    wanted["last_mask"] = int(wanted["last_mask"]) | mask << shift


def _zone(wanted: np.record, name: str, value: Any) -> None:
    _say(wanted, name, _ZONE_SHIFT, 0xFFFF, zone(name, value))


def _proto(wanted: np.record, name: str, value: Any) -> None:
    if type(value) is str:
        number = NUMBERS.get(value.lower(), -1)
        if number < 0:
            raise bad(name, f"one of {', '.join(NUMBERS)}, or a number", value)
    else:
        number = _protocol_number(name, value)
    _say(wanted, name, _PROTOCOL_SHIFT, 0xFF, number)


def _address(place: int) -> Callable[[np.record, str, Any], None]:
    def read_address(wanted: np.record, name: str, value: Any) -> None:
        try:
            network = ipaddress.ip_network(value if type(value) is str else "", strict=False)
        except ValueError:
            raise bad(name, "an IPv4 or IPv6 address or prefix", value) from None
        _say(wanted, name, _FAMILY_SHIFT, 0xFF, network.version)
        for field, number in (("address", int(network.network_address)), ("address_mask", int(network.netmask))):
            wanted[field][2 * place], wanted[field][2 * place + 1] = number >> 64, number & _WORD

    return read_address


def _ports(shift: int) -> Callable[[np.record, str, Any], None]:
    def read_port(wanted: np.record, name: str, value: Any) -> None:
        wanted["ports"] = int(wanted["ports"]) | _port(name, value) << shift
        wanted["ports_mask"] = int(wanted["ports_mask"]) | 0xFFFF << shift

    return read_port


def _state(wanted: np.record, name: str, value: Any) -> None:
    word = value.upper() if type(value) is str else ""
    is_sctp = int(wanted["last"]) >> _PROTOCOL_SHIFT & int(wanted["last_mask"]) >> _PROTOCOL_SHIFT & 0xFF == SCTP
    for protocol in (SCTP, TCP) if is_sctp else (TCP, SCTP):
        if word in STATES[protocol]:
            _say(wanted, name, _PROTOCOL_SHIFT, 0xFF, protocol)
            wanted["states"], wanted["ovs_states"] = STATES[protocol][word]
            return
    raise bad(name, f"a state of TCP, one of {', '.join(STATES[TCP])}, or of SCTP", value)


def _mark(wanted: np.record, name: str, value: Any) -> None:
    parts = value
    if type(value) is str:
        try:
            parts = [int(part, 0) for part in value.split("/")]
        except ValueError:
            raise bad(name, "a number, or value/mask", value) from None
    elif type(value) is not list:
        parts = [value]
    if not 1 <= len(parts) <= 2:
        raise bad(name, "a number, or a value and a mask", value)
    number, mask = _u32(name, parts[0]), _u32(name, parts[1]) if len(parts) == 2 else 0xFFFFFFFF
    wanted["mark"], wanted["mark_mask"] = number & mask, mask


def _unreplied(wanted: np.record, name: str, value: Any) -> None:
    if flag(name, value):
        wanted["status_mask"] = Status.SEEN_REPLY


READERS: dict[str, Callable[[np.record, str, Any], None]] = {
    "zone": _zone,
    "proto": _proto,
    **{name: _address(place) for place, name in enumerate(ADDRESSES)},
    "sport": _ports(16),
    "dport": _ports(0),
    "state": _state,
    "mark": _mark,
    "unreplied": _unreplied,
}
EVERYTHING = read("filter", {})
