"""Which connections are meant: what a caller or a command line says, checked and put as the wire has it.

    zone             0 to 65535
    proto            a number, or the name of a protocol
    src, dst, reply_src, reply_dst      an address, or address/prefix
    sport, dport     0 to 65535; ICMP has no ports
    state            of TCP, as ESTABLISHED, in the `ovs` profile of the side which has come further; of SCTP if TCP has
                     no such state, or proto is sctp
    mark             a number, or "value/mask", or (value, mask)
    unreplied        True: only those that no reply was seen of

What is not said does not matter; a filter that says nothing means every connection.  The service applies it in its walk.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from .connections import PEER_STATES, PROTOCOLS, SCTP_STATES, TCP_STATES
from .errors import BadParameterError, UnknownParameterError
from .nearest import hint

U32_MAX = (1 << 32) - 1
U16_MAX = (1 << 16) - 1
U8_MAX = (1 << 8) - 1
STATES = tuple(dict.fromkeys((*TCP_STATES, *PEER_STATES, *SCTP_STATES)))


class Filter(TypedDict, total=False):
    """Keywords of every method that takes a filter."""

    zone: int
    proto: int | str
    src: str
    dst: str
    reply_src: str
    reply_dst: str
    sport: int
    dport: int
    state: str
    mark: int | str | tuple[int, int]
    unreplied: bool


def wire_filter(**wanted: Unpack[Filter]) -> dict[str, Any]:
    """Return a filter as the wire has it; what is None was not said.

    Raises:
        BadParameterError: a value is not of its kind, or out of its range.
        UnknownParameterError: there is nothing of that name to filter by.
    """
    found: dict[str, Any] = {}
    for name, value in wanted.items():
        kind = _KINDS.get(name)
        if kind is None:
            raise UnknownParameterError(f"{name}: not a filter; there are {', '.join(_KINDS)}", {"parameter": name})
        if value is not None:
            try:
                found[name] = kind(value)
            except ValueError as error:
                raise BadParameterError(f"{name}: {error}", {"parameter": name}) from error
    return found


def number(value: Any, highest: int) -> int:
    """Return a number from 0 to the highest; of text, decimal, hexadecimal (0x) or octal (0o)."""
    try:
        found = int(value, 0) if isinstance(value, str) else value
    except ValueError:
        found = None
    if type(found) is not int or not 0 <= found <= highest:
        raise ValueError(f"a number from 0 to {highest}, not {value!r}")
    return found


def u16(value: Any) -> int:
    """Return a zone or port."""
    return number(value, U16_MAX)


def protocol(value: Any) -> int:
    """Return the number of a protocol."""
    for found, name in PROTOCOLS.items():
        if isinstance(value, str) and value.lower() == name:
            return found
    try:
        return number(value, U8_MAX)
    except ValueError:
        near = hint(str(value), PROTOCOLS.values())
        raise ValueError(
            f"a number from 0 to 255, or one of {', '.join(PROTOCOLS.values())}, not {value!r}{near}"
        ) from None


def address(value: Any) -> str:
    """Return an address, or a prefix, in the form that is shown; bits beyond the prefix do not count."""
    text, slash, length = value.partition("/") if isinstance(value, str) else ("", "", "")
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        packed = socket.inet_pton(family, text)
    except OSError:
        raise ValueError(f"an IPv4 or IPv6 address, or address/prefix, not {value!r}") from None
    if not slash:
        return socket.inet_ntop(family, packed)
    bits = 8 * len(packed)
    prefix = number(length if length.isdecimal() else None, bits)
    kept = int.from_bytes(packed, "big") >> (bits - prefix) << (bits - prefix)
    return f"{socket.inet_ntop(family, kept.to_bytes(len(packed), 'big'))}/{prefix}"


def state(value: Any) -> str:
    """Return the name of a state of TCP or SCTP."""
    found = value.upper() if isinstance(value, str) else None
    if found not in STATES:
        raise ValueError(f"one of {', '.join(STATES)}, not {value!r}{hint(str(value).upper(), STATES)}")
    return found


def mark(value: Any) -> list[int]:
    """Return value and mask of a mark; a value alone must be equal in all bits."""
    if isinstance(value, str):
        text, slash, mask = value.partition("/")
        pair = (text, mask if slash else U32_MAX)
    else:
        pair = (value, U32_MAX) if isinstance(value, int) else tuple(value)
    if len(pair) != 2:
        raise ValueError(f"a number, or value and mask, not {value!r}")
    return [number(part, U32_MAX) for part in pair]


def truth(value: Any) -> bool:
    """Return a truth value."""
    if type(value) is not bool:
        raise ValueError(f"True or False, not {value!r}")
    return value


_KINDS: dict[str, Callable[[Any], Any]] = {
    "zone": u16,
    "proto": protocol,
    "src": address,
    "dst": address,
    "reply_src": address,
    "reply_dst": address,
    "sport": u16,
    "dport": u16,
    "state": state,
    "mark": mark,
    "unreplied": truth,
}
