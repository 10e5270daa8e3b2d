"""Room for a connection that a limit refuses: the least valuable of some goes, where its zone is set so (EARLY_DROP).

As Linux does when its table is full, so that a flood of half-open connections drives out itself and no others.  What a
connection is worth, least first; of those that are worth the same, the one goes whose time ends first:

    EXPIRED     the sweep has not come by yet
    CLOSING     a TCP or SCTP connection that is being closed, in the `ovs` profile by both sides
    UNREPLIED   only one side was seen
    UNASSURED   both were, but no handshake is complete
    KEPT        assured, and not closing: never goes.  In the `ovs` profile, which knows no such thing: established TCP

Which may go, and where they are looked for:

    ZONE_FULL   of the zone that is full: in the segments of its index where the new connection would stand, and others
    HALF_OPEN_FULL  on the seats of the zone (kernels/half_open)
    FULL        the same as ZONE_FULL; after that of any zone that is set so, from a random place of the slab on

So many are looked at that ``ENOUGH`` of them may go, and of these the least valuable goes; ``LOOKS_MAX`` at most.  What is
kept does not count: beside many connections in use one that has just begun would often be the only one to choose.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ..shm.layout import LINE_SLOTS, SLOTS, End, Life, Setting, Slab, Status, Step
from ..shm.reasons import Reason
from . import counters, delete_list, entries, half_open, intents, locks, memory, segments, tuples, zones
from .endpoints import SCTP, TCP
from .jit import inlined, kernel
from .ovs_tcp_states import Peer
from .sctp_states import Sctp
from .tcp_states import Tcp
from .words import EIGHT, GOLDEN, LOW_32, ONE, THREE, ZERO, u64

VICTIMS_MAX = 8
"""Connections that are driven out for one, at most; Linux looks at 8 chains."""
LOOKS_MAX = u64(128)
"""Connections that are looked at for a victim, at most."""
ENOUGH = u64(8)
"""Connections that may go after which the least valuable so far is the victim: as many as Linux has in its chains."""
SEGMENTS_MAX = 4
"""Segments of a zone that are looked through, at most."""
STEPS_MAX = u64(512)
"""Records that are passed by in the slab, at most: some are free."""


class Worth(IntEnum):
    """What a connection is worth; the lower, the sooner it goes."""

    EXPIRED = 0
    CLOSING = 1
    UNREPLIED = 2
    UNASSURED = 3
    KEPT = 4


class Kind(IntEnum):
    """Whose states: rows of STANDS."""

    OTHER = 0
    TCP = 1
    SCTP = 2
    OVS_TCP = 3


class Stand(IntEnum):
    """What a state says of what its connection is worth."""

    OPEN = 0
    CLOSING = 1
    ESTABLISHED = 2


CLOSING_STATES = {
    Kind.TCP: (Tcp.FIN_WAIT, Tcp.CLOSE_WAIT, Tcp.LAST_ACK, Tcp.TIME_WAIT, Tcp.CLOSE),
    Kind.SCTP: (Sctp.SHUTDOWN_SENT, Sctp.SHUTDOWN_RECD, Sctp.SHUTDOWN_ACK_SENT),
}
"""The states that Linux gives up early (can_early_drop), of assured connections too."""
_DONE = (Peer.CLOSING, Peer.FIN_WAIT_2, Peer.TIME_WAIT)


def compile_stands() -> NDArray[np.uint8]:
    """Return STANDS: u8[Kind, state], Stand."""
    stands = np.zeros((len(Kind), 256), np.uint8)
    for kind, states in CLOSING_STATES.items():
        stands[kind, list(states)] = Stand.CLOSING
    for one, other in product((Peer.ESTABLISHED, *_DONE), repeat=2):
        both_done = one in _DONE and other in _DONE
        stands[Kind.OVS_TCP, one << 4 | other] = Stand.CLOSING if both_done else Stand.ESTABLISHED
    stands.setflags(write=False)
    return stands


STANDS = compile_stands()

_ASSURED, _SEEN_REPLY, _OVS = u64(Status.ASSURED), u64(Status.SEEN_REPLY), u64(Status.OVS)
_CLOSING, _ESTABLISHED = u64(Stand.CLOSING), u64(Stand.ESTABLISHED)
_LIVE = u64(Life.LIVE)
_EVICTED = u64(End.EVICTED)
_ENTRIES = u64(Slab.ENTRIES)
_FULL, _ZONE_FULL, _HALF_OPEN_FULL = u64(Reason.FULL), u64(Reason.ZONE_FULL), u64(Reason.HALF_OPEN_FULL)
_EARLY_DROP = u64(Setting.EARLY_DROP)
_KIND_TCP, _KIND_SCTP, _KIND_OVS_TCP = u64(Kind.TCP), u64(Kind.SCTP), u64(Kind.OVS_TCP)

# a candidate, one word: Worth 4 | expiry in the units of due[] 32 | record 28; the least is the one to go
_WORTH_SHIFT, _EXPIRY_SHIFT = u64(60), u64(28)
_RECORD = u64((1 << 28) - 1)
NOBODY = u64(Worth.KEPT) << _WORTH_SHIFT
"""No candidate."""


@kernel
def worth(views, entry, now_ms):
    """Return what a LIVE connection is worth, a Worth; without its record's lock it is a hint."""
    record = entries.entry_at(entry)
    key = entry + tuples.ENTRY_KEY
    if memory.read64(entry + entries.EXPIRY) <= now_ms and zones.expires(views, tuples.zone_of(key)):
        return u64(Worth.EXPIRED)
    status = u64(record.status)
    protocol = tuples.protocol_of(key)
    kind = ZERO
    if protocol == TCP:
        kind = _KIND_OVS_TCP if status & _OVS != ZERO else _KIND_TCP
    elif protocol == SCTP and status & _OVS == ZERO:
        kind = _KIND_SCTP
    stand = u64(STANDS[kind, u64(record.state)])
    if stand == _CLOSING:
        return u64(Worth.CLOSING)
    if stand == _ESTABLISHED or status & _ASSURED != ZERO:
        return u64(Worth.KEPT)
    return u64(Worth.UNASSURED) if status & _SEEN_REPLY != ZERO else u64(Worth.UNREPLIED)


