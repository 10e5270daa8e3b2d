"""Find and insert in the index of a zone: extendible hashing over small open-addressing segments.

Who may                         while                       sees
    find            anyone      anyone does anything        the record, locked, or a confirmed miss
    insert          anyone      holding its keys' segments  its record LIVE, or why not
    split           the inserter  segment, then zone lock   -
    clear           a deleter   holding the segments        -

A slot's word (tag 32 | record + 1)   who            when
    0 -> slot                         lock holder    the record's key and contents are complete    R2
    slot -> 0                         lock holder    the record is DEAD, or the slot has moved     R5
  never
    slot -> another slot              a reader between the two loads would follow the wrong record

Where a key's lines are is said in kernels/segments, how a zone's first segment comes about and a full one becomes two in
kernels/growth.

Invariants (kernels/audit checks them)
    I1  A LIVE record has a slot for each of its keys in the segment that its zone's directory names for that hash, or,
        after a detach, for all of them in the detached one.
    I2  A key has at most one LIVE record in its zone's current directory; or two that packets tell apart, one whose own key
        it is, and one whose replies have it and come from the other end (kernels/doubles).
    I3  A slot names a NEW, LIVE or DEAD record with that key, never a freed one; but for copies that a splitter, who holds
        that segment's lock, has not cleared yet.

Ordering
    R2  release slot in insert          pairs with A2: record before slot
    R3  release entry, zone word        pairs with A1: copies and directory before their publication
    R4  release life LIVE               pairs with A3: slots and contents before LIVE
    R5  release slot = 0                after publication (split), after DEAD (delete)
    A1  acquire zone word, entry        the same word again after a miss: the miss is true
    A2  vector load of a line, then a fence before the second look at the zone word; a slot that is followed is loaded
        again with acquire
    A3  acquire life under the record's lock
"""

from __future__ import annotations

from ..shm.layout import (
    LINE_BYTES,
    NO_RECORD,
    EventKind,
    Life,
    Status,
    Step,
)
from ..shm.reasons import Reason
from . import counters, entries, events, growth, intents, locks, memory, segments, sources, tuples, zones
from .jit import inlined, kernel
from .words import LOW_32, ONE, THIRTY_TWO, THREE, ZERO, u64

MISS = u64(NO_RECORD)
"""No such connection, confirmed."""
BUSY = u64(NO_RECORD - 1)
"""The record's lock was not had in time, or the zone changed too often."""

ABSENT = u64(NO_RECORD)
"""What ``glance`` says where nothing is."""

FIND_ROUNDS_MAX = 1000
"""Looks at a zone that changes under the finder: each needs a split or flush of that zone in between."""
INSERT_ROUNDS_MAX = 1000

_LINE = u64(LINE_BYTES)
_MADE = u64(EventKind.NEW)
_ORIG_IS_HIGH, _REPLIER_IS_HIGH = u64(Status.ORIG_IS_HIGH), u64(Status.REPLIER_IS_HIGH)


# ------------------------------------------------------------------------------------------------ find
@kernel
def confirm(views, record, key):
    """Lock a record and see whether it is the LIVE connection of the key at address ``key``.

    Returns:
        The record, its lock held; MISS with no lock held when it is another; BUSY when the lock was not had.
    """
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    if not locks.take(entry + entries.LOCK, views.me):  # A3
        return BUSY
    life = memory.acquire64(entry + entries.LIFE)  # life first: the key of a LIVE record stays until we unlock
    if entries.state_of(life) == u64(Life.LIVE):
        if tuples.equal(entry + tuples.ENTRY_KEY, key):
            return record
        reply = entries.second_key(views, entry)
        if reply != ZERO and tuples.equal(reply, key):
            return record
    locks.drop(entry + entries.LOCK)
    return MISS


@inlined
def might_be(views, record, key):
    """Return whether a record's key, read without its lock, is the one at ``key``: a filter only."""
    entry = entries.address(views, record)
    if tuples.equal(entry + tuples.ENTRY_KEY, key):
        return True
    reply = entries.second_key(views, entry)
    return reply != ZERO and tuples.equal(reply, key)


