"""What happens to connections, written down for whoever reads it: shm/events has the protocol.

    are_wanted    whether anybody reads such events: one load, all that they cost where nobody does
    _is_read      whether a filter of those who read means the connection: once for an event, never for a packet
    begin         take a sequence number, and write the event but for its end
    finish        it is whole

What makes a connection, or ends it, stands between ``begin`` and ``finish``, so that who is killed there leaves a number
that is lost, and nothing untrue.  A NEW is begun while nobody else can find the record; all others under its lock.
"""

from __future__ import annotations

from ..shm.layout import (
    ENTRY_BYTES,
    EVENT,
    EVENT_BYTES,
    EVENT_RING,
    EVENTS_MAX,
    EXTENSION,
    FILTER_BYTES,
    KEY_WORDS,
    Change,
    EventKind,
    Status,
    offset,
)
from . import entries, filters, memory
from .jit import inlined, kernel
from .words import LOW_8, LOW_16, ONE, SIXTEEN, ZERO, u64

event_at = memory.record_at(EVENT)

_SIZE, _FILTER = u64(EVENT_BYTES), u64(FILTER_BYTES)
_MASK = u64(EVENTS_MAX - 1)
_FILTERS, _OPEN = offset(EVENT_RING, "filters"), offset(EVENT_RING, "open")
_WRITTEN, _CLOCK = offset(EVENT_RING, "written"), offset(EVENT_RING, "clock_ms")
_NUMBER, _ENTRY, _REPLY_KEY = (offset(EVENT, name) for name in ("number", "entry", "reply_key"))
_ENTRY_SIZE = u64(ENTRY_BYTES)
_EXTENSION_SHOWN = u64(8 * KEY_WORDS + 16)
_LABEL = offset(EXTENSION, "label")
_EVERYTHING = u64(EventKind.NEW) | u64(EventKind.UPDATE) | u64(EventKind.DESTROY)
_SHOWN = u64(Status.SEEN_REPLY) | u64(Status.ASSURED) | u64(Status.HELPER)
"""Bits of a status whose change is told."""
_STATE_SHIFT = SIXTEEN


@inlined
def are_wanted(views, kind):
    """Return whether anybody reads events of a kind."""
    return memory.acquire32(views.events) & u64(kind) != ZERO


@inlined
def tick(views, now_ms):
    """Say what moment it is: events are of the moment that was said last."""
    if are_wanted(views, _EVERYTHING):
        memory.write64(views.events + _CLOCK, now_ms)


@kernel
def _is_read(views, entry, said):
    """Return whether one of the filters means an entry, or they are said anew just now; ``said`` is their word."""
    memory.seldom()
    found = False
    for i in range(said & LOW_8):
        if filters.fits(views, filters.filter_at(views.event_filters + u64(i) * _FILTER), entry):
            found = True
            break
    memory.fence_acquire()  # A4
    return found or memory.acquire32(views.events + _FILTERS) != said


@kernel
def begin(views, record, kind, changes, end):
    """Begin an event of a connection, if such are read.

    Args:
        views: record of shm.views.
        record: u64, of the connection, as it is or, when it is about to end, was.
        kind, changes, end: u64, as EVENT has them.

    Returns:
        Address of the EVENT, for ``finish``; 0 when nobody reads it.

    Concurrency:
        The record's lock is held, or it is NEW and ours.  Nothing else is begun before it is finished.
    """
    memory.seldom()
    entry = entries.address(views, record)
    said = memory.acquire32(views.events + _FILTERS)
    if said != ZERO and not _is_read(views, entry, said):
        return ZERO
    n = memory.read64(views.events + _WRITTEN)
    at = views.event_slots + (n & _MASK) * _SIZE
    memory.release64(views.events + _OPEN, ONE)  # R1
    memory.release64(at + _NUMBER, n + n + ONE)  # R2: before what the count's acquire keeps behind it
    sequence = memory.add64(views.event_sequence, ONE) + ONE
    event = event_at(at)
    event.sequence = sequence
    event.time_ms = memory.read64(views.events + _CLOCK)
    event.record = record
    event.changes = changes
    event.kind = kind
    event.end = end
    memory.copy(at + _ENTRY, entry, _ENTRY_SIZE)
    extension = memory.read32(entry + entries.EXTENSION_LINK)
    if extension == ZERO:
        event.helper = ZERO
        memory.set_bytes(at + _REPLY_KEY, ZERO, _EXTENSION_SHOWN)
    else:
        more = entries.extension_address(views, extension - ONE)
        event.helper = u64(entries.extension_at(more).helper) & LOW_8
        memory.copy(at + _REPLY_KEY, more, _EXTENSION_SHOWN)
    return at


@kernel
def finish(views, event):
    """Finish an event that was begun."""
    memory.seldom()
    n = memory.read64(views.events + _WRITTEN)
    memory.release64(event + _NUMBER, n + n + ONE + ONE)  # R2
    memory.release64(views.events + _WRITTEN, n + ONE)  # R3
    memory.release64(views.events + _OPEN, ZERO)


@kernel
def updated(views, record, changes):
    """Tell that a connection, whose lock is held, has changed."""
    memory.seldom()
    event = begin(views, record, u64(EventKind.UPDATE), changes, ZERO)
    if event != ZERO:
        finish(views, event)


@kernel
def compare(views, record, before):
    """Tell of a connection whose ``entries.outline`` a packet has changed from ``before``; its lock is held."""
    memory.seldom()
    changed = before ^ entries.outline(entries.address(views, record))
    changes = u64(Change.STATE) if (changed >> _STATE_SHIFT) & LOW_8 != ZERO else ZERO
    if changed & _SHOWN & LOW_16 != ZERO:
        changes |= u64(Change.STATUS)
    if changes != ZERO:
        updated(views, record, changes)
