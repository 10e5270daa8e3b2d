"""Find, insert and split in the index of a zone: extendible hashing over small open-addressing segments.

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

A key's home is one cache line of 8 slots, chosen by the low bits of its hash, and the neighbour it shares 128 bytes with;
the directory entry is chosen by the top bits.  The tag is the top 32 bits, so a split moves slots without their records.

Invariants (I1-I6 of PROTOCOL.md; audit checks them)
    I1  A LIVE record has a slot for each of its keys in the segment that its zone's directory names for that hash, or,
        after a detach, for all of them in the detached one.
    I2  A key has at most one LIVE record in its zone's current directory.
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
    DEPTH_MAX,
    LINE_BYTES,
    LINE_SLOTS,
    NO_RECORD,
    PARTICIPANT,
    SEGMENT,
    SEGMENT_BYTES,
    SEGMENT_SLOT_BYTES,
    SLOTS,
    USED,
    Life,
    Step,
    offset,
)
from ..shm.reasons import Reason
from . import counters, entries, intents, locks, memory, tuples, zones
from .jit import inlined, kernel
from .words import FOUR, LOW_32, ONE, THIRTY_TWO, THREE, ZERO, high_bits, u64

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
_HOME_MASK = u64(SEGMENT_SLOT_BYTES // LINE_BYTES - 1)
_LINE_SHIFT = u64(6)
_SEGMENT_SIZE = u64(SEGMENT_BYTES)
_SLOT_SIZE = u64(SEGMENT_SLOT_BYTES)
_OWNER = offset(SEGMENT, "owner")
_DEPTH = offset(SEGMENT, "depth")
_ZONE = offset(SEGMENT, "zone")
_LOCK = offset(SEGMENT, "lock")
_HINT = offset(PARTICIPANT, "segment_hint")
_USED = u64(USED)
_DEPTH_LIMIT = u64(DEPTH_MAX)
_NO_SEGMENT = u64(NO_RECORD)


# ------------------------------------------------------------------------------------------------ where things are
@inlined
def tag_of(hash_):
    """Return what stands in the upper half of a slot."""
    return hash_ >> THIRTY_TWO


@inlined
def lock_address(views, segment):
    """Return the address of a segment's lock."""
    return views.segments + segment * _SEGMENT_SIZE + _LOCK


@inlined
def owner_address(views, segment):
    """Return the address of a segment's owner word."""
    return views.segments + segment * _SEGMENT_SIZE + _OWNER


@inlined
def slots_address(views, segment):
    """Return the address of a segment's first slot."""
    return views.slots + segment * _SLOT_SIZE


@inlined
def home_line(views, segment, hash_):
    """Return the address of a key's home line in a segment; its neighbour is that address ^ LINE_BYTES."""
    return views.slots + segment * _SLOT_SIZE + ((hash_ & _HOME_MASK) << _LINE_SHIFT)


@inlined
def entry_address(views, word, hash_):
    """Return the address of the directory entry for a hash; ``word`` has a directory."""
    return views.directories + (zones.directory_of(word) + high_bits(hash_, zones.depth_of(word))) * FOUR


@inlined
def segment_of(views, word, hash_):
    """Return the segment + 1 for a hash (A1); 0 when the entry is in reused memory and the zone word must be loaded anew."""
    segment = memory.acquire32(entry_address(views, word, hash_))
    return segment if segment <= views.segment_count else ZERO


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
    tag = tag_of(hash_)
    for _ in range(FIND_ROUNDS_MAX):
        word = zones.load_word(views, zone)  # A1
        if zones.directory_of(word) == ZERO:
            return MISS
        segment = segment_of(views, word, hash_)  # A1
        if segment == ZERO:
            continue
        line = home_line(views, segment - ONE, hash_)
        found = _scan_line(views, line, tag, key)
        if found != MISS:
            return found
        found = _scan_line(views, line ^ _LINE, tag, key)
        if found != MISS:
            return found
        memory.fence_acquire()  # A2 before A1
        if zones.load_word(views, zone) == word and segment_of(views, word, hash_) == segment:
            return MISS
        counters.count(views, Reason.MAYBE_NOT_FOUND)
    return BUSY


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
@kernel
def lock_pair(views, low, high):
    """Name and lock one or two segments, ascending; False (none held) when they were not had in time."""
    intents.set_segments(views, low, high)
    intents.set_step(views, Step.LOCKS)
    if not locks.take(lock_address(views, low), views.me):
        return False
    if high != low and not locks.take(lock_address(views, high), views.me):
        locks.drop(lock_address(views, low))
        return False
    return True