@kernel
def _scan_line(views, line, tag, key):
    matches = memory.match_line(line, tag)
    while matches != ZERO:
        slot = memory.acquire64(line + (memory.lowest_bit(matches) << THREE))  # A2
        matches &= matches - ONE
        record = (slot & LOW_32) - ONE
        if slot >> THIRTY_TWO == tag and slot & LOW_32 != ZERO and might_be(views, record, key):
            found = confirm(views, record, key)
            if found != MISS:
                return found
    return MISS


@kernel
def find(views, key, hash_, zone):
    """Find the connection of a key and lock its record.

    Args:
        key: address of the key's five words.
        hash_: its hash.
        zone: the zone in it.

    Returns:
        The record, its lock held by ``views.me``; MISS, true at one moment during the call; BUSY.

    Concurrency:
        No segment lock; beside any splits, inserts, deletes and flushes.
    """
    tag = segments.tag_of(hash_)
    for _ in range(FIND_ROUNDS_MAX):
        word = zones.load_word(views, zone)  # A1
        if zones.directory_of(word) == ZERO:
            return MISS
        segment = segments.segment_of(views, word, hash_)  # A1
        if segment == ZERO:
            continue
        line = segments.home_line(views, segment - ONE, hash_)
        found = _scan_line(views, line, tag, key)
        if found != MISS:
            return found
        found = _scan_line(views, line ^ _LINE, tag, key)
        if found != MISS:
            return found
        memory.fence_acquire()  # A2 before A1
        if zones.load_word(views, zone) == word and segments.segment_of(views, word, hash_) == segment:
            return MISS
        counters.count(views, Reason.MAYBE_NOT_FOUND)
    return BUSY


@kernel
def find_other(views, key, hash_, zone, record):
    """Find the other connection of a key, beside ``record``, and lock it; returns as ``find``."""
    memory.seldom()
    tag = segments.tag_of(hash_)
    word = zones.load_word(views, zone)  # A1
    if zones.directory_of(word) == ZERO:
        return MISS
    segment = segments.segment_of(views, word, hash_)  # A1
    if segment == ZERO:
        return BUSY
    line = segments.home_line(views, segment - ONE, hash_)
    for _ in range(2):
        matches = memory.match_line(line, tag)
        while matches != ZERO:
            other = (memory.acquire64(line + (memory.lowest_bit(matches) << THREE)) & LOW_32) - ONE  # A2
            matches &= matches - ONE
            if other < views.records[0] and other != record and might_be(views, other, key):
                found = confirm(views, other, key)
                if found != MISS:
                    return found
        line ^= _LINE
    memory.fence_acquire()  # A2 before A1
    return MISS if zones.load_word(views, zone) == word else BUSY


@kernel
def _has_live(views, segment, hash_, key):
    """Return whether a LIVE record with this key stands in the segment: for certain while its lock is held."""
    tag = segments.tag_of(hash_)
    line = segments.home_line(views, segment, hash_)
    for _ in range(2):
        matches = memory.match_line(line, tag)
        while matches != ZERO:
            record = (memory.acquire64(line + (memory.lowest_bit(matches) << THREE)) & LOW_32) - ONE  # A2
            matches &= matches - ONE
            if record < views.records[0] and might_be(views, record, key):
                life = memory.acquire64(entries.address(views, record) + entries.LIFE)
                if entries.state_of(life) == u64(Life.LIVE):
                    return True
        line ^= _LINE
    return False


@inlined
def _may_have(views, segment, hash_):
    """Return whether anything with this tag stands in the segment: for certain while its lock is held."""
    line, tag = segments.home_line(views, segment, hash_), segments.tag_of(hash_)
    return (memory.match_line(line, tag) | memory.match_line(line ^ _LINE, tag)) != ZERO


@kernel
def seems_taken(views, line, tag):
    """Return whether a connection seems to have a key of this tag in a pair of lines; the key is not compared.

    No lock is taken, and it may come or go meanwhile.  Of 2**32 tags no two in a pair of lines are the same but by chance.
    """
    for _ in range(2):
        matches = memory.match_line(line, tag)
        while matches != ZERO:
            record = (memory.acquire64(line + (memory.lowest_bit(matches) << THREE)) & LOW_32) - ONE  # A2
            matches &= matches - ONE
            if record < views.records[0]:
                life = memory.acquire64(entries.address(views, record) + entries.LIFE)
                if entries.state_of(life) == u64(Life.LIVE):
                    return True
        line ^= _LINE
    return False


