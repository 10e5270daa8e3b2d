"""shrink of a zone: two segments that fit into one become one, a directory that is twice too large half of it, and the last
segment goes back to the pool when nothing is in it."""

from __future__ import annotations

from .insert import lock, take_directory, unlock
from .words import (
    BEGIN,
    END,
    LOAD,
    LOCK,
    OWN_STEP,
    OWN_STORE,
    SLOTS,
    STORE,
    USED,
    Step,
    step_word,
    version_of,
    where,
    zone_word,
)


def shrink(table, me, zone):
    """Merge, halve, give back: each of them at most once."""
    yield BEGIN, "shrink", zone
    yield from _merge_halves(table, me, zone)
    yield from _halve(table, me, zone)
    yield from _give_back(table, me, zone)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    yield END, "shrink", zone, 0


def _named(table, word):
    """Return the segments of a directory's first and second half; -1 where it is reused memory."""
    depth, offset = where(word)
    low = yield LOAD, table.directory + offset
    high = yield LOAD, table.directory + offset + (1 << depth >> 1)
    return low - 1, high - 1


def _merge_halves(table, me, zone):
    word = yield LOAD, table.zone + zone
    if not where(word)[1] or not where(word)[0]:
        return
    kept, gone = yield from _named(table, word)
    if kept < 0 or gone < 0 or kept == gone:
        return
    segments = tuple(sorted((kept, gone)))
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.LOCKS)
    yield from lock(table, me, segments)
    yield LOCK, table.zone_lock + zone, me
    again = yield LOAD, table.zone + zone
    merged = False
    if again == word or "no_merge_recheck" in table.flaws:
        merged = yield from _merge(table, me, zone, word, kept, gone)
    yield STORE, table.zone_lock + zone, 0
    yield from unlock(table, (kept,) if merged else segments)


def _merge(table, me, zone, word, kept, gone):
    """Merge two segments that are locked, under the zone's lock; ``gone`` is unlocked then, and in the pool."""
    depths = ()
    for segment in (kept, gone):
        depth = yield LOAD, table.segment_depth + segment
        depths += (depth,)
    if depths != (2, 2):  # the model's segments split once
        return False
    places, moving = (), ()
    for i in range(SLOTS):
        slot = yield LOAD, table.slot + kept * SLOTS + i
        if not slot:
            places += (i,)
    for i in range(SLOTS):
        slot = yield LOAD, table.slot + gone * SLOTS + i
        if slot:
            moving += (slot,)
    if len(moving) > len(places):
        return False
    yield OWN_STORE, table.intent(me, "split"), kept + 1
    yield OWN_STORE, table.intent(me, "zone_word"), word  # only now, or repair takes a flush for our publication
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.MERGE)
    yield STORE, table.segment_owner + gone, me
    for i in range(len(moving)):
        yield STORE, table.slot + kept * SLOTS + places[i], moving[i]
    if "merge_clear_first" in table.flaws:
        for i in range(SLOTS):
            yield STORE, table.slot + gone * SLOTS + i, 0
    depth, offset = where(word)
    half = 1 << (depth - 1)
    for i in range(half):
        yield STORE, table.directory + offset + half + i, kept + 1
    yield STORE, table.zone + zone, zone_word(version_of(word) + 1, depth, offset)
    yield STORE, table.segment_depth + kept, 1
    for i in range(SLOTS):
        yield STORE, table.slot + gone * SLOTS + i, 0
    yield STORE, table.segment_depth + gone, 0
    yield STORE, table.segment_lock + gone, 0
    yield STORE, table.segment_owner + gone, 0
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    return True


def _halve(table, me, zone):
    """Take a directory of one entry instead of two that name one segment."""
    yield LOCK, table.zone_lock + zone, me
    word = yield LOAD, table.zone + zone
    depth, offset = where(word)
    if offset and depth == 1:
        low, high = yield from _named(table, word)
        if low == high:
            yield OWN_STORE, table.intent(me, "zone_word"), word
            yield OWN_STEP, table.intent(me, "step"), step_word(Step.HALVE)
            new = yield from take_directory(table, me, 1)
            if new:
                yield STORE, table.directory + new, low + 1
                yield STORE, table.zone + zone, zone_word(version_of(word) + 1, 0, new)
                yield STORE, table.directory_owner + offset, me  # so that repair can tell it from a reused one
                yield STORE, table.directory_owner + new, USED
                yield STORE, table.directory_owner + offset, 0
            yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    yield STORE, table.zone_lock + zone, 0


def _give_back(table, me, zone):
    """Give the only segment of a zone back, and its directory, if nothing is in it."""
    word = yield LOAD, table.zone + zone
    depth, offset = where(word)
    if not offset or depth:
        return
    segment = yield LOAD, table.directory + offset
    if not segment:
        return
    segment -= 1
    held = "last_no_lock" not in table.flaws
    if held:
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.LOCKS)
        yield from lock(table, me, (segment,))
    yield LOCK, table.zone_lock + zone, me
    again = yield LOAD, table.zone + zone
    left = 0
    for i in range(SLOTS):
        slot = yield LOAD, table.slot + segment * SLOTS + i
        left = left or slot
    if again == word and not left:
        yield OWN_STORE, table.intent(me, "zone_word"), word
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.LAST)
        yield STORE, table.segment_owner + segment, me
        yield STORE, table.directory_owner + offset, me
        yield STORE, table.zone + zone, zone_word(version_of(word) + 1, 0, 0)
        yield STORE, table.segment_depth + segment, 0
        if held:
            yield STORE, table.segment_lock + segment, 0
            held = False
        yield STORE, table.segment_owner + segment, 0
        yield STORE, table.directory_owner + offset, 0
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    yield STORE, table.zone_lock + zone, 0
    if held:
        yield from unlock(table, (segment,))
