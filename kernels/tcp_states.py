"""TCP connection states as Linux names them, and every transition between them, as one list of rows.

The tracker stands between the hosts.  It sees segments, not the hosts' own states (RFC 9293 3.3.2), and a segment that
it saw may still be lost before it arrives.  So a state is named after what was last seen:

    SYN_SENT     a SYN                                      CLOSE_WAIT  an ACK after the first FIN
    SYN_SENT2    a SYN from either side                     LAST_ACK    a FIN from either side
    SYN_RECV     a SYN-ACK                                  TIME_WAIT   the ACK after the second FIN
    ESTABLISHED  the ACK of it; or picked up in the middle  CLOSE       a RST
    FIN_WAIT     the first FIN

Rule 1.  A change of state is a row of TRANSITIONS or it does not exist.  No kernel compares states with ``if``: kernels
         index STEPS, and what they must know besides (when a connection counts as assured, say) are traits of the step.
Rule 2.  What no row mentions is invalid.  Silence is a decision, so every row says why it is there.
Rule 3.  This file knows segments, not packets: sequence numbers are kernels/tcp_window, consequences are kernels/tcp.

A row holds if the segment also fits the window, unless its Handling says otherwise.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..shm.layout import Way
from .jit import inlined
from .timeouts import Timeout
from .words import EIGHT, LOW_8, ONE, SEVEN, ZERO, u64


class Tcp(IntEnum):
    """State of a tracked connection; ENTRY.state."""

    NONE = 0
    SYN_SENT = 1
    SYN_RECV = 2
    ESTABLISHED = 3
    FIN_WAIT = 4
    CLOSE_WAIT = 5
    LAST_ACK = 6
    TIME_WAIT = 7
    CLOSE = 8
    SYN_SENT2 = 9


class Segment(IntEnum):
    """What a segment's flags amount to: RST outranks SYN, SYN outranks FIN, FIN outranks ACK."""

    NONE = 0  # a set of flags that no host sends
    SYN = 1
    SYNACK = 2
    FIN = 3
    ACK = 4
    RST = 5


class Handling(IntEnum):
    """What kernels/tcp does before it takes a step."""

    INVALID = 0  # no row
    FOLLOW = 1  # nothing
    LET_BY = 2  # let it pass and remember it, for it may belong to another incarnation
    REOPEN = 3  # if the old connection is known to be over, track it as a new one; else LET_BY
    BOTH_OPEN = 4  # remember that both sides have sent a SYN
    BOTH_OPENED = 5  # if both sides have sent a SYN, this ACK completes the handshake
    LAST_ACK = 6  # not if it is a challenge ACK to a SYN that was let by
    RESET_OPENING = 7  # a RST may also answer the ACK that was let by
    RESET = 8  # is the RST believable?
    RESET_LIVE = 9  # once assured, only the exact sequence number closes
    RESET_CLOSING = 10  # believed without a look at its numbers
    LET_BY_LAST = 11  # as LET_BY, and the next ACK of the other side is not taken for the last one


class Trait(IntEnum):
    """Bits of a step: what else it means."""

    FIRST_OF_SIDE = 1 << 0  # a SYN or SYN-ACK may set up its side anew
    SYN_ANSWERED = 1 << 1  # a RST with sequence number 0 answers the SYN
    CLOSE_BEGUN = 1 << 2  # first FIN
    ASSURES = 1 << 3  # the connection is assured, when a reply was seen before
    EXPIRY_STAYS = 1 << 4  # an unanswered SYN, once more: nothing may keep such a connection alive
    LIVE = 1 << 5  # leads to ESTABLISHED


class Transition(NamedTuple):
    """One legal step: in state ``old``, a ``segment`` travelling ``way`` leads to ``new``."""

    old: Tcp
    way: Way
    segment: Segment
    new: Tcp
    handling: Handling
    why: str


_ORIG, _REPLY = Way
_SYN, _SYNACK, _FIN, _ACK, _RST = tuple(Segment)[1:]
_H = Handling

