"""repair: after a participant was killed, finish or undo the one thing its intent names, under its id, in its intent.

Each state that repair leaves is one in which the dead itself might have died.  So a repairer may be killed too, and the
next begins again from the same intent.  Order: counts, zone, record locks, the operation, segment locks, the record;
then what outlives an operation: the detached directory, the delete list, the credit.
"""

from __future__ import annotations

from .counts import settle, write_counts
from .delete_list import drain, read_list
from .deletion import free, release, unindex
from .flush import reclaim
from .sources import leave_alone
from .sources import settle as settle_source
from .words import (
    DEAD,
    DIRECTORIES,
    INSERTING,
    LIVE,
    LOAD,
    NEW,
    OWN_LOAD,
    OWN_STEP,
    OWN_STORE,
    SLOTS,
    STORE,
    USED,
    WAIT,
    Entry,
    Step,
    keys_of,
    life,
    moves,
    owner_of,
    record_of,
    state_of,
    step_word,
    version_of,
    where,
    zone_word,
)

FREEING = frozenset((Step.MARK, Step.FIND, Step.CLEARED, Step.UNCOUNT, Step.UNCOUNTED))
"""Steps in which the record may be DEAD and ours, and not yet freed."""


def repair(table, who, me):
    """Repair what participant ``me`` left, once ``who`` (the same, or a repairer before this one) is known to be dead."""
    yield WAIT, who
    step = yield OWN_LOAD, table.intent(me, "step")
    before = yield OWN_LOAD, table.intent(me, "before")
    before_total = yield OWN_LOAD, table.intent(me, "before_total")
    record = yield OWN_LOAD, table.intent(me, "record")
    record -= 1
    zone_before = yield OWN_LOAD, table.intent(me, "zone_word")
    step = yield from _counts(table, me, step, record, before, before_total)
    step = yield from _zones(table, me, step, zone_before)
    step = yield from _record_locks(table, me, step, record)
    low = yield OWN_LOAD, table.intent(me, "low")
    high = yield OWN_LOAD, table.intent(me, "high")
    segments = tuple(sorted({s - 1 for s in (low, high) if s}))
    step = yield from _slots(table, me, step, record, segments)
    step = yield from _segment_freed(table, me, step, before, low - 1)
    for segment in segments:
        yield from drop(table, table.segment_lock + segment, me)
    del low, high, segments, before, before_total
    yield from _record(table, me, step, record)
    if where(zone_before)[1]:  # a flush, whatever its step, if the directory is the dead's own still
        owner = yield LOAD, table.directory_owner + where(zone_before)[1]
        if owner == me:
            yield OWN_STEP, table.intent(me, "step"), step_word(Step.RECLAIM)
            cursor = yield OWN_LOAD, table.intent(me, "cursor")
            yield from reclaim(table, me, 0, zone_before, cursor)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    yield from drain(table, me)
    yield from settle(table, me)


def holds(table, lock, dead):
    """Return whether the dead holds a lock."""
    owner = yield LOAD, lock
    return owner == dead


def drop(table, lock, dead):
    """Unlock what the dead holds."""
    owner = yield LOAD, lock
    if owner == dead:
        yield STORE, lock, 0


def _counts(table, me, step, record, before, before_total):
    """Counts locked by the dead: nobody changed them since."""
    for zone in range(table.zones):
        held = yield from holds(table, table.count_lock + zone, me)
        if held:
            step = yield from _written_counts(table, me, zone, step, before, before_total)
            if table.cells and record >= 0:
                packed = yield LOAD, table.key + record
                step = yield from settle_source(table, record, keys_of(packed)[0], step, before, before_total)
            yield OWN_STEP, table.intent(me, "step"), step_word(step)
            if table.total_limit:
                yield from drop(table, table.total_lock, me)
            yield STORE, table.count_lock + zone, 0
    return step


def _written_counts(table, me, zone, step, before, before_total):
    """Undo or finish what was being written; return the step that is left."""
    if step == Step.RESERVE_WRITING:
        yield from write_counts(table, zone, before, before_total)
        return Step.LOCKS
    if step == Step.UNCOUNT_WRITING:
        yield from write_counts(table, zone, before - 1, before_total - 1)
        return Step.UNCOUNTED
    if step in (Step.CREDIT_WRITING, Step.CREDIT_BACK_WRITING):
        # The credit is the last word written: unchanged, the counts go back; changed, they stand.
        credit = yield OWN_LOAD, table.intent(me, "credit")
        if "credit_one_step" in table.flaws:
            yield from write_counts(table, zone, before, before_total)
            yield OWN_STORE, table.intent(me, "credit"), 0
        elif (credit == 0) == (step == Step.CREDIT_WRITING):
            yield from write_counts(table, zone, before, before_total)
        return Step.LOCKS
    if step == Step.BATCH_UNCOUNT_WRITING:
        yield from write_counts(table, zone, before, before_total)
        entries = yield from read_list(table, me)
        for i in range(len(entries)):
            if entries[i][3] == Entry.UNCOUNTED:
                yield OWN_STORE, table.delete(me, i, "step"), Entry.CLEARED
        return Step.BATCH_UNCOUNT
    return step


