"""One TCP segment of a known connection: the step of kernels/tcp_states, if the windows of kernels/tcp_window allow it.

The common segment (data or ACK of a live connection) goes straight through ``update``.  Everything that Handling marks
as out of the ordinary is decided in ``_before_step`` and what it calls, out of line:

    LET_BY     The connection may be out of sync with its hosts, who may have begun a new one on the same ports.  What
               could belong to that passes and is remembered (the ``last_*`` fields).  A SYN-ACK that acknowledges exactly
               the remembered SYN proves it: the connection is that new one from now on.
    LAST_ACK   An ACK that may be a challenge to such a SYN (RFC 5961 4) does not end the connection.
    RESET*     A RST below what the other side has acknowledged is forged or stale.  On an assured connection one that is
               not exactly there is let by, for its receiver will challenge it (RFC 5961 3), unless it ends a train of
               segments of its sender.  A RST that answers what was let by needs no window.

Where Linux 6.18 is wrong, this is not: a SYN lends no belief to a RST *of the same side* (any SYN followed by any RST
would close a connection), and sequence number 0 answers a SYN only when it comes from the other side.
"""

from __future__ import annotations

from ..shm.layout import ENTRY, MAX_RETRANS_SHIFT, Setting, Status, Way, offset
from ..shm.reasons import Reason
from . import memory, outcome, tcp_window
from .jit import inlined, kernel
from .outcome import Outcome
from .tcp_states import (
    ASSURES,
    CLOSE_BEGUN,
    EXPIRY_STAYS,
    LIVE,
    STEPS,
    Handling,
    Segment,
    Tcp,
    handling_of,
    has,
    new_state,
    segment_of,
    step_of,
    timeout_of,
)
from .tcp_window import Finding, end_of, peer_address, peer_at, peers_at
from .timeouts import Timeout
from .words import EIGHT, LOW_8, ONE, ZERO, seq_before, u64

SHORTEN_FROM_MS = u64(120_000)
"""Connections with less to live are left alone when both sides end them with numbers that cannot be right."""

PROTOCOL = offset(ENTRY, "protocol")
EXPIRY = offset(ENTRY, "expiry_ms")
entry_at = memory.record_at(ENTRY)

_BE_LIBERAL, _SEQ_CHECK = u64(Setting.BE_LIBERAL), u64(Setting.SEQ_CHECK)
_LOOSE, _IGNORE_INVALID_RST = u64(Setting.LOOSE), u64(Setting.IGNORE_INVALID_RST)
_SEEN_REPLY, _ASSURED, _TORN = u64(Status.SEEN_REPLY), u64(Status.ASSURED), u64(Status.TORN)
_ALL_STATUS_BUT_TORN = ~_TORN
_ORIG, _REPLY = u64(Way.ORIG), u64(Way.REPLY)
_NONE, _SYN, _SYNACK, _FIN, _ACK, _RST = (u64(segment) for segment in Segment)

_FOLLOW, _INVALID = u64(Handling.FOLLOW), u64(Handling.INVALID)
_LET_BY, _LET_BY_LAST, _REOPEN = u64(Handling.LET_BY), u64(Handling.LET_BY_LAST), u64(Handling.REOPEN)
_BOTH_OPEN, _BOTH_OPENED = u64(Handling.BOTH_OPEN), u64(Handling.BOTH_OPENED)
_LAST_ACK, _RESET_OPENING = u64(Handling.LAST_ACK), u64(Handling.RESET_OPENING)
_RESET_LIVE, _RESET_CLOSING = u64(Handling.RESET_LIVE), u64(Handling.RESET_CLOSING)

_OPENED = u64(STEPS[Tcp.SYN_SENT, Way.REPLY, Segment.SYNACK])
_COMPLETED = u64(STEPS[Tcp.SYN_RECV, Way.ORIG, Segment.ACK])
_STAYS = u64(STEPS[Tcp.ESTABLISHED, Way.ORIG, Segment.ACK])
"""Steps that stand in for others: a connection out of sync is opened, both open at once, a RST is let by."""

_NO_WINDOW = u64(1 << 62)
_DECIDED = u64(1 << 63)
"""Marks on the answer of ``_before_step``: a step that needs no window; an outcome instead of a step."""