@inlined
def _is_of(views, entry, zone, reason):
    """Return whether a connection is one of those that may be looked at."""
    own = tuples.zone_of(entry + tuples.ENTRY_KEY)
    return own == zone or (reason == _FULL and zones.settings_of(views, own) & _EARLY_DROP != ZERO)


@kernel
def _candidate(views, record, zone, reason, now_ms):
    """Look at a record without its lock; NOBODY when it may not go."""
    entry = entries.address(views, record)
    if entries.state_of(memory.acquire64(entry + entries.LIFE)) != _LIVE or not _is_of(views, entry, zone, reason):
        return NOBODY
    found = worth(views, entry, now_ms)
    if found == u64(Worth.KEPT):
        return NOBODY
    due = min(entries.due_units(memory.read64(entry + entries.EXPIRY)), LOW_32)
    return (found << _WORTH_SHIFT) | (due << _EXPIRY_SHIFT) | record


@kernel
def _take_out(views, record, zone, reason, now_ms):
    """Delete a record if it still may go; False when it may not."""
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    if not locks.take(entry + entries.LOCK, views.me):
        intents.done(views)
        return False
    may_go = _candidate(views, record, zone, reason, now_ms) != NOBODY
    if may_go:
        delete_list.end(views, record, _EVICTED)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    return may_go


