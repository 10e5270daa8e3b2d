"""Repair: what a participant was killed over is finished or undone, under its id, in its own intent line.

Who may      while
    repair   one at a time (shm/roster: under its lock), after the kernel said that the dead is gone; beside all the living

Each state that this leaves is one in which the dead itself might have been killed, so a repairer may be killed too, and
the next begins again.  Everything is decided by the intent's step, which every part reads anew, and by life: an insert is
done if its record is LIVE, a delete if it is DEAD, a flush if the zone's word changed.

    first, without taking a lock           free lists; counts, zones and the record that the dead holds; slots under its
                                           segments' locks; then those locks
    then as the dead, who takes locks      the record home, the flush, the delete list, the credit

The second half needs locks that others may hold, perhaps other dead: then it says so, and is called again.

    step                      what is done
    UPDATE, record locked     the record is TORN: its windows are liberal until both sides were seen; hint from expiry
    CHANGE, lock held         an extension that is still on the free list is not the record's
    MARK                      DEAD in our name and not the last line of the delete list: append it
    ALLOC .. RESERVED         life NEW: its slots cleared; out of the counts if RESERVED; freed
    ALLOC, life FREE          it was being taken, or given back: on the free list, once
    any, the lock of the expectations held  their chains and counts made anew from those in use
    *_WRITING, SPEND          by the values before, in the step word
    SOURCE_*                  likewise (kernels/sources); a record that goes home leaves the count of its source
    CLEAR, CLEARED, UNCOUNTED the record that a flush was bringing home, likewise
    SEGFREE                   the segment to the pool, the cursor behind it
    CREATE, SPLIT, DETACH, MERGE, HALVE, LAST  kernels/repair_index
    BATCH_*                   by the steps of the list's lines
    FRAGMENTS                 kernels/repair_fragments; last of all, fragments that the dead held are given up
"""

from __future__ import annotations

from ..shm.layout import (
    GLOBAL,
    NO_RECORD,
    QUOTA,
    QUOTA_BYTES,
    SLOTS,
    ZONES_MAX,
    Life,
    Slab,
    Status,
    Step,
    offset,
)
from . import (
    delete_list,
    entries,
    expectations,
    flush,
    intents,
    late,
    locks,
    memory,
    repair_fragments,
    repair_index,
    repair_lists,
    segments,
    sources,
    tuples,
    zones,
)
from .jit import inlined, kernel
from .words import LOW_32, ONE, ZERO, u64

_COUNT_LOCK = offset(QUOTA, "count_lock")
_QUOTA_SIZE = u64(QUOTA_BYTES)
_GLOBAL_LOCK = offset(GLOBAL, "count_lock")
_NONE = u64(NO_RECORD)
_TORN = u64(Status.TORN)


@inlined
def _step_of(views):
    return intents.step_of(intents.step_word(views))


@inlined
def _field(views, field):
    return memory.read32(views.intent + field)


@inlined
def _record_of(views):
    """Return the record that the intent names, _NONE when it never named one."""
    named = _field(views, intents.RECORD)
    return named - ONE if named != ZERO else _NONE


@inlined
def _life_of(views, record):
    return memory.acquire64(entries.address(views, record) + entries.LIFE)


@inlined
def _is_new(views, word):
    return entries.state_of(word) == u64(Life.NEW) and entries.owner_of(word) == views.me


@inlined
def _is_dead(views, word, incarnation):
    return word == entries.life(Life.DEAD, views.me, incarnation)


# ------------------------------------------------------------------------------------------------ counts
@kernel
def _settle_counts(views, zone):
    """The dead holds both counts' locks: nobody changed them since; what it was writing is finished or undone."""
    word = intents.step_word(views)
    step = intents.step_of(word)
    count, total = intents.counts_of(word)
    if step == u64(Step.UNCOUNT_WRITING):
        zones.store_counts(views, zone, count - ONE, total - ONE)
        intents.set_step(views, Step.UNCOUNTED)
    elif step == u64(Step.CREDIT_WRITING) or step == u64(Step.CREDIT_BACK_WRITING):
        # the credit is the last word written: as it was, the counts go back; changed, they stand
        if (zones.credit(views) == ZERO) == (step == u64(Step.CREDIT_WRITING)):
            zones.store_counts(views, zone, count, total)
        intents.set_step(views, Step.LOCKS)
    elif step == u64(Step.BATCH_UNCOUNT_WRITING):
        zones.store_counts(views, zone, count, total)
        for i in range(delete_list.length(views)):
            line = delete_list.line_at(views, u64(i))
            if delete_list.step_of(line) == u64(Step.UNCOUNTED):
                delete_list.set_line_step(line, Step.CLEARED)
        intents.set_step(views, Step.BATCH_UNCOUNT)