# fmt: off
_ROWS = (
    # from             way     segment  to               handling          why
    (Tcp.NONE,        _ORIG,  _SYN,    Tcp.SYN_SENT,    _H.FOLLOW,        "RFC 9293 3.5: the opening SYN"),
    (Tcp.SYN_SENT,    _ORIG,  _SYN,    Tcp.SYN_SENT,    _H.FOLLOW,        "SYN again, or of another attempt"),
    (Tcp.SYN_SENT2,   _ORIG,  _SYN,    Tcp.SYN_SENT2,   _H.BOTH_OPEN,     "SYN again, late"),
    (Tcp.SYN_RECV,    _ORIG,  _SYN,    Tcp.SYN_RECV,    _H.LET_BY,        "SYN again, or the client began anew"),
    (Tcp.ESTABLISHED, _ORIG,  _SYN,    Tcp.ESTABLISHED, _H.LET_BY,        "RFC 5961 4: began anew, or an attack"),
    (Tcp.FIN_WAIT,    _ORIG,  _SYN,    Tcp.FIN_WAIT,    _H.LET_BY,        "the client may have begun anew"),
    (Tcp.CLOSE_WAIT,  _ORIG,  _SYN,    Tcp.CLOSE_WAIT,  _H.LET_BY,        "the client may have begun anew"),
    (Tcp.LAST_ACK,    _ORIG,  _SYN,    Tcp.LAST_ACK,    _H.LET_BY_LAST,   "RFC 6191: the last ACK may be done"),
    (Tcp.TIME_WAIT,   _ORIG,  _SYN,    Tcp.SYN_SENT,    _H.REOPEN,        "RFC 1122 4.2.2.13: ports used again"),
    (Tcp.CLOSE,       _ORIG,  _SYN,    Tcp.SYN_SENT,    _H.REOPEN,        "ports of an aborted connection"),

    (Tcp.SYN_RECV,    _ORIG,  _SYNACK, Tcp.SYN_RECV,    _H.FOLLOW,        "simultaneous open: SYN-ACK again"),
    (Tcp.SYN_SENT2,   _ORIG,  _SYNACK, Tcp.SYN_RECV,    _H.FOLLOW,        "RFC 9293 3.5: simultaneous open"),

    (Tcp.SYN_RECV,    _ORIG,  _FIN,    Tcp.FIN_WAIT,    _H.FOLLOW,        "RFC 9293 3.10.4: closed at once"),
    (Tcp.ESTABLISHED, _ORIG,  _FIN,    Tcp.FIN_WAIT,    _H.FOLLOW,        "RFC 9293 3.6: close begun"),
    (Tcp.FIN_WAIT,    _ORIG,  _FIN,    Tcp.LAST_ACK,    _H.FOLLOW,        "the other FIN, or the same again"),
    (Tcp.CLOSE_WAIT,  _ORIG,  _FIN,    Tcp.LAST_ACK,    _H.FOLLOW,        "the other FIN, or the same again"),
    (Tcp.LAST_ACK,    _ORIG,  _FIN,    Tcp.LAST_ACK,    _H.FOLLOW,        "FIN again"),
    (Tcp.TIME_WAIT,   _ORIG,  _FIN,    Tcp.TIME_WAIT,   _H.FOLLOW,        "FIN again: the last ACK was lost"),
    (Tcp.CLOSE,       _ORIG,  _FIN,    Tcp.CLOSE,       _H.FOLLOW,        "sent before the RST arrived"),

    (Tcp.NONE,        _ORIG,  _ACK,    Tcp.ESTABLISHED, _H.FOLLOW,        "picked up in the middle"),
    (Tcp.SYN_RECV,    _ORIG,  _ACK,    Tcp.ESTABLISHED, _H.FOLLOW,        "RFC 9293 3.5: handshake done"),
    (Tcp.ESTABLISHED, _ORIG,  _ACK,    Tcp.ESTABLISHED, _H.FOLLOW,        "data or ACK"),
    (Tcp.FIN_WAIT,    _ORIG,  _ACK,    Tcp.CLOSE_WAIT,  _H.FOLLOW,        "RFC 9293 3.6: FIN acknowledged"),
    (Tcp.CLOSE_WAIT,  _ORIG,  _ACK,    Tcp.CLOSE_WAIT,  _H.FOLLOW,        "half-closed: data or ACK"),
    (Tcp.LAST_ACK,    _ORIG,  _ACK,    Tcp.TIME_WAIT,   _H.LAST_ACK,      "RFC 9293 3.6: last ACK"),
    (Tcp.TIME_WAIT,   _ORIG,  _ACK,    Tcp.TIME_WAIT,   _H.FOLLOW,        "last ACK again"),
    (Tcp.CLOSE,       _ORIG,  _ACK,    Tcp.CLOSE,       _H.FOLLOW,        "sent before the RST arrived"),

    (Tcp.SYN_SENT,    _ORIG,  _RST,    Tcp.CLOSE,       _H.RESET_OPENING, "the client gives up"),
    (Tcp.SYN_SENT2,   _ORIG,  _RST,    Tcp.CLOSE,       _H.RESET,         "simultaneous open aborted"),
    (Tcp.SYN_RECV,    _ORIG,  _RST,    Tcp.CLOSE,       _H.RESET,         "RFC 9293 3.5.1: answer not wanted"),
    (Tcp.ESTABLISHED, _ORIG,  _RST,    Tcp.CLOSE,       _H.RESET_LIVE,    "RFC 9293 3.5.3, RFC 5961 3"),
    (Tcp.FIN_WAIT,    _ORIG,  _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "ports may be in use again"),
    (Tcp.CLOSE_WAIT,  _ORIG,  _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "ports may be in use again"),
    (Tcp.LAST_ACK,    _ORIG,  _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "ports may be in use again"),
    (Tcp.TIME_WAIT,   _ORIG,  _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "ports may be in use again"),
    (Tcp.CLOSE,       _ORIG,  _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "RST again"),

    (Tcp.SYN_SENT,    _REPLY, _SYN,    Tcp.SYN_SENT2,   _H.BOTH_OPEN,     "RFC 9293 3.5: simultaneous open"),
    (Tcp.SYN_SENT2,   _REPLY, _SYN,    Tcp.SYN_SENT2,   _H.BOTH_OPEN,     "the other SYN again"),
    (Tcp.TIME_WAIT,   _REPLY, _SYN,    Tcp.SYN_SENT,    _H.REOPEN,        "used again, perhaps in other roles"),

    (Tcp.SYN_SENT,    _REPLY, _SYNACK, Tcp.SYN_RECV,    _H.FOLLOW,        "RFC 9293 3.5: the answer"),
    (Tcp.SYN_SENT2,   _REPLY, _SYNACK, Tcp.SYN_RECV,    _H.FOLLOW,        "RFC 9293 3.5: simultaneous open"),
    (Tcp.SYN_RECV,    _REPLY, _SYNACK, Tcp.SYN_RECV,    _H.LET_BY,        "again, or to a SYN that was let by"),
    (Tcp.ESTABLISHED, _REPLY, _SYNACK, Tcp.ESTABLISHED, _H.LET_BY,        "again, or to a SYN that was let by"),
    (Tcp.FIN_WAIT,    _REPLY, _SYNACK, Tcp.FIN_WAIT,    _H.LET_BY,        "again, or to a SYN that was let by"),
    (Tcp.CLOSE_WAIT,  _REPLY, _SYNACK, Tcp.CLOSE_WAIT,  _H.LET_BY,        "again, or to a SYN that was let by"),
    (Tcp.LAST_ACK,    _REPLY, _SYNACK, Tcp.LAST_ACK,    _H.LET_BY,        "again, or to a SYN that was let by"),
    (Tcp.TIME_WAIT,   _REPLY, _SYNACK, Tcp.TIME_WAIT,   _H.LET_BY,        "again, or to a SYN that was let by"),
    (Tcp.CLOSE,       _REPLY, _SYNACK, Tcp.CLOSE,       _H.LET_BY,        "again, or to a SYN that was let by"),

    (Tcp.SYN_RECV,    _REPLY, _FIN,    Tcp.FIN_WAIT,    _H.FOLLOW,        "closed before the ACK was seen"),
    (Tcp.ESTABLISHED, _REPLY, _FIN,    Tcp.FIN_WAIT,    _H.FOLLOW,        "RFC 9293 3.6: close begun"),
    (Tcp.FIN_WAIT,    _REPLY, _FIN,    Tcp.LAST_ACK,    _H.FOLLOW,        "the other FIN, or the same again"),
    (Tcp.CLOSE_WAIT,  _REPLY, _FIN,    Tcp.LAST_ACK,    _H.FOLLOW,        "the other FIN, or the same again"),
    (Tcp.LAST_ACK,    _REPLY, _FIN,    Tcp.LAST_ACK,    _H.FOLLOW,        "FIN again"),
    (Tcp.TIME_WAIT,   _REPLY, _FIN,    Tcp.TIME_WAIT,   _H.FOLLOW,        "FIN again: the last ACK was lost"),
    (Tcp.CLOSE,       _REPLY, _FIN,    Tcp.CLOSE,       _H.FOLLOW,        "sent before the RST arrived"),

    (Tcp.SYN_SENT,    _REPLY, _ACK,    Tcp.SYN_SENT,    _H.LET_BY,        "RFC 9293 3.5.1: half-open, old one"),
    (Tcp.SYN_SENT2,   _REPLY, _ACK,    Tcp.SYN_SENT2,   _H.LET_BY,        "RFC 9293 3.5.1: half-open, old one"),
    (Tcp.SYN_RECV,    _REPLY, _ACK,    Tcp.SYN_RECV,    _H.BOTH_OPENED,   "may answer the SYN sent again"),
    (Tcp.ESTABLISHED, _REPLY, _ACK,    Tcp.ESTABLISHED, _H.FOLLOW,        "data or ACK"),
    (Tcp.FIN_WAIT,    _REPLY, _ACK,    Tcp.CLOSE_WAIT,  _H.FOLLOW,        "RFC 9293 3.6: FIN acknowledged"),
    (Tcp.CLOSE_WAIT,  _REPLY, _ACK,    Tcp.CLOSE_WAIT,  _H.FOLLOW,        "half-closed: data or ACK"),
    (Tcp.LAST_ACK,    _REPLY, _ACK,    Tcp.TIME_WAIT,   _H.LAST_ACK,      "RFC 9293 3.6: last ACK"),
    (Tcp.TIME_WAIT,   _REPLY, _ACK,    Tcp.TIME_WAIT,   _H.FOLLOW,        "last ACK again"),
    (Tcp.CLOSE,       _REPLY, _ACK,    Tcp.CLOSE,       _H.FOLLOW,        "sent before the RST arrived"),

    (Tcp.SYN_SENT,    _REPLY, _RST,    Tcp.CLOSE,       _H.RESET_OPENING, "RFC 9293 3.10.7.1: refused"),
    (Tcp.SYN_SENT2,   _REPLY, _RST,    Tcp.CLOSE,       _H.RESET,         "simultaneous open aborted"),
    (Tcp.SYN_RECV,    _REPLY, _RST,    Tcp.CLOSE,       _H.RESET,         "the server gives up"),
    (Tcp.ESTABLISHED, _REPLY, _RST,    Tcp.CLOSE,       _H.RESET_LIVE,    "RFC 9293 3.5.3, RFC 5961 3"),
    (Tcp.FIN_WAIT,    _REPLY, _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "ports may be in use again"),
    (Tcp.CLOSE_WAIT,  _REPLY, _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "ports may be in use again"),
    (Tcp.LAST_ACK,    _REPLY, _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "ports may be in use again"),
    (Tcp.TIME_WAIT,   _REPLY, _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "ports may be in use again"),
    (Tcp.CLOSE,       _REPLY, _RST,    Tcp.CLOSE,       _H.RESET_CLOSING, "RST again"),
)
# fmt: on
TRANSITIONS: tuple[Transition, ...] = tuple(Transition(*row) for row in _ROWS)


