"""Translated connections: which way their packets go, and which tuple each packet shall have when it goes on.

    a packet of               is found by       and goes on as
    the opener, as sent       the own key       the inverse of the replies' tuple
    the opener, translated    the replies' key  it is
    the replier, as sent      the replies' key  the inverse of the opener's tuple
    the replier, translated   the own key       it is

What an ICMP error quotes is the packet as it was where the error was made; it goes on as it was where it was sent.

A connection that was foretold is translated as its parent says (kernels/foretold), whatever the rule would have.

Concurrency: the record's lock is held, which keeps its extension with the replies' key.
"""

from __future__ import annotations

from enum import IntEnum

from ..shm.layout import (
    ACTION,
    ACTION_BYTES,
    ENTRY,
    EXPECTATION,
    CtState,
    ExpectationFlag,
    FrameFlag,
    Nat,
    PacketKind,
    Status,
    Way,
)
from . import entries, memory, rewrite, sequences, shown, tuples
from .jit import inlined, kernel
from .stages import ERROR, key_of
from .words import ZERO, u64

BINDS = u64(Nat.SOURCE) | u64(Nat.DESTINATION)
"""Bits of ``wanted`` for which a connection that is made gets a tuple of its own for its replies."""
TRANSLATED = u64(Status.SOURCE_NAT) | u64(Status.DESTINATION_NAT)


class Seen(IntEnum):
    """Where a packet was found: which of the two tuples it has, and which way it goes.  Bit 0 is its Way."""

    ORIG_SENT = 0
    REPLY_TRANSLATED = 1
    ORIG_TRANSLATED = 2
    REPLY_SENT = 3


_SENT_ORIG, _SENT_REPLY = u64(Seen.ORIG_SENT), u64(Seen.REPLY_SENT)
_TRANSLATED_ORIG, _TRANSLATED_REPLY = u64(Seen.ORIG_TRANSLATED), u64(Seen.REPLY_TRANSLATED)
_WAY = u64(Way.REPLY)
_OFFSETS = u64(Status.SEQUENCE_OFFSETS)
_TCP = u64(PacketKind.TCP)
_PARTIAL, _FRESH = u64(FrameFlag.CHECKSUM_PARTIAL), u64(FrameFlag.FRESH)
_NAT_SOURCE, _NAT_DESTINATION = u64(ExpectationFlag.NAT_SOURCE), u64(ExpectationFlag.NAT_DESTINATION)
_SNAT_OR_DNAT = u64(CtState.SNAT) | u64(CtState.DNAT)

expectation_at = memory.record_at(EXPECTATION)
entry_at = memory.record_at(ENTRY)
action_at = memory.record_at(ACTION)


@inlined
def way_of(seen):
    """Return the Way of what ``see`` returned."""
    return seen & _WAY


@inlined
def is_sent(seen):
    """Return whether a packet was found as it was sent; else it is translated already."""
    return seen == _SENT_ORIG or seen == _SENT_REPLY


@inlined
def is_fresh(frame):
    """Return whether a packet was not translated in its zone yet."""
    return u64(frame.flags) & _FRESH != ZERO


@kernel
def see(views, entry, key, high_is_source):
    """Return how a packet of a translated connection was found.

    Args:
        entry: u64, address of the ENTRY.
        key: u64, address of the packet's key: the connection's own, or that of its replies.
        high_is_source: bool, whether the packet comes from the key's second endpoint.

    Returns:
        u64, a Seen.
    """
    memory.apart()
    status = u64(entry_at(entry).status)
    if tuples.equal(entry + tuples.ENTRY_KEY, key):
        from_opener = high_is_source == (status & u64(Status.ORIG_IS_HIGH) != ZERO)
        if from_opener:
            return _SENT_ORIG
        # without a second key the replies have this one
        return _SENT_REPLY if entries.second_key(views, entry) == ZERO else _TRANSLATED_REPLY
    from_replier = high_is_source == (status & u64(Status.REPLIER_IS_HIGH) != ZERO)
    return _SENT_REPLY if from_replier else _TRANSLATED_ORIG


@inlined
def wanted(frame):
    """Return the Nat bits that a rule asks for with a packet."""
    action = u64(frame.action)
    return u64(action_at(action).nat) if action != ZERO else ZERO


@kernel
def _as_foretold(views, asked, expected):
    """Return the address of the ACTION by which a connection that was foretold gets its tuple, 0 where it gets none."""
    memory.seldom()
    of_rule = u64(action_at(asked).nat)
    e = expectation_at(expected)
    flags = u64(e.flags)
    if flags & (_NAT_SOURCE | _NAT_DESTINATION) == ZERO:
        return asked if of_rule & BINDS != ZERO else ZERO
    if of_rule & u64(Nat.APPLY) == ZERO:
        return ZERO
    memory.set_bytes(views.followed, ZERO, u64(ACTION_BYTES))
    action = action_at(views.followed)
    which = u64(Nat.SOURCE) if flags & _NAT_SOURCE != ZERO else u64(Nat.DESTINATION)
    action.nat = u64(Nat.APPLY) | u64(Nat.FORETOLD) | which
    for i in range(2):
        action.nat_first[i] = e.nat_address[i]
        action.nat_last[i] = e.nat_address[i]
        action.nat_ports[i] = e.nat_port
    return views.followed


