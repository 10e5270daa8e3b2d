"""A participant's delete list: records it has marked DEAD, taken out of index and counts in batches.

Who may      while
    mark     anyone, holding the record's lock; then the record is on his list and nobody else's
    run      the list's owner, holding nothing

A line is (record, incarnation), never the record alone, and has a step of its own:

    MARKED     the record is DEAD | me | incarnation; its slots stand
    CLEAR      under the locks of its segments: its slots are being cleared
    CLEARED    no slot names it; it is still counted
    UNCOUNTED  not counted either; only its memory is to come home
    NONE       done, or somebody else's: a flush took it (life has another owner) or will (its zone is detached)

A run sorts the lines by segment and takes each segment's lock once, then by zone and takes the counts' locks once.  What
cannot be done now (a lock not had, a zone that changed in between) keeps its step and waits for the next run.

Ordering
    R5  slots are cleared after DEAD.  Steps are release stores, before what they announce.
"""

from __future__ import annotations

from ..shm.layout import (
    DELETE,
    DELETE_BYTES,
    DELETE_LIST_MAX,
    PARTICIPANT,
    End,
    EventKind,
    Life,
    Step,
    offset,
)
from ..shm.reasons import Reason
from . import counters, entries, events, index, intents, locks, memory, quarantine, segments, sources, tuples, zones
from .jit import inlined, kernel
from .words import EIGHT, LOW_8, ONE, THREE, TWO, ZERO, u64

ROOM_MIN = u64(32)
"""Places below which the list is run before anything is added."""
ROOM_NEEDED = u64(8)
"""Places that one packet may need; with fewer, after a run, it is BUSY: lines wait for a lock."""
ROUNDS_MAX = 8
"""Looks at lines whose zone changed between choosing the segment and locking it."""

_SIZE = u64(DELETE_BYTES)
_MAX = u64(DELETE_LIST_MAX)
_LENGTH = offset(PARTICIPANT, "deletes")
_INCARNATION = offset(DELETE, "incarnation")
_ZONE_STEP = offset(DELETE, "zone_step")
_ZONE_SHIFT = EIGHT
_GAPS = (57, 23, 10, 4, 1)
_DESTROY, _DELETED = u64(EventKind.DESTROY), u64(End.DELETED)


@inlined
def line_at(views, i):
    """Return the address of a line of the own list."""
    return views.delete_list + i * _SIZE


@inlined
def length(views):
    """Return how many lines the own list has."""
    return memory.read32(views.intent + _LENGTH)


@inlined
def is_crowded(views):
    """Return whether there are fewer places than a packet may need."""
    return length(views) + ROOM_MIN > _MAX


@inlined
def has_room(views):
    """Return whether there are as many places as one packet may need."""
    return length(views) + ROOM_NEEDED <= _MAX


@kernel
def make_room(views):
    """Run the list if it is crowded; False when it stays full, for its lines wait for a lock."""
    if is_crowded(views):
        run(views)
    return has_room(views)


@inlined
def record_of(line):
    """Return the record of a line."""
    return memory.read32(line)


@inlined
def incarnation_of(line):
    """Return the incarnation that the record of a line had when it was marked."""
    return memory.read32(line + _INCARNATION)


@inlined
def step_of(line):
    """Return the Step of a line."""
    return memory.read32(line + _ZONE_STEP) & LOW_8


@inlined
def _zone_of(line):
    return memory.read32(line + _ZONE_STEP) >> _ZONE_SHIFT


@inlined
def set_line_step(line, step):
    """Say how far a line has come."""
    memory.release32(line + _ZONE_STEP, (_zone_of(line) << _ZONE_SHIFT) | u64(step))


@inlined
def append(views, record, incarnation):
    """Put a record that is DEAD in the own name on the own list; there is room."""
    n = length(views)
    line = line_at(views, n)
    zone = tuples.zone_of(entries.address(views, record) + tuples.ENTRY_KEY)
    memory.release32(line, record)
    memory.release32(line + _INCARNATION, incarnation)
    memory.release32(line + _ZONE_STEP, (zone << _ZONE_SHIFT) | u64(Step.MARK))
    memory.release32(views.intent + _LENGTH, n + ONE)


@kernel
def end(views, record, why):
    """Make a LIVE record DEAD and put it on the own list: the commit point of a delete.

    The record's lock is held, and stays held; ``make_room`` said so.  A tuple that was chosen for it is kept from others
    first (kernels/quarantine).  Intent: MARK, record, incarnation.  ``why`` is an End.
    """
    entry = entries.address(views, record)
    incarnation = entries.incarnation_of(memory.read64(entry + entries.LIFE))
    intents.set_field(views, intents.INCARNATION, incarnation)
    intents.set_record(views, record, Step.MARK)
    if u64(entries.entry_at(entry).status) & quarantine.TRANSLATED != ZERO:
        quarantine.leave(views, entry)
    event = events.begin(views, record, _DESTROY, ZERO, why) if events.are_wanted(views, _DESTROY) else ZERO
    memory.release64(entry + entries.LIFE, entries.life(Life.DEAD, views.me, incarnation))
    if event != ZERO:
        events.finish(views, event)
    append(views, record, incarnation)
    intents.done(views)