def _zones(table, me, step, zone_before):
    """Zone locked by the dead: a split, a first segment or a detach was under way."""
    for zone in range(table.zones):
        held = yield from holds(table, table.zone_lock + zone, me)
        if held:
            if step == Step.DETACH:
                step = yield from _detach(table, me, zone, zone_before)
            elif step != Step.RECLAIM:
                step = yield from _directory(table, me, zone, step, zone_before)
            yield OWN_STEP, table.intent(me, "step"), step_word(step)
            yield STORE, table.zone_lock + zone, 0
    return step


def _detach(table, me, zone, zone_before):
    word = yield LOAD, table.zone + zone
    if not zone_before or word == zone_before:
        return Step.NONE
    yield STORE, table.directory_owner + where(zone_before)[1], me
    return Step.RECLAIM


def _directory(table, me, zone, step, zone_before):
    """A split or a create, done or not: forward if anything of it can be seen, else back."""
    word = yield LOAD, table.zone + zone
    if step == Step.SPLIT:
        old = yield OWN_LOAD, table.intent(me, "split")
        old -= 1
        if word == zone_before:
            word = yield from _plain_split(table, zone, word, old)
        if word != zone_before:
            yield from _published_split(table, me, word, zone_before, old)
    elif step == Step.MERGE:
        kept = yield OWN_LOAD, table.intent(me, "split")
        word = yield from _merged(table, me, zone, word, zone_before, kept - 1)
    elif step == Step.HALVE and word != zone_before:
        yield from _new_directory(table, me, word, zone_before)
    depth, offset = where(word)
    named = ()
    if offset:
        for i in range(1 << depth):
            segment = yield LOAD, table.directory + offset + i
            named += (segment - 1,)
    for s in range(table.segments):
        owner = yield LOAD, table.segment_owner + s
        if owner == me:
            if s not in named:
                for i in range(SLOTS):
                    yield STORE, table.slot + s * SLOTS + i, 0
                yield STORE, table.segment_depth + s, 0
            yield STORE, table.segment_owner + s, USED if s in named else 0
    for directory in sorted(DIRECTORIES[1] + DIRECTORIES[2]):
        owner = yield LOAD, table.directory_owner + directory
        if owner == me:
            yield STORE, table.directory_owner + directory, USED if directory == offset else 0
    if step in (Step.MERGE, Step.HALVE, Step.LAST):
        return Step.NONE
    return Step.ALLOC if step == Step.CREATE else Step.LOCKS


def _merged(table, me, zone, word, zone_before, kept):
    """A merge: what goes is in the dead's name.  Back while nobody can have seen it, else forward; returns the word."""
    gone = -1
    for s in range(table.segments):
        owner = yield LOAD, table.segment_owner + s
        if owner == me:
            gone = s
    if gone < 0:
        return word
    depth, offset = where(word)
    if word == zone_before:
        half = 1 << (depth - 1)
        named = 0
        for i in range(half):
            segment = yield LOAD, table.directory + offset + half + i
            named += segment - 1 == gone
        if named == half or "merge_back" in table.flaws:
            if named != half:
                for i in range(half):
                    yield STORE, table.directory + offset + half + i, gone + 1
            for i in range(SLOTS):
                slot = yield LOAD, table.slot + kept * SLOTS + i
                if slot and moves(slot):
                    yield STORE, table.slot + kept * SLOTS + i, 0
            return word
        for i in range(half):
            yield STORE, table.directory + offset + half + i, kept + 1
        word = zone_word(version_of(word) + 1, depth, offset)
        yield STORE, table.zone + zone, word
    yield STORE, table.segment_depth + kept, 1
    return word


def _plain_split(table, zone, word, old):
    """The word is as before: if an entry is out others may have used it, so put all out and bump the word."""
    depth, offset = where(word)
    if not depth:
        return word
    half = 1 << (depth - 1)
    new = 0
    for i in range(half):
        segment = yield LOAD, table.directory + offset + half + i
        if segment - 1 != old:
            new = segment
    if not new:
        return word
    back = "split_back" in table.flaws
    for i in range(half):
        yield STORE, table.directory + offset + half + i, old + 1 if back else new
    if back:
        return word
    word = zone_word(version_of(word) + 1, depth, offset)
    yield STORE, table.zone + zone, word
    return word


