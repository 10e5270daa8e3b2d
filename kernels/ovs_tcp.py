"""One TCP segment of a connection in the `ovs` profile: whether its numbers can be right, and the step that it takes.

Per side (OVS_PEER), kept up by every segment that passes:

    seqlo    highest sequence number + length it has sent       max_win  largest window it has offered, not scaled
    seqhi    highest acknowledgment + window it was granted     scale    its window scale, and whether that is known

A segment of a sender to a receiver passes, all modulo 2**32, if

    I     seq + length  <= sender.seqhi                         not beyond what the receiver can take
    II    seq           >= sender.seqlo - receiver.max_win      a window back at most
    III   ack           <= receiver.seqlo + W                   little ahead: what it acknowledges was perhaps not seen
    IV    ack           >= receiver.seqlo - (W << scale)        nor what was acknowledged long ago
    V     a RST:  seq   in sender.seqlo - 1 .. + 1

with W = 65,535 + 1,500, windows scaled; or, the *loose* rule, while the receiver is unknown or one side is done, if seq and
seq + length are within W of the window: such a segment moves the window, but does not put the expiry off.  ``seq_check``
off lets pass what is refused.  A segment without data or flags may have any sequence number.

Both sides' scales count if both offered one; a connection that was picked up in its middle is taken to scale by 14.

A refused segment changes nothing, but the first of a side does: it is learned before it is judged, as Open vSwitch does.

Source:
    Behaviour of Open vSwitch 4.0.90; the bounds are those of Guido van Rooij, "Real Stateful TCP Packet Filtering in IP
    Filter", 2001, as pf has them.
"""

from __future__ import annotations

from enum import IntEnum

from ..shm.layout import ENTRY, OVS_PEER, OVS_PEERS, Setting, Status, offset
from ..shm.reasons import Reason
from . import memory, outcome, ovs_tcp_states, timeouts, words
from .jit import inlined, kernel
from .outcome import Outcome
from .ovs_tcp_states import Handling, Mark, Peer
from .timeouts import Timeout
from .words import HALF_32, LOW_8, LOW_16, LOW_32, ONE, THREE, TWO, ZERO, u32_add, u32_sub, u64

MAX_ACK_WINDOW = u64(0xFFFF + 1500)
"""How far an acknowledgment may be off: the largest unscaled window, and a packet."""
SCALE_MAX = u64(14)
OPTIONS_MAX = 40
HEADER_BYTES = u64(20)


class PeerScale(IntEnum):
    """Bits of OVS_PEER.scale above the shift."""

    UNKNOWN = 1 << 6  # picked up in the middle
    OFFERED = 1 << 7


UNKNOWN, OFFERED, SHIFT = u64(PeerScale.UNKNOWN), u64(PeerScale.OFFERED), u64(0x0F)
PROTOCOL = offset(ENTRY, "protocol")
_PEER_BYTES = u64(OVS_PEER.itemsize)
_PEERS_BYTES = OVS_PEERS.itemsize

_FIN, _ACK, _RST, _SYN = u64(Mark.FIN), u64(Mark.ACK), u64(Mark.RST), u64(Mark.SYN)
_OPENING, _ILLEGAL = u64(Mark.OPENING), u64(Mark.ILLEGAL)
_REOPEN, _AGAIN = u64(Handling.REOPEN), u64(Handling.AGAIN)
_CLOSED, _SYN_SENT = u64(Peer.CLOSED), u64(Peer.SYN_SENT)
_FIRST = u64(timeouts.OVS | Timeout.TCP_SYN_SENT)
_RESTART = u64(Outcome.RESTART) | outcome.KEEP_EXPIRY
_SEQ_CHECK = u64(Setting.SEQ_CHECK)
_TORN = u64(Status.TORN)
_ALL_STATUS_BUT_TORN = ~_TORN
_OPTION_END, _OPTION_NOP, _OPTION_SCALE = ZERO, ONE, THREE

