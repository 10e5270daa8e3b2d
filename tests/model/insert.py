"""insert, split and create: slots first, life last; room is made by a split, the first segment by a create."""

from __future__ import annotations

from .counts import DOWN, UP, add, give_back, reserve
from .deletion import delete
from .lookup import entry
from .words import (
    BEGIN,
    DIRECTORIES,
    END,
    FREE,
    LIVE,
    LOAD,
    LOCK,
    NEW,
    OWN_LOAD,
    OWN_STEP,
    OWN_STORE,
    SLOTS,
    STORE,
    SWAP,
    USED,
    Step,
    hash_of,
    incarnation_of,
    is_far,
    key_word,
    keys_of,
    life,
    moves,
    record_of,
    slot_word,
    state_of,
    step_word,
    tag_of,
    version_of,
    where,
    zone_of,
    zone_word,
)


def take_segment(table, me):
    """Take a segment from the pool; -1 when there is none."""
    for segment in range(table.segments):
        taken = yield SWAP, table.segment_owner + segment, 0, me
        if taken:
            return segment
    return -1


def take_directory(table, me, size):
    """Take a directory from the pool; 0 when there is none."""
    for offset in DIRECTORIES[size]:
        taken = yield SWAP, table.directory_owner + offset, 0, me
        if taken:
            return offset
    return 0


def create(table, me, zone, word):
    """Make the first segment of an empty zone; False when the pool is empty."""
    yield OWN_STORE, table.intent(me, "zone_word"), word
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.CREATE)
    yield LOCK, table.zone_lock + zone, me
    word_again = yield LOAD, table.zone + zone
    good = True
    if word_again == word:
        segment = yield from take_segment(table, me)
        offset = 0
        if segment >= 0:
            offset = yield from take_directory(table, me, 1)
            if not offset:
                yield STORE, table.segment_owner + segment, 0
        if offset:
            yield STORE, table.segment_depth + segment, 1
            yield STORE, table.directory + offset, segment + 1
            yield STORE, table.zone + zone, zone_word(version_of(word) + 1, 0, offset)
            yield STORE, table.segment_owner + segment, USED
            yield STORE, table.directory_owner + offset, USED
        else:
            good = False
    yield STORE, table.zone_lock + zone, 0
    return good


def split(table, me, old, key, word):
    """Split segment ``old``, whose lock is held.  True: try again; False: no room can be made."""
    zone = zone_of(key)
    if "split_intent_early" in table.flaws:
        yield OWN_STORE, table.intent(me, "split"), old + 1
        yield OWN_STORE, table.intent(me, "zone_word"), word
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.SPLIT)
    yield LOCK, table.zone_lock + zone, me
    now = yield LOAD, table.zone + zone
    if now != word and "no_split_recheck" not in table.flaws:
        yield STORE, table.zone_lock + zone, 0
        return True
    yield OWN_STORE, table.intent(me, "split"), old + 1  # a field of its own: low may name the other segment
    yield OWN_STORE, table.intent(me, "zone_word"), now  # only now, or repair takes a flush for our publication
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.SPLIT)
    depth = yield LOAD, table.segment_depth + old
    if depth != 1:  # the model's segments split once
        yield STORE, table.zone_lock + zone, 0
        return False
    new = yield from take_segment(table, me)
    zone_depth, old_directory = where(now)
    directory = old_directory
    if zone_depth == 0 and new >= 0:
        directory = yield from take_directory(table, me, 2)
        if not directory:
            yield STORE, table.segment_owner + new, 0
    if new < 0 or not directory:
        yield STORE, table.zone_lock + zone, 0
        return False
    yield from _copy(table, old, new)
    if zone_depth == 0:  # a new directory, published whole by the zone word
        yield STORE, table.directory + directory, old + 1
    zone_depth = zone_depth or 1
    half = 1 << (zone_depth - 1)
    for i in range(half):
        yield STORE, table.directory + directory + half + i, new + 1  # else published here, entry by entry
    yield STORE, table.zone + zone, zone_word(version_of(now) + 1, zone_depth, directory)
    yield STORE, table.segment_depth + old, 2
    yield from _clear_moved(table, old, new)
    yield STORE, table.segment_owner + new, USED
    if directory != old_directory:
        yield STORE, table.directory_owner + old_directory, me  # so that repair can tell it from a reused one
        yield STORE, table.directory_owner + directory, USED
        yield STORE, table.directory_owner + old_directory, 0
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.LOCKS)
    yield STORE, table.zone_lock + zone, 0
    return True


