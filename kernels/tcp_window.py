"""Whether a segment's numbers can be right, by what both sides have sent and granted before.

Per side (TCP_PEER), kept up by every segment that passes:

    end     highest sequence number + length it has sent         maxwin  largest window it has offered, scaled
    maxend  highest acknowledgment + window it was granted       maxack  highest acknowledgment it has sent

A segment of a sender to a receiver is compared, all modulo 2**32:

    I    seq            <= sender.maxend                         not beyond what the receiver can take
    II   seq + length   >= sender.end - receiver.maxwin          not older than what the receiver may still lack
    III  sack           <= receiver.end                          acknowledges nothing that was never sent
    IV   sack           >= receiver.end - max(66000, maxwin)     nor what was acknowledged long ago

``sack`` is the acknowledgment, or the highest right edge of a SACK block where that is higher.

    broken     then
    I, III     invalid
    I alone    by no more than the receiver's largest window: let by, and the end is remembered, for the other side's
               acknowledgment of these very bytes would break III for ever after
    II, IV     let by without a trace: late duplicates are harmless, and the other host answers them
    any        a liberal side's segment is accepted, without a trace

A window in a SYN is never scaled; scale counts if both sides offered one (RFC 7323 2.2), and is 14 at most (2.3).  A side
that was never seen is not compared with: it is learned from the first segment of it.

Source:
    Bounds: Guido van Rooij, "Real Stateful TCP Packet Filtering in IP Filter", 2001, as extended for scaling and SACK by
    Linux's connection tracking.  Late duplicates and overruns: reference behaviour of Linux 6.18.
"""

from __future__ import annotations

from enum import IntEnum

from ..shm.layout import TCP_PEER, TCP_PEERS
from ..shm.reasons import Reason
from . import memory
from .jit import inlined, kernel
from .tcp_states import FIRST_OF_SIDE, SYN_ANSWERED, Flag, Segment, has
from .words import (
    EIGHT,
    FOUR,
    LOW_8,
    ONE,
    THREE,
    TWO,
    ZERO,
    seq_after,
    seq_before,
    u32_add,
    u32_sub,
    u64,
)


class PeerFlag(IntEnum):
    """Bits of TCP_PEER.flags; the last two only in TCP_PEERS.last_flags."""

    SCALES = 1 << 0  # offered window scaling
    SACKS = 1 << 1  # permitted SACK
    CLOSE_BEGUN = 1 << 2  # sent the first FIN
    LIBERAL = 1 << 3  # its history is lost: any numbers will do
    UNACKNOWLEDGED = 1 << 4  # sent what was not yet acknowledged
    MAXACK_KNOWN = 1 << 5
    CHALLENGE = 1 << 6  # a SYN was let by that the other side may challenge
    BOTH_OPEN = 1 << 7  # both sides sent a SYN


class Finding(IntEnum):
    """What the comparison says; the low byte of ``check``'s result, above it the Reason."""

    ACCEPT = 0
    LET_BY = 1
    INVALID = 2


SCALE_MAX = u64(14)
ACK_WINDOW_MIN = u64(66000)
"""The least distance that an acknowledgment may lag behind: the largest unscaled window and a bit."""
HEADER_BYTES = u64(20)
OPTIONS_MAX = 40
OPTION_END, OPTION_NOP, OPTION_SCALE, OPTION_SACK_PERMITTED, OPTION_SACK = ZERO, ONE, THREE, FOUR, u64(5)
TIMESTAMP_ALONE_BYTES = u64(12)
TIMESTAMP_ALONE = u64(0x0101080A)
"""Options of nearly every segment that has any: two NOPs and a timestamp (RFC 7323, appendix A)."""
SACK_BLOCKS_MAX = 4
RETRANSMISSIONS_MAX = u64(255)