STEPS_SHAPE = (16, 2, 8)
"""States, ways, segments, rounded up to powers of two, so that even a torn state indexes inside."""


def traits(row: Transition) -> int:
    """Return the Trait bits of a transition."""
    bits = 0
    if row.old in (Tcp.SYN_SENT, Tcp.SYN_RECV) and row.segment in (Segment.SYN, Segment.SYNACK):
        bits |= Trait.FIRST_OF_SIDE
    if row.old is Tcp.SYN_SENT and row.way is Way.REPLY and row.segment is Segment.RST:
        bits |= Trait.SYN_ANSWERED
    if row.old is not Tcp.FIN_WAIT and row.new is Tcp.FIN_WAIT:
        bits |= Trait.CLOSE_BEGUN
    if row.old in (Tcp.SYN_RECV, Tcp.ESTABLISHED) and row.new is Tcp.ESTABLISHED:
        bits |= Trait.ASSURES
    if row.old is Tcp.SYN_SENT and row.segment is Segment.SYN:
        bits |= Trait.EXPIRY_STAYS
    if row.new is Tcp.ESTABLISHED:
        bits |= Trait.LIVE
    return bits


def compile_transitions(rows: tuple[Transition, ...]) -> NDArray[np.uint32]:
    """Return STEPS[state, way, segment]: new state | Handling << 8 | Trait bits << 16 | Timeout << 24; 0: invalid."""
    steps = np.zeros(STEPS_SHAPE, np.uint32)
    for row in rows:
        cell = (row.old, row.way, row.segment)
        assert steps[cell] == 0, f"two rows for {cell}"
        timeout = Timeout[f"TCP_{row.new.name}"]
        steps[cell] = row.new | row.handling << 8 | traits(row) << 16 | timeout << 24
    steps.setflags(write=False)
    return steps


