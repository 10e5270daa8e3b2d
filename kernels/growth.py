"""How the index grows: a zone's first segment, and a segment that becomes two.

The rules of the index, and the labels R3, R5, A1, stand in kernels/index; intents CREATE and SPLIT are put right by
kernels/repair_index.
"""

from __future__ import annotations

from ..shm.layout import DEPTH_MAX, SEGMENT, SLOTS, USED, Step, offset
from ..shm.reasons import Reason
from . import counters, intents, locks, memory, segments, zones
from .jit import inlined, kernel
from .segments import NO_SEGMENT
from .words import FOUR, ONE, ZERO, high_bits, u64

_OWNER = offset(SEGMENT, "owner")
_DEPTH = offset(SEGMENT, "depth")
_ZONE = offset(SEGMENT, "zone")
_USED = u64(USED)
_DEPTH_LIMIT = u64(DEPTH_MAX)


@kernel
def create(views, zone, word):
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
        segment = segments.take_segment(views)
        directory = segments.take_directory(views, zone, ZERO) if segment != NO_SEGMENT else ZERO
        if directory != ZERO:
            header = segments.header_address(views, segment)
            memory.release32(header + _DEPTH, ZERO)
            memory.release32(header + _ZONE, zone)
            memory.release32(views.directories + directory * FOUR, segment + ONE)
            zones.publish_word(views, zone, zones.next_word(word, ZERO, directory))  # R3
            memory.release32(header + _OWNER, _USED)
            memory.release32(segments.directory_owner(views, ZERO, directory), _USED)
        else:
            if segment != NO_SEGMENT:
                memory.release32(segments.owner_address(views, segment), ZERO)
            reason = u64(Reason.INDEX_FULL)
    locks.drop(lock)
    return reason


@inlined
def _moved(slot, shift):
    """Return a slot if it goes to the upper half of a split, else 0: by its own hash bit, never by what stands elsewhere.

    Without branches: which half it is is as good as random, and a wrong guess costs more than a store.
    """
    return slot & (ZERO - ((slot >> shift) & ONE))


@kernel
def _publish_split(views, zone, word, directory, hash_, depth, new):
    """Make the directory name the new segment for the upper half of what is split, and publish (R3)."""
    zone_depth = zones.depth_of(word)
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
def split(views, segment, hash_, zone, word):
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
    header = segments.header_address(views, segment)
    depth = memory.read32(header + _DEPTH)
    zone_depth = zones.depth_of(word)
    old = zones.directory_of(word)
    new = NO_SEGMENT
    directory = old
    if depth < _DEPTH_LIMIT:
        new = segments.take_segment(views)
        if new != NO_SEGMENT and depth == zone_depth:
            directory = segments.take_directory(views, zone, zone_depth + ONE)
            if directory == ZERO:
                memory.release32(segments.owner_address(views, new), ZERO)
                new = NO_SEGMENT
    if new == NO_SEGMENT:
        intents.set_step(views, Step.LOCKS)
        locks.drop(lock)
        return u64(Reason.INDEX_FULL)
    new_header = segments.header_address(views, new)
    memory.release32(new_header + _DEPTH, depth + ONE)
    memory.release32(new_header + _ZONE, zone)
    shift = u64(63) - depth
    source = segments.slots_address(views, segment)
    target = segments.slots_address(views, new)
    for i in range(SLOTS):
        slot = memory.read64(source + u64(8 * i))
        memory.replace64(target + u64(8 * i), ZERO, _moved(slot, shift))
    _publish_split(views, zone, word, directory, hash_, depth, new)
    memory.release32(header + _DEPTH, depth + ONE)
    for i in range(SLOTS):
        slot = memory.read64(source + u64(8 * i))
        memory.replace64(source + u64(8 * i), slot, slot ^ _moved(slot, shift))  # R5
    memory.release32(new_header + _OWNER, _USED)
    if directory != old:
        old_owner = segments.directory_owner(views, zone_depth, old)
        memory.release32(old_owner, views.me)  # ours, so that repair can tell it from a reused one
        memory.release32(segments.directory_owner(views, zone_depth + ONE, directory), _USED)
        memory.release32(old_owner, ZERO)
    intents.set_step(views, Step.LOCKS)
    locks.drop(lock)
    counters.count(views, Reason.SPLIT)
    return u64(Reason.NONE)
