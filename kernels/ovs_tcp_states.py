"""TCP in the `ovs` profile: each side has a state of its own, and every change of it is one row.

Open vSwitch follows both hosts, as pf does, with pf's names for what is known of a side:

    CLOSED       not heard of yet                       CLOSING      its FIN was seen
    SYN_SENT     heard of, whatever it said             FIN_WAIT_2   its FIN was acknowledged
    ESTABLISHED  the other side has answered it         TIME_WAIT    either side sent a RST

Rule 1.  A change of state is a row of MOVES.  A segment can move both sides: its sender by what it sends, its receiver by
         what it acknowledges.  ENTRY.state holds both, the opener's in the lower four bits.
Rule 2.  What no row of MOVES mentions changes no state.  What no host sends is a row of ILLEGAL, and invalid.
Rule 3.  How long the connection may be silent follows from the two states after the segment: LIFETIMES.
Rule 4.  This file knows flags, not numbers: windows are kernels/ovs_tcp.

Source:
    Behaviour of Open vSwitch 4.0.90's userspace connection tracker.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import timeouts
from .jit import inlined
from .tcp_states import Flag
from .timeouts import Timeout
from .words import EIGHT, FOUR, LOW_8, ONE, SEVEN, ZERO, u64


class Peer(IntEnum):
    """State of one side, by Open vSwitch's numbers, of which it uses six."""

    CLOSED = 0
    SYN_SENT = 2
    ESTABLISHED = 4
    CLOSING = 7
    FIN_WAIT_2 = 9
    TIME_WAIT = 10


class Mark(IntEnum):
    """What a segment is to this machine; bits of SEGMENTS[flags]."""

    FIN = 1 << 0
    ACK = 1 << 1
    RST = 1 << 2
    SYN = 1 << 3
    OPENING = 1 << 4  # a SYN without ACK
    ILLEGAL = 1 << 5  # a set of flags that no host sends


class Side(IntEnum):
    """Whose state moves."""

    SENDER = 0
    RECEIVER = 1


class Move(NamedTuple):
    """A segment with ``mark`` (None: any) leads the ``side`` from ``old`` to ``new``.  Rows hold one after another."""

    side: Side
    mark: Mark | None
    old: Peer
    new: Peer
    why: str


class Illegal(NamedTuple):
    """Flags that have all of ``has`` and none of ``lacks`` come from no host."""

    has: int
    lacks: int
    why: str


class Handling(IntEnum):
    """What becomes of a SYN."""

    FOLLOW = 0  # a segment like any other
    AGAIN = 1  # the connection is as good as new: so is the packet
    REOPEN = 2  # the connection is over: the SYN opens another


class Opening(NamedTuple):
    """A SYN while the states of its sender and its receiver are between two others, each included."""

    sender: tuple[Peer, Peer]
    receiver: tuple[Peer, Peer]
    handling: Handling
    why: str


class Lifetime(NamedTuple):
    """While the lower and the higher of the two states are between two others, each included: how long it may be silent."""

    lower: tuple[Peer, Peer]
    higher: tuple[Peer, Peer]
    timeout: Timeout
    why: str


_P, _F, _T = Peer, Flag, Timeout
_SENDER, _RECEIVER = Side
_ANY = (Peer.CLOSED, Peer.TIME_WAIT)

# fmt: off
MOVES = (
    #     whose      segment   from            to              why
    Move(_SENDER,   None,     _P.CLOSED,      _P.SYN_SENT,    "the first that is heard of this side, SYN or not"),
    Move(_SENDER,   Mark.FIN, _P.SYN_SENT,    _P.CLOSING,     "RFC 9293 3.10.4: closed before it was answered"),
    Move(_SENDER,   Mark.FIN, _P.ESTABLISHED, _P.CLOSING,     "RFC 9293 3.6: this side closes"),
    Move(_RECEIVER, Mark.ACK, _P.SYN_SENT,    _P.ESTABLISHED, "answered, so what it said has arrived"),
    Move(_RECEIVER, Mark.ACK, _P.CLOSING,     _P.FIN_WAIT_2,  "RFC 9293 3.6: FIN acknowledged, or so it is taken"),
    *(Move(side, Mark.RST, old, _P.TIME_WAIT, "RFC 9293 3.5.3: a RST ends both sides")
      for side in Side for old in Peer if old is not _P.TIME_WAIT),
)

ILLEGAL = (
    #        has              lacks                     why
    Illegal(_F.SYN | _F.RST, 0,                        "opens and aborts"),
    Illegal(_F.SYN | _F.FIN, 0,                        "opens and closes"),
    Illegal(0,               _F.SYN | _F.ACK | _F.RST, "RFC 9293 3.10.7: every later segment has ACK, or is a RST"),
    Illegal(_F.FIN,          _F.ACK,                   "a FIN without ACK"),
    Illegal(_F.PSH,          _F.ACK,                   "data without ACK"),
    Illegal(_F.URG,          _F.ACK,                   "urgent data without ACK"),
)

_OVER = (_P.FIN_WAIT_2, _P.TIME_WAIT)
OPENINGS = (
    #        sender                    receiver  then             why
    Opening(_OVER,                    _OVER,    Handling.REOPEN, "RFC 1122 4.2.2.13: ports used again"),
    Opening((_P.CLOSED, _P.SYN_SENT), _ANY,     Handling.AGAIN,  "SYN again; or the other side's, simultaneously"),
)