_INVALID_TCP_FLAGS = u64(Reason.INVALID_TCP_FLAGS)
_TCP_NEW_REFUSED = u64(Reason.TCP_NEW_REFUSED)
_TCP_SEQ_CHK_FAILED = u64(Reason.TCP_SEQ_CHK_FAILED)
_TCP_SEQ_CHK_BYPASS = u64(Reason.TCP_SEQ_CHK_BYPASS)
_NO_REASON, _RELEARNED = u64(Reason.NONE), u64(Reason.RELEARNED)

entry_at = memory.record_at(ENTRY)
peer_at = memory.record_at(OVS_PEER)


@inlined
def peer_address(protocol, way):
    """Return the address of the OVS_PEER of the side that sends in direction ``way``."""
    return protocol + way * _PEER_BYTES


@inlined
def _at_least(a, b):
    """Return whether sequence number ``a`` is ``b`` or after it."""
    return u32_sub(a, b) < HALF_32


@inlined
def _end_of(parsed, marks):
    """Return the sequence number after a segment."""
    length = u64(parsed.payload_bytes)
    if marks & _SYN != ZERO:
        length += ONE
    if marks & _FIN != ZERO:
        length += ONE
    return u32_add(u64(parsed.seq), length)


@kernel
def scale_offered(parsed):
    """Return OFFERED and the shift of a SYN's window scale option, the last if there are several; 0 without one.

    Reads as Open vSwitch does: an option shorter than its own header is taken for two bytes, and no other is checked.
    """
    memory.apart()
    found = ZERO
    at, left = u64(parsed.l4) + HEADER_BYTES, u64(parsed.options_bytes)
    for _ in range(OPTIONS_MAX):
        if left < THREE:
            break
        kind = memory.byte(at)
        if kind == _OPTION_END:
            break
        size = ONE
        if kind != _OPTION_NOP:
            size = max(memory.byte(at + ONE), TWO)
            if kind == _OPTION_SCALE:
                found = min(memory.byte(at + TWO), SCALE_MAX) | OFFERED
        if size > left:
            break
        at += size
        left -= size
    return found


@inlined
def _unscaled(window, shift):
    """Return a window in units of its scale, rounded up."""
    return (window + (ONE << shift) - ONE) >> shift


@kernel
def opens(parsed):
    """Return why a segment may not open a connection, Reason.NONE if it may: all may but SYN-ACK."""
    marks = ovs_tcp_states.marks_of(parsed)
    if marks & _ILLEGAL != ZERO:
        return _INVALID_TCP_FLAGS
    if marks & (_SYN | _ACK) == _SYN | _ACK:
        return _TCP_NEW_REFUSED
    return _NO_REASON


@kernel
def begin(entry, parsed):
    """Set up the record of a connection that a segment opens; return the term of its expiry."""
    memory.apart()
    protocol = entry + PROTOCOL
    memory.set_bytes(protocol, ZERO, _PEERS_BYTES)
    marks = ovs_tcp_states.marks_of(parsed)
    sender = peer_at(peer_address(protocol, ZERO))
    receiver = peer_at(peer_address(protocol, ONE))
    scale = UNKNOWN
    if marks & _SYN != ZERO:
        scale = scale_offered(parsed)
    else:
        receiver.scale = UNKNOWN
    sender.scale = scale
    sender.seqlo = parsed.seq
    sender.seqhi = u32_add(_end_of(parsed, marks), ONE)
    sender.max_win = _unscaled(max(u64(parsed.win), ONE), scale & SHIFT)
    receiver.seqhi = ONE
    receiver.max_win = ONE
    entry_at(entry).state = ovs_tcp_states.both(_SYN_SENT, _CLOSED, ZERO)
    return outcome.term(_FIRST, _FIRST)