STEPS = compile_transitions(TRANSITIONS)


class Flag(IntEnum):
    """The low byte of a TCP header's flags (RFC 9293 3.1, RFC 3168)."""

    FIN = 0x01
    SYN = 0x02
    RST = 0x04
    PSH = 0x08
    ACK = 0x10
    URG = 0x20
    ECE = 0x40
    CWR = 0x80


SENT_BY_HOSTS = {
    Flag.SYN: Segment.SYN,
    Flag.SYN | Flag.URG: Segment.SYN,
    Flag.SYN | Flag.ACK: Segment.SYNACK,
    Flag.FIN | Flag.ACK: Segment.FIN,
    Flag.FIN | Flag.ACK | Flag.URG: Segment.FIN,
    Flag.ACK: Segment.ACK,
    Flag.ACK | Flag.URG: Segment.ACK,
    Flag.RST: Segment.RST,
    Flag.RST | Flag.ACK: Segment.RST,
}
"""Sets of flags that hosts send; PSH, ECE and CWR do not matter."""


def compile_segments() -> NDArray[np.uint8]:
    """Return SEGMENTS[flags]: what a segment with the flags is, Segment.NONE where no host sends such a set."""
    aside = Flag.PSH | Flag.ECE | Flag.CWR
    segments = np.array([SENT_BY_HOSTS.get(flags & ~aside, Segment.NONE) for flags in range(256)], np.uint8)
    segments.setflags(write=False)
    return segments