LIFETIMES = (
    #         lower state                  higher state                timeout             why
    Lifetime(_OVER,                       _ANY,                       _T.TCP_CLOSE,       "both sides are done"),
    Lifetime((_P.CLOSING, _P.TIME_WAIT),  _ANY,                       _T.TCP_TIME_WAIT,   "both close"),
    Lifetime((_P.CLOSED, _P.SYN_SENT),    _ANY,                       _T.TCP_SYN_RECV,    "not both were answered"),
    Lifetime(_ANY,                        (_P.CLOSING, _P.TIME_WAIT), _T.TCP_FIN_WAIT,    "half closed"),
    Lifetime(_ANY,                        _ANY,                       _T.TCP_ESTABLISHED, "in use"),
)
# fmt: on

STEPS_SHAPE = (16, 16, 8)
"""Sender's state, receiver's state, marks FIN | ACK | RST: powers of two, so that even a torn state indexes inside."""
LOOSE = 1 << 16
"""Beside a step: numbers that break the windows may yet be believed, for one side is unknown or done."""


def moved(sender: Peer, receiver: Peer, marks: int) -> tuple[Peer, Peer]:
    """Return the states after a segment with some Mark bits."""
    states = [sender, receiver]
    for move in MOVES:
        if states[move.side] is move.old and (move.mark is None or marks & move.mark):
            states[move.side] = move.new
    return states[Side.SENDER], states[Side.RECEIVER]


def lifetime(one: Peer, other: Peer) -> Timeout:
    """Return how long a connection with two states may be silent: the first row that fits."""
    lower, higher = sorted((one, other))
    return next(row.timeout for row in LIFETIMES if _within(lower, row.lower) and _within(higher, row.higher))


def _within(state: int, bounds: tuple[Peer, Peer]) -> bool:
    return bounds[0] <= state <= bounds[1]


def compile_steps() -> NDArray[np.uint32]:
    """Return STEPS[sender, receiver, marks]: sender's new state | receiver's << 4 | Timeout << 8 | LOOSE."""
    steps = np.zeros(STEPS_SHAPE, np.uint32)
    for sender, receiver, marks in product(Peer, Peer, range(STEPS_SHAPE[2])):
        new = moved(sender, receiver, marks)
        loose = LOOSE if receiver < Peer.SYN_SENT or max(sender, receiver) >= Peer.FIN_WAIT_2 else 0
        steps[sender, receiver, marks] = new[0] | new[1] << 4 | (lifetime(*new) | timeouts.OVS) << 8 | loose
    steps.setflags(write=False)
    return steps


def compile_openings() -> NDArray[np.uint8]:
    """Return HANDLINGS[sender, receiver]: the Handling of a SYN."""
    handlings = np.full(STEPS_SHAPE[:2], Handling.FOLLOW, np.uint8)
    for sender, receiver in product(Peer, Peer):
        for row in reversed(OPENINGS):
            if _within(sender, row.sender) and _within(receiver, row.receiver):
                handlings[sender, receiver] = row.handling
    handlings.setflags(write=False)
    return handlings


def compile_segments() -> NDArray[np.uint8]:
    """Return SEGMENTS[flags]: the Mark bits of a segment."""
    segments = np.zeros(256, np.uint8)
    for flags in range(256):
        for flag, mark in ((_F.FIN, Mark.FIN), (_F.ACK, Mark.ACK), (_F.RST, Mark.RST), (_F.SYN, Mark.SYN)):
            segments[flags] |= mark if flags & flag else 0
        if flags & (_F.SYN | _F.ACK) == _F.SYN:
            segments[flags] |= Mark.OPENING
        if any(flags & row.has == row.has and not flags & row.lacks for row in ILLEGAL):
            segments[flags] |= Mark.ILLEGAL
    segments.setflags(write=False)
    return segments


STEPS = compile_steps()
HANDLINGS = compile_openings()
SEGMENTS = compile_segments()

_STATE = u64(STEPS_SHAPE[0] - 1)
_LOOSE = u64(LOOSE)
assert Mark.FIN | Mark.ACK | Mark.RST == SEVEN and max(Peer) <= _STATE


@inlined
def marks_of(parsed):
    """Return the Mark bits of a parsed segment."""
    return u64(SEGMENTS[u64(parsed.tcp_flags) & LOW_8])


@inlined
def sender_of(state, way):
    """Return the state of the side that sends in direction ``way``, out of ENTRY.state; its receiver's: the other way."""
    return (state >> (way * FOUR)) & _STATE


@inlined
def both(sender, receiver, way):
    """Return ENTRY.state."""
    return (sender << (way * FOUR)) | (receiver << ((ONE - way) * FOUR))


@inlined
def step_of(sender, receiver, marks):
    """Return the step of a segment."""
    return u64(STEPS[sender & _STATE, receiver & _STATE, marks & SEVEN])


@inlined
def handling_of(sender, receiver):
    """Return the Handling of a SYN."""
    return u64(HANDLINGS[sender & _STATE, receiver & _STATE])


@inlined
def new_sender(step):
    """Return the sender's state after a step."""
    return step & _STATE


@inlined
def new_receiver(step):
    """Return the receiver's state after a step."""
    return (step >> FOUR) & _STATE


@inlined
def timeout_of(step):
    """Return the Timeout after a step, with the bit of the profile."""
    return (step >> EIGHT) & LOW_8


@inlined
def is_loose(step):
    """Return whether numbers out of the window may be believed."""
    return step & _LOOSE != ZERO
