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
from .jit import inlined, kernel
from .outcome import term
from .plain import ASKS, FOLLOWS
from .stages import parsed_at
from .tcp_states import Segment, Tcp
from .tcp_window import ACK_WINDOW_MIN, MAXACK_KNOWN, RETRANSMISSIONS_MAX, UNACKNOWLEDGED
from .timeouts import Timeout
from .tuples import ENTRY_KEY, LAST, PARSED_KEY
from .verdicts import no_record
from .words import EIGHT, FOUR, HALF_32, LOW_8, LOW_32, ONE, SIXTEEN, THIRTY_TWO, THREE, TWO, ZERO, seq_after, u64

_FORTY_EIGHT = u64(48)
_KEY_1 = u64(8)
assert LAST == 4 * _KEY_1

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
STATE_SHIFT = 16
OUTLINE_MASK = u64(_FORBIDDEN | _NEEDED | 0xFF << STATE_SHIFT)
_OUTLINE_WANTED = u64(_NEEDED | Tcp.ESTABLISHED << STATE_SHIFT)
ORIG_IS_HIGH = u64(Status.ORIG_IS_HIGH)
_STAYS = OUTLINE_MASK | ORIG_IS_HIGH
assert Status.ORIG_IS_HIGH == 1 and Way.REPLY == 1 and Life.LIVE == 2

# ------------------------------------------------------------------------------------------------ where it stands
SEQ, ACK = offset(PARSED, "seq"), offset(PARSED, "ack")
PAYLOAD_BYTES, WIN = offset(PARSED, "payload_bytes"), offset(PARSED, "win")
_PLAIN, _FOLLOWS_FOUND = offset(PARSED, "plain"), FOLLOWS | (ONE << SIXTEEN)
assert offset(PARSED, "found") == _PLAIN + TWO
PEER_BYTES = u64(TCP_PEER.itemsize)
MAXEND, MAXWIN = offset(TCP_PEER, "maxend"), offset(TCP_PEER, "maxwin")
MAXACK, SCALE = offset(TCP_PEER, "maxack"), offset(TCP_PEER, "scale")
_LAST = offset(TCP_PEERS, "last_seq")
LAST_END, RETRANSMISSIONS = _LAST + EIGHT, _LAST + SIXTEEN
_PACKETS, _BYTES, _POLICY = offset(ENTRY, "packets"), offset(ENTRY, "bytes"), offset(ENTRY, "policy")
assert offset(TCP_PEER, "end") == 0
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
_USUAL = _ESTABLISHED | (_ESTABLISHED << EIGHT)
"""The term of an ACK, as `outcome.term` makes it."""
_SAID = u64(CtState.TRK | CtState.EST) | (u64(VerdictFlag.COMMITTED | VerdictFlag.ASSURED) << u64(24))
_SAID |= (u64(6) << _FORTY_EIGHT) | (u64(Tcp.ESTABLISHED) << u64(56))
_NEW = u64(CtState.TRK | CtState.NEW)
_SAID_OF_REPLY = u64(CtState.RPL) | (ONE << SIXTEEN)


@inlined
def retransmissions_max(views, at):
    """Return how often the zone of a packet, by its PARSED, lets a segment be sent again."""
    return zones.retransmissions_max_at(zones.address(views, u64(parsed_at(at).zone)))


@kernel
def _cap(views, at, unacknowledged, win, retransmissions):
    """Return what cuts the timeout of a connection with something unacknowledged, no window, or retransmissions."""
    memory.apart()  # else LLVM would reckon it for every segment
    if retransmissions >= retransmissions_max(views, at):
        return MAX_RETRANS
    if unacknowledged != ZERO:
        return UNACKNOWLEDGED_CAP
    return MAX_RETRANS if win == ZERO else _ESTABLISHED


@kernel
def _length_ms(views, policy, term_):
    """Return the length of a term, which is not the usual one."""
    memory.apart()
    return timeouts.term_ms(views, policy, term_)


