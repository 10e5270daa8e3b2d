"""Header prediction: what most segments do to their connection, known before anything is asked about it.

Data and acknowledgments of an established connection are nearly all that a tracker sees.  For them each branch of
kernels/burst, track, tcp and tcp_window is known in advance, so here stands what is left of those rooms: one test of all
that must hold, then arithmetic without branches, then stores.

    packet       plain (kernels/plain), and its glance named a record
    zone         as it was at the glance
    record       LIVE, with the packet's key, not expired
    status       a reply was seen, assured; not translated, not torn, not `ovs`, no helper, no timeout that stays
    state        ESTABLISHED: an ACK leaves it there, whichever way it goes
    numbers      both sides are known, and all four bounds hold

And a SYN that may make no connection, of which the glance has confirmed that there is none, is new: nothing is foretold in
its zone, or it would be looked for.

The segments that open a connection and reset it are kernels/openings.

Where any does not hold nothing was changed, and the packet goes the whole way, which decides anew.  Where all do, record
and verdict are byte for byte what the whole way would have left: tests/kernels/test_predicted.py sends everything both ways.

Who may: as kernels/burst.  The record's lock is held between the look at its life and the last store.

Ordering
    A3  acquire life under the record's lock, as in kernels/index

Source: Van Jacobson, "4BSD TCP header prediction", 1990.  Bounds I to IV: kernels/tcp_window; each is a sign there, and the
four signs are tested at once here.
"""

from __future__ import annotations

from ..shm.layout import (
    ENTRY,
    PARSED,
    PARSED_BYTES,
    TCP_PEER,
    TCP_PEERS,
    CtState,
    Life,
    Status,
    Step,
    VerdictFlag,
    Way,
    offset,
)
from . import entries, intents, locks, memory, timeouts, zones
from .index import ABSENT
from .jit import inlined
from .outcome import term
from .plain import ASKS, FOLLOWS
from .stages import parsed_at
from .tcp_states import Segment, Tcp
from .tcp_window import ACK_WINDOW_MIN, MAXACK_KNOWN, RETRANSMISSIONS_MAX, UNACKNOWLEDGED
from .timeouts import Timeout
from .tuples import ENTRY_KEY, LAST, PARSED_KEY
from .verdicts import no_record
from .words import EIGHT, FOUR, HALF_32, LOW_8, LOW_32, ONE, SIXTEEN, THIRTY_TWO, THREE, ZERO, seq_after, u64

_FORTY_EIGHT, _SIXTY_THREE = u64(48), u64(63)
PARSED_SIZE = u64(PARSED_BYTES)
_KEY_1, _KEY_3 = u64(8), u64(24)

# ------------------------------------------------------------------------------------------------ what must hold
_FORBIDDEN = (
    Status.TORN
    | Status.HELPER
    | Status.FIXED_TIMEOUT
    | Status.RELATED
    | Status.OVS
    | Status.SOURCE_NAT
    | Status.DESTINATION_NAT
    | Status.SEQUENCE_OFFSETS
)
_NEEDED = Status.SEEN_REPLY | Status.ASSURED
STATE_SHIFT, _POLICY_SHIFT = 16, u64(24)
OUTLINE_MASK = u64(_FORBIDDEN | _NEEDED | 0xFF << STATE_SHIFT)
_OUTLINE_WANTED = u64(_NEEDED | Tcp.ESTABLISHED << STATE_SHIFT)
ORIG_IS_HIGH = u64(Status.ORIG_IS_HIGH)
assert Status.ORIG_IS_HIGH == 1 and Way.REPLY == 1 and Life.LIVE == 2