@inlined
def tagged(line, tag):
    """Return the record + 1 that has a tag in a pair of lines, or 0: a hint, of which record to fetch."""
    matches = memory.match_line(line, tag)
    if matches == ZERO:
        line ^= _LINE
        matches = memory.match_line(line, tag)
    return memory.read64(line + (memory.lowest_bit(matches) << THREE)) & LOW_32 if matches != ZERO else ZERO


@inlined
def glance(views, zone, word, line, tag):
    """Look for a tag in a pair of lines, without a lock.

    Returns:
        A record + 1 that has it, a hint only; ABSENT, as true as a MISS of ``find``: none has it, and the zone's word is
        still ``word``; 0 when the zone changed.
    """
    matches = memory.match_line(line, tag)
    if matches == ZERO:
        line ^= _LINE
        matches = memory.match_line(line, tag)
        if matches == ZERO:
            memory.fence_acquire()  # A2 before A1
            return ABSENT if zones.load_word(views, zone) == word else ZERO
    return memory.read64(line + (memory.lowest_bit(matches) << THREE)) & LOW_32


# ------------------------------------------------------------------------------------------------ under segment locks
# ------------------------------------------------------------------------------------------------ insert
@kernel
def _beside(views, record, segment, hash_, second):
    """Say whether a record may stand beside those that have its own key, in a segment that is locked.

    Returns:
        ADOPTED: one is this connection.  CLASH: the replies to this one could not be told from those to another.  NONE.
    """
    memory.seldom()
    entry = entries.address(views, record)
    key = entry + tuples.ENTRY_KEY
    tag = segments.tag_of(hash_)
    line = segments.home_line(views, segment, hash_)
    has_other = False
    for _ in range(2):
        matches = memory.match_line(line, tag)
        while matches != ZERO:
            other = (memory.acquire64(line + (memory.lowest_bit(matches) << THREE)) & LOW_32) - ONE  # A2
            matches &= matches - ONE
            if other < views.records[0] and might_be(views, other, key):
                its = entries.address(views, other)
                is_live = entries.state_of(memory.acquire64(its + entries.LIFE)) == u64(Life.LIVE)
                if is_live and (tuples.equal(its + tuples.ENTRY_KEY, key) or replies_like(its, entry)):
                    return u64(Reason.ADOPTED)
                has_other = has_other or is_live
        line ^= _LINE
    return u64(Reason.CLASH) if has_other and second == ZERO else u64(Reason.NONE)


@inlined
def replies_like(entry, other):
    """Return whether the replies to a connection come from the end that has opened another; they have one key."""
    replier_is_high = u64(entries.entry_at(entry).status) & _REPLIER_IS_HIGH != ZERO
    return replier_is_high == (u64(entries.entry_at(other).status) & _ORIG_IS_HIGH != ZERO)


@kernel
def _publish(views, record, zone, wanted, first_slot, hash_, second_slot, second_hash):
    """Reserve, then store the slots and make the record LIVE; the segments are locked and nothing else can fail."""
    if zones.credit(views) == ZERO:
        reason = zones.take_credit(views, zone, wanted)
        if reason != u64(Reason.NONE):
            return reason
    if sources.have_budget(views, zone):
        reason = sources.enter(views, record, zone)
        if reason != u64(Reason.NONE):
            return reason
    zones.spend_credit(views)
    if second_slot != ZERO:
        memory.release64(second_slot, (segments.tag_of(second_hash) << THIRTY_TWO) | (record + ONE))  # R2
    memory.release64(first_slot, (segments.tag_of(hash_) << THIRTY_TWO) | (record + ONE))  # R2
    entry = entries.address(views, record)
    word = memory.read64(entry + entries.LIFE)
    event = events.begin(views, record, _MADE, ZERO, ZERO) if events.are_wanted(views, _MADE) else ZERO
    memory.release64(entry + entries.LIFE, entries.life(Life.LIVE, ZERO, entries.incarnation_of(word)))  # R4: committed
    if event != ZERO:
        events.finish(views, event)
    intents.done(views)
    return u64(Reason.NONE)