@kernel
def _of_segment(views, segment, hash_, zone, now_ms, best, met, looks):
    """Return the least valuable of some connections, those of a segment among them, from the home line of a hash on.

    Args:
        best: u64, the candidate so far, or NOBODY.
        met: u64, connections that may go, and ``looks``: that were looked at, in other segments.

    Returns:
        A candidate, NOBODY when all that were looked at are to stay; ``met`` and ``looks`` with those of this segment.
    """
    base = segments.slots_address(views, segment)
    home = segments.home_line(views, segment, hash_) - base
    for line in range(SLOTS // LINE_SLOTS):
        slots = base + ((home + u64(64 * line)) & u64(8 * SLOTS - 1))
        for i in range(LINE_SLOTS):
            named = memory.read64(slots + (u64(i) << THREE)) & LOW_32
            if named != ZERO:
                memory.prefetch(entries.address(views, named - ONE))
        for i in range(LINE_SLOTS):
            named = memory.acquire64(slots + (u64(i) << THREE)) & LOW_32
            if named == ZERO:
                continue
            found = _candidate(views, named - ONE, zone, _ZONE_FULL, now_ms)
            best = min(best, found)
            met += ONE if found != NOBODY else ZERO
            looks += ONE
            if looks >= LOOKS_MAX or met >= ENOUGH:
                return best, met, looks
    return best, met, looks


@kernel
def _of_zone(views, zone, hash_, now_ms):
    """Return a candidate of a zone."""
    best = NOBODY
    met = looks = before = ZERO
    for _ in range(SEGMENTS_MAX):
        word = zones.load_word(views, zone)
        segment = segments.segment_of(views, word, hash_) if zones.directory_of(word) != ZERO else ZERO
        if segment == ZERO or segment == before:
            break
        best, met, looks = _of_segment(views, segment - ONE, hash_, zone, now_ms, best, met, looks)
        if met >= ENOUGH or looks >= LOOKS_MAX:
            break
        before = segment
        hash_ += GOLDEN  # another segment
    return best


@kernel
def _of_any(views, zone, hash_, reason, now_ms):
    """Return a candidate of any zone that is set so, near a random place of the slab."""
    records = views.records[_ENTRIES]
    start = (hash_ >> EIGHT) % records
    best = NOBODY
    met = looks = ZERO
    for i in range(min(STEPS_MAX, records)):
        record = (start + u64(i)) % records
        if entries.state_of(memory.acquire64(entries.address(views, record) + entries.LIFE)) != _LIVE:
            continue
        found = _candidate(views, record, zone, reason, now_ms)
        best = min(best, found)
        met += ONE if found != NOBODY else ZERO
        looks += ONE
        if looks >= LOOKS_MAX or met >= ENOUGH:
            break
    return best


@kernel
def _of_half_open(views, zone, now_ms):
    """Return a candidate of those that have taken the seats of a zone that are looked at."""
    best = NOBODY
    for i in range(half_open.LOOKS_MAX):
        address = half_open.seat(views, zone, u64(i))
        if address == ZERO:
            break
        word = memory.acquire64(address)
        if half_open.is_taken(views, word):
            best = min(best, _candidate(views, (word & LOW_32) - ONE, zone, _ZONE_FULL, now_ms))
    return best


@kernel
def evict(views, zone, reason, hash_, now_ms):
    """Delete the least valuable connection of some, and take it out of the counts.

    Args:
        views: record of shm.views.
        zone: u64, of the connection that was refused.
        reason: u64, ZONE_FULL: the victim is of this zone; HALF_OPEN_FULL: it is half-open, too; FULL: it is of this
            zone, else of any that is set so.
        hash_: u64, of the connection that was refused: where to begin to look.
        now_ms: u64, the moment to judge by.

    Returns:
        False when no victim was found, or it could not be taken out of the counts now.

    Concurrency:
        Nothing is held.  A delete of its own, not part of an insert: that one holds locks of segments.

    Source:
        Order and bound as Linux's early_drop and gc_worker_can_early_drop, 6.18.
    """
    memory.seldom()
    if not delete_list.make_room(views):
        return False
    is_half_open = reason == _HALF_OPEN_FULL
    found = _of_half_open(views, zone, now_ms) if is_half_open else _of_zone(views, zone, hash_, now_ms)
    if found == NOBODY and reason == _FULL:
        found = _of_any(views, zone, hash_, reason, now_ms)
    if found == NOBODY or not _take_out(views, found & _RECORD, zone, reason, now_ms):
        return False
    counters.add(views, Reason.EVICTED, ONE)
    return delete_list.run(views) == ZERO
