"""SCTP states of a tracked association: which chunk leads where.

As in kernels/tcp_states the rows are all there is; what no row names is invalid, and a kernel only indexes STEPS.  States,
names and rows are those of nf_conntrack, seen from between the hosts:

    CLOSED             opened by an INIT, or ended              SHUTDOWN_SENT      the opener ends
    COOKIE_WAIT        the INIT was answered                    SHUTDOWN_RECD      the other side ends
    COOKIE_ECHOED      the opener echoed its cookie             SHUTDOWN_ACK_SENT  the end is acknowledged
    ESTABLISHED        the cookie was acknowledged, or a        HEARTBEAT_SENT     begun by a HEARTBEAT: a further path of
                       HEARTBEAT                                                   an association (RFC 9260 5.4)

A packet holds chunks, and each takes its step in turn (kernels/sctp).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..shm.layout import Way
from .jit import inlined
from .timeouts import Timeout
from .words import EIGHT, LOW_8, ONE, u64


class Sctp(IntEnum):
    """State of a tracked association; ENTRY.state."""

    NONE = 0
    CLOSED = 1
    COOKIE_WAIT = 2
    COOKIE_ECHOED = 3
    ESTABLISHED = 4
    SHUTDOWN_SENT = 5
    SHUTDOWN_RECD = 6
    SHUTDOWN_ACK_SENT = 7
    HEARTBEAT_SENT = 8


class Chunk(IntEnum):
    """What a chunk is to a tracker."""

    OTHER = 0  # SACK and all that changes no state
    DATA = 1
    INIT = 2
    INIT_ACK = 3
    COOKIE_ECHO = 4
    COOKIE_ACK = 5
    HEARTBEAT = 6
    HEARTBEAT_ACK = 7
    SHUTDOWN = 8
    SHUTDOWN_ACK = 9
    SHUTDOWN_COMPLETE = 10
    ABORT = 11
    ERROR = 12


NUMBERS = {
    # type of a chunk on the wire (RFC 9260 3.2)
    0: Chunk.DATA,
    1: Chunk.INIT,
    2: Chunk.INIT_ACK,
    4: Chunk.HEARTBEAT,
    5: Chunk.HEARTBEAT_ACK,
    6: Chunk.ABORT,
    7: Chunk.SHUTDOWN,
    8: Chunk.SHUTDOWN_ACK,
    9: Chunk.ERROR,
    10: Chunk.COOKIE_ECHO,
    11: Chunk.COOKIE_ACK,
    14: Chunk.SHUTDOWN_COMPLETE,
}


class Transition(NamedTuple):
    """In state ``old``, any of ``chunks`` travelling one of ``ways`` leads to ``new``; no chunks: all that have no row."""

    old: Sctp
    ways: tuple[Way, ...]
    chunks: tuple[Chunk, ...]
    new: Sctp
    why: str


_S, _C = Sctp, Chunk
_ORIG, _REPLY = (Way.ORIG,), (Way.REPLY,)
_EITHER = tuple(Way)
_REST = ()
_BEGINNING_AGAIN = (
    _C.INIT_ACK, _C.COOKIE_ECHO, _C.COOKIE_ACK, _C.SHUTDOWN, _C.SHUTDOWN_COMPLETE, _C.ABORT, _C.ERROR,
)  # fmt: skip

# fmt: off
_ROWS = (
    # from                  way      chunks                        to                    why
    (_S.NONE,              _ORIG,   (_C.INIT,),                   _S.CLOSED,            "RFC 9260 5.1 A: the opening INIT"),
    (_S.NONE,              _ORIG,   (_C.HEARTBEAT,),              _S.HEARTBEAT_SENT,    "RFC 9260 8.3: a further path"),
    (_S.NONE,              _ORIG,   (_C.HEARTBEAT_ACK,),          _S.CLOSED,            "its HEARTBEAT was not seen"),
    (_S.NONE,              _ORIG,   (_C.SHUTDOWN_ACK,),           _S.SHUTDOWN_ACK_SENT, "RFC 9260 8.4 (5): to be completed"),

    (_S.CLOSED,            _REPLY,  (_C.INIT_ACK,),               _S.COOKIE_WAIT,       "RFC 9260 5.1 B: the answer"),
    (_S.CLOSED,            _EITHER, _REST,                        _S.CLOSED,            "RFC 9260 8.4: only INITs help"),

    (_S.COOKIE_WAIT,       _EITHER, (_C.COOKIE_ECHO,),            _S.COOKIE_ECHOED,     "RFC 9260 5.1 C: the cookie"),
    (_S.COOKIE_WAIT,       _EITHER, (_C.ABORT,),                  _S.CLOSED,            "RFC 9260 9.1: given up"),
    (_S.COOKIE_WAIT,       _EITHER, _REST,                        _S.COOKIE_WAIT,       "RFC 9260 5.2: again, or early"),

    (_S.COOKIE_ECHOED,     _EITHER, (_C.COOKIE_ACK,),             _S.ESTABLISHED,       "RFC 9260 5.1 D: accepted"),
    (_S.COOKIE_ECHOED,     _EITHER, (_C.ABORT,),                  _S.CLOSED,            "RFC 9260 9.1: refused"),
    (_S.COOKIE_ECHOED,     _REPLY,  (_C.ERROR,),                  _S.CLOSED,            "RFC 9260 5.2.6: stale cookie"),
    (_S.COOKIE_ECHOED,     _EITHER, _REST,                        _S.COOKIE_ECHOED,     "RFC 9260 5.1: data may come along"),

    (_S.ESTABLISHED,       _ORIG,   (_C.SHUTDOWN,),               _S.SHUTDOWN_SENT,     "RFC 9260 9.2: the opener ends"),
    (_S.ESTABLISHED,       _REPLY,  (_C.SHUTDOWN,),               _S.SHUTDOWN_RECD,     "RFC 9260 9.2: the other side ends"),
    (_S.ESTABLISHED,       _EITHER, (_C.ABORT,),                  _S.CLOSED,            "RFC 9260 9.1"),
    (_S.ESTABLISHED,       _EITHER, _REST,                        _S.ESTABLISHED,       "RFC 9260 6: data and the like"),

    (_S.SHUTDOWN_SENT,     _ORIG,   (_C.INIT,),                   _S.CLOSED,            "RFC 9260 5.2.2: begun anew"),
    (_S.SHUTDOWN_SENT,     _EITHER, (_C.SHUTDOWN_ACK,),           _S.SHUTDOWN_ACK_SENT, "RFC 9260 9.2: acknowledged"),
    (_S.SHUTDOWN_SENT,     _EITHER, (_C.ABORT,),                  _S.CLOSED,            "RFC 9260 9.1"),
    (_S.SHUTDOWN_SENT,     _EITHER, _REST,                        _S.SHUTDOWN_SENT,     "RFC 9260 9.2: what is under way"),

    (_S.SHUTDOWN_RECD,     _ORIG,   (_C.INIT,),                   _S.CLOSED,            "RFC 9260 5.2.2: begun anew"),
    (_S.SHUTDOWN_RECD,     _EITHER, (_C.SHUTDOWN_ACK,),           _S.SHUTDOWN_ACK_SENT, "RFC 9260 9.2: acknowledged"),
    (_S.SHUTDOWN_RECD,     _EITHER, (_C.ABORT,),                  _S.CLOSED,            "RFC 9260 9.1"),
    (_S.SHUTDOWN_RECD,     _EITHER, _REST,                        _S.SHUTDOWN_RECD,     "RFC 9260 9.2: what is under way"),

    (_S.SHUTDOWN_ACK_SENT, _EITHER, (_C.SHUTDOWN_COMPLETE,),      _S.CLOSED,            "RFC 9260 9.2: done"),
    (_S.SHUTDOWN_ACK_SENT, _EITHER, (_C.ABORT,),                  _S.CLOSED,            "RFC 9260 9.1"),
    (_S.SHUTDOWN_ACK_SENT, _EITHER, _REST,                        _S.SHUTDOWN_ACK_SENT, "RFC 9260 9.2: too late for it"),

    (_S.HEARTBEAT_SENT,    _ORIG,   (_C.INIT,),                   _S.COOKIE_WAIT,       "an association of its own"),
    (_S.HEARTBEAT_SENT,    _ORIG,   (_C.SHUTDOWN_ACK,),           _S.SHUTDOWN_ACK_SENT, "RFC 9260 8.4 (5)"),
    (_S.HEARTBEAT_SENT,    _ORIG,   _BEGINNING_AGAIN,             _S.CLOSED,            "no other path was seen"),
    (_S.HEARTBEAT_SENT,    _ORIG,   _REST,                        _S.HEARTBEAT_SENT,    "RFC 9260 8.3: not yet confirmed"),
    (_S.HEARTBEAT_SENT,    _REPLY,  (_C.HEARTBEAT_ACK,),          _S.ESTABLISHED,       "RFC 9260 8.3: the path works"),
    (_S.HEARTBEAT_SENT,    _REPLY,  (_C.HEARTBEAT, _C.DATA, _C.OTHER), _S.HEARTBEAT_SENT, "the other side tries it, too"),
)
# fmt: on
TRANSITIONS: tuple[Transition, ...] = tuple(Transition(*row) for row in _ROWS)

STEPS_SHAPE = (16, 2, 16)
"""States, ways, chunks; powers of two, so that even a torn state indexes inside."""


def expand(rows: tuple[Transition, ...]) -> dict[tuple[Sctp, Way, Chunk], Transition]:
    """Return the row that decides each case; rows for the rest of a state come after its others."""
    cells: dict[tuple[Sctp, Way, Chunk], Transition] = {}
    for row in sorted(rows, key=lambda row: not row.chunks):
        for way in row.ways:
            for chunk in row.chunks or Chunk:
                if row.chunks:
                    assert (row.old, way, chunk) not in cells, f"two rows for {(row.old, way, chunk)}"
                cells.setdefault((row.old, way, chunk), row)
    return cells


def compile_transitions(rows: tuple[Transition, ...]) -> NDArray[np.uint16]:
    """Return STEPS[state, way, chunk]: new state | Timeout << 8; 0: invalid."""
    steps = np.zeros(STEPS_SHAPE, np.uint16)
    for cell, row in expand(rows).items():
        steps[cell] = row.new | Timeout[f"SCTP_{row.new.name}"] << 8
    steps.setflags(write=False)
    return steps


STEPS = compile_transitions(TRANSITIONS)

CHUNKS = np.array([NUMBERS.get(number, Chunk.OTHER) for number in range(256)], np.uint8)
"""u8[256]: Chunk by the type of a chunk on the wire."""
CHUNKS.setflags(write=False)

_STATES = u64(STEPS_SHAPE[0] - 1)
_CHUNKS = u64(STEPS_SHAPE[2] - 1)


@inlined
def chunk_of(number):
    """Return the Chunk of a type on the wire."""
    return u64(CHUNKS[number & LOW_8])


@inlined
def step_of(state, way, chunk):
    """Return the step that a chunk takes in a state; 0 when none is."""
    return u64(STEPS[state & _STATES, way & ONE, chunk & _CHUNKS])


@inlined
def new_state(step):
    """Return the state a step leads to."""
    return step & LOW_8


@inlined
def timeout_of(step):
    """Return the Timeout of the state a step leads to."""
    return step >> EIGHT