@inlined
def unlock_pair(views, low, high):
    """Drop the locks that ``lock_pair`` took."""
    locks.drop(lock_address(views, low))
    if high != low:
        locks.drop(lock_address(views, high))


@kernel
def _duplicate(views, segment, hash_, key):
    """Return whether a LIVE record with this key stands in the segment, whose lock is held."""
    tag = tag_of(hash_)
    line = home_line(views, segment, hash_)
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


@kernel
def _free_slot(views, segment, hash_, taken):
    """Return the address of an empty slot for a hash, not ``taken``; 0 when both lines are full.  The lock is held."""
    line = home_line(views, segment, hash_)
    for _ in range(2):
        for i in range(LINE_SLOTS):
            slot = line + (u64(i) << THREE)
            if memory.read64(slot) == ZERO and slot != taken:
                return slot
        line ^= _LINE
    return ZERO


@kernel
def clear(views, segment, hash_, record):
    """Clear the slots of a DEAD record in its key's pair of lines (R5); returns how many.  The lock is held."""
    wanted = (tag_of(hash_) << THIRTY_TWO) | (record + ONE)
    line = home_line(views, segment, hash_)
    cleared = ZERO
    for _ in range(2):
        for i in range(LINE_SLOTS):
            slot = line + (u64(i) << THREE)
            if memory.read64(slot) == wanted:
                memory.release64(slot, ZERO)  # R5
                cleared += ONE
        line ^= _LINE
    return cleared


@kernel
def has_slot(views, segment, hash_, record):
    """Return whether a record has a slot for this hash in the segment, whose lock is held."""
    wanted = (tag_of(hash_) << THIRTY_TWO) | (record + ONE)
    line = home_line(views, segment, hash_)
    for _ in range(2):
        for i in range(LINE_SLOTS):
            if memory.read64(line + (u64(i) << THREE)) == wanted:
                return True
        line ^= _LINE
    return False


# ------------------------------------------------------------------------------------------------ pools
@kernel
def _take_segment(views):
    """Take a segment out of the pool (swap owner 0 -> me); _NO_SEGMENT when there is none."""
    hint = views.intent + _HINT
    start = memory.read32(hint)
    for i in range(views.segment_count):
        segment = start + u64(i)
        if segment >= views.segment_count:
            segment -= views.segment_count
        owner = owner_address(views, segment)
        if memory.acquire32(owner) == ZERO and memory.swap32(owner, ZERO, views.me):
            memory.write32(hint, segment + ONE if segment + ONE < views.segment_count else ZERO)
            return segment
    return _NO_SEGMENT


@inlined
def directory_number(views, depth, directory):
    """Return the number of the directory at offset ``directory``, which is the index of its owner word."""
    return views.directory_first[depth] + ((directory - views.directory_offset[depth]) >> depth)


@inlined
def directory_owner(views, depth, directory):
    """Return the address of the owner word of the directory at offset ``directory``."""
    return views.directory_owners + directory_number(views, depth, directory) * FOUR


@kernel
def _take_directory(views, depth):
    """Take a directory of 2**depth entries out of the pool; its offset, or 0 when there is none."""
    first = views.directory_first[depth]
    count = views.directory_first[depth + ONE] - first
    start = (views.me * u64(61)) % count if count != ZERO else ZERO
    for i in range(count):
        number = first + (start + u64(i)) % count
        owner = views.directory_owners + number * FOUR
        if memory.acquire32(owner) == ZERO and memory.swap32(owner, ZERO, views.me):
            return views.directory_offset[depth] + ((number - first) << depth)
    return ZERO