@kernel
def _settle_zones(views):
    """Bring the counts and words of zones whose locks the dead holds to rest; not every such lock is named by an intent."""
    for i in range(ZONES_MAX):
        zone = u64(i)
        lock = views.quotas + zone * _QUOTA_SIZE + _COUNT_LOCK
        if memory.acquire32(lock) == views.me:
            if memory.acquire32(views.globals + _GLOBAL_LOCK) == views.me:
                _settle_counts(views, zone)
                locks.drop(views.globals + _GLOBAL_LOCK)
            sources.settle(views, _record_of(views))
            locks.drop(lock)
        if memory.acquire32(zones.lock_address(views, zone)) == views.me:
            repair_index.settle(views, zone)


# ------------------------------------------------------------------------------------------------ the record
@kernel
def _enlist(views, record):
    """A delete that is committed and not yet on the list."""
    incarnation = _field(views, intents.INCARNATION)
    if _is_dead(views, _life_of(views, record), incarnation):
        n = delete_list.length(views)
        last = delete_list.line_at(views, n - ONE)
        if n == ZERO or delete_list.record_of(last) != record or delete_list.incarnation_of(last) != incarnation:
            delete_list.append(views, record, incarnation)
    intents.done(views)


@kernel
def _settle_record(views):
    """Drop the lock of the record, after what was being done to it was made good."""
    record = _record_of(views)
    if record == _NONE:
        return
    if _step_of(views) == u64(Step.MARK):
        _enlist(views, record)
    entry = entries.address(views, record)
    if memory.acquire32(entry + entries.LOCK) != views.me:
        return
    if _step_of(views) == u64(Step.UPDATE) and entries.state_of(_life_of(views, record)) == u64(Life.LIVE):
        fields = entries.entry_at(entry)
        fields.status = u64(fields.status) | _TORN
        entries.set_due(views, record, entry, entries.due_units(memory.read64(entry + entries.EXPIRY)))
    elif _step_of(views) == u64(Step.CHANGE):
        repair_lists.unlink(views, entry)
    locks.drop(entry + entries.LOCK)


# ------------------------------------------------------------------------------------------------ under segment locks
@kernel
def _wipe(views, named, record):
    """Clear the slots of a record in a segment (index + 1), if the dead holds its lock."""
    if named == ZERO or memory.acquire32(segments.lock_address(views, named - ONE)) != views.me:
        return
    base = segments.slots_address(views, named - ONE)
    for i in range(SLOTS):
        if memory.read64(base + u64(8 * i)) & LOW_32 == record + ONE:
            memory.release64(base + u64(8 * i), ZERO)  # R5


@kernel
def _wipe_both(views, record):
    _wipe(views, _field(views, intents.SEGMENT_LOW), record)
    _wipe(views, _field(views, intents.SEGMENT_HIGH), record)


@inlined
def _is_inserting(step):
    early = step == u64(Step.ALLOC) or step == u64(Step.LOCKS) or step == u64(Step.CREATE)
    return early or step == u64(Step.SPLIT) or step == u64(Step.RESERVED)


@kernel
def _settle_insert(views, step):
    """An insert that is not committed is undone; whatever else has such a step needs its locks dropped and no more."""
    record = _record_of(views)
    if record == _NONE:
        intents.done(views)
        return
    word = _life_of(views, record)
    if _is_new(views, word):
        _wipe_both(views, record)
        intents.set_step(views, Step.CLEARED if step == u64(Step.RESERVED) else Step.UNCOUNTED)
    elif step == u64(Step.ALLOC) and entries.state_of(word) == u64(Life.FREE):
        intents.set_step(views, Step.UNCOUNTED)  # taken from the list, or given back, but for a store or two
    else:
        intents.done(views)


@kernel
def _settle_slots(views):
    """Clear the slots of records that are not, or no longer, in the table, while the dead holds their segments."""
    word = intents.step_word(views)
    step = intents.step_of(word)
    if step == u64(Step.SPEND):
        intents.set_field(views, intents.CREDIT, intents.cursor_of(word))
        intents.set_step(views, Step.LOCKS)
        step = u64(Step.LOCKS)
    if _is_inserting(step):
        _settle_insert(views, step)
    elif step == u64(Step.CLEAR):
        _wipe_both(views, _record_of(views))
        intents.set_step(views, Step.CLEARED)
    for i in range(delete_list.length(views)):
        line = delete_list.line_at(views, u64(i))
        if delete_list.step_of(line) == u64(Step.CLEAR):
            _wipe_both(views, delete_list.record_of(line))
            delete_list.set_line_step(line, Step.CLEARED)


@kernel
def _settle_freed_segment(views):
    """A flush was giving an empty segment back."""
    word = intents.step_word(views)
    if intents.step_of(word) != u64(Step.SEGFREE):
        return
    segment = _field(views, intents.SEGMENT_LOW) - ONE
    owner = segments.owner_address(views, segment)
    if memory.acquire32(segments.lock_address(views, segment)) == views.me:
        memory.release32(owner, views.me)
        locks.drop(segments.lock_address(views, segment))
    if memory.acquire32(owner) == views.me:
        memory.release32(owner, ZERO)
    cursor = intents.cursor_of(word)
    intents.set_field(views, intents.CURSOR, cursor)
    intents.set_step_with_cursor(views, Step.RECLAIM, cursor)