SCALES = u64(PeerFlag.SCALES)
SACKS = u64(PeerFlag.SACKS)
CLOSE_BEGUN = u64(PeerFlag.CLOSE_BEGUN)
LIBERAL = u64(PeerFlag.LIBERAL)
UNACKNOWLEDGED = u64(PeerFlag.UNACKNOWLEDGED)
MAXACK_KNOWN = u64(PeerFlag.MAXACK_KNOWN)
CHALLENGE = u64(PeerFlag.CHALLENGE)
BOTH_OPEN = u64(PeerFlag.BOTH_OPEN)
SETTLED = LOW_8 ^ UNACKNOWLEDGED

ACCEPT = u64(Finding.ACCEPT)
_SEQ_ABOVE = u64(Finding.INVALID) | u64(Reason.TCP_SEQ_ABOVE) << EIGHT
_ACK_ABOVE = u64(Finding.INVALID) | u64(Reason.TCP_ACK_ABOVE) << EIGHT
_OVERRUN = u64(Finding.LET_BY) | u64(Reason.TCP_SEQ_ABOVE) << EIGHT
_SEQ_BELOW = u64(Finding.LET_BY) | u64(Reason.TCP_SEQ_BELOW) << EIGHT
_ACK_BELOW = u64(Finding.LET_BY) | u64(Reason.TCP_ACK_BELOW) << EIGHT

_FIN, _SYN, _RST, _ACK = u64(Flag.FIN), u64(Flag.SYN), u64(Flag.RST), u64(Flag.ACK)
_ACK_SEGMENT = u64(Segment.ACK)
_PEER_BYTES = u64(TCP_PEER.itemsize)
_PEERS_BYTES = TCP_PEERS.itemsize

peer_at = memory.record_at(TCP_PEER)
peers_at = memory.record_at(TCP_PEERS)


@inlined
def peer_address(protocol, way):
    """Return the address of the TCP_PEER of the side that sends in direction ``way``."""
    return protocol + way * _PEER_BYTES


@inlined
def end_of(parsed):
    """Return the sequence number after a segment; SYN and FIN take one each (RFC 9293 3.4)."""
    flags = u64(parsed.tcp_flags)
    return u32_add(u64(parsed.seq), u64(parsed.payload_bytes) + (flags & _FIN) + ((flags & _SYN) >> ONE))


@inlined
def at_least_one(window):
    """Return the window, but never 0, which stands for a side that was never seen."""
    return max(window, ONE)


# ---------------------------------------------------------------------------------------------------- options
@inlined
def option_bytes(at, left):
    """Return the bytes of the option at an address, of at most ``left``; 0 where the list ends, or one is cut short."""
    if left == ZERO:
        return ZERO
    kind = memory.byte(at)
    if kind == OPTION_END:
        return ZERO
    if kind == OPTION_NOP:
        return ONE
    if left < TWO:
        return ZERO
    size = memory.byte(at + ONE)
    return size if size >= TWO and size <= left else ZERO


@kernel
def offers(parsed):
    """Return what a SYN offers: its window scale, and SCALES | SACKS << 8.

    Reads at most OPTIONS_MAX options, none beyond ``options_bytes``; an option that is cut short ends the list.
    """
    memory.apart()
    scale, flags = ZERO, ZERO
    at, left = u64(parsed.l4) + HEADER_BYTES, u64(parsed.options_bytes)
    for _ in range(OPTIONS_MAX):
        size = option_bytes(at, left)
        if size == ZERO:
            break
        kind = memory.byte(at)
        if kind == OPTION_SACK_PERMITTED and size == TWO:
            flags |= SACKS
        elif kind == OPTION_SCALE and size == THREE:
            flags |= SCALES
            scale = min(memory.byte(at + TWO), SCALE_MAX)
        at += size
        left -= size
    return scale | (flags << EIGHT)


@kernel
def highest_sack(parsed):
    """Return the highest right edge of a segment's SACK blocks (RFC 2018 3), or its acknowledgment if that is higher."""
    memory.apart()
    sack = u64(parsed.ack)
    at, left = u64(parsed.l4) + HEADER_BYTES, u64(parsed.options_bytes)
    for _ in range(OPTIONS_MAX):
        size = option_bytes(at, left)
        if size == ZERO:
            break
        if memory.byte(at) == OPTION_SACK:
            blocks = (size - TWO) >> THREE
            if blocks != ZERO and size == TWO + (blocks << THREE):
                for i in range(SACK_BLOCKS_MAX):
                    if u64(i) < blocks:
                        edge = memory.be32(at + TWO + u64(8 * i) + FOUR)
                        if seq_after(edge, sack):
                            sack = edge
                break
        at += size
        left -= size
    return sack