@inlined
def mark(views, record):
    """As ``end``, for who has been asked to delete it."""
    end(views, record, _DELETED)


@kernel
def delete(views, record, key, incarnation):
    """Delete a record that was found some time ago, if it still is what it was.

    Args:
        record: its index.
        key: address of a key that it must have, or 0 for any.
        incarnation: the incarnation that it must have.

    Returns:
        True when this call made it DEAD; it leaves the index with the next run.  False: it was not LIVE, not that
        connection any more, its lock was not had, or the list is full.
    """
    if not make_room(views):
        return False
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    if not locks.take(entry + entries.LOCK, views.me):
        intents.done(views)
        return False
    life = memory.acquire64(entry + entries.LIFE)
    same = entries.state_of(life) == u64(Life.LIVE) and entries.incarnation_of(life) == incarnation
    same = same and (key == ZERO or index.might_be(views, record, key))
    if same:
        mark(views, record)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    return same


# ------------------------------------------------------------------------------------------------ sorting
@kernel
def _sort(order, n):
    """Sort u64[n] at address ``order``; Shell's gaps, n is at most the list.

    Lines of one zone stand in order already, so it is looked first.
    """
    ordered = ONE
    while ordered < n and memory.le64(order + ((ordered - ONE) << THREE)) <= memory.le64(order + (ordered << THREE)):
        ordered += ONE
    if ordered >= n:
        return
    for gap_length in _GAPS:
        gap = u64(gap_length)
        for i in range(gap_length, n):
            value = memory.le64(order + (u64(i) << THREE))
            at = u64(i)
            while at >= gap:
                other = memory.le64(order + ((at - gap) << THREE))
                if other <= value:
                    break
                memory.set_le64(order + (at << THREE), other)
                at -= gap
            memory.set_le64(order + (at << THREE), value)


# ------------------------------------------------------------------------------------------------ out of the index
@inlined
def _is_mine(views, line):
    """Return whether a line's record still is DEAD in our name, of that incarnation."""
    wanted = entries.life(Life.DEAD, views.me, memory.read32(line + _INCARNATION))
    return memory.acquire64(entries.address(views, record_of(line)) + entries.LIFE) == wanted


@kernel
def _clear_line(views, line, first_segment, hash_, second_segment, second_hash):
    """Clear a record's slots (second_hash 0: one key); the segments are locked and its zone's word is unchanged."""
    record = record_of(line)
    if not _is_mine(views, line) or not segments.has_slot(views, first_segment, hash_, record):
        set_line_step(line, Step.NONE)  # a flush has it
        return
    set_line_step(line, Step.CLEAR)
    segments.clear(views, first_segment, hash_, record)
    if second_hash != ZERO:
        segments.clear(views, second_segment, second_hash, record)
    set_line_step(line, Step.CLEARED)


@kernel
def _unindex_single(views, line, word, hash_, second):
    """Clear the slots of a record with two keys; False when its step is still to be done."""
    zone = _zone_of(line)
    second_hash = tuples.hash_key(views, second)
    first_segment = segments.segment_of(views, word, hash_)
    second_segment = segments.segment_of(views, word, second_hash)
    if first_segment == ZERO or second_segment == ZERO:
        return False
    first_segment -= ONE
    second_segment -= ONE
    low = min(first_segment, second_segment)
    high = max(first_segment, second_segment)
    if not segments.lock_pair(views, low, high):
        return False
    same = zones.load_word(views, zone) == word
    if same:
        _clear_line(views, line, first_segment, hash_, second_segment, second_hash)
    segments.unlock_pair(views, low, high)
    return same


@kernel
def _choose_segments(views):
    """Write (segment + 1) << 8 | line for each line with one key into ``order``; do those with two keys at once.

    Returns:
        How many were written.
    """
    chosen = ZERO
    for i in range(length(views)):
        line = line_at(views, u64(i))
        if step_of(line) != u64(Step.MARK):
            continue
        if not _is_mine(views, line):
            set_line_step(line, Step.NONE)
            continue
        entry = entries.address(views, record_of(line))
        word = zones.load_word(views, _zone_of(line))
        if zones.directory_of(word) == ZERO:
            set_line_step(line, Step.NONE)  # the flush that detached it frees it
            continue
        hash_ = tuples.hash_key(views, entry + tuples.ENTRY_KEY)
        second = entries.second_key(views, entry)
        if second != ZERO:
            _unindex_single(views, line, word, hash_, second)
            continue
        segment = segments.segment_of(views, word, hash_)
        if segment == ZERO:
            continue
        memory.prefetch(segments.home_line(views, segment - ONE, hash_))
        memory.prefetch(segments.lock_address(views, segment - ONE))
        memory.set_le64(views.order + (chosen << THREE), (segment << EIGHT) | u64(i))
        chosen += ONE
    return chosen


