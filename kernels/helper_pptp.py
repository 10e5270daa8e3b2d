"""PPTP: the two numbers of a call, which both sides agree on, foretell its tunnel of GRE (RFC 2637).

The client (PNS) opens the control connection.  A call is known when the server has accepted it, or the client's call was
connected: from then on tunnels from either side are foretold, by both numbers, and the numbers are kept as a *call*, for
packets name only that of their receiver (kernels/calls).  A message that does not belong where it comes is not followed.

Where the client is translated, his number is too, since another client may have the same: to the port that his control
connection comes from at the server.  So there is one call in a session.

Source:
    Linux nf_conntrack_pptp.c.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ..shm.layout import PPTP_STATE, ExpectationFlag, Foretold, Way
from . import expectations, foretold, memory, messages
from .endpoints import GRE
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_8, LOW_16, ONE, SIXTY_FOUR, TWO, ZERO, u64


class Session(IntEnum):
    """How far the control connection has come; a higher one has come further."""

    NONE = 0
    ERROR = 1
    STOP_REQUESTED = 2
    REQUESTED = 3
    CONFIRMED = 4


class Call(IntEnum):
    """How far the call has come."""

    NONE = 0
    OUT_REQUESTED = 1
    OUT_CONFIRMED = 2
    IN_REQUESTED = 3
    IN_REPLIED = 4
    IN_CONFIRMED = 5
    CLEAR_REQUESTED = 6


class Message(IntEnum):
    """Types of control messages that are followed (RFC 2637 2)."""

    START_REQUEST = 1
    START_REPLY = 2
    STOP_REQUEST = 3
    STOP_REPLY = 4
    OUT_REQUEST = 7
    OUT_REPLY = 8
    IN_REQUEST = 9
    IN_REPLY = 10
    IN_CONNECT = 11
    CLEAR_REQUEST = 12
    DISCONNECT = 13


class Check(IntEnum):
    """What must be so beside the states."""

    NOTHING = 0
    RESULT_OF_SESSION = 1  # result 1 at offset 2; else the session is in error
    RESULT_OF_STOP = 2  # likewise at offset 0
    ANSWERS_CLIENT = 3  # peer's call at offset 2 is the client's; result 1 at offset 4, else there is no call
    ANSWERS_SERVER = 4  # peer's call at offset 2 is the server's; result 1 at offset 4, else nothing changes
    NAMES_CLIENT = 5  # peer's call at offset 0 is the client's


class Then(IntEnum):
    """What is remembered, or foretold."""

    NOTHING = 0
    CLIENT_CALL = 1  # the call at offset 0 is the client's
    SERVER_CALL = 2
    SERVER_CALL_AND_TUNNEL = 3
    TUNNEL = 4
    FORGET = 5


class Row(NamedTuple):
    """A message: who sends it, how long it is behind its type, in which states, and what becomes of them."""

    message: Message
    way: Way
    size: int
    sessions: tuple[Session, ...]
    calls: tuple[Call, ...]
    check: Check
    session: Session | None
    call: Call | None
    then: Then


NEVER_DONE = (Session.NONE,)
DONE = (Session.CONFIRMED,)
ANY_SESSION, ANY_CALL = tuple(Session), tuple(Call)
REQUESTED = (Session.REQUESTED, Session.CONFIRMED)
STOPPING = (Session.NONE, Session.ERROR, Session.STOP_REQUESTED)
OUT, IN, REPLIED = (
    (Call.OUT_REQUESTED, Call.OUT_CONFIRMED),
    (Call.IN_REQUESTED, Call.IN_REPLIED),
    (Call.IN_REPLIED, Call.IN_CONFIRMED),
)
CLIENT, SERVER = Way.ORIG, Way.REPLY

ROWS = (
    # message, sender, bytes, sessions, calls, what must be so beside, session and call after it, what is remembered
    Row(Message.START_REQUEST, CLIENT, 144, NEVER_DONE, ANY_CALL, Check.NOTHING, Session.REQUESTED, None, Then.NOTHING),
    Row(
        Message.START_REPLY,
        SERVER,
        144,
        REQUESTED,
        ANY_CALL,
        Check.RESULT_OF_SESSION,
        Session.CONFIRMED,
        None,
        Then.NOTHING,
    ),
    Row(
        Message.STOP_REQUEST,
        CLIENT,
        4,
        ANY_SESSION,
        ANY_CALL,
        Check.NOTHING,
        Session.STOP_REQUESTED,
        None,
        Then.NOTHING,
    ),
    Row(Message.STOP_REPLY, SERVER, 4, STOPPING, ANY_CALL, Check.RESULT_OF_STOP, Session.NONE, None, Then.NOTHING),
    Row(Message.OUT_REQUEST, CLIENT, 156, DONE, ANY_CALL, Check.NOTHING, None, Call.OUT_REQUESTED, Then.CLIENT_CALL),
    Row(
        Message.OUT_REPLY,
        SERVER,
        20,
        DONE,
        OUT,
        Check.ANSWERS_CLIENT,
        None,
        Call.OUT_CONFIRMED,
        Then.SERVER_CALL_AND_TUNNEL,
    ),
    Row(Message.IN_REQUEST, SERVER, 208, DONE, ANY_CALL, Check.NOTHING, None, Call.IN_REQUESTED, Then.SERVER_CALL),
    Row(Message.IN_REPLY, CLIENT, 12, ANY_SESSION, IN, Check.ANSWERS_SERVER, None, Call.IN_REPLIED, Then.CLIENT_CALL),
    Row(Message.IN_CONNECT, SERVER, 16, DONE, REPLIED, Check.NAMES_CLIENT, None, Call.IN_CONFIRMED, Then.TUNNEL),
    Row(
        Message.CLEAR_REQUEST, CLIENT, 4, ANY_SESSION, ANY_CALL, Check.NOTHING, None, Call.CLEAR_REQUESTED, Then.NOTHING
    ),
    Row(Message.DISCONNECT, SERVER, 136, ANY_SESSION, ANY_CALL, Check.NOTHING, None, Call.NONE, Then.FORGET),
)

MESSAGES = max(Message) + 1
STAYS = 255
"""A state that a message leaves as it is."""
FIELDS = ("way", "size", "sessions", "calls", "check", "session", "call", "then")


def compile_rows() -> np.ndarray:
    """Return the rows by message, u64[Message, FIELDS]; sessions and calls as bits, a ``way`` of 2 where there is no row."""
    compiled = np.zeros((MESSAGES, len(FIELDS)), np.uint64)
    compiled[:, 0] = len(Way)
    for row in ROWS:
        sessions, calls = (sum(1 << state for state in states) for states in (row.sessions, row.calls))
        to = [STAYS if state is None else int(state) for state in (row.session, row.call)]
        compiled[row.message] = [row.way, row.size, sessions, calls, row.check, *to, row.then]
    return compiled


TABLE = compile_rows()
TABLE.setflags(write=False)
_WAY, _SIZE, _SESSIONS, _CALLS, _CHECK, _SESSION, _CALL, _THEN = (u64(i) for i in range(len(FIELDS)))

_HEADER_BYTES = u64(12)  # length 2, type 2, cookie 4, message 2, reserved 2
_CONTROL = ONE
_COOKIE = u64(0x1A2B3C4D)
_STAYS = u64(STAYS)
_DATA = u64(Foretold.DATA)
_FLAG_CALL = u64(ExpectationFlag.CALL | ExpectationFlag.PERMANENT)
_SOURCE_PORT_SHIFT = u64(48)
_FOUR_FORETOLD = FOUR
_NAT_SOURCE = u64(ExpectationFlag.NAT_SOURCE)
_NAMES_CLIENT_ORIG = u64(1 << Message.OUT_REQUEST | 1 << Message.IN_REPLY | 1 << Message.CLEAR_REQUEST)
_ERROR_NOTIFY = 14  # RFC 2637 2.14; it changes nothing
_NAMES_CLIENT_REPLY = u64(1 << Message.OUT_REPLY | 1 << Message.IN_CONNECT | 1 << _ERROR_NOTIFY)
"""A bit for each message of either side that has the client's number: the first of its body, of OUT_REPLY the second."""
_ERROR, _NO_CALL = u64(Session.ERROR), u64(Call.NONE)

