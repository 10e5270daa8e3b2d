"""Header prediction of a plain opening, and of the RST that aborts a connection.

    SYN          that found nothing, and makes a connection: straight to kernels/commit, past what decides whether it may

Three steps that most connections take once, known in advance as those of kernels/predicted are:

    SYN-ACK      in SYN_SENT, the answer: what the answerer offers is learned, and the numbers must hold
    ACK          in SYN_RECV, of the opener: the same arithmetic as later, and the connection is assured from now on
    RST          in ESTABLISHED and assured, with exactly the number that the other side has acknowledged last

Where anything is not as it must be, nothing was changed, and the packet goes the whole way, which decides anew.  Where all
is, record and verdict are byte for byte what the whole way would have left: tests/kernels/test_openings.py.  Where somebody
reads events of changes all go the whole way, for each of these is one.

Who may: as kernels/predicted.

Source: RFC 9293 3.5, 3.5.3; RFC 5961 3 for the number of a RST; RFC 7323 2.2 for what scales.  Bounds: kernels/tcp_window.
"""

from __future__ import annotations

from ..shm.layout import CtState, EventKind, Status, VerdictFlag, Way
from ..shm.reasons import Reason
from . import commit, delete_list, entries, events, locks, memory, zones
from .index import ABSENT
from .jit import inlined, kernel
from .outcome import term
from .plain import ANSWERS, FOLLOWS, OPENS, RESETS
from .predicted import (
    ACK,
    LAST_END,
    LAST_WAY,
    MAX_RETRANS,
    MAXACK,
    MAXACK_KNOWN_MARK,
    MAXWIN,
    ORIG_IS_HIGH,
    OUTLINE_MASK,
    PAYLOAD_BYTES,
    PEER_BYTES,
    RETRANSMISSIONS,
    SCALE,
    SEQ,
    STATE_SHIFT,
    UNACKNOWLEDGED_CAP,
    UNACKNOWLEDGED_MARK,
    UNACKNOWLEDGED_SHIFT,
    WIN,
    advance,
    hold,
    keep_up,
    retransmissions_max,
)
from .stages import frame_of, is_still_absent, parsed_at, parsed_of
from .tcp_states import Segment, Tcp
from .tcp_window import ACK_WINDOW_MIN, LIBERAL, SCALES, offers, sack_of
from .timeouts import Timeout
from .verdicts import no_record
from .words import EIGHT, FOUR, HALF_32, LOW_8, LOW_16, LOW_32, ONE, THIRTY_TWO, ZERO, seq_after, u64

STEPPING = FOLLOWS | ANSWERS | RESETS
"""Bits of PARSED.plain of segments that may take such a step."""

_FORTY_EIGHT, _FIFTY_SIX = u64(48), u64(56)
_UPDATE = u64(EventKind.UPDATE)
_NEW = u64(CtState.TRK | CtState.NEW)
_NONE = u64(Reason.NONE)
_SEEN_REPLY, _ASSURED = u64(Status.SEEN_REPLY), u64(Status.ASSURED)
_SYN_SENT, _SYN_RECV = u64(Tcp.SYN_SENT << STATE_SHIFT), u64(Tcp.SYN_RECV << STATE_SHIFT)
_ESTABLISHED, _CLOSE = u64(Tcp.ESTABLISHED << STATE_SHIFT), u64(Tcp.CLOSE << STATE_SHIFT)
_STATE = u64(0xFF << STATE_SHIFT)
_ORIG, _REPLY = u64(Way.ORIG), u64(Way.REPLY)
_LAST_WIN, _LAST_SEGMENT = LAST_END + FOUR, LAST_WAY + ONE
_SYN = u64(Segment.SYN)
_ANSWERED = _REPLY | (u64(Segment.SYNACK) << EIGHT)
_LIBERAL_MARK, _SCALES_MARK = LIBERAL << EIGHT, SCALES << EIGHT
_RECEIVED_TERM = u64(Timeout.TCP_SYN_RECV)
_SAID = u64(CtState.TRK | CtState.EST) | (u64(VerdictFlag.COMMITTED) << u64(24)) | (u64(6) << _FORTY_EIGHT)
_SAID_ASSURED = u64(VerdictFlag.ASSURED) << u64(24)


