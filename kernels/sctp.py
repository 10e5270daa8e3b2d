"""One SCTP packet of a known association: its verification tag, then each chunk in turn (kernels/sctp_states).

Whoever was not told an association's tags cannot take part in it (RFC 9260 8.5).  INIT and INIT ACK announce the tag that
packets *to* their sender must carry.  These chunks go by other rules:

    INIT                          carries tag 0
    ABORT, SHUTDOWN COMPLETE      may carry the receiver's own tag, if their T bit says so: it is reflected
    SHUTDOWN ACK                  may answer what is no longer known to its sender, so any tag will do
    HEARTBEAT, HEARTBEAT ACK      begin on a path whose tags were not seen; from then on they are known.  A HEARTBEAT with
                                  another tag is let by, and if the other side acknowledges it the tags have changed

INITs may cross, and be late.  When both sides sent one, an INIT ACK must name the tag of its sender's INIT (RFC 9260
5.2.1); when the handshake is over, one that names another tag is stale, unless it answers an INIT that came since: that is
an association begun anew (RFC 9260 5.2.2).  Where Linux 6.18 lets a late INIT, which only repeats its sender's tag, open
that door, so that a stale INIT ACK behind it cuts one direction off, this does not.
"""

from __future__ import annotations

from ..shm.layout import ENTRY, SCTP_ASSOCIATION, Status, Way, offset
from ..shm.reasons import Reason
from . import memory, outcome
from .jit import inlined, kernel
from .sctp_chunks import CHUNKS_MAX, HEADER_BYTES, after, bits
from .sctp_states import STEPS, Chunk, Sctp, chunk_of, new_state, step_of, timeout_of
from .words import FOUR, LOW_8, ONE, TWO, ZERO, u64

PROTOCOL = offset(ENTRY, "protocol")
entry_at = memory.record_at(ENTRY)
association_at = memory.record_at(SCTP_ASSOCIATION)

_ORIG = u64(Way.ORIG)
_ASSURED, _TORN = u64(Status.ASSURED), u64(Status.TORN)
_ALL_STATUS_BUT_TORN = ~_TORN
_CLOSED, _ESTABLISHED = u64(Sctp.CLOSED), u64(Sctp.ESTABLISHED)
_OTHER, _INIT, _INIT_ACK = u64(Chunk.OTHER), u64(Chunk.INIT), u64(Chunk.INIT_ACK)
_COOKIE_ECHO, _COOKIE_ACK = u64(Chunk.COOKIE_ECHO), u64(Chunk.COOKIE_ACK)
_HEARTBEAT, _HEARTBEAT_ACK = u64(Chunk.HEARTBEAT), u64(Chunk.HEARTBEAT_ACK)
_SHUTDOWN_COMPLETE, _ABORT = u64(Chunk.SHUTDOWN_COMPLETE), u64(Chunk.ABORT)

_DATA_BIT, _INIT_BIT = u64(bits(Chunk.DATA)), u64(bits(Chunk.INIT))
_ANNOUNCERS = u64(bits(Chunk.INIT, Chunk.HEARTBEAT))
_IDLE = u64(bits(Chunk.DATA, Chunk.OTHER))
"""What changes no state."""
_OPENERS = u64(sum(1 << chunk for chunk in Chunk if STEPS[Sctp.NONE, Way.ORIG, chunk]))
_RULES_OF_THEIR_OWN = u64(
    bits(
        Chunk.INIT,
        Chunk.SHUTDOWN_COMPLETE,
        Chunk.COOKIE_ECHO,
        Chunk.ABORT,
        Chunk.SHUTDOWN_ACK,
        Chunk.HEARTBEAT,
        Chunk.HEARTBEAT_ACK,
    )
)
"""Chunks on whose account a packet's tag is not looked at before its chunks are."""

# SCTP_ASSOCIATION.marks
_CHALLENGED = u64(1)  # a HEARTBEAT with another tag was let by; `last_way` says which way it went
_UNKNOWN = u64(2)  # its tags were lost: a bit for each way, from here on, for that the next packet tells

