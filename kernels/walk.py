"""A walk over all connections with a filter and a cursor: to show them, to count them, or to delete them.

Who may    while
    walk   a participant of its own, beside anyone

``due[]`` says which records are not free, so empty stretches cost four bytes a record.  Each other record is looked at
under its lock, for the time of a copy.  Nothing is held between calls.

Invariants
    W1  A connection that lives while the whole walk lasts is met once: a record stays where it is.
    W2  What is shown of a connection is of one moment; two connections may be of different ones.
    W3  A record whose lock is not had in time, for its holder died, is shown all the same, as TORN; it is not deleted.
    W4  What a flush has detached is met until it has come home.

Ordering
    W3 reads without the lock: life, contents, fence_acquire, life again; the same word twice, so contents are of that life.
"""

from __future__ import annotations

from ..shm.layout import (
    BLOCK_RECORDS,
    CONNECTION_BYTES,
    EXTENSION,
    LINE_BYTES,
    Life,
    Slab,
    Status,
    Step,
    offset,
)
from . import delete_list, entries, events, filters, intents, locks, memory, quarantine, shown, tuples, zones
from .jit import inlined, kernel
from .words import FOUR, LOW_8, ONE, SIXTEEN, THREE, ZERO, u64

_ENTRIES = int(Slab.ENTRIES)
_BLOCK = u64(BLOCK_RECORDS)
_LINE = u64(LINE_BYTES)
_SIZE = u64(CONNECTION_BYTES)
_EXTENSION_LABEL = offset(EXTENSION, "label")
_TORN = u64(Status.TORN)
_LIVE = u64(Life.LIVE)
_AHEAD = 8
"""Records fetched ahead of the one that is looked at."""


# ------------------------------------------------------------------------------------------------ which records
@kernel
def _gather(views, first, end):
    """Write the records of [first, end), within a block, that are not free into ``candidates``; returns how many."""
    found = ZERO
    for i in range(end - first):
        record = first + u64(i)
        if memory.read32(views.due + record * FOUR) != ZERO:
            memory.set_le64(views.candidates + (found << THREE), record)
            found += ONE
    return found


@inlined
def _candidate(views, i):
    return memory.le64(views.candidates + (u64(i) << THREE))


@inlined
def _fetch(views, i, found):
    """Fetch the record that will be looked at soon."""
    if u64(i) + u64(_AHEAD) < found:
        entry = entries.address(views, _candidate(views, i + _AHEAD))
        memory.prefetch(entry)
        memory.prefetch(entry + _LINE + _LINE)


@kernel
def _is_meant(views, wanted, entry, life, now_ms):
    """Return whether an entry is a connection, has not expired, and fits; its lock is held."""
    if entries.state_of(life) != _LIVE:
        return False
    if memory.read64(entry + entries.EXPIRY) <= now_ms and zones.expires(
        views, tuples.zone_of(entry + tuples.ENTRY_KEY)
    ):
        return False
    return filters.fits(views, wanted, entry)


@kernel
def _describe(views, record, entry, life, now_ms, wall_offset_ms, out):
    """Write a CONNECTION; the record's lock is held."""
    shown.connection(record, entry, entries.second_key(views, entry), life, now_ms, wall_offset_ms, out)
    extension = memory.read32(entry + entries.EXTENSION_LINK)
    if extension != ZERO:
        more = entries.extension_address(views, extension - ONE)
        shown.connection_at(out).helper = u64(entries.extension_at(more).helper) & LOW_8
        memory.copy(out + shown.LABEL, more + _EXTENSION_LABEL, SIXTEEN)


@kernel
def _show(views, wanted, record, now_ms, wall_offset_ms, out):
    """Write the CONNECTION of a record if it is meant; False when it is not.  ``out`` 0: only say whether it is."""
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    held = locks.take(entry + entries.LOCK, views.me)
    life = memory.acquire64(entry + entries.LIFE)
    meant = _is_meant(views, wanted, entry, life, now_ms)
    if meant and out != ZERO:
        _describe(views, record, entry, life, now_ms, wall_offset_ms, out)
    if held:
        locks.drop(entry + entries.LOCK)
        return meant
    if meant and out != ZERO:
        shown.connection_at(out).status |= _TORN  # W3
    memory.fence_acquire()
    return meant and memory.acquire64(entry + entries.LIFE) == life