@kernel
def _clear_group(views, begin, end):
    """Clear the slots of order[begin:end], chosen for one segment, under one hold of its lock; False when it was not had."""
    segment = (memory.le64(views.order + (begin << THREE)) >> EIGHT) - ONE
    if not segments.lock_pair(views, segment, segment):
        return False
    for i in range(begin, end):
        line = line_at(views, memory.le64(views.order + (u64(i) << THREE)) & LOW_8)
        entry = entries.address(views, record_of(line))
        hash_ = tuples.hash_key(views, entry + tuples.ENTRY_KEY)
        word = zones.load_word(views, _zone_of(line))  # under the segment's lock: it is that segment, or begin again
        if zones.directory_of(word) != ZERO and segments.segment_of(views, word, hash_) == segment + ONE:
            _clear_line(views, line, segment, hash_, segment, ZERO)
    segments.unlock_pair(views, segment, segment)
    return True


@kernel
def _unindex(views):
    """Clear the slots of all lines, but of segments whose lock is not had; a second such one ends the run."""
    waits = ZERO
    for _ in range(ROUNDS_MAX):
        n = _choose_segments(views)
        if n == ZERO:
            return
        _sort(views.order, n)
        begin = ZERO
        while begin < n:
            segment = memory.le64(views.order + (begin << THREE)) >> EIGHT
            end = begin + ONE
            while end < n and memory.le64(views.order + (end << THREE)) >> EIGHT == segment:
                end += ONE
            if not _clear_group(views, begin, end):
                waits += ONE
                if waits == TWO:
                    return
            begin = end


# ------------------------------------------------------------------------------------------------ out of the counts
@kernel
def _uncount_group(views, begin, end):
    """Take the records of order[begin:end], all of one zone, out of both counts, then free them; False: locks not had."""
    zone = memory.le64(views.order + (begin << THREE)) >> EIGHT
    n = end - begin
    if not zones.lock_counts(views, zone):
        return False
    if sources.are_in(views, zone):
        for i in range(begin, end):
            record = record_of(line_at(views, memory.le64(views.order + (u64(i) << THREE)) & LOW_8))
            if sources.is_counted(entries.address(views, record)):
                sources.leave(views, record, u64(Step.NONE))
    count = zones.count_of(views, zone)
    total = zones.global_count(views)
    intents.set_zone(views, zone, ZERO)
    intents.set_step_with_counts(views, Step.BATCH_UNCOUNT_WRITING, count, total)
    zones.store_counts(views, zone, count - n, total - n)
    for i in range(begin, end):
        set_line_step(line_at(views, memory.le64(views.order + (u64(i) << THREE)) & LOW_8), Step.UNCOUNTED)
    intents.set_step(views, Step.BATCH_FREE)
    zones.unlock_counts(views, zone)
    for i in range(begin, end):
        line = line_at(views, memory.le64(views.order + (u64(i) << THREE)) & LOW_8)
        intents.set_record(views, record_of(line), Step.BATCH_FREE)
        entries.release(views, record_of(line))
        set_line_step(line, Step.NONE)
    intents.done(views)
    counters.add(views, Reason.REMOVE, n)
    return True


@kernel
def _uncount(views):
    """Take all CLEARED lines out of the counts and free them, but of zones whose lock is not had; a second one ends it."""
    waits = ZERO
    n = ZERO
    for i in range(length(views)):
        line = line_at(views, u64(i))
        if step_of(line) == u64(Step.CLEARED):
            memory.set_le64(views.order + (n << THREE), (_zone_of(line) << EIGHT) | u64(i))
            n += ONE
    _sort(views.order, n)
    begin = ZERO
    while begin < n:
        zone = memory.le64(views.order + (begin << THREE)) >> EIGHT
        end = begin + ONE
        while end < n and memory.le64(views.order + (end << THREE)) >> EIGHT == zone:
            end += ONE
        if not _uncount_group(views, begin, end):
            waits += ONE
            if waits == TWO:
                return
        begin = end


@kernel
def _trim(views):
    """Shorten the list by the lines at its end that are done; lines never move, for one that stood twice is freed twice."""
    n = length(views)
    while n != ZERO and step_of(line_at(views, n - ONE)) == u64(Step.NONE):
        n -= ONE
    memory.release32(views.intent + _LENGTH, n)


@kernel
def run(views):
    """Take the records of the own list out of the index and the counts, and free them.

    Returns:
        Lines up to the last one that is left, because a lock was not had in time; it waits for the next run.

    Concurrency:
        Holds nothing when called and when it returns; one segment's lock, or one zone's count, at a time.
    """
    if length(views) == ZERO:
        return ZERO
    _unindex(views)
    _uncount(views)
    _trim(views)
    intents.done(views)
    return length(views)
