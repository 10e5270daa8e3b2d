"""find: without a segment lock, confirmed under the record's lock, or a miss by an unchanged zone word."""

from __future__ import annotations

from .words import (
    BEGIN,
    DEAD,
    END,
    LIVE,
    LOAD,
    LOCK,
    OWN_STEP,
    OWN_STORE,
    SLOTS,
    STORE,
    Step,
    hash_of,
    incarnation_of,
    index_of,
    is_far,
    keys_of,
    life,
    record_of,
    state_of,
    step_word,
    tag_of,
    where,
    zone_of,
)

MISS, AGAIN = -1, -2


def entry(table, word, key):
    """Load the segment that the directory of a zone word names for ``key``; -1 in memory that was reused."""
    depth, offset = where(word)
    segment = yield LOAD, table.directory + offset + index_of(key, depth)
    return segment - 1


def lock_and_check(table, me, record, key):
    """Lock a record and look whether it is LIVE and has the key; the lock stays held if so."""
    yield OWN_STORE, table.intent(me, "record"), record + 1
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.UPDATE)
    yield LOCK, table.record_lock + record, me
    if "key_then_state" in table.flaws:
        keys = yield LOAD, table.key + record
        word = yield LOAD, table.life + record
    else:
        word = yield LOAD, table.life + record
        keys = 0
        if state_of(word) == LIVE:
            keys = yield LOAD, table.key + record
    if "no_recheck" in table.flaws or (state_of(word) == LIVE and key in keys_of(keys)):
        return True
    yield STORE, table.record_lock + record, 0
    return False


def find_once(table, me, key):
    """Look for ``key`` once: its record, locked, or MISS, or AGAIN."""
    zone = zone_of(key)
    word = yield LOAD, table.zone + zone
    if not where(word)[1]:
        return MISS
    segment = yield from entry(table, word, key)
    if segment < 0:
        return AGAIN
    for i in range(SLOTS):
        slot = yield LOAD, table.slot + segment * SLOTS + i
        if slot and tag_of(slot) == hash_of(key):
            record = record_of(slot)
            keys = yield LOAD, table.key + record
            if key in keys_of(keys):
                good = yield from lock_and_check(table, me, record, key)
                if good:
                    return record
    if "no_miss_confirm" not in table.flaws:
        word_again = yield LOAD, table.zone + zone
        if word_again != word:
            return AGAIN
        segment_again = yield from entry(table, word, key)
        if segment_again != segment:
            return AGAIN
    return MISS


def _find_locked(table, me, key):
    yield BEGIN, "find", key
    record = AGAIN
    while record == AGAIN:
        record = yield from find_once(table, me, key)
    yield END, "find", key, record
    return record


def find(table, me, key):
    """Find and let go."""
    record = yield from _find_locked(table, me, key)
    if record >= 0:
        yield STORE, table.record_lock + record, 0
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    return record


def find_sent(table, me, key):
    """A packet that the near end has sent, as it was sent: of the record whose own key it has, not of one whose replies do.

    Found as one that was translated, it is looked up once more, for the other record of its key (kernels/doubles).
    """
    yield BEGIN, "sent", key
    record = AGAIN
    while record == AGAIN:
        record = yield from find_once(table, me, key)
        if record >= 0 and "no_doubles" not in table.flaws:
            packed = yield LOAD, table.key + record
            if keys_of(packed)[0] != key and is_far(packed):
                yield STORE, table.record_lock + record, 0
                record = yield from _find_other(table, me, key, record)
    yield END, "sent", key, record
    if record >= 0:
        yield STORE, table.record_lock + record, 0
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)


def _find_other(table, me, key, known):
    """Look once for a record, not ``known``, that has ``key`` as its own."""
    word = yield LOAD, table.zone + zone_of(key)
    if not where(word)[1]:
        return MISS
    segment = yield from entry(table, word, key)
    if segment < 0:
        return AGAIN
    for i in range(SLOTS):
        slot = yield LOAD, table.slot + segment * SLOTS + i
        record = record_of(slot) if slot and tag_of(slot) == hash_of(key) else known
        if record != known:
            keys = yield LOAD, table.key + record
            if key in keys_of(keys):
                good = yield from lock_and_check(table, me, record, key)
                if good:
                    packed = yield LOAD, table.key + record
                    if keys_of(packed)[0] == key:
                        return record
                    yield STORE, table.record_lock + record, 0
    word_again = yield LOAD, table.zone + zone_of(key)
    return MISS if word_again == word else AGAIN


def update(table, me, key, shorter):
    """A packet: find, and under the record's lock set expiry (to 3, or to 1 if shorter, and then the hint too)."""
    record = yield from _find_locked(table, me, key)
    if record >= 0:
        yield STORE, table.expiry + record, 1 if shorter else 3
        if shorter:
            yield STORE, table.due + record, 1
        yield STORE, table.record_lock + record, 0
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)


def reopen(table, me, key):
    """A packet that opens a closed connection anew: contents change, life and count stay."""
    record = yield from _find_locked(table, me, key)
    if record >= 0:
        word = yield LOAD, table.life + record
        yield OWN_STORE, table.intent(me, "incarnation"), incarnation_of(word)
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.REOPEN)
        yield STORE, table.expiry + record, 3
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.UPDATE)
        yield STORE, table.record_lock + record, 0
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)


def find_expired(table, me, key, now):
    """Find; a record whose expiry has passed is made DEAD while its lock is held, and is a miss.

    Returns:
        (record, 0, ()) of a hit or MISS; or (record, life word, keys) of one that the caller must delete: its lock is
        still held and the step is MARK.
    """
    yield BEGIN, "find", key
    record = AGAIN
    while record == AGAIN:
        record = yield from find_once(table, me, key)
    dead, keys = 0, ()
    if record >= 0:
        expiry = yield LOAD, table.expiry + record
        if expiry <= now:
            word = yield LOAD, table.life + record
            packed = yield LOAD, table.key + record
            yield OWN_STORE, table.intent(me, "incarnation"), incarnation_of(word)
            yield OWN_STEP, table.intent(me, "step"), step_word(Step.MARK)
            dead, keys = life(DEAD, me, incarnation_of(word)), keys_of(packed)
            yield STORE, table.life + record, dead
            yield END, "find", key, MISS
            return record, dead, keys
    yield END, "find", key, record
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    if record >= 0:
        yield STORE, table.record_lock + record, 0
    return record, dead, keys


def peek(table, key):
    """Look for ``key`` without a lock, for those who lock and check themselves."""
    zone = zone_of(key)
    word = yield LOAD, table.zone + zone
    if not where(word)[1]:
        return MISS
    segment = yield from entry(table, word, key)
    if segment < 0:
        return AGAIN
    for i in range(SLOTS):
        slot = yield LOAD, table.slot + segment * SLOTS + i
        if slot and tag_of(slot) == hash_of(key):
            record = record_of(slot)
            keys = yield LOAD, table.key + record
            if key in keys_of(keys):
                state = yield LOAD, table.life + record
                if state_of(state) == LIVE:
                    return record
    word_again = yield LOAD, table.zone + zone
    return MISS if word_again == word else AGAIN