# ------------------------------------------------------------------------------------------------ where it stands
SEQ, PAYLOAD_BYTES, WIN = offset(PARSED, "seq"), offset(PARSED, "payload_bytes"), offset(PARSED, "win")
assert offset(PARSED, "ack") == SEQ + FOUR
PEER_BYTES = u64(TCP_PEER.itemsize)
MAXWIN, SCALE = offset(TCP_PEER, "maxwin"), offset(TCP_PEER, "scale")
_LAST = offset(TCP_PEERS, "last_seq")
LAST_END, RETRANSMISSIONS = _LAST + EIGHT, _LAST + SIXTEEN
_PACKETS, _BYTES = offset(ENTRY, "packets"), offset(ENTRY, "bytes")
assert offset(TCP_PEER, "end") == 0 and offset(TCP_PEER, "maxend") == 4 and offset(TCP_PEER, "maxack") == MAXWIN + FOUR
assert offset(TCP_PEER, "flags") == SCALE + ONE and offset(TCP_PEERS, "last_ack") == _LAST + FOUR
assert offset(TCP_PEERS, "last_end") == LAST_END and offset(TCP_PEERS, "last_win") == LAST_END + FOUR
assert offset(TCP_PEERS, "last_way") == LAST_END + u64(6) and offset(TCP_PEERS, "last_segment") == LAST_END + u64(7)
assert offset(TCP_PEERS, "retransmissions") == RETRANSMISSIONS
UNACKNOWLEDGED_MARK, MAXACK_KNOWN_MARK = UNACKNOWLEDGED << EIGHT, MAXACK_KNOWN << EIGHT
"""Flags beside the scale, in one word with it."""
UNACKNOWLEDGED_SHIFT = u64(int(UNACKNOWLEDGED_MARK).bit_length() - 1)
_ACK_SEGMENT = u64(Segment.ACK) << u64(56)
LAST_WAY = LAST_END + u64(6)
_RST_SEGMENT = u64(Segment.RST) << EIGHT
_CLOSE = u64(Timeout.TCP_CLOSE)

# ------------------------------------------------------------------------------------------------ what is said
_ESTABLISHED, MAX_RETRANS = u64(Timeout.TCP_ESTABLISHED), u64(Timeout.TCP_MAX_RETRANS)
UNACKNOWLEDGED_CAP = u64(Timeout.TCP_UNACKNOWLEDGED)
_SAID = u64(CtState.TRK | CtState.EST) | (u64(VerdictFlag.COMMITTED | VerdictFlag.ASSURED) << u64(24))
_SAID |= (u64(6) << _FORTY_EIGHT) | (u64(Tcp.ESTABLISHED) << u64(56))
_NEW = u64(CtState.TRK | CtState.NEW)
_SAID_OF_REPLY = u64(CtState.RPL) | (ONE << SIXTEEN)


