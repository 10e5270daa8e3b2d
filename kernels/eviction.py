"""Room for a connection that a limit refuses: one that is not assured goes instead, where a zone is set so (EARLY_DROP).

As Linux does when its table is full, so that a flood of half-open connections drives out itself and no others.  The
victim is looked for at a random place: in one segment of the index of the zone that is full, or in the slab.
"""

from __future__ import annotations

from ..shm.layout import SLOTS, Life, Slab, Status, Step
from ..shm.reasons import Reason
from . import counters, delete_list, entries, intents, locks, memory, segments, tuples, zones
from .jit import inlined, kernel
from .words import EIGHT, LOW_32, ONE, ZERO, u64

VICTIMS_MAX = 8
"""Connections that are driven out for one, at most; Linux looks at 8 chains."""
LOOKS_MAX = 128
"""Records that are looked at for a victim, anywhere."""

_ASSURED = u64(Status.ASSURED)
_LIVE = u64(Life.LIVE)
_ENTRIES = u64(Slab.ENTRIES)
_FULL, _ZONE_FULL = u64(Reason.FULL), u64(Reason.ZONE_FULL)


@kernel
def _take_out(views, record, zone, reason):
    """Delete a record if it still may go; False when it may not."""
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    if not locks.take(entry + entries.LOCK, views.me):
        intents.done(views)
        return False
    life = memory.acquire64(entry + entries.LIFE)
    may_go = entries.state_of(life) == _LIVE and u64(entries.entry_at(entry).status) & _ASSURED == ZERO
    may_go = may_go and (reason != _ZONE_FULL or tuples.zone_of(entry + tuples.ENTRY_KEY) == zone)
    if may_go:
        delete_list.mark(views, record)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    return may_go


@inlined
def _could_go(views, record):
    """Look at a record without its lock, to pass over most of those that may not go."""
    entry = entries.address(views, record)
    is_live = entries.state_of(memory.acquire64(entry + entries.LIFE)) == _LIVE
    return is_live and memory.read32(entry + entries.STATUS) & _ASSURED == ZERO


@kernel
def _in_zone(views, zone, hash_):
    """Take out a connection of one segment of a zone's index; False when there is none that may go."""
    segment = segments.segment_of(views, zones.load_word(views, zone), hash_)
    if segment == ZERO:
        return False
    base = segments.slots_address(views, segment - ONE)
    for i in range(SLOTS):
        named = memory.acquire64(base + u64(8 * i)) & LOW_32
        if named != ZERO and _could_go(views, named - ONE) and _take_out(views, named - ONE, zone, _ZONE_FULL):
            return True
    return False


@kernel
def _anywhere(views, zone, hash_):
    """Take out a connection of any zone, near a random place of the slab; False when there is none that may go."""
    records = views.records[_ENTRIES]
    start = (hash_ >> EIGHT) % records
    for i in range(min(LOOKS_MAX, records)):
        record = (start + u64(i)) % records
        if _could_go(views, record) and _take_out(views, record, zone, _FULL):
            return True
    return False


@kernel
def evict(views, zone, reason, hash_):
    """Delete a connection that is not assured, and take it out of the counts.

    Args:
        views: record of shm.views.
        zone: u64, of the connection that was refused.
        reason: u64, ZONE_FULL: the victim is of this zone; FULL: of any.
        hash_: u64, as good as random: where to begin to look.

    Returns:
        False when no victim was found, or it could not be taken out of the counts now.

    Concurrency:
        Nothing is held.  A delete of its own, not part of an insert (PROTOCOL.md, insert).
    """
    memory.seldom()
    if not delete_list.make_room(views):
        return False
    victim = _in_zone(views, zone, hash_) if reason == _ZONE_FULL else _anywhere(views, zone, hash_)
    if not victim:
        return False
    counters.add(views, Reason.EVICTED, ONE)
    return delete_list.run(views) == ZERO