_CLOSE = u64(Timeout.TCP_CLOSE)
_MAX_RETRANS = u64(Timeout.TCP_MAX_RETRANS)
_UNACKNOWLEDGED = u64(Timeout.TCP_UNACKNOWLEDGED)
_DELETE = u64(Outcome.DELETE) | outcome.KEEP_EXPIRY
_RESTART = u64(Outcome.RESTART) | outcome.KEEP_EXPIRY
_FINDING_LET_BY = u64(Finding.LET_BY)

_INVALID_TCP_FLAGS = u64(Reason.INVALID_TCP_FLAGS)
_TCP_NEW_REFUSED = u64(Reason.TCP_NEW_REFUSED)
_TCP_STATE = u64(Reason.TCP_STATE)
_TCP_RST_SEQ = u64(Reason.TCP_RST_SEQ)
_TCP_SYN_CHALLENGE = u64(Reason.TCP_SYN_CHALLENGE)
_NO_REASON, _RELEARNED = u64(Reason.NONE), u64(Reason.RELEARNED)


# ---------------------------------------------------------------------------------------------------- new connections
@kernel
def opens(parsed, settings):
    """Return why a segment may not open a connection, Reason.NONE if it may."""
    segment = segment_of(parsed)
    if segment == _NONE:
        return _INVALID_TCP_FLAGS
    if step_of(ZERO, _ORIG, segment) == ZERO:
        return _TCP_NEW_REFUSED
    if segment != _SYN and settings & _LOOSE == ZERO:
        return _TCP_NEW_REFUSED
    return _NO_REASON


@kernel
def begin(entry, parsed):
    """Set up the record of a connection that a segment opens; return the term of its expiry."""
    protocol = entry + PROTOCOL
    segment = segment_of(parsed)
    step = step_of(ZERO, _ORIG, segment)
    if segment == _SYN:
        tcp_window.open_with_syn(protocol, parsed)
        term = outcome.term(timeout_of(step), timeout_of(step))
    else:
        tcp_window.pick_up(protocol, parsed)
        tcp_window.check(protocol, _ORIG, parsed, segment, step, ONE)
        term = outcome.term(timeout_of(step), _UNACKNOWLEDGED)
    last = peers_at(protocol)
    last.last_segment = segment
    last.last_way = _ORIG
    entry_at(entry).state = new_state(step)
    return term


# ---------------------------------------------------------------------------------------------------- out of the ordinary
@kernel
def _let_by(entry, way, parsed, segment, handling):
    """Remember a segment that may belong to another incarnation; or find that it completes one that was remembered."""
    memory.seldom()
    protocol = entry + PROTOCOL
    last = peers_at(protocol)
    end = end_of(parsed)
    if (
        segment == _SYNACK
        and u64(last.last_segment) == _SYN
        and u64(last.last_way) != way
        and u64(parsed.ack) == u64(last.last_end)
    ):
        # Both hosts are in sync, only the tracker was not: the SYN that was let by takes the place of the old opening.
        opener = peer_at(peer_address(protocol, ONE - way))
        opener.end = last.last_end
        opener.maxend = last.last_end
        opener.maxwin = max(u64(last.last_win), ONE)
        opener.scale = last.last_scale
        last.last_flags = u64(last.last_flags) & ~tcp_window.CHALLENGE & LOW_8
        opener.flags = last.last_flags
        tcp_window.forget(protocol, way)
        return _OPENED

    last.last_segment = segment
    last.last_way = way
    last.last_seq = parsed.seq
    last.last_end = end
    last.last_win = parsed.win
    if segment == _SYN and way == _ORIG:
        offered = tcp_window.offers(parsed)
        last.last_scale = offered & LOW_8
        last.last_flags = (offered >> EIGHT) | (tcp_window.CHALLENGE if handling == _LET_BY_LAST else ZERO)
    elif segment == _ACK:
        last.last_ack = parsed.ack  # a RST that answers this ACK has it as its sequence number
    return _DECIDED | outcome.let_by(_TCP_SYN_CHALLENGE)