def _copy(table, old, new):
    yield STORE, table.segment_depth + new, 2
    for i in range(SLOTS):
        slot = yield LOAD, table.slot + old * SLOTS + i
        if slot and moves(slot):
            yield STORE, table.slot + new * SLOTS + i, slot
            if "clear_before_publish" in table.flaws:
                yield STORE, table.slot + old * SLOTS + i, 0


def _clear_moved(table, old, new):
    for i in range(SLOTS):
        if "split_clear_by_new" in table.flaws:
            slot = yield LOAD, table.slot + new * SLOTS + i
            moved = slot != 0
        else:
            slot = yield LOAD, table.slot + old * SLOTS + i
            moved = slot and moves(slot)
        if moved:
            yield STORE, table.slot + old * SLOTS + i, 0


def unlock(table, segments):
    """Unlock segments."""
    for segment in segments:
        yield STORE, table.segment_lock + segment, 0


def lock(table, me, segments):
    """Lock one or two segments, ascending, after the intent names them."""
    yield OWN_STORE, table.intent(me, "low"), segments[0] + 1
    yield OWN_STORE, table.intent(me, "high"), segments[-1] + 1
    for segment in segments:
        yield LOCK, table.segment_lock + segment, me


def new_record(table, me, keys, far=False):
    """Take a free record and write its keys; -1 when there is none."""
    for record in range(table.records):
        word = yield LOAD, table.life + record
        if state_of(word) == FREE:
            yield OWN_STORE, table.intent(me, "record"), record + 1
            yield OWN_STEP, table.intent(me, "step"), step_word(Step.ALLOC)
            taken = yield SWAP, table.life + record, word, life(NEW, me, incarnation_of(word) + 1)
            if taken:
                if "alloc_resets_lock" in table.flaws:
                    yield STORE, table.record_lock + record, 0
                    yield STORE, table.key + record, key_word(keys, far)
                elif "key_then_state" in table.flaws:
                    yield STORE, table.key + record, key_word(keys, far)
                else:
                    yield LOCK, table.record_lock + record, me
                    yield STORE, table.key + record, key_word(keys, far)
                    yield STORE, table.record_lock + record, 0
                if table.hints:
                    yield STORE, table.expiry + record, 3
                    yield STORE, table.due + record, 3
                return record
    return -1


def _attempt(table, me, keys, record):
    """Try once to publish ``record`` under its keys; return what came of it, and the record that was in the way."""
    zone = zone_of(keys[0])
    yield OWN_STORE, table.intent(me, "record"), record + 1
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.ALLOC)
    word = yield LOAD, table.zone + zone
    if not where(word)[1]:
        good = yield from create(table, me, zone, word)
        return ("again" if good else "full"), 0
    own = ()
    for key in keys:
        segment = yield from entry(table, word, key)
        own += (segment,)
    if -1 in own:
        return "again", 0
    segments = tuple(sorted(set(own)))
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.LOCKS)
    yield from lock(table, me, segments)
    if "no_attach_check" not in table.flaws:
        word_again = yield LOAD, table.zone + zone
        if word_again != word:
            yield from unlock(table, segments)
            return "again", 0
    if "reserve_first" in table.flaws:
        good = yield from add(table, me, zone, UP)
        if not good:
            yield from unlock(table, segments)
            return "limit", 0
    place = ()
    for j in range(len(keys)):
        free, other, stands = yield from _scan(table, own[j], keys[j], place, j == 0)
        if other >= 0 or (stands and len(keys) == 1 and "double_of_one_key" not in table.flaws):
            yield from unlock(table, segments)
            if "reserve_first" in table.flaws:
                yield from add(table, me, zone, DOWN)
            return ("exists" if j == 0 and other >= 0 else "clash"), other
        if free < 0:
            good = yield from split(table, me, own[j], keys[j], word)
            yield from unlock(table, segments)
            return ("again" if good else "full"), 0
        place += (free,)
    if "reserve_first" not in table.flaws:
        good = yield from reserve(table, me, zone, record, keys[0])
        if not good:
            yield from unlock(table, segments)
            return "limit", 0
    yield from _publish(table, me, keys, record, place)
    yield from unlock(table, segments)
    return "made", record