@inlined
def advance(at, entry, way, retransmissions_max, resets):
    """Follow a segment in a record whose lock is held.

    Args:
        at: u64, address of its PARSED.
        entry: u64, address of the ENTRY.
        way: u64, Way of the segment.
        retransmissions_max: u64, as the zone is set.
        resets: whether it is a RST that acknowledges something, and is believed if its numbers are right; else an ACK.

    Returns:
        u64, the term of the record's expiry; 0 when a bound does not hold, and nothing was written.
    """
    protocol = entry + entries.PROTOCOL
    sender = protocol + way * PEER_BYTES
    receiver = protocol + (ONE - way) * PEER_BYTES
    # each word as one load, and below as one store: of narrower ones the next load would have to wait
    numbers, win = memory.le64(at + SEQ), memory.le16(at + WIN)
    seq, ack = numbers & LOW_32, numbers >> THIRTY_TWO
    end = (seq + memory.le32(at + PAYLOAD_BYTES)) & LOW_32
    sent, known = memory.le64(sender), memory.le64(sender + MAXWIN)
    its_end, its_maxwin = memory.le64(receiver) & LOW_32, memory.le64(receiver + MAXWIN) & LOW_32
    end_before, maxend, maxwin, maxack = sent & LOW_32, sent >> THIRTY_TWO, known & LOW_32, known >> THIRTY_TWO
    wrong = (maxend - seq) | (end - end_before + its_maxwin) | (its_end - ack)  # I, II, III
    wrong |= ack - its_end + max(maxwin, ACK_WINDOW_MIN)  # IV
    unknown = (maxwin - ONE) | (its_maxwin - ONE)
    if (wrong & HALF_32) | (unknown >> _SIXTY_THREE) != ZERO:
        return ZERO

    marks = memory.le32(sender + SCALE)
    scaled = (win << (marks & LOW_8)) & LOW_32
    has_advanced = seq_after(end, end_before)
    end_now = end if has_advanced else end_before
    is_latest = seq_after(ack, maxack) | (marks & MAXACK_KNOWN_MARK == ZERO)
    maxack = ack if is_latest else maxack
    marks |= MAXACK_KNOWN_MARK | (u64(has_advanced) << UNACKNOWLEDGED_SHIFT)
    memory.set_le64(sender, end_now | (maxend << THIRTY_TWO))
    memory.set_le64(sender + MAXWIN, max(maxwin, scaled) | (maxack << THIRTY_TWO))
    memory.set_le32(sender + SCALE, marks)

    granted, its_known, its_marks = (
        memory.le64(receiver),
        memory.le64(receiver + MAXWIN),
        memory.le32(receiver + SCALE),
    )
    its_end, its_maxend, its_maxwin = granted & LOW_32, granted >> THIRTY_TWO, its_known & LOW_32
    its_maxwin = (its_maxwin + end - maxend) & LOW_32 if seq_after(end, maxend) else its_maxwin
    edge = (ack + scaled) & LOW_32
    reaches = seq_after(edge, its_maxend - ONE)
    its_maxend = (edge + u64(win == ZERO)) & LOW_32 if reaches else its_maxend
    its_marks &= ~(u64(ack == its_end) << UNACKNOWLEDGED_SHIFT)
    memory.set_le64(receiver, its_end | (its_maxend << THIRTY_TWO))
    memory.set_le64(receiver + MAXWIN, its_maxwin | (its_known & ~LOW_32))
    memory.set_le32(receiver + SCALE, its_marks)

    if resets:
        memory.set_le16(protocol + LAST_WAY, way | _RST_SEGMENT)
        many = memory.byte(protocol + RETRANSMISSIONS) >= retransmissions_max
        return term(_CLOSE, MAX_RETRANS if many else _CLOSE)

    about = end | (win << THIRTY_TWO) | (way << _FORTY_EIGHT)
    differs = memory.le64(protocol + _LAST) ^ numbers
    differs |= (memory.le64(protocol + LAST_END) ^ about) << EIGHT  # whatever the segment was
    retransmissions = ZERO
    if differs == ZERO:
        retransmissions = min(memory.byte(protocol + RETRANSMISSIONS) + ONE, RETRANSMISSIONS_MAX)
    memory.set_le64(protocol + _LAST, numbers)
    memory.set_le64(protocol + LAST_END, about | _ACK_SEGMENT)
    memory.set_byte(protocol + RETRANSMISSIONS, retransmissions)

    cap = _ESTABLISHED
    if win == ZERO:
        cap = MAX_RETRANS
    if (marks | its_marks) & UNACKNOWLEDGED_MARK != ZERO:
        cap = UNACKNOWLEDGED_CAP
    if retransmissions >= retransmissions_max:
        cap = MAX_RETRANS
    return term(_ESTABLISHED, cap)


@inlined
def hold(views, at, record, entry, wanted, now_ms):
    """Lock the record that a packet's glance named, if it is what it seemed to be.

    Args:
        at: u64, address of the packet's PARSED.
        record, entry: u64, the record and its address.
        wanted: u64, what its outline must be in the bits of OUTLINE_MASK.

    Returns:
        u64, its life word; 0, and no lock is held, when it is another, has expired, or its lock was not free.
    """
    intents.set_record(views, record, Step.UPDATE)
    if not memory.swap32(entry + entries.LOCK, ZERO, views.me):
        return ZERO
    life = memory.acquire64(entry + entries.LIFE)  # A3
    outline = entries.outline(entry)
    key, own = at + PARSED_KEY, entry + ENTRY_KEY
    # with the last word the family is IPv4's, and the words of which each key has zeros need no look
    differs = (memory.read64(own + _KEY_1) ^ memory.le64(key + _KEY_1)) | ((life & LOW_8) ^ u64(Life.LIVE))
    differs |= (memory.read64(own + _KEY_3) ^ memory.le64(key + _KEY_3)) | ((outline & OUTLINE_MASK) ^ wanted)
    differs |= memory.read64(own + LAST) ^ memory.le64(key + LAST)
    if (differs != ZERO) | (memory.read64(entry + entries.EXPIRY) <= now_ms):
        locks.drop(entry + entries.LOCK)
        return ZERO
    return life