_SCTP_TAG = u64(Reason.SCTP_TAG)
_SCTP_STATE = u64(Reason.SCTP_STATE)
_NONE, _RELEARNED = u64(Reason.NONE), u64(Reason.RELEARNED)
_PASS = u64(outcome.Outcome.PASS)


# ---------------------------------------------------------------------------------------------------- new associations
@kernel
def opens(parsed):
    """Return why a packet may not open an association, Reason.NONE if it may."""
    memory.seldom()
    chunks = u64(parsed.tcp_flags)
    if chunks & ~_OPENERS != ZERO:
        return _SCTP_STATE  # out of the blue (RFC 9260 8.4)
    if chunks & _INIT_BIT != ZERO and u64(parsed.seq) != ZERO:
        return _SCTP_TAG
    return _NONE


@kernel
def begin(entry, parsed):
    """Set up the record of an association that a packet opens; return the term of its expiry."""
    memory.seldom()
    association = association_at(entry + PROTOCOL)
    association.tag[0] = ZERO
    association.tag[1] = ZERO
    association.inits = ZERO
    association.marks = ZERO
    association.last_way = ZERO
    if u64(parsed.tcp_flags) & _ANNOUNCERS == ZERO:
        association.tag[1] = parsed.seq  # what answers a packet out of the blue reflects its tag (RFC 9260 8.4)
    entry_at(entry).state = ZERO
    return outcome.term_of(_follow(entry, _ORIG, parsed))


# ---------------------------------------------------------------------------------------------------- chunk by chunk
@inlined
def _heartbeat(association, way, chunk, tag, chunks, challenged):
    """Look at the tag of a HEARTBEAT or its ACK.

    Returns:
        0: it is the association's now.  1: it is let by, unfollowed.  2: it is not.
    """
    expected = u64(association.tag[way])
    marks = u64(association.marks)
    if expected == ZERO:
        association.tag[way] = tag
        return ZERO
    if expected == tag:
        association.marks = marks & ~_CHALLENGED
        return ZERO
    if chunks & _DATA_BIT != ZERO or challenged:
        return TWO
    if chunk == _HEARTBEAT:
        association.marks = marks | _CHALLENGED
        association.last_way = way
        return ONE
    if marks & _CHALLENGED == ZERO or u64(association.last_way) == way:
        return TWO
    association.marks = marks & ~_CHALLENGED
    association.tag[way] = tag
    association.tag[way ^ ONE] = ZERO
    return ZERO


@inlined
def _announced(association, way, chunk, tag):
    """Take the tag that an INIT or INIT ACK announces; return whether it may be."""
    back = way ^ ONE
    known = u64(association.tag[back])
    inits = u64(association.inits)
    own, others = ONE << way, ONE << back
    if chunk == _INIT:
        if inits == ZERO and known == tag:
            return True  # late: the handshake that it began is over
        association.inits = own if inits == own | others else inits | own
        association.tag[back] = tag
        return True
    if known != tag and ((inits & others == ZERO and known != ZERO) or inits == own | others):
        return False
    association.tag[back] = tag
    return True