@kernel
def mend(entry, way, parsed):
    """Take up a connection whose last writer died while it wrote, or whose packets nobody saw for a while.

    Nothing is known of it, as if it were picked up.

    Returns:
        u64, RELEARNED where the segment is believed though the numbers before would refuse it, else NONE.
    """
    memory.seldom()
    protocol, marks = entry + PROTOCOL, ovs_tcp_states.marks_of(parsed)
    sender = peer_at(peer_address(protocol, way))
    receiver = peer_at(peer_address(protocol, ONE - way))
    _, receiver_shift = _shifts(protocol, way, marks)
    lowest = u32_sub(u64(sender.seqlo), u64(receiver.max_win) << receiver_shift)
    is_near = _at_least(u64(sender.seqhi), _end_of(parsed, marks)) and _at_least(u64(parsed.seq), lowest)
    for one in range(2):
        peer = peer_at(peer_address(protocol, u64(one)))
        peer.seqlo = ZERO
        peer.seqhi = ONE
        peer.max_win = ONE
        peer.scale = UNKNOWN
    record = entry_at(entry)
    record.state = ovs_tcp_states.both(_CLOSED, _CLOSED, ZERO)
    record.status = u64(record.status) & _ALL_STATUS_BUT_TORN
    return _NO_REASON if is_near else _RELEARNED


@kernel
def _learn(protocol, way, parsed, marks, end):
    """Learn a side from its first segment.

    Returns:
        u64, its window | its scale << 16 | the receiver's scale << 24 | 1 << 32 if nothing was expected of it, so that its
        acknowledgment may be anything.
    """
    memory.apart()
    sender = peer_at(peer_address(protocol, way))
    receiver = peer_at(peer_address(protocol, ONE - way))
    win = u64(parsed.win)
    sender_shift, receiver_shift = _shifts(protocol, way, marks)
    if marks & _SYN != ZERO and u64(receiver.scale) & OFFERED != ZERO:
        offered = scale_offered(parsed)
        sender.scale = offered
        if offered & OFFERED != ZERO:
            sender_shift = offered & SHIFT
            receiver_shift = u64(receiver.scale) & SHIFT
            win = _unscaled(win, sender_shift)
        else:
            # not answered in kind, so the receiver's window was never scaled
            receiver.max_win = (u64(receiver.max_win) << (u64(receiver.scale) & SHIFT)) & LOW_16
            receiver.scale = ZERO
    sender.seqlo = parsed.seq
    granted = u32_add(end, max(u64(receiver.max_win) << receiver_shift, ONE))
    unexpected = ZERO
    if u64(sender.seqhi) == ONE or _at_least(granted, u64(sender.seqhi)):
        sender.seqhi = granted
        unexpected = ONE
    sender.max_win = max(u64(sender.max_win), win)
    return win | (sender_shift << words.SIXTEEN) | (receiver_shift << u64(24)) | (unexpected << words.THIRTY_TWO)


@inlined
def _shifts(protocol, way, marks):
    """Return the scales of sender and receiver as they count for a segment."""
    of_sender = u64(peer_at(peer_address(protocol, way)).scale)
    of_receiver = u64(peer_at(peer_address(protocol, ONE - way)).scale)
    known = of_sender & of_receiver
    if marks & _SYN != ZERO:
        return ZERO, ZERO
    if known & OFFERED != ZERO:
        return of_sender & SHIFT, of_receiver & SHIFT
    if known & UNKNOWN != ZERO:
        return SCALE_MAX, SCALE_MAX
    return ZERO, ZERO