state_at = memory.record_at(PPTP_STATE)


@inlined
def _is_result(address):
    return memory.byte(address) == ONE


@kernel
def _passes(state, check, body):
    """Return whether a message is one to follow; a bad result is written into the state."""
    if check == u64(Check.RESULT_OF_SESSION) or check == u64(Check.RESULT_OF_STOP):
        good = _is_result(body + TWO if check == u64(Check.RESULT_OF_SESSION) else body)
        if not good:
            state.session = _ERROR
        return good
    if check == u64(Check.ANSWERS_CLIENT):
        if memory.be16(body + TWO) != u64(state.known_call):
            return False
        if not _is_result(body + FOUR):
            state.call = _NO_CALL
            return False
        return True
    if check == u64(Check.ANSWERS_SERVER):
        return memory.be16(body + TWO) == u64(state.server_call) and _is_result(body + FOUR)
    return check != u64(Check.NAMES_CLIENT) or memory.be16(body) == u64(state.known_call)


@kernel
def _foretell(views, entry, state):
    """Write the tunnel from either side, and the call for packets to either side."""
    client, known, server = u64(state.client_call), u64(state.known_call), u64(state.server_call)
    for i in range(4):
        way = u64(i) & ONE
        port, source_port = (client, server) if way == ZERO else (server, client)
        foretold.to_sender(views, u64(i), entry, way, GRE, port, _DATA)
        at = foretold.address(views, u64(i))
        if way == ZERO:
            foretold.move(views, u64(i), known)
        elif u64(foretold.expectation_at(at).flags) & _NAT_SOURCE != ZERO:
            foretold.expectation_at(at).nat_port = known
        last = memory.le64(at + expectations.LAST) | (source_port << _SOURCE_PORT_SHIFT)
        memory.set_le64(at + expectations.LAST, last)
        if u64(i) >= TWO:
            foretold.expectation_at(at).flags = u64(foretold.expectation_at(at).flags) | _FLAG_CALL
            foretold.expectation_at(at).expiry_ms = expectations.NEVER
    return _FOUR_FORETOLD


