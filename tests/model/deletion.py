"""delete: DEAD under the record's lock, then all slots under the segments' locks, then the count, then free.

Here one record at a time; ``delete_list`` does several at once.
"""

from __future__ import annotations

from .counts import DOWN, add
from .lookup import AGAIN, MISS, entry, find_expired, peek
from .sources import leave_alone
from .words import (
    BEGIN,
    DEAD,
    END,
    FREE,
    LIVE,
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
    state_of,
    step_word,
    where,
    zone_of,
)


def mark(table, me, record, key, now=-1):
    """Make a record DEAD: only with ``key`` (if >= 0), and only when expired (if now >= 0); else set its hint.

    The lock stays held and the step is MARK: the caller names the step that follows, then unlocks.

    Returns:
        Its life word and keys, or (0, ()).
    """
    yield OWN_STORE, table.intent(me, "record"), record + 1
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.MARK)
    yield LOCK, table.record_lock + record, me
    word = yield LOAD, table.life + record
    if state_of(word) != LIVE:
        return 0, ()
    packed = yield LOAD, table.key + record
    if key >= 0 and key not in keys_of(packed):
        return 0, ()
    if now >= 0:
        expiry = yield LOAD, table.expiry + record
        if expiry > now:
            yield STORE, table.due + record, expiry
            return 0, ()
    yield OWN_STORE, table.intent(me, "incarnation"), incarnation_of(word)
    dead = life(DEAD, me, incarnation_of(word))
    yield STORE, table.life + record, dead  # the commit point
    return dead, keys_of(packed)


def unmark(table, me, record, step):
    """End of a mark: the step that follows, and unlock."""
    yield OWN_STEP, table.intent(me, "step"), step_word(step)
    yield STORE, table.record_lock + record, 0


def unindex(table, me, record, dead, keys):
    """Take a DEAD record out of the index, all keys at once, then free it.  Whoever clears the slots frees."""
    zone = zone_of(keys[0])
    while True:
        word = yield LOAD, table.zone + zone
        if not where(word)[1]:
            break  # flushed: the reclaimer has it
        own = ()
        for key in keys:
            segment = yield from entry(table, word, key)
            own += (segment,)
        if -1 in own:
            continue
        segments = tuple(sorted(set(own)))
        yield OWN_STORE, table.intent(me, "low"), segments[0] + 1
        yield OWN_STORE, table.intent(me, "high"), segments[-1] + 1
        for segment in segments:
            yield LOCK, table.segment_lock + segment, me
        word_again = yield LOAD, table.zone + zone
        found, gone = False, False
        if word_again == word:
            life_again = yield LOAD, table.life + record
            gone = life_again != dead and "delete_no_version" not in table.flaws
            if not gone:
                found = yield from clear(table, me, record, segments)
        for segment in segments:
            yield STORE, table.segment_lock + segment, 0
        if word_again != word:
            continue
        if found or ("free_when_not_found" in table.flaws and not gone):
            yield from release(table, me, record, dead, keys[0])
        break
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)


def slots_of(table, record, segments):
    """Return where the slots of a record stand."""
    places = ()
    for segment in segments:
        for i in range(SLOTS):
            slot = yield LOAD, table.slot + segment * SLOTS + i
            if slot and record_of(slot) == record:
                places += (segment * SLOTS + i,)
    return places


def clear(table, me, record, segments):
    """Clear each slot of a record in locked segments; False when there is none."""
    places = yield from slots_of(table, record, segments)
    if places:
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.CLEAR)
        for place in places:
            yield STORE, table.slot + place, 0
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.CLEARED)
    return bool(places)


def release(table, me, record, dead, key):
    """Take a record without slots out of the counts, and free it."""
    yield from leave_alone(table, me, record, key, Step.CLEARED)
    yield from add(table, me, zone_of(key), DOWN)
    yield from free(table, record, dead)


def free(table, record, word):
    """Free a record that has neither slots nor a place in the count."""
    if table.hints:
        yield STORE, table.due + record, 0
    yield STORE, table.life + record, life(FREE, 0, incarnation_of(word))


def delete(table, me, key):
    """Delete the connection that has ``key``."""
    yield BEGIN, "delete", key
    record = AGAIN
    while record == AGAIN:
        record = yield from peek(table, key)
    if record >= 0:
        dead, keys = yield from mark(table, me, record, key)
        yield from unmark(table, me, record, Step.FIND if dead else Step.NONE)
        if dead:
            yield from unindex(table, me, record, dead, keys)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    yield END, "delete", key, record


def lookup(table, me, key, now):
    """Find; one that has expired is a miss, and is deleted."""
    record, dead, keys = yield from find_expired(table, me, key, now)
    if dead:
        yield from unmark(table, me, record, Step.FIND)
        yield from unindex(table, me, record, dead, keys)
        return MISS
    return record


def sweep(table, me, now):
    """The owner's pass over the hints; what has expired is deleted at once."""
    for record in range(table.records):
        hint = yield LOAD, table.due + record
        if hint and hint <= now:
            if "hint_no_lock" in table.flaws:
                expiry = yield LOAD, table.expiry + record
                if expiry > now:
                    yield STORE, table.due + record, expiry
                    continue
            dead, keys = yield from mark(table, me, record, -1, now)
            yield from unmark(table, me, record, Step.FIND if dead else Step.NONE)
            if dead:
                yield from unindex(table, me, record, dead, keys)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