@inlined
def advance(views, at, entry, way, resets):
    """Follow a segment in a record whose lock is held.

    Args:
        at: u64, address of its PARSED.
        entry: u64, address of the ENTRY.
        way: u64, Way of the segment.
        resets: whether it is a RST that acknowledges something, and is believed if its numbers are right; else an ACK.

    Returns:
        u64, the term of the record's expiry; 0 when a bound does not hold, and nothing was written.
    """
    protocol = entry + entries.PROTOCOL
    step = way * PEER_BYTES
    sender, receiver = protocol + step, protocol + PEER_BYTES - step
    # everything is loaded again where it is needed again: there are too few registers to keep it
    seq, ack = memory.le32(at + SEQ), memory.le32(at + ACK)
    end = (seq + memory.le32(at + PAYLOAD_BYTES)) & LOW_32
    end_before, maxwin = memory.le32(sender), memory.le32(sender + MAXWIN)
    its_end, its_maxwin = memory.le32(receiver), memory.le32(receiver + MAXWIN)
    wrong = (memory.le32(sender + MAXEND) - seq) | (end - end_before + its_maxwin) | (its_end - ack)  # I, II, III
    wrong |= ack - its_end + max(maxwin, ACK_WINDOW_MIN)  # IV
    if wrong & HALF_32 != ZERO or maxwin == ZERO or its_maxwin == ZERO:
        return ZERO

    has_advanced = seq_after(end, end_before)
    memory.set_le32(sender, end if has_advanced else end_before)
    marks = memory.le32(sender + SCALE)
    is_known = marks & MAXACK_KNOWN_MARK != ZERO
    marks |= MAXACK_KNOWN_MARK | (u64(has_advanced) << UNACKNOWLEDGED_SHIFT)
    memory.set_le32(sender + SCALE, marks)
    ack, maxack = memory.le32(at + ACK), memory.le32(sender + MAXACK)
    memory.set_le32(sender + MAXACK, maxack if is_known and not seq_after(ack, maxack) else ack)
    win = memory.le16(at + WIN)
    scaled = (win << (marks & LOW_8)) & LOW_32
    memory.set_le32(sender + MAXWIN, max(memory.le32(sender + MAXWIN), scaled))

    end, maxend = (memory.le32(at + SEQ) + memory.le32(at + PAYLOAD_BYTES)) & LOW_32, memory.le32(sender + MAXEND)
    if seq_after(end, maxend):
        memory.set_le32(receiver + MAXWIN, memory.le32(receiver + MAXWIN) + end - maxend)
    edge, its_maxend = (memory.le32(at + ACK) + scaled) & LOW_32, memory.le32(receiver + MAXEND)
    reaches = seq_after(edge, its_maxend - ONE)
    memory.set_le32(receiver + MAXEND, edge + u64(win == ZERO) if reaches else its_maxend)
    its_marks = memory.le32(receiver + SCALE)
    its_marks &= ~(u64(memory.le32(at + ACK) == memory.le32(receiver)) << UNACKNOWLEDGED_SHIFT)
    memory.set_le32(receiver + SCALE, its_marks)
    unacknowledged = (marks | its_marks) & UNACKNOWLEDGED_MARK

    if resets:
        memory.set_le16(protocol + LAST_WAY, way | _RST_SEGMENT)
        many = memory.byte(protocol + RETRANSMISSIONS) >= retransmissions_max(views, at)
        return term(_CLOSE, MAX_RETRANS if many else _CLOSE)

    numbers, about = memory.le64(at + SEQ), end | (win << THIRTY_TWO) | (way << _FORTY_EIGHT)
    differs = memory.le64(protocol + _LAST) ^ numbers
    differs |= (memory.le64(protocol + LAST_END) ^ about) << EIGHT  # whatever the segment was
    memory.set_le64(protocol + _LAST, numbers)
    memory.set_le64(protocol + LAST_END, about | _ACK_SEGMENT)
    before, retransmissions = memory.byte(protocol + RETRANSMISSIONS), ZERO
    if differs == ZERO:
        retransmissions = min(before + ONE, RETRANSMISSIONS_MAX)
    if retransmissions != before:
        memory.set_byte(protocol + RETRANSMISSIONS, retransmissions)
    cap = _ESTABLISHED
    if (unacknowledged != ZERO) | (win == ZERO) | (retransmissions != ZERO):
        cap = _cap(views, at, unacknowledged, win, retransmissions)
    return term(_ESTABLISHED, cap)