# ------------------------------------------------------------------------------------------------ the walks
@inlined
def _end(views, record, slots_budget):
    """Return where this call ends at the latest."""
    left = views.records[_ENTRIES] - min(record, views.records[_ENTRIES])
    return record + min(left, slots_budget)


@inlined
def _block_end(record, end):
    return min(end, (record // _BLOCK + ONE) * _BLOCK)


@kernel
def collect(views, wanted, now_ms, wall_offset_ms, slots_budget, cursor, out, out_max):
    """Copy connections out, from the cursor on.

    Args:
        wanted: FILTER record, which connections are meant.
        now_ms: the moment to judge expiry by.
        wall_offset_ms: u64, wall clock minus ``now_ms``.
        slots_budget: records to visit at most; 16,384 take about a millisecond.
        cursor: address of a u64, moved on: 0 at the beginning, the number of records when the walk is done.
        out: address of CONNECTION[out_max].
        out_max: connections at most.

    Returns:
        The number of connections written.

    Concurrency:
        Beside any others; each record is locked for its copy.  Intent: UPDATE.
    """
    record = memory.le64(cursor)
    end = _end(views, record, slots_budget)
    n = ZERO
    while record < end and n < out_max:
        block_end = _block_end(record, end)
        found = _gather(views, record, block_end)
        record = block_end
        for i in range(found):
            if n >= out_max:
                record = _candidate(views, i)  # the first of the next page
                break
            _fetch(views, i, found)
            if _show(views, wanted, _candidate(views, i), now_ms, wall_offset_ms, out + n * _SIZE):
                n += ONE
    intents.done(views)
    memory.set_le64(cursor, record)
    return n


@kernel
def count(views, wanted, now_ms, slots_budget, cursor):
    """Count connections, from the cursor on; arguments, result and concurrency as of ``collect``."""
    record = memory.le64(cursor)
    end = _end(views, record, slots_budget)
    n = ZERO
    while record < end:
        block_end = _block_end(record, end)
        found = _gather(views, record, block_end)
        record = block_end
        for i in range(found):
            _fetch(views, i, found)
            if _show(views, wanted, _candidate(views, i), now_ms, ZERO, ZERO):
                n += ONE
    intents.done(views)
    memory.set_le64(cursor, record)
    return n


@kernel
def _mark(views, wanted, record, now_ms):
    """Put a record on the own delete list if it is meant; False when it is not, or its lock was not had."""
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    if not locks.take(entry + entries.LOCK, views.me):
        return False
    meant = _is_meant(views, wanted, entry, memory.acquire64(entry + entries.LIFE), now_ms)
    if meant:
        delete_list.mark(views, record)
    locks.drop(entry + entries.LOCK)
    return meant


@kernel
def delete(views, wanted, now_ms, slots_budget, cursor):
    """Delete connections, from the cursor on.

    Args:
        wanted, now_ms, slots_budget, cursor: as of ``collect``.

    Returns:
        The number of connections deleted: nobody finds them from now on.  The cursor stands still when the delete list is
        full of lines that wait for a lock.

    Concurrency:
        Beside any others.  Intents: UPDATE, MARK, and those of ``delete_list.run``.
    """
    events.tick(views, now_ms)
    quarantine.tell_time(views, now_ms)
    record = memory.le64(cursor)
    end = _end(views, record, slots_budget)
    n = ZERO
    full = False
    while record < end and not full:
        block_end = _block_end(record, end)
        found = _gather(views, record, block_end)
        record = block_end
        for i in range(found):
            if not delete_list.make_room(views):
                record = _candidate(views, i)
                full = True
                break
            _fetch(views, i, found)
            if _mark(views, wanted, _candidate(views, i), now_ms):
                n += ONE
    delete_list.run(views)
    intents.done(views)
    memory.set_le64(cursor, record)
    return n
