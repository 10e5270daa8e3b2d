"""The memory of the index: small open-addressing segments of slots, the directories that name them, the pools of both.

A key's home is one cache line of 8 slots, chosen by the low bits of its hash, and the neighbour it shares 128 bytes with;
the directory entry is chosen by the top bits.  A slot is tag 32 | record + 1; the tag is the top 32 bits of the hash, so a
split moves slots without their records.

Who may                                    while
    look              anyone               anyone does anything: a hint until the zone's word is seen again
    clear, has_slot   who holds the segment's lock
    take              anyone               swaps the owner word 0 -> me; USED once published, 0 given back

The rules of the index, with their labels, stand in kernels/index.
"""

from __future__ import annotations

from ..shm.layout import (
    LINE_BYTES,
    NO_RECORD,
    PARTICIPANT,
    SEGMENT,
    SEGMENT_BYTES,
    SEGMENT_SLOT_BYTES,
    Step,
    offset,
)
from . import intents, locks, memory, zones
from .jit import inlined, kernel
from .words import FOUR, ONE, THIRTY_TWO, THREE, ZERO, high_bits, u64

NO_SEGMENT = u64(NO_RECORD)
LOOKS_MAX = u64(4096)
"""Segments that are looked at for one that is free: some ten microseconds."""

_LINE = u64(LINE_BYTES)
_HOME_MASK = u64(SEGMENT_SLOT_BYTES // LINE_BYTES - 1)
_LINE_SHIFT = u64(6)
_SEGMENT_SIZE = u64(SEGMENT_BYTES)
_SLOT_SIZE = u64(SEGMENT_SLOT_BYTES)
_OWNER = offset(SEGMENT, "owner")
_LOCK = offset(SEGMENT, "lock")
_HINT = offset(PARTICIPANT, "segment_hint")
_IN_VAIN = offset(PARTICIPANT, "segments_in_vain")


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
    return segment if segment - ONE < views.segment_count else ZERO


@inlined
def header_address(views, segment):
    """Return the address of a segment's SEGMENT."""
    return views.segments + segment * _SEGMENT_SIZE


# ------------------------------------------------------------------------------------------------ under segment locks
@inlined
def lock_one(views, segment):
    """As ``lock_pair``, of one segment."""
    intents.set_segments(views, segment, segment)
    intents.set_step(views, Step.LOCKS)
    return locks.take(lock_address(views, segment), views.me)


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
def free_slot(views, segment, hash_, taken):
    """Return the address of an empty slot for a hash, not ``taken``; 0 when both lines are full.  The lock is held."""
    line = home_line(views, segment, hash_)
    for _ in range(2):
        matches = memory.match_line(line, ZERO)  # an empty slot has no tag, but a key's may be 0, too
        while matches != ZERO:
            slot = line + (memory.lowest_bit(matches) << THREE)
            matches &= matches - ONE
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
        matches = memory.match_line(line, tag_of(hash_))
        while matches != ZERO:
            slot = line + (memory.lowest_bit(matches) << THREE)
            matches &= matches - ONE
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
        matches = memory.match_line(line, tag_of(hash_))
        while matches != ZERO:
            if memory.read64(line + (memory.lowest_bit(matches) << THREE)) == wanted:
                return True
            matches &= matches - ONE
        line ^= _LINE
    return False


# ------------------------------------------------------------------------------------------------ pools
@kernel
def take_segment(views):
    """Take a segment out of the pool (swap owner 0 -> me); NO_SEGMENT when there is none where we looked.

    Segments are locked meanwhile, so where all were looked at in vain no more than ``LOOKS_MAX`` are; the next look goes on
    behind them.  For so many segments that are found all are looked at once more.
    """
    hint, in_vain = views.intent + _HINT, views.intent + _IN_VAIN
    start, vain = memory.read32(hint), memory.read32(in_vain)
    looks = min(views.segment_count, max(LOOKS_MAX, views.segment_count - min(vain, views.segment_count)))
    for i in range(looks):
        segment = start + u64(i)
        if segment >= views.segment_count:
            segment -= views.segment_count
        owner = owner_address(views, segment)
        if memory.acquire32(owner) == ZERO and memory.swap32(owner, ZERO, views.me):
            memory.write32(hint, segment + ONE if segment + ONE < views.segment_count else ZERO)
            memory.write32(in_vain, vain - min(vain, LOOKS_MAX))
            return segment
    memory.write32(hint, (start + looks) % views.segment_count)
    memory.write32(in_vain, min(vain + looks, views.segment_count))
    return NO_SEGMENT


@inlined
def remember(views, segment):
    """Look at a segment first when one is needed: it has just gone to the pool."""
    memory.write32(views.intent + _HINT, segment)


@inlined
def directory_number(views, depth, directory):
    """Return the number of the directory at offset ``directory``, which is the index of its owner word."""
    return views.directory_first[depth] + ((directory - views.directory_offset[depth]) >> depth)


@inlined
def directory_owner(views, depth, directory):
    """Return the address of the owner word of the directory at offset ``directory``."""
    return views.directory_owners + directory_number(views, depth, directory) * FOUR


@kernel
def take_directory(views, zone, depth):
    """Take a directory of 2**depth entries out of the pool; its offset, or 0 when there is none.

    Zones begin to look each at a place of its own: all from one, the last of many would pass by those of all others.
    """
    first = views.directory_first[depth]
    count = views.directory_first[depth + ONE] - first
    start = zone % count if count != ZERO else ZERO
    for i in range(count):
        number = first + (start + u64(i)) % count
        owner = views.directory_owners + number * FOUR
        if memory.acquire32(owner) == ZERO and memory.swap32(owner, ZERO, views.me):
            return views.directory_offset[depth] + ((number - first) << depth)
    return ZERO