def _published_split(table, me, word, zone_before, old):
    """Clear what moved; of two directories the new one is used and the old one not yet in the pool."""
    yield STORE, table.segment_depth + old, 2
    for i in range(SLOTS):
        slot = yield LOAD, table.slot + old * SLOTS + i
        if slot and moves(slot):
            yield STORE, table.slot + old * SLOTS + i, 0
    yield from _new_directory(table, me, word, zone_before)


def _new_directory(table, me, word, zone_before):
    """Of two directories the new one is used; the old one is the dead's until it is in the pool."""
    offset, offset_before = where(word)[1], where(zone_before)[1]
    if offset != offset_before:
        owner = yield LOAD, table.directory_owner + offset
        if owner == me:
            yield STORE, table.directory_owner + offset_before, me
            yield STORE, table.directory_owner + offset, USED


def _record_locks(table, me, step, record):
    """Unlock the record, and the one an insert was about to adopt; a record half re-opened dies before that."""
    if step in (Step.REOPEN, Step.MARK):
        step = yield from _marked(table, me, step, record)
    if record >= 0:
        yield from drop(table, table.record_lock + record, me)
    if step in INSERTING:
        second = yield OWN_LOAD, table.intent(me, "second")
        if second:
            yield from drop(table, table.record_lock + second - 1, me)
    return step


def _marked(table, me, step, record):
    """REOPEN: make it DEAD.  MARK: if it is DEAD, delete it at once; on the list too, its entry finds it gone."""
    incarnation = yield OWN_LOAD, table.intent(me, "incarnation")
    word = yield LOAD, table.life + record
    if step == Step.REOPEN and state_of(word) == LIVE:
        word = life(DEAD, me, incarnation)
        yield STORE, table.life + record, word
    step = Step.FIND if word == life(DEAD, me, incarnation) else Step.NONE
    yield OWN_STEP, table.intent(me, "step"), step_word(step)
    return step


def _slots(table, me, step, record, segments):
    """An insert that is not committed, or a delete that had begun to clear: clear the slots under the dead's locks."""
    if step == Step.SPEND:
        before = yield OWN_LOAD, table.intent(me, "before")
        yield OWN_STORE, table.intent(me, "credit"), before
        step = Step.LOCKS
        yield OWN_STEP, table.intent(me, "step"), step_word(step)
    if step in INSERTING:
        word = 0
        if record >= 0:
            word = yield LOAD, table.life + record
        if state_of(word) == NEW and owner_of(word) == me:
            yield from _wipe(table, me, segments, record)
            step = Step.CLEARED if step == Step.RESERVED else Step.UNCOUNTED
        else:
            step = Step.NONE  # not taken yet, or committed
        yield OWN_STEP, table.intent(me, "step"), step_word(step)
    elif step == Step.CLEAR:
        yield from _wipe(table, me, segments, record)
        step = Step.CLEARED
        yield OWN_STEP, table.intent(me, "step"), step_word(step)
    elif step == Step.BATCH_CLEAR:
        entries = yield from read_list(table, me)
        for i in range(len(entries)):
            if entries[i][3] == Entry.CLEAR:
                yield from _wipe(table, me, segments, entries[i][0])
                yield OWN_STORE, table.delete(me, i, "step"), Entry.CLEARED
    return step


def _wipe(table, me, segments, record):
    for segment in segments:
        held = yield from holds(table, table.segment_lock + segment, me)
        if held:
            for i in range(SLOTS):
                slot = yield LOAD, table.slot + segment * SLOTS + i
                if slot and record_of(slot) == record:
                    yield STORE, table.slot + segment * SLOTS + i, 0


def _segment_freed(table, me, step, next_cursor, segment):
    """A flush that was giving a segment back."""
    if step != Step.SEGFREE:
        return step
    held = yield from holds(table, table.segment_lock + segment, me)
    owner = yield LOAD, table.segment_owner + segment
    if held:
        yield STORE, table.segment_owner + segment, me
        yield STORE, table.segment_lock + segment, 0
    if held or owner == me:
        yield STORE, table.segment_owner + segment, 0
    if "cursor_apart" not in table.flaws:
        yield OWN_STORE, table.intent(me, "cursor"), next_cursor
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.RECLAIM)
    return Step.RECLAIM


def _record(table, me, step, record):
    """The record of a single operation: out of the index, out of the count, free."""
    if step not in FREEING:
        return
    incarnation = yield OWN_LOAD, table.intent(me, "incarnation")
    word = yield LOAD, table.life + record
    new = state_of(word) == NEW and owner_of(word) == me
    if not new and word != life(DEAD, me, incarnation):
        return
    packed = yield LOAD, table.key + record
    keys = keys_of(packed)
    if step == Step.FIND:
        yield from unindex(table, me, record, word, keys)
    elif step == Step.UNCOUNTED:
        yield from leave_alone(table, me, record, keys[0], Step.UNCOUNTED)
        yield from free(table, record, word)
    else:
        yield from release(table, me, record, word, keys[0])
