"""Connections whole, out of a table and into one: copies of records, as a file keeps them.

Who may           while
    collect       a participant of its own, beside anyone
    put           likewise

A connection that lives while the whole walk lasts is met once, for a record stays where it is.  What is copied of it is of
one moment; where its lock is not had, for its holder died, it is TORN.  What is put is published as any new connection is,
so limits hold, and nobody sees the half of it.
"""

from __future__ import annotations

from ..shm.layout import ENTRY_BYTES, EXTENSION_BYTES, LINE_BYTES, Life, Slab, Status, Step
from ..shm.reasons import Reason
from . import entries, index, intents, locks, memory, tuples, zones
from .jit import kernel
from .words import FOUR, ONE, THIRTY_TWO, THREE, ZERO, u64

_ENTRIES = int(Slab.ENTRIES)
_SIZE, _MORE = u64(ENTRY_BYTES), u64(EXTENSION_BYTES)
_LINE = u64(LINE_BYTES)
_LIVE, _TORN = u64(Life.LIVE), u64(Status.TORN)
_NONE = u64(Reason.NONE)


@kernel
def _copy(views, record, now_ms, out, more):
    """Copy a record and its extension, if it is a connection that has not expired; returns whether it is."""
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    held = locks.take(entry + entries.LOCK, views.me)
    life = memory.acquire64(entry + entries.LIFE)
    meant = entries.state_of(life) == _LIVE
    if meant and memory.read64(entry + entries.EXPIRY) <= now_ms:
        meant = not zones.expires(views, tuples.zone_of(entry + tuples.ENTRY_KEY))
    if meant:
        memory.copy(out, entry, _SIZE)
        entries.entry_at(out).next = record  # which means nothing here, and says what the copy is of
        extension = memory.read32(entry + entries.EXTENSION_LINK)
        if extension != ZERO:
            memory.copy(more, entries.extension_address(views, extension - ONE), _MORE)
    if held:
        locks.drop(entry + entries.LOCK)
        return meant
    copied = entries.entry_at(out)
    if meant:
        copied.status = u64(copied.status) | _TORN
    memory.fence_acquire()
    return meant and memory.acquire64(entry + entries.LIFE) == life


@kernel
def collect(views, now_ms, slots_budget, cursor, out, more, out_max):
    """Copy records out, from the cursor on.

    Args:
        views: record of shm.views.
        now_ms: u64, the moment to judge expiry by.
        slots_budget: u64, records to visit at most.
        cursor: address of a u64, moved on: 0 at the beginning, the number of records when the walk is done.
        out: address of ENTRY[out_max]; `next` is the record's index.
        more: address of EXTENSION[out_max]; the i-th means something where the i-th entry has one.
        out_max: u64.

    Returns:
        The number of records written.

    Concurrency:
        Beside any others; each record is locked for its copy.  Intent: UPDATE.
    """
    record = memory.le64(cursor)
    end = record + min(views.records[_ENTRIES] - min(record, views.records[_ENTRIES]), slots_budget)
    n = ZERO
    for _ in range(end - record):
        if n >= out_max:
            break
        if memory.read32(views.due + record * FOUR) != ZERO and _copy(
            views, record, now_ms, out + n * _SIZE, more + n * _MORE
        ):
            n += ONE
        record += ONE
    intents.done(views)
    memory.set_le64(cursor, record)
    return n


@kernel
def _fill(views, record, entry, source, more):
    """Write all of a NEW record but its life; False when it needs an extension, and there is none left."""
    tuples.copy_key(entry + tuples.ENTRY_KEY, source + tuples.ENTRY_KEY)
    to, from_ = entries.entry_at(entry), entries.entry_at(source)
    to.status = u64(from_.status)
    to.state = u64(from_.state)
    to.policy = u64(from_.policy)
    # from the protocol's record to the parent, which stand in one row
    memory.copy(entry + entries.PROTOCOL, source + entries.PROTOCOL, _LINE + _LINE - u64(16))
    to.mark = u64(from_.mark)
    expiry_ms = memory.le64(source + entries.EXPIRY)
    memory.write64(entry + entries.EXPIRY, expiry_ms)
    entries.set_due(views, record, entry, entries.due_units(expiry_ms))
    if memory.le32(source + entries.EXTENSION_LINK) == ZERO:
        return True
    if not entries.take_extension(views, record):
        return False
    memory.copy(entries.extension_of(views, entry), more, _MORE)
    return True


@kernel
def _put(views, source, more):
    """Make a connection of copies; returns its public id, or the Reason why not, which is less than 1 << 32."""
    zone = tuples.zone_of(source + tuples.ENTRY_KEY)
    if zones.credit(views) != ZERO and zones.credit_zone(views) != zone and not zones.return_credit(views):
        return u64(Reason.BUSY)
    record = entries.take(views)
    if record == entries.NONE:
        intents.done(views)
        return u64(Reason.SLAB_FULL)
    entry = entries.address(views, record)
    reason = u64(Reason.BUSY)
    if locks.take(entry + entries.LOCK, views.me):
        reason = _NONE if _fill(views, record, entry, source, more) else u64(Reason.EXTENSION_FULL)
        locks.drop(entry + entries.LOCK)
    if reason == _NONE:
        reason = index.insert(views, record, zone, ONE)
    if reason != _NONE:
        intents.set_record(views, record, Step.ALLOC)
        entries.release(views, record)
        intents.done(views)
        return reason
    return record | (entries.incarnation_of(memory.acquire64(entry + entries.LIFE)) << THIRTY_TWO)


@kernel
def put(views, copies, more, count, outcomes):
    """Make connections of copies that `collect` has made, of this table or another.

    Args:
        views: record of shm.views.
        copies: address of ENTRY[count]; what they say of moments and parents holds in this table.
        more: address of EXTENSION[count]; the i-th means something where the i-th entry has one.
        count: u64.
        outcomes: out, address of u64[count]: the public id of each, or the Reason why it is none: ADOPTED and CLASH where
            one of its keys is another's already.

    Returns:
        How many were made.

    Concurrency:
        Beside any others.  Intents: ALLOC, and those of `index.insert`.
    """
    made = ZERO
    for i in range(count):
        outcome = _put(views, copies + u64(i) * _SIZE, more + u64(i) * _MORE)
        memory.set_le64(outcomes + (u64(i) << THREE), outcome)
        if outcome >> THIRTY_TWO != ZERO:
            made += ONE
    if zones.credit(views) != ZERO:
        zones.return_credit(views)
    intents.done(views)
    return made