@inlined
def binding(views, frame, expected):
    """Return the address of the ACTION by which a connection that is made gets a tuple for its replies, 0: it gets none.

    Args:
        expected: u64, address of the EXPECTATION that foretold it, 0 for none.
    """
    asked = u64(frame.action)
    if asked == ZERO:
        return ZERO
    if expected != ZERO:
        return _as_foretold(views, asked, expected)
    return asked if u64(action_at(asked).nat) & BINDS != ZERO else ZERO


@kernel
def binding_of_any(views, frame):
    """Return the address of an ACTION by which a connection gets another port towards whom it goes, 0: it may not.

    For one whose replies could not be told from those to another, where packets are translated (Linux's null binding).
    """
    memory.seldom()
    if wanted(frame) & u64(Nat.APPLY) == ZERO:
        return ZERO
    memory.set_bytes(views.followed, ZERO, u64(ACTION_BYTES))
    action_at(views.followed).nat = u64(Nat.APPLY) | u64(Nat.SOURCE)
    return views.followed


@inlined
def was_translated(verdict):
    """Return whether what became of a packet includes its translation."""
    return u64(verdict.ct_state) & _SNAT_OR_DNAT != ZERO


@inlined
def bits(status, way):
    """Return the bits of ct_state that say what of a packet is translated: source, destination, or both."""
    source = u64(Status.SOURCE_NAT) if way == ZERO else u64(Status.DESTINATION_NAT)
    destination = u64(Status.DESTINATION_NAT) if way == ZERO else u64(Status.SOURCE_NAT)
    result = u64(CtState.SNAT) if status & source != ZERO else ZERO
    return result | (u64(CtState.DNAT) if status & destination != ZERO else ZERO)


@kernel
def send_on(views, frame, parsed, entry, seen):
    """Give a packet the tuple with which it goes on.

    Args:
        frame: FRAME, whose bytes are written.
        parsed: PARSED of it.
        entry: u64, address of the ENTRY.
        seen: u64, what ``see`` returned for its key.

    Returns:
        u64, the bits of ct_state for it; 0 when its rule does not have it translated.
    """
    memory.apart()
    if wanted(frame) & u64(Nat.APPLY) == ZERO:
        return ZERO
    if seen == _SENT_ORIG:
        key, replier_is_high = shown.replies(views, entry)
        rewrite.translate(frame, parsed, key, not replier_is_high)
    elif seen == _SENT_REPLY:
        opener_is_high = u64(entry_at(entry).status) & u64(Status.ORIG_IS_HIGH) != ZERO
        rewrite.translate(frame, parsed, entry + tuples.ENTRY_KEY, not opener_is_high)
    status = u64(entry_at(entry).status)
    if status & _OFFSETS != ZERO and is_sent(seen) and u64(parsed.kind) == _TCP:
        partial = u64(frame.flags) & _PARTIAL != ZERO
        sequences.send(parsed, entries.extension_of(views, entry), way_of(seen), partial)
    return bits(status, way_of(seen))


@kernel
def send_error_on(views, frame, parsed, entry, seen):
    """Give the packet that an ICMP error quotes the tuple with which it was sent, and the error that packet's sender.

    Args:
        frame: FRAME, whose bytes are written.
        parsed: PARSED of the error.
        entry: u64, address of the ENTRY of the quoted packet.
        seen: u64, what ``see`` returned for the quoted packet.

    Returns:
        u64, the bits of ct_state for the error, which goes against the quoted packet; 0 when it is not translated.
    """
    memory.apart()
    if wanted(frame) & u64(Nat.APPLY) == ZERO:
        return ZERO
    if seen == _TRANSLATED_ORIG:
        opener_is_high = u64(entry_at(entry).status) & u64(Status.ORIG_IS_HIGH) != ZERO
        rewrite.translate_error(frame, parsed, entry + tuples.ENTRY_KEY, opener_is_high)
    elif seen == _TRANSLATED_REPLY:
        key, replier_is_high = shown.replies(views, entry)
        rewrite.translate_error(frame, parsed, key, replier_is_high)
    return bits(u64(entry_at(entry).status), way_of(seen) ^ _WAY)


@kernel
def send_first_on(views, frame, parsed, i, bound, verdict):
    """Give the packet that opened a connection the tuple with which it goes on.

    Args:
        frame: FRAME, whose bytes are written.
        parsed: PARSED of packet ``i``, as ``bindings.bind`` left it: the connection may be gone by now.
        i: u64, its place in the burst.
        bound: u64, what ``binding`` returned.
        verdict: VERDICT, whose ct_state is changed.
    """
    memory.apart()
    asked = u64(action_at(bound).nat)
    if asked & u64(Nat.APPLY) == ZERO:
        return
    rewrite.translate(frame, parsed, key_of(views, i, ERROR), u64(parsed.inner_high_is_source) == ZERO)
    bit = u64(CtState.SNAT) if asked & u64(Nat.SOURCE) != ZERO else u64(CtState.DNAT)
    verdict.ct_state = u64(verdict.ct_state) | bit