@kernel
def _settle_fragments(views):
    repair_fragments.settle(views)
    if _step_of(views) == u64(Step.FRAGMENTS):
        intents.done(views)


@kernel
def _drop_segment(views, named):
    if named != ZERO and memory.acquire32(segments.lock_address(views, named - ONE)) == views.me:
        locks.drop(segments.lock_address(views, named - ONE))


# ------------------------------------------------------------------------------------------------ as the dead
@kernel
def _leave_source(views, record, step):
    """Take a record out of the count of its source, if it is in; False when the lock was not had."""
    entry = entries.address(views, record)
    if not sources.is_counted(entry):
        return True
    lock = zones.count_lock_address(views, tuples.zone_of(entry + tuples.ENTRY_KEY))
    if not locks.take(lock, views.me):
        return False
    sources.leave(views, record, step)
    locks.drop(lock)
    return True


@kernel
def _uncount(views, record, step):
    """Take a record that is CLEARED out of the counts; False when their locks were not had."""
    if step != u64(Step.CLEARED):
        return True
    zone = tuples.zone_of(entries.address(views, record) + tuples.ENTRY_KEY)
    if not zones.lock_counts(views, zone):
        return False
    count = zones.count_of(views, zone)
    total = zones.global_count(views)
    intents.set_step_with_counts(views, Step.UNCOUNT_WRITING, count, total)
    zones.store_counts(views, zone, count - ONE, total - ONE)
    intents.set_step(views, Step.UNCOUNTED)
    zones.unlock_counts(views, zone)
    return True


@kernel
def _bring_home(views):
    """The one record of the operation, out of index already: out of the counts, and free; False when locks were not had."""
    step = _step_of(views)
    if step != u64(Step.CLEARED) and step != u64(Step.UNCOUNTED):
        return True
    record = _record_of(views)
    word = _life_of(views, record)
    is_ours = _is_new(views, word) or _is_dead(views, word, _field(views, intents.INCARNATION))
    if is_ours and not (_leave_source(views, record, step) and _uncount(views, record, step)):
        return False
    if is_ours or entries.state_of(word) == u64(Life.FREE):
        repair_lists.release(views, record)
    intents.done(views)
    return True


@kernel
def _finish_flush(views):
    """A flush is under way, whatever the step, while its directory is in the dead's name; False when locks were not had."""
    word = memory.read64(views.intent + intents.ZONE_WORD)
    directory = zones.directory_of(word)
    if directory != ZERO:
        owner = segments.directory_owner(views, zones.depth_of(word), directory)
        if memory.acquire32(owner) == views.me:
            cursor = _field(views, intents.CURSOR)
            intents.set_step_with_cursor(views, Step.RECLAIM, cursor)
            return flush.reclaim(views, _field(views, intents.ZONE), word, cursor, LOW_32) == flush.DONE
    intents.done(views)
    return True


@kernel
def _finish_list(views):
    """The delete list: first lines whose record only has to be freed, for no other may be pushed before; then as ever."""
    for i in range(delete_list.length(views)):
        line = delete_list.line_at(views, u64(i))
        if delete_list.step_of(line) == u64(Step.UNCOUNTED):
            record = delete_list.record_of(line)
            incarnation = delete_list.incarnation_of(line)
            word = _life_of(views, record)
            if _is_dead(views, word, incarnation) or word == entries.life(Life.FREE, ZERO, incarnation):
                repair_lists.release(views, record)
            delete_list.set_line_step(line, Step.NONE)
    return delete_list.run(views) == ZERO


@kernel
def repair(views):
    """Bring what a dead participant left to rest, and its place with it.

    Args:
        views: of the dead: ``me`` is its owner id.

    Returns:
        True when its place is at rest: no step, no credit, no delete list, no lock.  False when a lock was not had in
        time: what the dead held is free, and the rest is done by another call.

    Concurrency:
        Beside all the living; one repairer at a time.  Goes through the words of all zones, and to its end: a flush of
        many records is not parted into slices.
    """
    repair_lists.mend(views, u64(Slab.ENTRIES))
    repair_lists.mend(views, u64(Slab.EXTENSIONS))
    _settle_zones(views)
    expectations.settle(views)
    _settle_record(views)
    _settle_slots(views)
    _settle_freed_segment(views)
    _settle_fragments(views)
    _drop_segment(views, _field(views, intents.SEGMENT_LOW))
    _drop_segment(views, _field(views, intents.SEGMENT_HIGH))
    if not (_bring_home(views) and _finish_flush(views) and _finish_list(views) and zones.return_credit(views)):
        return False
    return late.abandon(views)