def _scan(table, segment, key, taken, own):
    """Look through a locked segment for a free slot and for a LIVE record with ``key``.

    Returns:
        The slot, the record that is in the way, -1 for none; and whether one stands there beside which there may be one
        that has the key as its own, as ``own`` says this one has, and another for its replies.
    """
    free = -1
    stands = False
    for i in range(SLOTS):
        place = segment * SLOTS + i
        slot = yield LOAD, table.slot + place
        if not slot:
            if free < 0 and place not in taken:
                free = place
        elif tag_of(slot) == hash_of(key):
            other = record_of(slot)
            packed = yield LOAD, table.key + other
            if key in keys_of(packed):
                word = yield LOAD, table.life + other
                if state_of(word) == LIVE or "dup_adopts_dead" in table.flaws:
                    beside = own or "double_of_replies" in table.flaws
                    if not beside or keys_of(packed)[0] == key or not is_far(packed):
                        return free, other, stands
                    stands = True
    return free, -1, stands


def _publish(table, me, keys, record, place):
    """Slots, reply key first, then life: committed."""
    word = yield LOAD, table.life + record
    if "live_before_slot" in table.flaws:
        yield STORE, table.life + record, life(LIVE, 0, incarnation_of(word))
    for j in range(len(keys) - 1, -1, -1):
        yield STORE, table.slot + place[j], slot_word(keys[j], record)
    if "live_before_slot" not in table.flaws:
        yield STORE, table.life + record, life(LIVE, 0, incarnation_of(word))
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)  # from here on repair only releases locks


def _attempt_apart(table, me, keys, record):
    """The flaw nat_apart: reply key, then original key, each under its own segment's lock only."""
    place = -1
    for key in reversed(keys):
        word = yield LOAD, table.zone + zone_of(key)
        segment = yield from entry(table, word, key)
        yield LOCK, table.segment_lock + segment, me
        free, other, _ = yield from _scan(table, segment, key, (), False)
        if other >= 0:
            yield STORE, table.segment_lock + segment, 0
            if place >= 0:
                yield STORE, table.slot + place, 0
            return "clash", other
        yield STORE, table.slot + free, slot_word(key, record)
        yield STORE, table.segment_lock + segment, 0
        place = free
    yield from add(table, me, zone_of(keys[0]), UP)
    word = yield LOAD, table.life + record
    yield STORE, table.life + record, life(LIVE, 0, incarnation_of(word))
    return "made", record


def _adopt(table, me, key, other):
    """Look under the lock of the record that won whether it still is what we wanted to insert."""
    yield OWN_STORE, table.intent(me, "second"), other + 1  # the intent still has to name the record we hold
    yield LOCK, table.record_lock + other, me
    word = yield LOAD, table.life + other
    good = False
    if state_of(word) == LIVE:
        packed = yield LOAD, table.key + other
        good = key in keys_of(packed)
    yield STORE, table.record_lock + other, 0
    yield OWN_STORE, table.intent(me, "second"), 0
    return good


def _give_up(table, record):
    """Free a record that was not committed."""
    word = yield LOAD, table.life + record
    if table.hints:
        yield STORE, table.due + record, 0
    yield STORE, table.life + record, life(FREE, 0, incarnation_of(word))


def insert(table, me, keys, early=-1, far=False):
    """Insert; on a limit delete key ``early`` and try once more.

    Args:
        far: whether replies come from the far end of their key.

    Returns:
        made, exists (adopted), clash, limit or full.
    """
    yield BEGIN, "insert", keys
    record = yield from new_record(table, me, keys, far)
    what = "full" if record < 0 else "again"
    if table.credits and record >= 0:
        zone = yield OWN_LOAD, table.intent(me, "credit_zone")
        if zone != zone_of(keys[0]):
            yield from give_back(table, me, Step.ALLOC)
    evicted = False
    while what == "again":
        if "nat_apart" in table.flaws and len(keys) > 1:
            what, other = yield from _attempt_apart(table, me, keys, record)
        else:
            what, other = yield from _attempt(table, me, keys, record)
        if what == "exists" and "dup_adopts_dead" not in table.flaws:
            good = yield from _adopt(table, me, keys[0], other)
            if not good:
                what = "again"
        if what == "limit" and early >= 0 and not evicted:
            evicted = True
            yield OWN_STEP, table.intent(me, "step"), step_word(Step.ALLOC)
            yield from _give_up(table, record)  # one intent at a time: give back, evict, begin again
            yield from delete(table, me, early)
            record = yield from new_record(table, me, keys, far)
            what = "full" if record < 0 else "again"
    if what != "made" and record >= 0:
        yield from _give_up(table, record)
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.NONE)
    yield END, "insert", keys, what
    return what
