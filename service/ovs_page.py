"""The page of docs that is printed from the tables of the `ovs` profile.

    python -m zonetrack.service.ovs_page

``make docs`` writes docs/ovs-states.md with it, and a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product

from ..kernels import ovs_tcp_states
from ..kernels.ovs_flows import TRANSITIONS
from ..kernels.ovs_tcp_states import (
    HANDLINGS,
    ILLEGAL,
    LIFETIMES,
    MOVES,
    OPENINGS,
    Handling,
    Mark,
    Peer,
    lifetime,
    moved,
)
from ..kernels.tcp_states import Flag
from ..kernels.timeouts import DEFAULTS_OVS_S, Timeout
from ..shm.format import enum_lines, table
from ..shm.layout import Way

INTRODUCTION = """# States of the `ovs` profile

Printed from `kernels/ovs_tcp_states.py`, `kernels/ovs_flows.py` and `kernels/timeouts.py` by `make docs`; change it there.

Each side of a TCP connection has a state of its own: `ORIG/REPLY`, the opener's first. A segment can move both, its sender
by what it sends and its receiver by what it acknowledges; what no row mentions changes no state. Whether a segment's numbers
can be right is decided by the windows (`kernels/ovs_tcp.py`).
"""

SEGMENTS = {"ACK": Mark.ACK, "FIN": Mark.FIN | Mark.ACK, "RST": Mark.RST}
"""Columns of the table of new states, beside SYN: an ACK or data, FIN with ACK, RST with or without ACK."""

Pair = tuple[Peer, Peer]


def after(pair: Pair, way: Way, marks: int) -> Pair:
    """Return the states of opener and other side after a segment that travels ``way``."""
    if way is Way.ORIG:
        return moved(*pair, marks)
    sender, receiver = moved(pair[1], pair[0], marks)
    return receiver, sender


def after_syn(pair: Pair, way: Way) -> str:
    """Return what becomes of a connection by a SYN that travels ``way``."""
    sender, receiver = pair if way is Way.ORIG else pair[::-1]
    handling = Handling(int(HANDLINGS[sender, receiver]))
    if handling is Handling.REOPEN:
        return "another"
    if handling is Handling.AGAIN:
        new = (Peer.SYN_SENT, receiver)
        return f"new, {named(new if way is Way.ORIG else (receiver, Peer.SYN_SENT))}"
    return named(after(pair, way, 0))


def reached() -> list[Pair]:
    """Return all pairs of states that a connection can be in, in the order of their numbers."""
    found: set[Pair] = set()
    left: list[Pair] = [(Peer.SYN_SENT, Peer.CLOSED)]
    while left:
        pair = left.pop()
        if pair not in found:
            found.add(pair)
            left += [after(pair, way, marks) for way, marks in product(Way, range(8))]
            if HANDLINGS[pair[1], pair[0]] == Handling.AGAIN:
                left.append((pair[0], Peer.SYN_SENT))
    return sorted(found)


def named(pair: Pair) -> str:
    """Return ORIG/REPLY."""
    return "/".join(peer.name for peer in pair)


def matrix() -> Iterator[str]:
    """Yield the table of new states: a row for each pair of states, a column for each segment of each side."""
    columns = [(way, name) for way in Way for name in ("SYN", *SEGMENTS)]
    rows = []
    for pair in reached():
        cells = [
            after_syn(pair, way) if name == "SYN" else named(after(pair, way, SEGMENTS[name])) for way, name in columns
        ]
        timeout = lifetime(*pair)
        rows.append(
            (named(pair), f"{DEFAULTS_OVS_S[timeout]:,} s", *("" if cell == named(pair) else cell for cell in cells))
        )
    yield from table(("states", "silent", *(f"{'><'[way]} {name}" for way, name in columns)), rows)


def _span(bounds: Pair) -> str:
    return bounds[0].name if bounds[0] is bounds[1] else f"{bounds[0].name} to {bounds[1].name}"


def _flags(flags: int) -> str:
    return " ".join(flag.name for flag in Flag if flags & flag)


def _seconds(timeout: Timeout) -> str:
    return f"{timeout.name.lower()}, {DEFAULTS_OVS_S[timeout]:,} s"


def lines() -> Iterator[str]:
    """Yield the lines of docs/ovs-states.md."""
    yield INTRODUCTION
    yield "## TCP: moves"
    yield ""
    moves = (
        (row.side.name, row.mark.name if row.mark else "any", row.old.name, row.new.name, row.why) for row in MOVES
    )
    yield from table(("whose", "segment", "from", "to", "why"), moves)
    yield "## TCP: new states"
    yield ""
    yield "`>` from the side that opened the connection, `<` from the other; an empty cell: nothing changes."
    yield "`new`: so is the packet; `another`: the SYN opens another connection. `silent` is how long the connection may"
    yield f"be, once a segment has led there; after a SYN alone {_seconds(Timeout.TCP_SYN_SENT)}."
    yield ""
    yield from matrix()
    yield "## TCP: a SYN"
    yield ""
    openings = ((_span(row.sender), _span(row.receiver), row.handling.name, row.why) for row in OPENINGS)
    yield from table(("its sender", "its receiver", "then", "why"), openings)
    yield from enum_lines(ovs_tcp_states, Handling)
    yield "## TCP: how long"
    yield ""
    lifetimes = ((_span(row.lower), _span(row.higher), _seconds(row.timeout), row.why) for row in LIFETIMES)
    yield "The first row that fits."
    yield ""
    yield from table(("lower state", "higher state", "timeout", "why"), lifetimes)
    yield "## TCP: flags that no host sends"
    yield ""
    yield from table(("with", "without", "why"), ((_flags(row.has), _flags(row.lacks), row.why) for row in ILLEGAL))
    yield "## All other protocols"
    yield ""
    yield "ICMP is QUERY; all else, UDP too, is OTHER."
    yield ""
    flows = (
        (
            row.kind.name,
            row.old.name,
            " ".join(way.name for way in row.ways),
            row.new.name,
            _seconds(row.timeout),
            "new" if row.is_new else "est",
            row.why,
        )
        for row in TRANSITIONS
    )
    yield from table(("kind", "state", "way", "new state", "timeout", "packet", "why"), flows)


def page() -> str:
    """Return docs/ovs-states.md as text."""
    return "\n".join(lines()).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
