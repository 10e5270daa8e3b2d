"""Flush of a zone: its directory is detached in one store, and what it held comes home in slices.

Who may      while
    detach   anyone, holding the zone's lock: the zone word gets offset 0, and that is the flush
    reclaim  who detached, with the intent of that flush and no other operation in between

From the detach on a find that begins misses; the count falls as records are freed, not at once.  An insert that had passed
its last look at the zone word before the detach lands in the detached directory: it counts as flushed, and the reclaimer
finds it, for it takes each segment's lock before it calls the segment empty.  A deleter whose record's zone changed leaves
it to the reclaimer, which makes LIVE and other deleters' DEAD alike its own.

A participant that flushes has one intent line, so it does nothing else until ``reclaim`` says that it is done: the control
plane has a place on the roster for it.

Ordering
    R3  release zone word         everything that is in the old directory before it
    The segment goes back (owner me -> 0) after it was seen empty under its lock; step and cursor are one word, and the
    cursor stands in a field of its own while the step word says what becomes of a record.
"""

from __future__ import annotations

from ..shm.layout import SEGMENT, SEGMENT_BYTES, SLOTS, End, EventKind, Life, Step, offset
from ..shm.reasons import Reason
from . import counters, entries, events, intents, locks, memory, quarantine, segments, sources, tuples, zones
from .jit import inlined, kernel
from .words import FOUR, LOW_32, ONE, ZERO, u64

DONE = u64(0xFFFFFFFFFFFFFFFF)
"""The cursor of a flush that is finished."""
TRIES_MAX = 64

_DESTROY, _FLUSHED = u64(EventKind.DESTROY), u64(End.FLUSHED)
_DEPTH = offset(SEGMENT, "depth")
_SEGMENT_SIZE = u64(SEGMENT_BYTES)


@kernel
def detach(views, zone):
    """Detach a zone's directory: the flush has happened when this returns.

    Returns:
        The zone word that it had, for ``reclaim``; 0 when the zone was empty, all bits set when its lock was not had.

    Concurrency:
        One store under the zone's lock.  Intent: DETACH with the old word, then RECLAIM.
    """
    lock = zones.lock_address(views, zone)
    intents.set_zone(views, zone, ZERO)
    intents.set_step(views, Step.DETACH)
    if not locks.take(lock, views.me):
        intents.done(views)
        return DONE
    word = zones.load_word(views, zone)
    directory = zones.directory_of(word)
    if directory == ZERO:
        locks.drop(lock)
        intents.done(views)
        return ZERO
    intents.set_zone(views, zone, word)
    intents.set_field(views, intents.CURSOR, ZERO)
    zones.publish_word(views, zone, zones.next_word(word, ZERO, ZERO))  # R3
    memory.release32(segments.directory_owner(views, zones.depth_of(word), directory), views.me)
    intents.set_step_with_cursor(views, Step.RECLAIM, ZERO)
    locks.drop(lock)
    return word


@inlined
def _entry(views, word, i):
    return memory.read32(views.directories + (zones.directory_of(word) + i) * FOUR)


@kernel
def _occupant(views, segment):
    """Return a slot of a segment that is not empty, 0 when all are."""
    base = segments.slots_address(views, segment)
    for i in range(SLOTS):
        slot = memory.acquire64(base + u64(8 * i))
        if slot != ZERO:
            return slot
    return ZERO