# ------------------------------------------------------------------------------------------------ create, split
@kernel
def _create(views, zone, word):
    """Give a zone its first segment and a directory of one entry.

    Returns:
        NONE (done, or somebody else was first), INDEX_FULL, or BUSY.  Intent: CREATE.
    """
    intents.set_zone(views, zone, word)
    intents.set_step(views, Step.CREATE)
    lock = zones.lock_address(views, zone)
    if not locks.take(lock, views.me):
        return u64(Reason.BUSY)
    reason = u64(Reason.NONE)
    if zones.load_word(views, zone) == word:
        segment = _take_segment(views)
        directory = _take_directory(views, ZERO) if segment != _NO_SEGMENT else ZERO
        if directory != ZERO:
            header = views.segments + segment * _SEGMENT_SIZE
            memory.release32(header + _DEPTH, ZERO)
            memory.release32(header + _ZONE, zone)
            memory.release32(views.directories + directory * FOUR, segment + ONE)
            zones.publish_word(views, zone, zones.next_word(word, ZERO, directory))  # R3
            memory.release32(header + _OWNER, _USED)
            memory.release32(directory_owner(views, ZERO, directory), _USED)
        else:
            if segment != _NO_SEGMENT:
                memory.release32(owner_address(views, segment), ZERO)
            reason = u64(Reason.INDEX_FULL)
    locks.drop(lock)
    return reason


@inlined
def _moves(slot, bit):
    """Return whether a slot goes to the upper half of a split: by its own hash bit, never by what stands elsewhere."""
    return slot & bit != ZERO


@kernel
def _publish_split(views, zone, word, old_directory, hash_, depth, segment, new):
    """Make the directory name the new segment for the upper half of what ``segment`` was named for, and publish (R3)."""
    zone_depth = zones.depth_of(word)
    directory = old_directory
    old = zones.directory_of(word)
    if directory != old:  # twice the size: each entry twice
        for i in range(ONE << zone_depth):
            named = memory.read32(views.directories + (old + u64(i)) * FOUR)
            memory.release32(views.directories + (directory + u64(i) + u64(i)) * FOUR, named)
            memory.release32(views.directories + (directory + u64(i) + u64(i) + ONE) * FOUR, named)
        zone_depth += ONE
    span = zone_depth - depth  # the segment is named by 2**span entries, the upper half by the new one
    first = (high_bits(hash_, depth) << span) + (ONE << (span - ONE))
    for i in range(ONE << (span - ONE)):
        memory.release32(views.directories + (directory + first + u64(i)) * FOUR, new + ONE)  # R3
    zones.publish_word(views, zone, zones.next_word(word, zone_depth, directory))  # R3


@kernel
def _split(views, segment, hash_, zone, word):
    """Split a segment, whose lock is held, by the next hash bit.

    Returns:
        NONE (room was made, or the zone changed: begin again), INDEX_FULL, or BUSY.  Intent: SPLIT, stored under the zone
        lock only: stored earlier, repair would take a flush's new word for our publication.
    """
    lock = zones.lock_address(views, zone)
    if not locks.take(lock, views.me):
        return u64(Reason.BUSY)
    if zones.load_word(views, zone) != word:
        locks.drop(lock)
        return u64(Reason.NONE)
    intents.set_field(views, intents.SEGMENT_SPLIT, segment + ONE)
    intents.set_zone(views, zone, word)
    intents.set_step(views, Step.SPLIT)
    header = views.segments + segment * _SEGMENT_SIZE
    depth = memory.read32(header + _DEPTH)
    zone_depth = zones.depth_of(word)
    old = zones.directory_of(word)
    new = _NO_SEGMENT
    directory = old
    if depth < _DEPTH_LIMIT:
        new = _take_segment(views)
        if new != _NO_SEGMENT and depth == zone_depth:
            directory = _take_directory(views, zone_depth + ONE)
            if directory == ZERO:
                memory.release32(owner_address(views, new), ZERO)
                new = _NO_SEGMENT
    if new == _NO_SEGMENT:
        intents.set_step(views, Step.LOCKS)
        locks.drop(lock)
        return u64(Reason.INDEX_FULL)
    new_header = views.segments + new * _SEGMENT_SIZE
    memory.release32(new_header + _DEPTH, depth + ONE)
    memory.release32(new_header + _ZONE, zone)
    bit = ONE << (u64(63) - depth)
    source = slots_address(views, segment)
    target = slots_address(views, new)
    for i in range(SLOTS):
        slot = memory.read64(source + u64(8 * i))
        if slot != ZERO and _moves(slot, bit):
            memory.release64(target + u64(8 * i), slot)
    _publish_split(views, zone, word, directory, hash_, depth, segment, new)
    memory.release32(header + _DEPTH, depth + ONE)
    for i in range(SLOTS):
        slot = memory.read64(source + u64(8 * i))
        if slot != ZERO and _moves(slot, bit):
            memory.release64(source + u64(8 * i), ZERO)  # R5
    memory.release32(new_header + _OWNER, _USED)
    if directory != old:
        old_owner = directory_owner(views, zone_depth, old)
        memory.release32(old_owner, views.me)  # ours, so that repair can tell it from a reused one
        memory.release32(directory_owner(views, zone_depth + ONE, directory), _USED)
        memory.release32(old_owner, ZERO)
    intents.set_step(views, Step.LOCKS)
    locks.drop(lock)
    counters.count(views, Reason.SPLIT)
    return u64(Reason.NONE)