@kernel
def _follow(entry, way, parsed):
    """Take the steps of a packet's chunks; return an outcome."""
    memory.apart()
    record = entry_at(entry)
    association = association_at(entry + PROTOCOL)
    tag = u64(parsed.seq)
    chunks = u64(parsed.tcp_flags)
    end = u64(parsed.l4) + HEADER_BYTES + u64(parsed.options_bytes)
    at = u64(parsed.l4) + HEADER_BYTES
    unfollowed = False
    step = ZERO
    for _ in range(CHUNKS_MAX):
        if at + FOUR > end:
            break
        chunk = chunk_of(memory.byte(at))
        is_challenge = False
        if chunk == _INIT:
            if tag != ZERO:
                return outcome.invalid(_SCTP_TAG)
        elif chunk == _ABORT or chunk == _SHUTDOWN_COMPLETE:
            reflected = memory.byte(at + ONE) & ONE
            if tag != u64(association.tag[way ^ reflected]):
                return outcome.invalid(_SCTP_TAG)
        elif chunk == _COOKIE_ECHO:
            if tag != u64(association.tag[way]):
                return outcome.invalid(_SCTP_TAG)
        elif chunk == _COOKIE_ACK:
            association.inits = ZERO
        elif chunk == _HEARTBEAT or chunk == _HEARTBEAT_ACK:
            how = _heartbeat(association, way, chunk, tag, chunks, unfollowed)
            if how == TWO:
                return outcome.invalid(_SCTP_TAG)
            is_challenge = how == ONE
        if is_challenge:
            unfollowed = True
        else:
            old = u64(record.state)
            step = step_of(old, way, chunk)
            if step == ZERO:
                return outcome.invalid(_SCTP_STATE)
            if chunk == _INIT or chunk == _INIT_ACK:
                if not _announced(association, way, chunk, u64(parsed.ack)):
                    return outcome.invalid(_SCTP_TAG)
                # an INIT again: nothing may keep such an association alive
                unfollowed = unfollowed or (chunk == _INIT and old == _CLOSED and new_state(step) == _CLOSED)
            record.state = new_state(step)
            if old != _ESTABLISHED and new_state(step) == _ESTABLISHED:
                record.status = u64(record.status) | _ASSURED
        at = after(at)
    if unfollowed:
        return outcome.let_by(_NONE)
    return outcome.passed(outcome.term(timeout_of(step), timeout_of(step)))


# ---------------------------------------------------------------------------------------------------- the spine
@inlined
def _mend(record, association, way, tag):
    """Take up an association whose last writer died while it wrote, or whose packets nobody saw for a while.

    The next packet of either side tells its tag.

    Returns:
        u64, RELEARNED where the packet's tag is not the one that was known, else NONE.
    """
    was = u64(association.tag[way])
    record.status = u64(record.status) & _ALL_STATUS_BUT_TORN
    association.marks = _UNKNOWN | (_UNKNOWN << ONE)
    return _RELEARNED if tag != ZERO and was != ZERO and tag != was else _NONE


@kernel
def update(entry, way, parsed):
    """Follow one packet.

    Args:
        entry: u64, address of the ENTRY.
        way: u64, Way of the packet.
        parsed: PARSED of an SCTP packet.

    Returns:
        u64, an outcome (kernels/outcome).  A packet with several chunks of which a later one is refused is invalid, though
        the earlier ones have been followed, as in Linux.

    Concurrency:
        The record's lock is held.

    Source:
        RFC 9260 as seen from between the hosts, and the reference behaviour of Linux 6.18's nf_conntrack_proto_sctp.
    """
    memory.seldom()
    record = entry_at(entry)
    association = association_at(entry + PROTOCOL)
    tag = u64(parsed.seq)
    relearned = _NONE
    if u64(record.status) & _TORN != ZERO:
        relearned = _mend(record, association, way, tag)
    if u64(association.marks) & (_UNKNOWN << way) != ZERO and tag != ZERO:
        association.tag[way] = tag
        association.marks = u64(association.marks) & ~(_UNKNOWN << way) & LOW_8
    chunks = u64(parsed.tcp_flags)
    if chunks & _RULES_OF_THEIR_OWN == ZERO and tag != u64(association.tag[way]):
        return outcome.invalid(_SCTP_TAG)
    if chunks & ~_IDLE == ZERO:
        step = step_of(u64(record.state), way, _OTHER)
        if step == ZERO:
            return outcome.invalid(_SCTP_STATE)
        return outcome.because(outcome.passed(outcome.term(timeout_of(step), timeout_of(step))), relearned)
    result = _follow(entry, way, parsed)
    if outcome.kind_of(result) != _PASS or outcome.reason_of(result) != _NONE:
        return result
    return outcome.because(result, relearned)