@inlined
def _answer(views, at, parsed, entry):
    """Learn the answerer from its SYN-ACK, in a record whose lock is held; returns as `predicted.advance`."""
    opener = entry + entries.PROTOCOL
    answerer = opener + PEER_BYTES
    seq, ack, win = memory.le32(at + SEQ), memory.le32(at + ACK), memory.le16(at + WIN)
    end = (seq + memory.le32(at + PAYLOAD_BYTES) + ONE) & LOW_32
    maxwin = max(win, ONE)
    its_numbers, its_maxwin = memory.le64(opener), memory.le64(opener + MAXWIN) & LOW_32
    its_end, its_maxend = its_numbers & LOW_32, its_numbers >> THIRTY_TWO
    its_marks, known = memory.le32(opener + SCALE), memory.le64(answerer + MAXWIN)
    wrong = its_maxwin | (its_end - ack) | (ack - its_end + max(maxwin, ACK_WINDOW_MIN))  # II, III, IV; I always holds
    if (wrong & HALF_32) | (known & LOW_32) != ZERO or its_maxwin == ZERO:
        return ZERO
    if sack_of(parsed, (its_marks >> EIGHT) & LOW_8) != ack:
        return ZERO

    marks = memory.le32(answerer + SCALE)
    if u64(parsed.options_bytes) != ZERO:  # without any, it stays as it is
        marks = (marks & ~LOW_16) | (marks & _LIBERAL_MARK) | offers(parsed)
    if marks & its_marks & _SCALES_MARK == ZERO:
        marks &= ~LOW_8
        its_marks &= ~LOW_8
    maxack = known >> THIRTY_TWO
    if seq_after(ack, maxack) | (marks & MAXACK_KNOWN_MARK == ZERO):
        maxack = ack
    marks |= MAXACK_KNOWN_MARK
    memory.set_le64(answerer, end | (end << THIRTY_TWO))
    memory.set_le64(answerer + MAXWIN, maxwin | (maxack << THIRTY_TWO))
    memory.set_le32(answerer + SCALE, marks)
    edge = (ack + win) & LOW_32
    if seq_after(edge, its_maxend - ONE):
        its_maxend = (edge + u64(win == ZERO)) & LOW_32
    its_marks &= ~(u64(ack == its_end) << UNACKNOWLEDGED_SHIFT)
    memory.set_le64(opener, its_end | (its_maxend << THIRTY_TWO))
    memory.set_le32(opener + SCALE, its_marks)
    memory.set_le16(opener + LAST_WAY, _ANSWERED)

    cap = _RECEIVED_TERM
    if memory.le16(opener + _LAST_WIN) == ZERO:
        cap = MAX_RETRANS
    if (marks | its_marks) & UNACKNOWLEDGED_MARK != ZERO:
        cap = UNACKNOWLEDGED_CAP
    if memory.byte(opener + RETRANSMISSIONS) >= retransmissions_max(views, at):
        cap = MAX_RETRANS
    return term(_RECEIVED_TERM, cap)


@inlined
def _is_exact(at, entry, way):
    """Return whether a RST has the number that its receiver has acknowledged last, and acknowledges something itself."""
    protocol = entry + entries.PROTOCOL
    receiver = protocol + (ONE - way) * PEER_BYTES
    is_last = memory.le32(receiver + MAXACK) == memory.le32(at + SEQ)
    acknowledges = memory.le32(at + ACK) != ZERO
    is_known = memory.le32(receiver + SCALE) & MAXACK_KNOWN_MARK != ZERO
    return is_last & is_known & acknowledges & (memory.byte(protocol + _LAST_SEGMENT) != _SYN)