@kernel
def _attempt(views, record, zone, wanted, hash_, second, second_hash, word, may_split):
    """One try to publish; NONE, a refusal, or MAYBE_NOT_FOUND when the zone changed and it must begin again."""
    again = u64(Reason.MAYBE_NOT_FOUND)
    key = entries.address(views, record) + tuples.ENTRY_KEY
    first_segment = segments.segment_of(views, word, hash_)
    second_segment = segments.segment_of(views, word, second_hash) if second != ZERO else first_segment
    if first_segment == ZERO or second_segment == ZERO:
        return again
    first_segment -= ONE
    second_segment -= ONE
    low = min(first_segment, second_segment)
    high = max(first_segment, second_segment)
    if not (segments.lock_one(views, low) if low == high else segments.lock_pair(views, low, high)):
        return u64(Reason.BUSY)
    reason = u64(Reason.NONE)
    first_slot = ZERO
    second_slot = ZERO
    if zones.load_word(views, zone) != word:  # covers split, doubling, flush and reuse of the segment by another zone
        reason = again
    elif _may_have(views, first_segment, hash_) and _has_live(views, first_segment, hash_, key):
        reason = _beside(views, record, first_segment, hash_, second)
    if reason == u64(Reason.NONE) and second != ZERO and _has_live(views, second_segment, second_hash, second):
        reason = u64(Reason.CLASH)
    if reason == u64(Reason.NONE):
        first_slot = segments.free_slot(views, first_segment, hash_, ZERO)
        if second != ZERO:
            second_slot = segments.free_slot(views, second_segment, second_hash, first_slot)
        if not may_split and (first_slot == ZERO or (second != ZERO and second_slot == ZERO)):
            reason = u64(Reason.INDEX_FULL)
        elif first_slot == ZERO:
            reason = growth.split(views, first_segment, hash_, zone, word)
        elif second != ZERO and second_slot == ZERO:
            reason = growth.split(views, second_segment, second_hash, zone, word)
        else:
            reason = _publish(views, record, zone, wanted, first_slot, hash_, second_slot, second_hash)
            segments.unlock_pair(views, low, high)
            return reason
        if reason == u64(Reason.NONE):
            reason = again
    segments.unlock_pair(views, low, high)
    return reason


@kernel
def insert(views, record, zone, wanted, may_split=True):
    """Publish a NEW record, complete with key, contents, expiry and hint, under its one or two keys.

    Args:
        record: a record that ``entries.take`` gave, all of it written.
        zone: the zone in its key.
        wanted: connections that this burst is about to make in the zone, this one included: the credit to reserve.
        may_split: whether to make room by splitting; if not, a full pair of lines is INDEX_FULL.  DEAD records keep their
            slots until their deleter's list is run, and no split parts records with one key.

    Returns:
        NONE: LIVE.  ADOPTED: the key has a LIVE record, find it; CLASH: the reply key has, or replies could not be told
        from those to another connection; ZONE_FULL, FULL, SOURCE_FULL, INDEX_FULL,
        BUSY.  Unless NONE, the record is still NEW and the caller's (intent: ALLOC).

    Concurrency:
        Beside any number of others, in this process or another.  Intents: ALLOC, LOCKS, CREATE, SPLIT, CREDIT_WRITING,
        SOURCE_ENTER, SPEND, RESERVED.  Unspent credit of another zone must have been given back before.
    """
    entry = entries.address(views, record)
    hash_ = tuples.hash_key(views, entry + tuples.ENTRY_KEY)
    second = entries.second_key(views, entry)
    second_hash = tuples.hash_key(views, second) if second != ZERO else ZERO
    return insert_hashed(views, record, zone, wanted, may_split, hash_, second, second_hash)


@kernel
def insert_hashed(views, record, zone, wanted, may_split, hash_, second, second_hash):
    """As ``insert``, of a record whose hashes are known; ``second`` is the address of its second key, 0 without one."""
    reason = u64(Reason.BUSY)
    for _ in range(INSERT_ROUNDS_MAX):
        intents.set_record(views, record, Step.ALLOC)
        word = zones.load_word(views, zone)
        if zones.directory_of(word) == ZERO:
            reason = growth.create(views, zone, word)
            if reason != u64(Reason.NONE):
                break
            continue
        reason = _attempt(views, record, zone, wanted, hash_, second, second_hash, word, may_split)
        if reason == u64(Reason.NONE):
            counters.count(views, Reason.INSERT)
            return reason
        if reason != u64(Reason.MAYBE_NOT_FOUND):
            break
        reason = u64(Reason.BUSY)
    intents.set_record(views, record, Step.ALLOC)
    return reason