@inlined
def sack_of(parsed, receiver_flags):
    """Return what a segment acknowledges at most."""
    options = u64(parsed.options_bytes)
    if options != ZERO and receiver_flags & SACKS != ZERO:
        if options != TIMESTAMP_ALONE_BYTES or memory.be32(u64(parsed.l4) + HEADER_BYTES) != TIMESTAMP_ALONE:
            return highest_sack(parsed)
    return u64(parsed.ack)


# ---------------------------------------------------------------------------------------------------- beginnings
@kernel
def open_with_syn(protocol, parsed):
    """Set up a connection that begins with a SYN."""
    memory.apart()
    memory.set_bytes(protocol, ZERO, _PEERS_BYTES)
    sender = peer_at(peer_address(protocol, ZERO))
    receiver = peer_at(peer_address(protocol, ONE))
    end = end_of(parsed)
    window = at_least_one(u64(parsed.win))
    sender.end = end
    sender.maxend = end
    sender.maxwin = window
    if u64(parsed.options_bytes) != ZERO:
        offered = offers(parsed)
        sender.scale = offered & LOW_8
        sender.flags = offered >> EIGHT
    # the other side's numbers are not known: what it may send is counted from 0 until it does
    receiver.maxend = window


@kernel
def pick_up(protocol, parsed):
    """Set up a connection in its middle: both sides are liberal, for the scale of their windows was not seen."""
    memory.seldom()
    memory.set_bytes(protocol, ZERO, _PEERS_BYTES)
    sender = peer_at(peer_address(protocol, ZERO))
    receiver = peer_at(peer_address(protocol, ONE))
    end = end_of(parsed)
    window = at_least_one(u64(parsed.win))
    sender.end = end
    sender.maxend = u32_add(end, window)
    sender.maxwin = window
    sender.flags = SACKS | LIBERAL
    receiver.flags = SACKS | LIBERAL


@kernel
def mend(protocol):
    """Forget both sides' numbers, which may be half written, and learn them anew; the connection is liberal from now on.

    As a connection that is picked up in the middle, whose history is lost just so.
    """
    memory.seldom()
    for way in range(2):
        peer = peer_at(peer_address(protocol, u64(way)))
        peer.maxwin = ZERO
        peer.flags = (u64(peer.flags) | LIBERAL | SACKS) & ~(UNACKNOWLEDGED | MAXACK_KNOWN) & LOW_8
        peer.scale = min(u64(peer.scale), SCALE_MAX)
    last = peers_at(protocol)
    last.last_segment = ZERO
    last.last_flags = ZERO
    last.retransmissions = ZERO


@kernel
def is_outside(protocol, way, parsed):
    """Return whether a segment breaks a bound of the windows as they stand; nothing is changed.

    Args:
        protocol: u64, address of the TCP_PEERS.
        way: u64, Way of the segment.
        parsed: PARSED of a TCP segment.
    """
    memory.seldom()
    sender = peer_at(peer_address(protocol, way))
    receiver = peer_at(peer_address(protocol, ONE - way))
    flags = u64(parsed.tcp_flags)
    if u64(sender.maxwin) == ZERO or flags & _SYN != ZERO:
        return False  # there is nothing to compare with
    sack = sack_of(parsed, u64(receiver.flags))
    if flags & _ACK == ZERO or (flags & _RST != ZERO and u64(parsed.ack) == ZERO):
        sack = u64(receiver.end)
    if not seq_before(u64(parsed.seq), u64(sender.maxend) + ONE) or not seq_before(sack, u64(receiver.end) + ONE):
        return True
    maxwin = u64(receiver.maxwin)
    if maxwin != ZERO and not seq_after(end_of(parsed), u64(sender.end) - maxwin - ONE):
        return True
    return not seq_after(sack, u64(receiver.end) - max(u64(sender.maxwin), ACK_WINDOW_MIN) - ONE)


