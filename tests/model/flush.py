"""flush of a zone: the directory is detached by one store, segments and records come home afterwards."""

from __future__ import annotations

from .counts import lock_counts, unlock_counts, write_counts
from .deletion import clear, free
from .lookup import entry
from .sources import leave
from .words import (
    BEGIN,
    DEAD,
    END,
    LOAD,
    LOCK,
    OWN_STEP,
    OWN_STORE,
    SLOTS,
    STORE,
    Step,
    incarnation_of,
    keys_of,
    life,
    record_of,
    step_word,
    version_of,
    where,
    zone_of,
    zone_word,
)


def flush(table, me, zone):
    """Detach the zone's directory, then empty it."""
    yield BEGIN, "flush", zone
    yield OWN_STORE, table.intent(me, "zone_word"), 0
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.DETACH)
    yield LOCK, table.zone_lock + zone, me
    word = yield LOAD, table.zone + zone
    if where(word)[1]:
        yield OWN_STORE, table.intent(me, "cursor"), 0
        yield OWN_STORE, table.intent(me, "zone_word"), word
        yield STORE, table.zone + zone, zone_word(version_of(word) + 1, 0, 0)
        yield END, "detach", zone, 0
        yield STORE, table.directory_owner + where(word)[1], me
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.RECLAIM)
    yield STORE, table.zone_lock + zone, 0
    if where(word)[1]:
        yield from reclaim(table, me, zone, word, 0)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    yield END, "flush", zone, 0


def reclaim(table, me, zone, word, cursor):
    """Empty and free the segments of a detached directory, from entry ``cursor`` on."""
    depth, offset = where(word)
    for i in range(cursor, 1 << depth):
        segment = yield LOAD, table.directory + offset + i
        if i:
            before = yield LOAD, table.directory + offset + i - 1
            if before == segment:
                continue
            before = 0
        segment -= 1
        yield from _empty(table, me, zone, word, segment)
        yield STORE, table.segment_depth + segment, 0
        if "cursor_apart" in table.flaws:
            yield OWN_STORE, table.intent(me, "cursor"), i + 1
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.SEGFREE, i + 1)  # step and cursor are one word
        yield STORE, table.segment_owner + segment, me  # while its lock is held it is not in the pool
        yield STORE, table.segment_lock + segment, 0
        yield STORE, table.segment_owner + segment, 0
        yield OWN_STORE, table.intent(me, "cursor"), i + 1
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.RECLAIM)
    yield STORE, table.directory_owner + offset, 0


def _empty(table, me, zone, word, segment):
    """Take every record out of a segment; it is empty and locked afterwards."""
    while True:
        record, keys = yield from _occupant(table, segment)
        if record >= 0:
            yield from _reclaim_record(table, me, zone, word, record, keys, segment)
            continue
        yield OWN_STORE, table.intent(me, "low"), segment + 1
        yield OWN_STORE, table.intent(me, "high"), segment + 1
        yield LOCK, table.segment_lock + segment, me
        left = 0
        for j in range(SLOTS):
            slot = yield LOAD, table.slot + segment * SLOTS + j
            left = left or slot
        if not left:
            return
        yield STORE, table.segment_lock + segment, 0


def _occupant(table, segment):
    for j in range(SLOTS):
        slot = yield LOAD, table.slot + segment * SLOTS + j
        if slot:
            record = record_of(slot)
            packed = yield LOAD, table.key + record
            return record, keys_of(packed)
    return -1, ()


def _reclaim_record(table, me, zone, word, record, keys, segment):
    own = (segment,)
    for key in keys:
        if zone_of(key) == zone:
            other = yield from entry(table, word, key)
            own += (other,)
    segments = tuple(sorted(set(own)))
    yield OWN_STORE, table.intent(me, "record"), record + 1
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.LOCKS)
    yield OWN_STORE, table.intent(me, "low"), segments[0] + 1
    yield OWN_STORE, table.intent(me, "high"), segments[-1] + 1
    for held in segments:
        yield LOCK, table.segment_lock + held, me
    packed = yield LOAD, table.key + record
    here = False
    for j in range(SLOTS):
        slot = yield LOAD, table.slot + segment * SLOTS + j
        here = here or (slot != 0 and record_of(slot) == record)
    if here and keys_of(packed) == keys:
        count, total = yield from lock_counts(table, me, zone)  # before anything is changed: all of it, or nothing
        yield LOCK, table.record_lock + record, me
        dead = yield LOAD, table.life + record
        dead = life(DEAD, me, incarnation_of(dead))
        yield OWN_STORE, table.intent(me, "incarnation"), incarnation_of(dead)
        yield STORE, table.life + record, dead  # LIVE or another deleter's DEAD: ours now
        yield STORE, table.record_lock + record, 0
        yield from leave(table, me, record, keys[0], Step.RECLAIM)
        yield from clear(table, me, record, segments)
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.UNCOUNT_WRITING, count, total)
        yield from write_counts(table, zone, count - 1, total - 1)
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.UNCOUNTED)
        yield from unlock_counts(table, zone)
        for held in segments:
            yield STORE, table.segment_lock + held, 0
        yield from free(table, record, dead)
    else:
        for held in segments:
            yield STORE, table.segment_lock + held, 0
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.RECLAIM)