@inlined
def keep_up(views, parsed, record, entry, way, outline, term_, life, said, now_ms, verdict_address):
    """Put a followed packet's record off, count the packet, drop the lock, and write the verdict.

    Args:
        said: u64, first word of the verdict of a packet that goes forth, but for the zone.
        The rest as above.
    """
    length_ms = timeouts.term_ms(views, outline >> _POLICY_SHIFT, term_)
    entries.set_expiry(views, record, entry, now_ms + length_ms)
    packets, octets = entry + _PACKETS + (way << THREE), entry + _BYTES + (way << THREE)
    memory.set_le64(packets, memory.le64(packets) + ONE)
    memory.set_le64(octets, memory.le64(octets) + u64(parsed.ip_bytes))
    mark = u64(entries.entry_at(entry).mark)
    locks.drop(entry + entries.LOCK)
    memory.set_le64(verdict_address, said + way * _SAID_OF_REPLY + (u64(parsed.zone) << THIRTY_TWO))
    memory.set_le64(verdict_address + EIGHT, record | (life & ~LOW_32))
    memory.set_le64(verdict_address + SIXTEEN, mark | (min(length_ms, LOW_32) << THIRTY_TWO))


@inlined
def follow(views, i, now_ms, verdict_address):
    """Follow packet ``i`` of a burst, if what it does is known.

    Args:
        views: record of shm.views.
        i: u64, its place in the burst.
        now_ms: u64.
        verdict_address: u64, out, VERDICT.

    Returns:
        Whether it was, its verdict is written and its connection kept up; if not, nothing was changed.  The lock is
        dropped either way; the own intent goes on naming the record as looked at.

    Concurrency:
        Beside any number of others.
    """
    at = views.parsed + i * PARSED_SIZE
    parsed = parsed_at(at)
    record = u64(parsed.candidate) - ONE
    zone = u64(parsed.zone)
    plain = u64(parsed.plain)
    if (plain & FOLLOWS == ZERO) | (record >= ABSENT - ONE):
        return False
    entry = entries.address(views, record)
    if memory.le32(entry + entries.STATUS) & OUTLINE_MASK != _OUTLINE_WANTED:
        return False  # as it seems without its lock: most that are not established go no further
    if zones.load_word(views, zone) != u64(parsed.zone_word):
        return False
    life = hold(views, at, record, entry, _OUTLINE_WANTED, now_ms)
    if life == ZERO:
        return False
    outline = entries.outline(entry)
    way = (outline & ORIG_IS_HIGH) ^ u64(parsed.high_is_source)
    term_ = advance(at, entry, way, plain >> EIGHT, False)
    if term_ == ZERO:
        locks.drop(entry + entries.LOCK)
        return False
    keep_up(views, parsed, record, entry, way, outline, term_, life, _SAID, now_ms, verdict_address)
    return True


@inlined
def turn_away(views, i, verdict_address):
    """Say of packet ``i`` of a burst that it is new, if that is known and no connection is to be made.

    Args:
        views: record of shm.views.
        i: u64, its place in the burst, in which nothing was made and nothing appeared so far.
        verdict_address: u64, out, VERDICT.

    Returns:
        Whether its verdict is written; if not, nothing was changed.
    """
    parsed = parsed_at(views.parsed + i * PARSED_SIZE)
    if (u64(parsed.plain) != ASKS) | (u64(parsed.candidate) != ABSENT):
        return False
    if memory.acquire32(zones.expectations_address(views, u64(parsed.zone))) != ZERO:
        return False
    no_record(verdict_address, parsed, _NEW, ZERO, ZERO)
    return True