@inlined
def may_step(at):
    """Return whether the packet whose PARSED stands at an address is a segment that may take such a step."""
    return u64(parsed_at(at).plain) & STEPPING != ZERO


@kernel
def step_on(views, at, now_ms, verdict_address):
    """Take the step of a packet of a burst, if it is one of these; arguments and result as of `predicted.follow`."""
    memory.apart()
    parsed = parsed_at(at)
    record = u64(parsed.candidate) - ONE
    kind = u64(parsed.plain)
    if (u64(parsed.found) == ZERO) | (kind & STEPPING == ZERO):
        return False
    wanted, new, said = _SEEN_REPLY | _ASSURED | _ESTABLISHED, _CLOSE, _SAID | _SAID_ASSURED
    if kind == FOLLOWS:
        wanted, new = _SEEN_REPLY | _SYN_RECV, _ESTABLISHED | _ASSURED
    elif kind == ANSWERS:
        wanted, new, said = _SYN_SENT, _SYN_RECV | _SEEN_REPLY, _SAID
    entry = u64(parsed.entry)
    seen = entries.outline(entry)
    if seen & OUTLINE_MASK != wanted:
        return False  # as it seems without its lock
    if zones.load_word(views, u64(parsed.zone)) != u64(parsed.zone_word) or events.are_wanted(views, _UPDATE):
        return False
    if not hold(views, at, record, entry, seen, now_ms):
        return False
    outline = entries.outline(entry)
    way = (outline & ORIG_IS_HIGH) ^ u64(parsed.high_is_source)
    term_ = ZERO
    if kind == ANSWERS:
        if way == _REPLY:
            term_ = _answer(views, at, parsed, entry)
    elif (way == _ORIG) if kind == FOLLOWS else _is_exact(at, entry, way):
        term_ = advance(views, at, entry, way, kind == RESETS)
    if term_ == ZERO:
        locks.drop(entry + entries.LOCK)
        return False
    memory.set_le32(entry + entries.STATUS, (outline & ~_STATE) | new)
    said |= (new >> u64(STATE_SHIFT)) << _FIFTY_SIX
    keep_up(views, at, entry, term_, said, now_ms, verdict_address)
    return True


# ------------------------------------------------------------------------------------------------ what makes a connection
@inlined
def may_open(at):
    """Return whether a packet, by its PARSED, is a SYN that may make a connection, of which its glance found none."""
    parsed = parsed_at(at)
    return (u64(parsed.plain) & OPENS != ZERO) & (u64(parsed.candidate) == ABSENT)


@kernel
def open_(views, frames, i, count, nothing_made, now_ms, verdict_address):
    """Make a connection for packet ``i`` of a burst, if ``may_open`` and nothing speaks against it.

    Args:
        views, frames, count, now_ms: as for `burst.track_burst`.
        i: u64, its place in the burst.
        nothing_made: whether nothing was made in this burst so far, and nothing appeared.
        verdict_address: u64, out, VERDICT.

    Returns:
        Whether it was made and its verdict is written.  If not, nothing was: the whole way finds out what stands against it.
    """
    memory.apart()
    parsed = parsed_of(views, i)
    zone = u64(parsed.zone)
    if delete_list.is_crowded(views) or memory.acquire32(zones.expectations_address(views, zone)) != ZERO:
        return False
    if not nothing_made and not is_still_absent(views, parsed):
        return False
    if zones.credit(views) == ZERO and zones.refusal(views, zone) != _NONE:
        return False  # nothing is tried twice where all is full
    no_record(verdict_address, parsed, _NEW, ZERO, ZERO)
    frame = frame_of(frames, i)
    settings = zones.settings_of(views, zone)
    return commit.make(views, frame, parsed, i, count, settings, ZERO, now_ms, verdict_address) == _NONE
