"""Batches of deletes: a list of DEAD records, one segment lock for several, one count for all of a zone.

The list stands in the participant's own shared line, so its stores interleave with nobody; after its death repair reads
it.  Each entry has a step of its own.  Before an ``uncount`` begins no entry is UNCOUNTED: so, while the counts are being
written, those that are belong to this batch.
"""

from __future__ import annotations

from .counts import lock_counts, unlock_counts, write_counts
from .deletion import free, mark, slots_of, unmark
from .lookup import AGAIN, MISS, entry, find_expired, peek
from .sources import leave
from .words import (
    BEGIN,
    DEAD,
    END,
    LOAD,
    LOCK,
    OWN_LOAD,
    OWN_STEP,
    OWN_STORE,
    STORE,
    Entry,
    Step,
    incarnation_of,
    keys_of,
    life,
    step_word,
    where,
    zone_of,
)


def read_list(table, me):
    """Return the entries of a delete list: (record, incarnation, zone, step) each."""
    if not table.deletes:
        return ()
    length = yield OWN_LOAD, table.intent(me, "deletes")
    entries = ()
    for i in range(length):
        record = yield OWN_LOAD, table.delete(me, i, "record")
        incarnation = yield OWN_LOAD, table.delete(me, i, "incarnation")
        zone = yield OWN_LOAD, table.delete(me, i, "zone")
        step = yield OWN_LOAD, table.delete(me, i, "step")
        entries += ((record, incarnation, zone, step),)
    return entries


def append(table, me, record, dead, keys):
    """Put a record that was just made DEAD on the list: its lock is held, the step is MARK."""
    length = yield OWN_LOAD, table.intent(me, "deletes")
    yield OWN_STORE, table.delete(me, length, "record"), record
    yield OWN_STORE, table.delete(me, length, "incarnation"), incarnation_of(dead)
    yield OWN_STORE, table.delete(me, length, "zone"), zone_of(keys[0])
    yield OWN_STORE, table.delete(me, length, "step"), Entry.MARKED
    yield OWN_STORE, table.intent(me, "deletes"), length + 1


def mark_listed(table, me, record, key, now=-1):
    """Mark a record and put it on the list, in one operation."""
    if "append_after" in table.flaws:
        dead, keys = yield from mark(table, me, record, key, now)
        yield from unmark(table, me, record, Step.NONE)
        if dead:
            yield from append(table, me, record, dead, keys)
        return
    dead, keys = yield from mark(table, me, record, key, now)
    if dead:
        yield from append(table, me, record, dead, keys)
    yield from unmark(table, me, record, Step.NONE)


def delete_later(table, me, key):
    """Delete the connection that has ``key``: it is gone at once, its record comes home with the batch."""
    yield BEGIN, "delete", key
    record = AGAIN
    while record == AGAIN:
        record = yield from peek(table, key)
    if record >= 0:
        yield from mark_listed(table, me, record, key)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    yield END, "delete", key, record


def sweep_list(table, me, now):
    """The owner's pass over the hints; what has expired goes on the list."""
    for record in range(table.records):
        hint = yield LOAD, table.due + record
        if hint and hint <= now:
            yield from mark_listed(table, me, record, -1, now)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)


def lookup_later(table, me, key, now):
    """Find; one that has expired is a miss, and goes on the list."""
    record, dead, keys = yield from find_expired(table, me, key, now)
    if dead:
        yield from append(table, me, record, dead, keys)
        yield from unmark(table, me, record, Step.NONE)
        return MISS
    return record


def drain(table, me):
    """Work off the list; repair does the same as the dead, whatever steps the entries stand at."""
    entries = yield from read_list(table, me)
    if not entries:
        return
    entries = yield from _free(table, me, entries)
    while any(e[3] == Entry.MARKED for e in entries):
        entries = yield from _clear_segment(table, me, entries)
    zones = tuple(sorted({e[2] for e in entries if e[3] == Entry.CLEARED}))
    for zone in zones:
        entries = yield from _uncount(table, me, entries, zone)
        if "free_at_the_end" not in table.flaws:
            entries = yield from _free(table, me, entries)
    yield from _free(table, me, entries)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    yield OWN_STORE, table.intent(me, "deletes"), 0