@kernel
def forget(protocol, way):
    """Make the side that sends in direction ``way`` one that was never seen, but for being liberal."""
    memory.seldom()
    peer = peer_at(peer_address(protocol, way))
    peer.end = ZERO
    peer.maxend = ZERO
    peer.maxwin = ZERO
    peer.maxack = ZERO
    peer.scale = ZERO
    peer.flags = u64(peer.flags) & LIBERAL


@kernel
def _first_of_side(protocol, way, parsed):
    """Learn a side from its SYN or SYN-ACK."""
    memory.apart()
    sender = peer_at(peer_address(protocol, way))
    receiver = peer_at(peer_address(protocol, ONE - way))
    end = end_of(parsed)
    sender.end = end
    sender.maxend = end
    sender.maxwin = at_least_one(u64(parsed.win))
    if u64(parsed.options_bytes) != ZERO:  # without any, it stays as the SYN before it had offered
        offered = offers(parsed)
        sender.scale = offered & LOW_8
        sender.flags = (u64(sender.flags) & LIBERAL) | (offered >> EIGHT)
    # RFC 7323 2.2: decided by the answer.  Before that, a second SYN must not take away the scale of the first.
    if way != ZERO and u64(sender.flags) & u64(receiver.flags) & SCALES == ZERO:
        sender.scale = ZERO
        receiver.scale = ZERO


@kernel
def _learn(protocol, way, parsed, sack):
    """Learn a side of which the beginning was not seen."""
    memory.seldom()
    sender = peer_at(peer_address(protocol, way))
    receiver = peer_at(peer_address(protocol, ONE - way))
    end = end_of(parsed)
    window = at_least_one(u64(parsed.win) << u64(sender.scale))
    sender.end = end
    sender.maxend = u32_add(end, window)
    sender.maxwin = window
    if u64(receiver.maxwin) == ZERO:
        receiver.end = sack
        receiver.maxend = sack
    elif sack == u32_add(u64(receiver.end), ONE):
        # RFC 9293 3.8.4: the receiver's first segment was a keep-alive probe, one below what it had sent
        receiver.end = sack


# ---------------------------------------------------------------------------------------------------- the comparison
@kernel
def _beyond(protocol, way, end, sack, liberal):
    """Return the finding on a segment that begins above the window."""
    memory.seldom()
    sender = peer_at(peer_address(protocol, way))
    receiver = peer_at(peer_address(protocol, ONE - way))
    maxwin = u64(receiver.maxwin)
    lag = max(u64(sender.maxwin), ACK_WINDOW_MIN)
    finding = _SEQ_ABOVE
    if (
        maxwin != ZERO
        and seq_after(end, u32_sub(u64(sender.end), maxwin + ONE))
        and seq_after(sack, u32_sub(u64(receiver.end), lag + ONE))
        and seq_before(sack, u32_add(u64(receiver.end), ONE))
        and u32_sub(end, u64(sender.maxend)) + ONE <= maxwin
    ):
        sender.end = end
        sender.flags = u64(sender.flags) | UNACKNOWLEDGED
        finding = _OVERRUN
    if (u64(sender.flags) & LIBERAL) | liberal != ZERO:
        finding = ACCEPT
    return finding