@kernel
def _reclaim_record(views, zone, word, segment, record):
    """Take the record that a slot of ``segment`` names out of the detached directory; False when locks were not had.

    The counts' locks are taken before anything is changed, under the segments', so it is done whole or not at all.
    """
    entry = entries.address(views, record)
    hash_ = tuples.hash_key(views, entry + tuples.ENTRY_KEY)
    second = entries.second_key(views, entry)
    second_hash = tuples.hash_key(views, second) if second != ZERO else hash_
    first_segment = segments.segment_of(views, word, hash_) - ONE  # as the OLD directory names them
    second_segment = segments.segment_of(views, word, second_hash) - ONE
    low = min(first_segment, second_segment)
    high = max(first_segment, second_segment)
    intents.set_record(views, record, Step.RECLAIM)
    if not segments.lock_pair(views, low, high):
        return False
    # The slot and the key still so?  Both were read without a lock.
    here = segment == first_segment or segment == second_segment
    if not here or not segments.has_slot(views, first_segment, hash_, record):
        segments.unlock_pair(views, low, high)
        return True
    if not zones.lock_counts(views, zone):
        segments.unlock_pair(views, low, high)
        return False
    if not locks.take(entry + entries.LOCK, views.me):
        zones.unlock_counts(views, zone)
        segments.unlock_pair(views, low, high)
        return False
    life = memory.read64(entry + entries.LIFE)
    incarnation = entries.incarnation_of(life)
    intents.set_field(views, intents.INCARNATION, incarnation)
    if u64(entries.entry_at(entry).status) & quarantine.TRANSLATED != ZERO:
        quarantine.leave(views, entry)
    event = ZERO
    if events.are_wanted(views, _DESTROY) and entries.state_of(life) == u64(Life.LIVE):
        event = events.begin(views, record, _DESTROY, ZERO, _FLUSHED)
    memory.release64(entry + entries.LIFE, entries.life(Life.DEAD, views.me, incarnation))  # LIVE, or another's DEAD
    if event != ZERO:
        events.finish(views, event)
    locks.drop(entry + entries.LOCK)
    if sources.is_counted(entry):
        sources.leave(views, record, u64(Step.RECLAIM))
    intents.set_step(views, Step.CLEAR)
    segments.clear(views, first_segment, hash_, record)
    if second != ZERO:
        segments.clear(views, second_segment, second_hash, record)
    intents.set_step(views, Step.CLEARED)
    count = zones.count_of(views, zone)
    total = zones.global_count(views)
    intents.set_step_with_counts(views, Step.UNCOUNT_WRITING, count, total)
    zones.store_counts(views, zone, count - ONE, total - ONE)
    intents.set_step(views, Step.UNCOUNTED)
    zones.unlock_counts(views, zone)
    segments.unlock_pair(views, low, high)
    entries.release(views, record)
    counters.count(views, Reason.FLUSHED)
    return True


@kernel
def _give_back(views, segment, next_cursor):
    """Give an empty segment back to the pool; False when it is not empty after all, or its lock was not had."""
    if not segments.lock_pair(views, segment, segment):
        return False
    if _occupant(views, segment) != ZERO:
        segments.unlock_pair(views, segment, segment)
        return False
    memory.release32(views.segments + segment * _SEGMENT_SIZE + _DEPTH, ZERO)
    intents.set_step_with_cursor(views, Step.SEGFREE, next_cursor)
    memory.release32(segments.owner_address(views, segment), views.me)  # while its lock is held it is not in the pool
    segments.unlock_pair(views, segment, segment)
    memory.release32(segments.owner_address(views, segment), ZERO)
    intents.set_field(views, intents.CURSOR, next_cursor)
    intents.set_step_with_cursor(views, Step.RECLAIM, next_cursor)
    return True


@kernel
def reclaim(views, zone, word, cursor, records_budget):
    """Bring home a slice of what a detached directory holds.

    Args:
        zone, word: of the ``detach``.
        cursor: 0, then what the last call returned.
        records_budget: records to free at most in this call.

    Returns:
        The cursor to go on at, or DONE when the directory itself went back to the pool.

    Concurrency:
        Beside inserts and deletes that still see the old directory.  Intents: RECLAIM, LOCKS, CLEAR, CLEARED, UNCOUNT*,
        SEGFREE.
    """
    depth = zones.depth_of(word)
    freed = ZERO
    while cursor < (ONE << depth):
        named = _entry(views, word, cursor)
        if cursor != ZERO and _entry(views, word, cursor - ONE) == named:
            cursor += ONE  # the same segment once more
            continue
        segment = named - ONE
        for _ in range(SLOTS * TRIES_MAX):
            slot = _occupant(views, segment)
            if slot == ZERO or freed >= records_budget:
                break
            done = _reclaim_record(views, zone, word, segment, (slot & LOW_32) - ONE)
            intents.set_step_with_cursor(views, Step.RECLAIM, cursor)
            if not done:
                return cursor
            freed += ONE
        if freed >= records_budget:
            return cursor
        if not _give_back(views, segment, cursor + ONE):
            return cursor
        cursor += ONE
    memory.release32(segments.directory_owner(views, depth, zones.directory_of(word)), ZERO)
    intents.done(views)
    return DONE