def _set_step(table, me, entries, i, step):
    yield OWN_STORE, table.delete(me, i, "step"), step
    return (*entries[:i], (*entries[i][:3], step), *entries[i + 1 :])


def _clear_segment(table, me, entries):
    """Lock the segment of the first MARKED entry and clear the slots of all that stand in it."""
    first = next(i for i in range(len(entries)) if entries[i][3] == Entry.MARKED)
    zone = entries[first][2]
    word = yield LOAD, table.zone + zone
    if not where(word)[1]:  # flushed: the reclaimer has it
        entries = yield from _set_step(table, me, entries, first, Entry.GONE)
        return entries
    segment, group = -1, ()
    for i in range(first, len(entries)):
        if entries[i][3] == Entry.MARKED and entries[i][2] == zone:
            packed = yield LOAD, table.key + entries[i][0]  # of another connection, if a flush took the record
            at = -1
            if zone_of(keys_of(packed)[0]) == zone:
                at = yield from entry(table, word, keys_of(packed)[0])
            if i == first:
                segment = at
            if at == segment:
                group += (i,)
    if segment < 0:
        word_again = yield LOAD, table.zone + zone
        if word_again == word:  # the record is another zone's now
            entries = yield from _set_step(table, me, entries, first, Entry.GONE)
        return entries
    yield OWN_STORE, table.intent(me, "low"), segment + 1
    yield OWN_STORE, table.intent(me, "high"), segment + 1
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.BATCH_CLEAR)
    yield LOCK, table.segment_lock + segment, me
    word_again = yield LOAD, table.zone + zone
    if word_again == word:
        for i in group:
            entries = yield from _clear_entry(table, me, entries, i, segment)
    yield STORE, table.segment_lock + segment, 0
    return entries


def _clear_entry(table, me, entries, i, segment):
    record, incarnation = entries[i][:2]
    word = yield LOAD, table.life + record
    places = ()
    if word == life(DEAD, me, incarnation) or "list_by_record" in table.flaws:
        places = yield from slots_of(table, record, (segment,))
    if not places:
        entries = yield from _set_step(table, me, entries, i, Entry.GONE)
        return entries
    if "no_clear_step" not in table.flaws:
        entries = yield from _set_step(table, me, entries, i, Entry.CLEAR)
    for place in places:
        yield STORE, table.slot + place, 0
    entries = yield from _set_step(table, me, entries, i, Entry.CLEARED)
    return entries


def _uncount(table, me, entries, zone):
    """Count all CLEARED entries of a zone at once."""
    batch = tuple(i for i in range(len(entries)) if entries[i][2:] == (zone, Entry.CLEARED))
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.BATCH_UNCOUNT)
    count, total = yield from lock_counts(table, me, zone)
    if table.cells and "leave_late" not in table.flaws:
        yield from _leave_sources(table, me, entries, batch)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.BATCH_UNCOUNT_WRITING, count, total)
    yield from write_counts(table, zone, count - len(batch), total - len(batch))
    if "uncounted_after" in table.flaws:
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.BATCH_FREE)
    for i in batch:
        entries = yield from _set_step(table, me, entries, i, Entry.UNCOUNTED)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.BATCH_FREE)
    yield from unlock_counts(table, zone)
    if table.cells and "leave_late" in table.flaws:
        yield from _leave_sources(table, me, entries, batch)
    return entries


def _leave_sources(table, me, entries, batch):
    for j in batch:
        packed = yield LOAD, table.key + entries[j][0]
        yield from leave(table, me, entries[j][0], keys_of(packed)[0], Step.NONE)


def _free(table, me, entries):
    """Free each UNCOUNTED entry."""
    for i in range(len(entries)):
        if entries[i][3] == Entry.UNCOUNTED:
            record, incarnation = entries[i][:2]
            word = yield LOAD, table.life + record
            if word == life(DEAD, me, incarnation):
                yield from free(table, record, word)
            entries = yield from _set_step(table, me, entries, i, Entry.GONE)
    return entries