@kernel
def _follow(views, entry, state, way, message, body, end, known):
    """Let the states follow a message; ``known`` is the client's number at the server, 0: as he has chosen it."""
    if TABLE[message, _WAY] != way or end - body < TABLE[message, _SIZE]:
        return foretold.NOTHING
    is_here = TABLE[message, _SESSIONS] >> u64(state.session) & TABLE[message, _CALLS] >> u64(state.call) & ONE
    if is_here == ZERO or not _passes(state, TABLE[message, _CHECK], body):
        return foretold.NOTHING
    if TABLE[message, _SESSION] != _STAYS:
        state.session = TABLE[message, _SESSION]
    if TABLE[message, _CALL] != _STAYS:
        state.call = TABLE[message, _CALL]
    then = TABLE[message, _THEN]
    if then == u64(Then.CLIENT_CALL):
        state.client_call = memory.be16(body) & LOW_16
        state.known_call = known if known != ZERO else u64(state.client_call)
    elif then == u64(Then.SERVER_CALL) or then == u64(Then.SERVER_CALL_AND_TUNNEL):
        state.server_call = memory.be16(body) & LOW_16
    elif then == u64(Then.FORGET):
        return foretold.forgetting(foretold.EVERY_KIND)
    if then == u64(Then.TUNNEL) or then == u64(Then.SERVER_CALL_AND_TUNNEL):
        return _foretell(views, entry, state)
    return foretold.NOTHING


@kernel
def _write(views, state, way, message, begin, body, end):
    """Write a message that names the client's number with the one that it has where it goes."""
    which = _NAMES_CLIENT_REPLY if way != ZERO else _NAMES_CLIENT_ORIG
    if which >> message & ONE == ZERO:
        return
    at = body + (TWO if message == u64(Message.OUT_REPLY) else ZERO)
    before, after = u64(state.client_call), u64(state.known_call)
    if way != ZERO:
        before, after = after, before
    if before == after or at + TWO > end or memory.be16(at) != before:
        return
    messages.begin(views, begin)
    messages.copy_to(views, at)
    messages.put(views, after >> EIGHT)
    messages.put(views, after & LOW_8)
    messages.leave_out(views, at + TWO)
    messages.copy_to(views, end)


@kernel
def read(views, entry, state_address, way, translates, begin, end):
    """Read a segment of the control channel: the message that it begins with, and write it anew if it is translated.

    Args:
        entry: address of the ENTRY.
        state_address: of its PPTP_STATE.
        way: of the segment.
        translates: bool, whether it is translated: kernels/messages has been told by whom.
        begin, end: addresses of its payload, as far as it was captured.

    Returns:
        What foretold describes.
    """
    if end - begin < _HEADER_BYTES or memory.be16(begin + TWO) != _CONTROL or memory.be32(begin + FOUR) != _COOKIE:
        return foretold.NOTHING
    message = memory.be16(begin + EIGHT)
    if message >= SIXTY_FOUR:
        return foretold.NOTHING
    body = begin + _HEADER_BYTES
    state = state_at(state_address)
    own, known = foretold.sender(views, entry, ZERO), foretold.known(views, entry, ZERO)
    moves = translates and memory.read64(own + EIGHT) != memory.read64(known + EIGHT)
    port = foretold.known_port(views, entry, ZERO) if moves else ZERO
    result = foretold.NOTHING
    if message < u64(MESSAGES):
        result = _follow(views, entry, state, way, message, body, end, port)
    if translates:
        _write(views, state, way, message, begin, body, end)
    return result
