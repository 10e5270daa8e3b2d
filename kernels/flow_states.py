"""States of what has no states of its own (UDP, ICMP queries, any other protocol): who has been heard, and for how long.

    UNREPLIED  only the opener was heard           STREAM  both were, and it goes on: assured
    REPLIED    both were

A flow is *settled* two seconds after it began: a question and its answer are over by then, a conversation is not.  What
one side keeps sending to nobody may be told to end, however often it comes (UDP_ONE_WAY_MAX).
As in kernels/tcp_states the rows are all there is; a kernel only indexes FLOWS.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..shm.layout import ENTRY, Status, Way
from . import outcome
from .jit import inlined
from .memory import record_at
from .timeouts import Timeout
from .words import EIGHT, LOW_8, SIXTEEN, ZERO, u64

SETTLED_MS = u64(2000)


class Flow(IntEnum):
    """State of a tracked flow; ENTRY.state."""

    NONE = 0
    UNREPLIED = 1
    REPLIED = 2
    STREAM = 3


class FlowKind(IntEnum):
    """Which rows a protocol follows."""

    PLAIN = 0
    DATAGRAM = 1  # UDP, UDP-Lite
    QUERY = 2  # ICMP
    QUERY6 = 3  # ICMPv6
    TUNNEL = 4  # GRE


class Transition(NamedTuple):
    """In state ``old``, a packet travelling one of ``ways`` leads to ``new``, and the flow lives on for ``timeout``."""

    kind: FlowKind
    old: Flow
    ways: tuple[Way, ...]
    settled: tuple[bool, ...]
    new: Flow
    timeout: Timeout
    why: str


_ORIG, _REPLY = (Way.ORIG,), (Way.REPLY,)
_EITHER = tuple(Way)
_YOUNG, _OLD, _ANY = (False,), (True,), (False, True)
_K, _F, _T = FlowKind, Flow, Timeout

# fmt: off
_ROWS = (
    # kind         from          way      settled to            timeout        why
    (_K.DATAGRAM, _F.NONE,      _ORIG,   _ANY,   _F.UNREPLIED, _T.UDP,        "opened"),
    (_K.DATAGRAM, _F.UNREPLIED, _ORIG,   _ANY,   _F.UNREPLIED, _T.UDP,        "RFC 4787 REQ-6: outbound refresh"),
    (_K.DATAGRAM, _F.UNREPLIED, _REPLY,  _ANY,   _F.REPLIED,   _T.UDP,        "the answer, perhaps all there is"),
    (_K.DATAGRAM, _F.REPLIED,   _EITHER, _YOUNG, _F.REPLIED,   _T.UDP,        "more of the answer"),
    (_K.DATAGRAM, _F.REPLIED,   _EITHER, _OLD,   _F.STREAM,    _T.UDP_STREAM, "RFC 4787 REQ-5: a conversation"),
    (_K.DATAGRAM, _F.STREAM,    _EITHER, _ANY,   _F.STREAM,    _T.UDP_STREAM, "it goes on"),

    (_K.QUERY,    _F.NONE,      _ORIG,   _ANY,   _F.UNREPLIED, _T.ICMP,       "a request"),
    (_K.QUERY,    _F.UNREPLIED, _ORIG,   _ANY,   _F.UNREPLIED, _T.ICMP,       "a further request, same id"),
    (_K.QUERY,    _F.UNREPLIED, _REPLY,  _ANY,   _F.REPLIED,   _T.ICMP,       "RFC 5508 REQ-1: the answer"),
    (_K.QUERY,    _F.REPLIED,   _EITHER, _ANY,   _F.REPLIED,   _T.ICMP,       "more of both; duplicates are common"),

    (_K.QUERY6,   _F.NONE,      _ORIG,   _ANY,   _F.UNREPLIED, _T.ICMPV6,     "a request"),
    (_K.QUERY6,   _F.UNREPLIED, _ORIG,   _ANY,   _F.UNREPLIED, _T.ICMPV6,     "a further request, same id"),
    (_K.QUERY6,   _F.UNREPLIED, _REPLY,  _ANY,   _F.REPLIED,   _T.ICMPV6,     "RFC 4443 4.2: the answer"),
    (_K.QUERY6,   _F.REPLIED,   _EITHER, _ANY,   _F.REPLIED,   _T.ICMPV6,     "more of both"),

    (_K.TUNNEL,   _F.NONE,      _ORIG,   _ANY,   _F.UNREPLIED, _T.GRE,        "opened"),
    (_K.TUNNEL,   _F.UNREPLIED, _ORIG,   _ANY,   _F.UNREPLIED, _T.GRE,        "still one-way"),
    (_K.TUNNEL,   _F.UNREPLIED, _REPLY,  _ANY,   _F.REPLIED,   _T.GRE,        "both ends are there"),
    (_K.TUNNEL,   _F.REPLIED,   _EITHER, _ANY,   _F.STREAM,    _T.GRE_STREAM, "in use both ways"),
    (_K.TUNNEL,   _F.STREAM,    _EITHER, _ANY,   _F.STREAM,    _T.GRE_STREAM, "it goes on"),

    (_K.PLAIN,    _F.NONE,      _ORIG,   _ANY,   _F.UNREPLIED, _T.GENERIC,    "opened"),
    (_K.PLAIN,    _F.UNREPLIED, _ORIG,   _ANY,   _F.UNREPLIED, _T.GENERIC,    "still one-way"),
    (_K.PLAIN,    _F.UNREPLIED, _REPLY,  _ANY,   _F.REPLIED,   _T.GENERIC,    "both were heard"),
    (_K.PLAIN,    _F.REPLIED,   _EITHER, _ANY,   _F.REPLIED,   _T.GENERIC,    "nothing is known to tell more"),
)
# fmt: on
TRANSITIONS: tuple[Transition, ...] = tuple(Transition(*row) for row in _ROWS)

FLOWS_SHAPE = (8, 4, 2, 2)
"""Kinds, states, ways, settled or not; powers of two, so that even a torn state indexes inside."""


def cap(row: Transition) -> Timeout:
    """Return the cap of a transition's timeout; the same again where there is none."""
    return Timeout.UDP_ONE_WAY_MAX if row.kind is FlowKind.DATAGRAM and row.new is Flow.UNREPLIED else row.timeout