@inlined
def check(protocol, way, parsed, segment, step, liberal):
    """Compare a segment with the windows; keep them up if it is accepted.

    Args:
        protocol: u64, address of the TCP_PEERS.
        way: u64, Way of the segment.
        parsed: PARSED of a TCP segment.
        segment: u64, its Segment.
        step: u64, the step that it would take (kernels/tcp_states).
        liberal: u64, 0 or not: accept what breaks a bound.

    Returns:
        u64, Finding | Reason << 8.

    Concurrency:
        The record's lock is held.

    Source:
        See the head of this file.
    """
    sender = peer_at(peer_address(protocol, way))
    receiver = peer_at(peer_address(protocol, ONE - way))
    flags = u64(parsed.tcp_flags)
    seq = u64(parsed.seq)
    ack = u64(parsed.ack)
    win = u64(parsed.win)
    end = end_of(parsed)
    sack = sack_of(parsed, u64(receiver.flags))

    if u64(sender.maxwin) == ZERO:
        if flags & _SYN != ZERO:
            _first_of_side(protocol, way, parsed)
            if flags & _ACK == ZERO:
                return ACCEPT  # simultaneous open: there is nothing to compare with
        else:
            _learn(protocol, way, parsed, sack)
    elif flags & _SYN != ZERO and has(step, FIRST_OF_SIDE) and seq_after(end, u64(sender.end)):
        _first_of_side(protocol, way, parsed)
        if way != ZERO and flags & _ACK == ZERO:
            return ACCEPT

    receiver_end = u64(receiver.end)
    if flags & _ACK == ZERO or (flags & _RST != ZERO and ack == ZERO):
        # nothing is acknowledged; some hosts set the flag in a RST all the same
        ack = receiver_end
        sack = receiver_end
    if has(step, SYN_ANSWERED) and seq == ZERO:
        seq = u64(sender.end)
        end = seq

    sender_end = u64(sender.end)
    sender_maxend = u64(sender.maxend)
    sender_maxwin = u64(sender.maxwin)
    receiver_maxwin = u64(receiver.maxwin)
    if not seq_before(seq, sender_maxend + ONE):
        return _beyond(protocol, way, end, sack, liberal)
    finding = ACCEPT
    if not seq_before(sack, receiver_end + ONE):
        finding = _ACK_ABOVE
    elif receiver_maxwin != ZERO and not seq_after(end, sender_end - receiver_maxwin - ONE):
        finding = _SEQ_BELOW
    elif not seq_after(sack, receiver_end - max(sender_maxwin, ACK_WINDOW_MIN) - ONE):
        finding = _ACK_BELOW
    if finding != ACCEPT:
        if (u64(sender.flags) & LIBERAL) | liberal != ZERO:
            finding = ACCEPT
        return finding

    if flags & _SYN == ZERO:
        win <<= u64(sender.scale)
    offered = u32_add(win, u32_sub(sack, ack))
    if sender_maxwin < offered:
        sender.maxwin = offered
    sender_flags = u64(sender.flags)
    if seq_after(end, sender_end):
        sender.end = end
        sender_flags |= UNACKNOWLEDGED
    if flags & _ACK != ZERO and (sender_flags & MAXACK_KNOWN == ZERO or seq_after(ack, u64(sender.maxack))):
        sender.maxack = ack
        sender_flags |= MAXACK_KNOWN
    sender.flags = sender_flags

    if receiver_maxwin != ZERO and seq_after(end, sender_maxend):
        receiver.maxwin = u32_add(receiver_maxwin, end - sender_maxend)
    granted = u32_add(sack, win)
    if seq_after(granted, u64(receiver.maxend) - ONE):
        receiver.maxend = granted if win != ZERO else u32_add(granted, ONE)
    if ack == receiver_end:
        receiver.flags = u64(receiver.flags) & SETTLED
    if segment == _ACK_SEGMENT:
        _count_retransmission(protocol, way, seq, ack, end, u64(parsed.win))
    return ACCEPT


@inlined
def _count_retransmission(protocol, way, seq, ack, end, win):
    """Count how often the same segment has come in a row, from the second time on."""
    last = peers_at(protocol)
    # one branch for all: whether the other side was the last to send is as good as random
    changed = (u64(last.last_seq) ^ seq) | (u64(last.last_ack) ^ ack) | (u64(last.last_end) ^ end)
    changed |= (u64(last.last_win) ^ win) | (u64(last.last_way) ^ way)
    if changed == ZERO:
        last.retransmissions = min(u64(last.retransmissions) + ONE, RETRANSMISSIONS_MAX)
    else:
        last.last_seq = seq
        last.last_ack = ack
        last.last_end = end
        last.last_win = win
        last.last_way = way
        last.retransmissions = ZERO