SEGMENTS = compile_segments()


_STATES = u64(STEPS_SHAPE[0] - 1)
_TRAITS_SHIFT = 16
_TIMEOUT_SHIFT = u64(24)
FIRST_OF_SIDE = u64(Trait.FIRST_OF_SIDE << _TRAITS_SHIFT)
SYN_ANSWERED = u64(Trait.SYN_ANSWERED << _TRAITS_SHIFT)
CLOSE_BEGUN = u64(Trait.CLOSE_BEGUN << _TRAITS_SHIFT)
ASSURES = u64(Trait.ASSURES << _TRAITS_SHIFT)
EXPIRY_STAYS = u64(Trait.EXPIRY_STAYS << _TRAITS_SHIFT)
LIVE = u64(Trait.LIVE << _TRAITS_SHIFT)
"""Traits where they stand in a step."""


@inlined
def segment_of(parsed):
    """Return the Segment that a parsed packet is."""
    return u64(SEGMENTS[u64(parsed.tcp_flags) & LOW_8])


@inlined
def step_of(state, way, segment):
    """Return the step that a segment takes in a state; 0 when none is."""
    return u64(STEPS[state & _STATES, way & ONE, segment & SEVEN])


@inlined
def new_state(step):
    """Return the state a step leads to."""
    return step & LOW_8


@inlined
def handling_of(step):
    """Return the Handling of a step."""
    return (step >> EIGHT) & LOW_8


@inlined
def timeout_of(step):
    """Return the Timeout of the state a step leads to."""
    return step >> _TIMEOUT_SHIFT


@inlined
def has(step, trait_bit):
    """Return whether a step has the trait, one of the constants above."""
    return step & trait_bit != ZERO