@kernel
def _reset(entry, way, parsed, settings, step):
    """Decide whether a RST may close a connection that is not closing yet; return the step and whether it needs a window."""
    memory.apart()
    record = entry_at(entry)
    protocol = entry + PROTOCOL
    last = peers_at(protocol)
    receiver = peer_at(peer_address(protocol, ONE - way))
    handling = handling_of(step)
    status = u64(record.status)
    seq = u64(parsed.seq)
    ack = u64(parsed.ack)
    last_segment = u64(last.last_segment)
    of_other_side = u64(last.last_way) != way
    live = handling == _RESET_LIVE and status & _ASSURED != ZERO

    if u64(receiver.flags) & tcp_window.MAXACK_KNOWN != ZERO and not (last_segment == _SYN and of_other_side):
        expected = u64(receiver.maxack)
        if seq == ZERO and not live:
            return step  # most likely it answers a SYN that was let by, before some late ACK
        if settings & _SEQ_CHECK != ZERO:
            if seq_before(seq, expected) and settings & _IGNORE_INVALID_RST == ZERO:
                return _DECIDED | outcome.invalid(_TCP_RST_SEQ)
            if not live or seq == expected:
                return step
            if last_segment == _SYN:
                return _DECIDED | outcome.invalid(_TCP_RST_SEQ)  # a SYN of its own does not make it believable
            if last_segment == _ACK and not of_other_side and seq == u64(last.last_end):
                return step  # it ends a train of segments
            step = _STAYS

    if ack == u64(last.last_end) and (
        (status & _SEEN_REPLY != ZERO and last_segment == _SYN and of_other_side)
        or (status & _ASSURED == ZERO and last_segment == _ACK)
    ):
        return step | _NO_WINDOW  # it answers a SYN, or an ACK of a half-open connection, that was let by
    if (
        handling == _RESET_OPENING
        and last_segment == _ACK
        and u64(last.last_way) == _REPLY
        and seq == u64(last.last_ack)
    ):
        return step | _NO_WINDOW  # it answers a challenge ACK that was let by
    return step


@kernel
def _before_step(entry, way, parsed, segment, settings, step):
    """Decide what Handling asks for; return the step to take, with _NO_WINDOW, or _DECIDED and an outcome."""
    memory.apart()
    protocol = entry + PROTOCOL
    last = peers_at(protocol)
    handling = handling_of(step)
    if handling == _INVALID:
        return _DECIDED | outcome.invalid(_INVALID_TCP_FLAGS if segment == _NONE else _TCP_STATE)
    if handling == _BOTH_OPEN:
        last.last_flags = u64(last.last_flags) | tcp_window.BOTH_OPEN
        return step
    if handling == _BOTH_OPENED:
        return _COMPLETED if u64(last.last_flags) & tcp_window.BOTH_OPEN != ZERO else step
    if handling == _LAST_ACK:
        if (
            u64(last.last_segment) == _SYN
            and u64(last.last_way) != way
            and u64(last.last_flags) & tcp_window.CHALLENGE != ZERO
        ):
            last.last_flags = u64(last.last_flags) & ~tcp_window.CHALLENGE & LOW_8
            return _DECIDED | outcome.let_by(_TCP_SYN_CHALLENGE)
        return step
    if handling == _RESET_CLOSING:
        return step | _NO_WINDOW
    if handling == _REOPEN:
        begun = u64(peer_at(peer_address(protocol, ZERO)).flags) | u64(peer_at(peer_address(protocol, ONE)).flags)
        if begun & tcp_window.CLOSE_BEGUN != ZERO or (u64(last.last_way) == way and u64(last.last_segment) == _RST):
            return _DECIDED | _RESTART
        return _let_by(entry, way, parsed, segment, handling)
    if handling == _LET_BY or handling == _LET_BY_LAST:
        return _let_by(entry, way, parsed, segment, handling)
    return _reset(entry, way, parsed, settings, step)