def compile_transitions(rows: tuple[Transition, ...]) -> NDArray[np.uint32]:
    """Return FLOWS[kind, state, way, settled]: new state | Timeout << 8 | its cap << 16; 0: no row."""
    flows = np.zeros(FLOWS_SHAPE, np.uint32)
    for row in rows:
        for way in row.ways:
            for settled in row.settled:
                cell = (row.kind, row.old, way, int(settled))
                assert flows[cell] == 0, f"two rows for {cell}"
                flows[cell] = row.new | row.timeout << 8 | cap(row) << 16
    flows.setflags(write=False)
    return flows


FLOWS = compile_transitions(TRANSITIONS)

KINDS = np.full(256, FlowKind.PLAIN, np.uint8)
"""u8[256]: FlowKind by IP protocol (IANA's numbers)."""
for _protocol, _kind in {
    1: FlowKind.QUERY,
    58: FlowKind.QUERY6,
    17: FlowKind.DATAGRAM,
    136: FlowKind.DATAGRAM,
    47: FlowKind.TUNNEL,
}.items():
    KINDS[_protocol] = _kind
KINDS.setflags(write=False)

_STATES = u64(FLOWS_SHAPE[1] - 1)
_STREAM = u64(Flow.STREAM)
_ASSURED = u64(Status.ASSURED)

entry_at = record_at(ENTRY)


@inlined
def _step(parsed, state, way, settled):
    return u64(FLOWS[u64(KINDS[u64(parsed.protocol)]), state & _STATES, way, settled])


@inlined
def begin(entry, parsed):
    """Set up the record of a flow; return the term of its expiry."""
    step = _step(parsed, ZERO, ZERO, ZERO)
    entry_at(entry).state = step & LOW_8
    return step >> EIGHT


@inlined
def update(entry, way, parsed, now_ms):
    """Follow one packet of a flow; the record's lock is held.  Returns an outcome (kernels/outcome)."""
    record = entry_at(entry)
    settled = u64(now_ms > u64(record.created_ms) + SETTLED_MS)
    step = _step(parsed, u64(record.state), way, settled)
    state = step & LOW_8
    record.state = state
    if state == _STREAM:
        record.status = u64(record.status) | _ASSURED
    result = outcome.passed(step >> EIGHT)
    # a cap that differs is that of one-way traffic, which a further packet does not put off
    return result if step >> SIXTEEN == (step >> EIGHT) & LOW_8 else result | outcome.SINCE_BEGUN