# ------------------------------------------------------------------------------------------------ insert
@kernel
def _publish(views, record, zone, wanted, first_slot, hash_, second_slot, second_hash):
    """Reserve, then store the slots and make the record LIVE; the segments are locked and nothing else can fail."""
    if zones.credit(views) == ZERO:
        reason = zones.take_credit(views, zone, wanted)
        if reason != u64(Reason.NONE):
            return reason
    zones.spend_credit(views)
    if second_slot != ZERO:
        memory.release64(second_slot, (tag_of(second_hash) << THIRTY_TWO) | (record + ONE))  # R2
    memory.release64(first_slot, (tag_of(hash_) << THIRTY_TWO) | (record + ONE))  # R2
    entry = entries.address(views, record)
    word = memory.read64(entry + entries.LIFE)
    memory.release64(entry + entries.LIFE, entries.life(Life.LIVE, ZERO, entries.incarnation_of(word)))  # R4: committed
    intents.done(views)
    return u64(Reason.NONE)


@kernel
def _attempt(views, record, zone, wanted, hash_, second, second_hash, word, may_split):
    """One try to publish; NONE, a refusal, or MAYBE_NOT_FOUND when the zone changed and it must begin again."""
    again = u64(Reason.MAYBE_NOT_FOUND)
    key = entries.address(views, record) + tuples.ENTRY_KEY
    first_segment = segment_of(views, word, hash_)
    second_segment = segment_of(views, word, second_hash) if second != ZERO else first_segment
    if first_segment == ZERO or second_segment == ZERO:
        return again
    first_segment -= ONE
    second_segment -= ONE
    low = min(first_segment, second_segment)
    high = max(first_segment, second_segment)
    if not lock_pair(views, low, high):
        return u64(Reason.BUSY)
    reason = u64(Reason.NONE)
    first_slot = ZERO
    second_slot = ZERO
    if zones.load_word(views, zone) != word:  # covers split, doubling, flush and reuse of the segment by another zone
        reason = again
    elif _duplicate(views, first_segment, hash_, key):
        reason = u64(Reason.ADOPTED)
    elif second != ZERO and _duplicate(views, second_segment, second_hash, second):
        reason = u64(Reason.CLASH)
    else:
        first_slot = _free_slot(views, first_segment, hash_, ZERO)
        if second != ZERO:
            second_slot = _free_slot(views, second_segment, second_hash, first_slot)
        if not may_split and (first_slot == ZERO or (second != ZERO and second_slot == ZERO)):
            reason = u64(Reason.INDEX_FULL)
        elif first_slot == ZERO:
            reason = _split(views, first_segment, hash_, zone, word)
        elif second != ZERO and second_slot == ZERO:
            reason = _split(views, second_segment, second_hash, zone, word)
        else:
            reason = _publish(views, record, zone, wanted, first_slot, hash_, second_slot, second_hash)
            unlock_pair(views, low, high)
            return reason
        if reason == u64(Reason.NONE):
            reason = again
    unlock_pair(views, low, high)
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
        NONE: LIVE.  ADOPTED: the key has a LIVE record, find it; CLASH: the reply key has; ZONE_FULL, FULL, INDEX_FULL,
        BUSY.  Unless NONE, the record is still NEW and the caller's (intent: ALLOC).

    Concurrency:
        Beside any number of others, in this process or another.  Intents: ALLOC, LOCKS, CREATE, SPLIT, CREDIT_WRITING,
        SPEND, RESERVED.  Unspent credit of another zone must have been given back before.
    """
    entry = entries.address(views, record)
    hash_ = tuples.hash_key(views, entry + tuples.ENTRY_KEY)
    second = entries.second_key(views, entry)
    second_hash = tuples.hash_key(views, second) if second != ZERO else ZERO
    reason = u64(Reason.BUSY)
    for _ in range(INSERT_ROUNDS_MAX):
        intents.set_record(views, record, Step.ALLOC)
        word = zones.load_word(views, zone)
        if zones.directory_of(word) == ZERO:
            reason = _create(views, zone, word)
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