@kernel
def update(entry, way, parsed, settings):
    """Follow one segment.

    Args:
        entry: u64, address of the ENTRY.
        way: u64, Way of the segment.
        parsed: PARSED of a TCP segment.
        settings: u64, Setting bits of the zone.

    Returns:
        u64, an outcome (kernels/outcome).

    Concurrency:
        The record's lock is held.

    Source:
        See the head of this file.
    """
    record = entry_at(entry)
    protocol = entry + PROTOCOL
    reason = _NO_REASON
    if u64(record.status) & _TORN != ZERO:
        reason = mend(entry, way, parsed)
    marks = ovs_tcp_states.marks_of(parsed)
    if marks & _ILLEGAL != ZERO:
        return outcome.invalid(_INVALID_TCP_FLAGS)
    from_sender = ovs_tcp_states.sender_of(u64(record.state), way)
    from_receiver = ovs_tcp_states.sender_of(u64(record.state), ONE - way)
    if marks & _OPENING != ZERO:
        handling = ovs_tcp_states.handling_of(from_sender, from_receiver)
        if handling == _REOPEN:
            return _RESTART
        if handling == _AGAIN:
            record.state = ovs_tcp_states.both(_SYN_SENT, from_receiver, way)
            return outcome.passed(outcome.term(_FIRST, _FIRST)) | outcome.NEW_AGAIN

    sender = peer_at(peer_address(protocol, way))
    receiver = peer_at(peer_address(protocol, ONE - way))
    seq = u64(parsed.seq)
    ack = u64(parsed.ack)
    win = u64(parsed.win)
    end = _end_of(parsed, marks)
    sender_shift, receiver_shift = _shifts(protocol, way, marks)
    unexpected = ZERO
    if from_sender < _SYN_SENT:
        learned = _learn(protocol, way, parsed, marks, end)
        win = learned & LOW_16
        sender_shift = (learned >> words.SIXTEEN) & LOW_8
        receiver_shift = (learned >> u64(24)) & LOW_8
        unexpected = learned >> words.THIRTY_TWO
        from_sender = _SYN_SENT
        record.state = ovs_tcp_states.both(from_sender, from_receiver, way)

    step = ovs_tcp_states.step_of(from_sender, from_receiver, marks)
    seqlo = u64(sender.seqlo)
    acknowledged = u64(receiver.seqlo)
    if marks & _ACK == ZERO or (ack == ZERO and marks & _RST != ZERO):
        ack = acknowledged  # some hosts set the flag in a RST without a number
    is_near = marks & _RST == ZERO or u32_add(u32_sub(seq, seqlo), ONE) <= TWO
    if seq == end:
        seq = seqlo
        end = seqlo
    if unexpected == ZERO:
        # how far the acknowledgment lags behind, moved so that one comparison does for both bounds
        lag = u32_add(u32_sub(acknowledged, ack), MAX_ACK_WINDOW)
        is_near = is_near and lag <= MAX_ACK_WINDOW + (MAX_ACK_WINDOW << sender_shift)
    is_near = is_near and _at_least(u64(sender.seqhi), end)
    is_near = is_near and _at_least(seq, u32_sub(seqlo, u64(receiver.max_win) << receiver_shift))

    timeout = ovs_tcp_states.timeout_of(step)
    term = outcome.term(timeout, timeout)
    if not is_near:
        if settings & _SEQ_CHECK == ZERO:
            reason = _TCP_SEQ_CHK_BYPASS
        elif (
            ovs_tcp_states.is_loose(step)
            and _at_least(u32_add(u64(sender.seqhi), MAX_ACK_WINDOW), end)
            and _at_least(seq, u32_sub(seqlo, MAX_ACK_WINDOW))
        ):
            step = ovs_tcp_states.step_of(from_sender, from_receiver, marks & ~_ACK)
            term = outcome.NO_TERM
        else:
            return outcome.invalid(_TCP_SEQ_CHK_FAILED)

    sender.max_win = max(u64(sender.max_win), win)
    if _at_least(end, seqlo):
        sender.seqlo = end
    granted = (win << sender_shift) & LOW_32
    if _at_least(u32_add(ack, granted), u64(receiver.seqhi)):
        receiver.seqhi = u32_add(ack, max(granted, ONE))
    record.state = ovs_tcp_states.both(ovs_tcp_states.new_sender(step), ovs_tcp_states.new_receiver(step), way)
    return outcome.because(outcome.passed(term), reason)