@inlined
def hold(views, at, record, entry, seen, now_ms):
    """Lock the record that a packet's glance named, if it is what it seemed to be.

    Args:
        at: u64, address of the packet's PARSED.
        record, entry: u64, the record and its address.
        seen: u64, its outline as it was before, and must still be in the bits of OUTLINE_MASK, and who opened it.

    Returns:
        Whether it is; if not, no lock is held: it is another, has expired, or its lock was not free.
    """
    intents.set_record(views, record, Step.UPDATE)
    if not memory.swap32(entry + entries.LOCK, ZERO, views.me):
        return False
    life = memory.acquire64(entry + entries.LIFE)  # A3
    # with the last word the family is IPv4's, and the first word of which each key has zeros needs no look
    differs = memory.differs_32(entry + ENTRY_KEY + _KEY_1, at + PARSED_KEY + _KEY_1)
    differs = differs or life & LOW_8 != u64(Life.LIVE)
    differs = differs or (entries.outline(entry) ^ seen) & _STAYS != ZERO
    if differs or memory.read64(entry + entries.EXPIRY) <= now_ms:
        locks.drop(entry + entries.LOCK)
        return False
    return True


@inlined
def keep_up(views, at, entry, term_, said, now_ms, verdict_address):
    """Put a followed packet's record off, count the packet, drop the lock, and write the verdict.

    Args:
        at, entry: as above; the record says which way the packet went.
        term_: u64, as `advance` returns it.
        said: u64, first word of the verdict of a packet that goes forth, but for the zone.
    """
    parsed = parsed_at(at)
    record, way = u64(parsed.candidate) - ONE, memory.byte(entry + entries.PROTOCOL + LAST_WAY)
    policy = memory.byte(entry + _POLICY)
    if term_ == _USUAL:
        length_ms = timeouts.length_ms(views, policy, _ESTABLISHED)
    else:
        length_ms = _length_ms(views, policy, term_)
    entries.set_expiry(views, record, entry, now_ms + length_ms)
    packets, octets = entry + _PACKETS + (way << THREE), entry + _BYTES + (way << THREE)
    memory.set_le64(packets, memory.le64(packets) + ONE)
    memory.set_le64(octets, memory.le64(octets) + u64(parsed.ip_bytes))
    mark, incarnation = u64(entries.entry_at(entry).mark), memory.read64(entry + entries.LIFE) & ~LOW_32
    locks.drop(entry + entries.LOCK)
    memory.set_le64(verdict_address, said + way * _SAID_OF_REPLY + (u64(parsed.zone) << THIRTY_TWO))
    memory.set_le64(verdict_address + EIGHT, record | incarnation)
    memory.set_le64(verdict_address + SIXTEEN, mark | (length_ms << THIRTY_TWO))


@inlined
def follow(views, at, now_ms, verdict_address):
    """Follow a packet of a burst, if what it does is known.

    Args:
        views: record of shm.views.
        at: u64, address of its PARSED.
        now_ms: u64.
        verdict_address: u64, out, VERDICT.

    Returns:
        Whether it was, its verdict is written and its connection kept up; if not, nothing was changed.  The lock is
        dropped either way; the own intent goes on naming the record as looked at.

    Concurrency:
        Beside any number of others.
    """
    parsed = parsed_at(at)
    if memory.le32(at + _PLAIN) != _FOLLOWS_FOUND:
        return False
    entry = u64(parsed.entry)
    seen = entries.outline(entry)
    if seen & OUTLINE_MASK != _OUTLINE_WANTED:
        return False  # as it seems without its lock: most that are not established go no further
    if zones.load_word(views, u64(parsed.zone)) != u64(parsed.zone_word):
        return False
    way = (seen & ORIG_IS_HIGH) ^ u64(parsed.high_is_source)  # what can be known before the lock is not behind it
    if not hold(views, at, u64(parsed.candidate) - ONE, entry, seen, now_ms):
        return False
    term_ = advance(views, at, entry, way, False)
    if term_ == ZERO:
        locks.drop(entry + entries.LOCK)
        return False
    keep_up(views, at, entry, term_, _SAID, now_ms, verdict_address)
    return True


@inlined
def turn_away(views, at, verdict_address):
    """Say of a packet of a burst that it is new, if that is known and no connection is to be made.

    Args:
        views: record of shm.views.
        at: u64, address of the PARSED of a packet of a burst in which nothing was made and nothing appeared so far.
        verdict_address: u64, out, VERDICT.

    Returns:
        Whether its verdict is written; if not, nothing was changed.
    """
    parsed = parsed_at(at)
    if (u64(parsed.plain) != ASKS) | (u64(parsed.candidate) != ABSENT):
        return False
    if memory.acquire32(zones.expectations_address(views, u64(parsed.zone))) != ZERO:
        return False
    no_record(verdict_address, parsed, _NEW, ZERO, ZERO)
    return True