@kernel
def _refused(entry, way, segment, finding, now_ms):
    """Return the outcome of a segment that the windows did not accept.

    When both sides have tried to end the connection with numbers that cannot be right, tracker and hosts are out of sync:
    the connection must not stay for days, so its expiry is brought forward.
    """
    memory.seldom()
    if finding & LOW_8 == _FINDING_LET_BY:
        return outcome.let_by(finding >> EIGHT)
    invalid = outcome.invalid(finding >> EIGHT)
    record = entry_at(entry)
    if u64(record.status) & _ASSURED == ZERO or (segment != _RST and segment != _FIN):
        return invalid
    last = peers_at(entry + PROTOCOL)
    last_segment = u64(last.last_segment)
    if u64(last.last_way) != way and (last_segment == _FIN or last_segment == _RST):
        if memory.read64(entry + EXPIRY) >= now_ms + SHORTEN_FROM_MS:
            return outcome.shortened(invalid, outcome.term(_UNACKNOWLEDGED, _UNACKNOWLEDGED))
    else:
        last.last_segment = segment
        last.last_way = way
    return invalid


@kernel
def _mend(entry, way, parsed):
    """Take up a connection whose last writer died while it wrote, or whose packets nobody saw for a while.

    Returns:
        u64, RELEARNED where the segment is believed though what was known of its connection would refuse it, else NONE.
    """
    memory.seldom()
    reason = _RELEARNED if tcp_window.is_outside(entry + PROTOCOL, way, parsed) else _NO_REASON
    tcp_window.mend(entry + PROTOCOL)
    record = entry_at(entry)
    record.status = u64(record.status) & _ALL_STATUS_BUT_TORN
    return reason


# ---------------------------------------------------------------------------------------------------- the spine
@inlined
def update(entry, way, parsed, settings, now_ms):
    """Follow one segment.

    Args:
        entry: u64, address of the ENTRY.
        way: u64, Way of the segment.
        parsed: PARSED of a TCP segment.
        settings: u64, Setting bits of the zone.
        now_ms: u64.

    Returns:
        u64, an outcome (kernels/outcome).

    Concurrency:
        The record's lock is held.

    Source:
        RFC 9293 3.3.2 and 3.10 as seen from between the hosts, RFC 5961, and the reference behaviour of Linux 6.18.
    """
    record = entry_at(entry)
    protocol = entry + PROTOCOL
    status = u64(record.status)
    relearned = _NO_REASON
    if status & _TORN != ZERO:
        relearned = _mend(entry, way, parsed)
        status &= _ALL_STATUS_BUT_TORN
    segment = segment_of(parsed)
    step = step_of(u64(record.state), way, segment)
    unchecked = False
    if handling_of(step) != _FOLLOW:
        step = _before_step(entry, way, parsed, segment, settings, step)
        if step & _DECIDED != ZERO:
            return step ^ _DECIDED
        unchecked = step & _NO_WINDOW != ZERO
        step &= ~_NO_WINDOW
    if not unchecked:
        # liberal: asked for, or nothing to be checked
        liberal = (settings ^ _SEQ_CHECK) & (_BE_LIBERAL | _SEQ_CHECK)
        finding = tcp_window.check(protocol, way, parsed, segment, step, liberal)
        if finding != tcp_window.ACCEPT:
            return _refused(entry, way, segment, finding, now_ms)

    last = peers_at(protocol)
    last.last_segment = segment
    last.last_way = way
    record.state = new_state(step)
    sender = peer_at(peer_address(protocol, way))
    receiver = peer_at(peer_address(protocol, ONE - way))
    if has(step, CLOSE_BEGUN):
        sender.flags = u64(sender.flags) | tcp_window.CLOSE_BEGUN

    timeout = timeout_of(step)
    cap = timeout
    if u64(last.retransmissions) >= (settings >> u64(MAX_RETRANS_SHIFT)) & LOW_8:
        cap = _MAX_RETRANS
    elif segment == _RST:
        timeout = _CLOSE
        cap = _CLOSE
    elif (u64(sender.flags) | u64(receiver.flags)) & tcp_window.UNACKNOWLEDGED != ZERO:
        cap = _UNACKNOWLEDGED
    elif u64(last.last_win) == ZERO:
        cap = _MAX_RETRANS

    if status & _SEEN_REPLY == ZERO:
        if segment == _RST:
            return _DELETE  # never answered but by this: not worth a place
        if has(step, EXPIRY_STAYS):
            return outcome.let_by(_NO_REASON)
        if has(step, LIVE):
            cap = _UNACKNOWLEDGED
    elif has(step, ASSURES):
        record.status = status | _ASSURED
    return outcome.because(outcome.passed(outcome.term(timeout, cap)), relearned)
