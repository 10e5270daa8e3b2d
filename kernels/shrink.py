"""How the index shrinks: two segments that fit into one become one, a directory twice too large half of it, and the last
segment of a zone goes back when nothing is in it.

The rules of the index, and the labels R3, R5, A1, stand in kernels/index; intents MERGE, HALVE and LAST are put right by
kernels/repair_index.  All three were made in the protocol's model first (tests/model/shrink).

Who may      while
    merge    holding both segments, then the zone: copies, then entries, then the zone's word, then what has moved is cleared
    halve    holding the zone
    last     holding the segment, which is empty, then the zone: the zone has no directory then, as after a flush

Who has looked at the zone's word before and locks a segment afterwards sees another word, and begins again: an insert, a
delete list, a split.  A finder whose look ended in a miss does likewise.  What goes is in the shrinker's name from before
the first store, and its lock is dropped before it is in the pool.

Two segments are merged when each pair of lines has ``PAIR_MAX`` slots at most then, of sixteen: so they do not split again
before some thirty connections more have come.
"""

from __future__ import annotations

from ..shm.layout import DEPTH_MAX, LINE_SLOTS, SEGMENT, SLOTS, USED, Step, offset
from ..shm.reasons import Reason
from . import counters, intents, locks, memory, segments, zones
from .jit import inlined, kernel
from .words import FOUR, ONE, THREE, ZERO, high_bits, u64

PAIR_MAX = u64(12)
"""Slots in a pair of lines of what two segments become, at most."""
PAIR_MAX_NEEDED = u64(15)
"""The same where no segment is left in the pool.  Two of 47 connections each have at most 12 in each pair once in fifty, 15
once in three: generations that fill a table find one when they want one; with 12 one connection in a thousand did not."""
LOOKS_MAX = u64(64)
"""Segments that are looked at for who needs one: some microseconds."""
RELIEF = u64(4)
"""Segments that are brought home for who needs one, at most."""
PAIRS = SLOTS // (2 * LINE_SLOTS)
PAIR_SLOTS = 2 * LINE_SLOTS

_DEPTH, _OWNER = offset(SEGMENT, "depth"), offset(SEGMENT, "owner")
_USED = u64(USED)
_PAIR_BYTES = u64(8 * PAIR_SLOTS)
_ALIGNED = u64(63)
_ELSEWHERE = u64(0x9E3779B97F4A7C15)


@inlined
def _entry(views, word, i):
    return views.directories + (zones.directory_of(word) + i) * FOUR


@inlined
def _depth(views, segment):
    return memory.read32(segments.header_address(views, segment) + _DEPTH)


@kernel
def _in_pair(views, segment, pair):
    """Return how many slots of a pair of lines are taken."""
    base = segments.slots_address(views, segment) + u64(pair) * _PAIR_BYTES
    taken = ZERO
    for i in range(PAIR_SLOTS):
        if memory.read64(base + (u64(i) << THREE)) != ZERO:
            taken += ONE
    return taken


@kernel
def _fit(views, kept, gone, pair_max):
    """Return whether two segments fit into one: a hint while they are not locked."""
    for pair in range(PAIRS):
        if _in_pair(views, kept, pair) + _in_pair(views, gone, pair) > pair_max:
            return False
    return True


@kernel
def _copy(views, kept, gone):
    """Copy the slots of a segment into free places of the same pairs of lines of another."""
    for pair in range(PAIRS):
        source = segments.slots_address(views, gone) + u64(pair) * _PAIR_BYTES
        target = segments.slots_address(views, kept) + u64(pair) * _PAIR_BYTES
        free = ZERO
        for i in range(PAIR_SLOTS):
            slot = memory.read64(source + (u64(i) << THREE))
            if slot == ZERO:
                continue
            for _ in range(PAIR_SLOTS):
                if memory.read64(target + (free << THREE)) == ZERO:
                    break
                free += ONE
            memory.release64(target + (free << THREE), slot)  # R3


@kernel
def _merge(views, zone, word, first, kept, gone, depth):
    """Make one of two segments, which are locked, as the zone is; ``gone`` is unlocked and in the pool then.

    Args:
        first: u64, first directory entry of ``gone``; those of ``kept`` lie before them.
        depth: u64, of both.
    """
    intents.set_field(views, intents.SEGMENT_SPLIT, kept + ONE)
    intents.set_zone(views, zone, word)
    intents.set_step(views, Step.MERGE)
    owner = segments.owner_address(views, gone)
    memory.release32(owner, views.me)
    _copy(views, kept, gone)
    for i in range(ONE << (zones.depth_of(word) - depth)):
        memory.release32(_entry(views, word, first + u64(i)), kept + ONE)  # R3
    zones.publish_word(views, zone, zones.next_word(word, zones.depth_of(word), zones.directory_of(word)))  # R3
    memory.release32(segments.header_address(views, kept) + _DEPTH, depth - ONE)
    base = segments.slots_address(views, gone)
    for i in range(SLOTS):
        if memory.read64(base + u64(8 * i)) != ZERO:
            memory.release64(base + u64(8 * i), ZERO)  # R5
    memory.release32(segments.header_address(views, gone) + _DEPTH, ZERO)
    locks.drop(segments.lock_address(views, gone))
    memory.release32(owner, ZERO)
    segments.remember(views, gone)
    intents.done(views)
    counters.count(views, Reason.MERGED)


@kernel
def _try_merge(views, zone, word, first, kept, gone, depth, pair_max):
    """Merge two segments that seem to fit; False when they were not, for whatever reason."""
    low, high = min(kept, gone), max(kept, gone)
    if not segments.lock_pair(views, low, high):
        intents.done(views)
        return False
    lock = zones.lock_address(views, zone)
    if not locks.take(lock, views.me):
        segments.unlock_pair(views, low, high)
        intents.done(views)
        return False
    span = ONE << (zones.depth_of(word) - depth)
    merges = zones.load_word(views, zone) == word
    merges = merges and memory.read32(_entry(views, word, first)) == gone + ONE
    merges = merges and memory.read32(_entry(views, word, first - span)) == kept + ONE
    merges = merges and _depth(views, kept) == depth and _depth(views, gone) == depth
    merges = merges and _fit(views, kept, gone, pair_max)
    if merges:
        _merge(views, zone, word, first, kept, gone, depth)
    locks.drop(lock)
    if merges:
        locks.drop(segments.lock_address(views, kept))
    else:
        segments.unlock_pair(views, low, high)
    intents.done(views)
    return merges


@kernel
def _merge_at(views, zone, word, i, pair_max):
    """Merge the segment that directory entry ``i`` names with the one behind it, if they are two halves and fit into one.

    Returns:
        The entry to go on at, beyond the directory when the word is an old one; and whether they were merged: the zone has
        another word then.
    """
    zone_depth = zones.depth_of(word)
    kept = memory.acquire32(_entry(views, word, i)) - ONE  # A1
    if kept >= views.segment_count:
        return ONE << zone_depth, False
    depth = _depth(views, kept)
    if depth > zone_depth:
        return ONE << zone_depth, False
    span = ONE << (zone_depth - depth)
    other = i + span
    if depth == ZERO or i & (span + span - ONE) != ZERO:  # not the lower half of two
        return other, False
    gone = memory.acquire32(_entry(views, word, other)) - ONE  # A1
    if gone >= views.segment_count or _depth(views, gone) != depth or not _fit(views, kept, gone, pair_max):
        return other, False
    return other + span, _try_merge(views, zone, word, other, kept, gone, depth, pair_max)


@kernel
def _merge_pass(views, zone, first, looks_max, merges_max, pair_max):
    """Go through a zone's directory from entry ``first`` on, and merge what fits; returns how many segments went back."""
    merged = ZERO
    i = first
    word = zones.load_word(views, zone)  # A1
    zone_depth = zones.depth_of(word)
    for _ in range(looks_max):
        if zones.directory_of(word) == ZERO or zones.depth_of(word) != zone_depth:
            break
        if i >= ONE << zone_depth or merged >= merges_max:
            break
        i, did = _merge_at(views, zone, word, i, pair_max)
        if did:
            merged += ONE
        word = zones.load_word(views, zone)  # A1
    return merged


@kernel
def _is_twice(views, word):
    """Return whether the entries of a directory are the same by twos; the zone is locked."""
    for i in range(ONE << (zones.depth_of(word) - ONE)):
        entry = _entry(views, word, u64(i) + u64(i))
        if memory.read32(entry) != memory.read32(entry + FOUR):
            return False
    return True


@kernel
def _halve(views, zone):
    """Take a directory of half the size where each segment is named twice or more; False when not, or when none is left."""
    lock = zones.lock_address(views, zone)
    if not locks.take(lock, views.me):
        return False
    word = zones.load_word(views, zone)
    old, depth = zones.directory_of(word), zones.depth_of(word)
    halves = False
    if old != ZERO and depth != ZERO and _is_twice(views, word):
        intents.set_zone(views, zone, word)
        intents.set_step(views, Step.HALVE)
        new = segments.take_directory(views, zone, depth - ONE)
        halves = new != ZERO
        if halves:
            for i in range(ONE << (depth - ONE)):
                segment = memory.read32(_entry(views, word, u64(i) + u64(i)))
                memory.release32(views.directories + (new + u64(i)) * FOUR, segment)
            zones.publish_word(views, zone, zones.next_word(word, depth - ONE, new))  # R3
            owner = segments.directory_owner(views, depth, old)
            memory.release32(owner, views.me)  # ours, so that repair can tell it from a reused one
            memory.release32(segments.directory_owner(views, depth - ONE, new), _USED)
            memory.release32(owner, ZERO)
        intents.done(views)
    locks.drop(lock)
    return halves


@kernel
def _give_back(views, zone):
    """Give back the only segment of a zone, and its directory, when nothing is in it."""
    word = zones.load_word(views, zone)  # A1
    if zones.directory_of(word) == ZERO or zones.depth_of(word) != ZERO:
        return
    segment = memory.acquire32(_entry(views, word, ZERO)) - ONE  # A1
    if segment >= views.segment_count or not _is_empty(views, segment):
        return
    if not segments.lock_pair(views, segment, segment):
        intents.done(views)
        return
    lock = zones.lock_address(views, zone)
    if locks.take(lock, views.me):
        if zones.load_word(views, zone) == word and _is_empty(views, segment):
            intents.set_zone(views, zone, word)
            intents.set_step(views, Step.LAST)
            owner = segments.owner_address(views, segment)
            directory_owner = segments.directory_owner(views, ZERO, zones.directory_of(word))
            memory.release32(owner, views.me)
            memory.release32(directory_owner, views.me)
            zones.publish_word(views, zone, zones.next_word(word, ZERO, ZERO))  # R3
            memory.release32(segments.header_address(views, segment) + _DEPTH, ZERO)
            locks.drop(segments.lock_address(views, segment))
            memory.release32(owner, ZERO)
            memory.release32(directory_owner, ZERO)
            intents.done(views)
            locks.drop(lock)
            counters.count(views, Reason.MERGED)
            return
        locks.drop(lock)
    segments.unlock_pair(views, segment, segment)
    intents.done(views)


@kernel
def _is_empty(views, segment):
    for pair in range(PAIRS):
        if _in_pair(views, segment, pair) != ZERO:
            return False
    return True


@kernel
def shrink(views, zone, merges_max):
    """Bring home what a zone does not need any more of the index.

    Args:
        views: record of shm.views.
        zone: u64.
        merges_max: u64, segments to merge at most in this call.

    Returns:
        How many segments went back by merging: with ``merges_max`` there may be more.

    Concurrency:
        Beside anyone; no other operation of this participant is under way.  Intents: LOCKS, MERGE, HALVE, LAST.
    """
    merged = ZERO
    for _ in range(2 * DEPTH_MAX):
        depth = zones.depth_of(zones.load_word(views, zone))
        now = _merge_pass(views, zone, ZERO, ONE << depth, merges_max - merged, PAIR_MAX)
        merged += now
        halved = _halve(views, zone)
        if merged >= merges_max or (now == ZERO and not halved):
            break
    _give_back(views, zone)
    return merged


@kernel
def relieve(views, zone, hash_):
    """Bring home a few segments of a zone that needs one when none is left in the pool: two that fit into one are one.

    Who comes and goes for long fills one pair of lines after the other, so a zone has more segments than it would have if
    it were filled once, and some of these lie half empty beside each other.

    Args:
        views: record of shm.views.
        zone: u64.
        hash_: u64, of the connection that needs room: where to begin to look, so that it is elsewhere each time.

    Returns:
        How many there are now for who asks at once; others may take them.

    Concurrency:
        As ``shrink``.  At most ``LOOKS_MAX`` segments are looked at to the end of the directory, and as many from its begin.
    """
    memory.seldom()
    word = zones.load_word(views, zone)  # A1
    if zones.directory_of(word) == ZERO:
        return ZERO
    first = high_bits(hash_ + _ELSEWHERE, zones.depth_of(word))
    merged = _merge_pass(views, zone, first & ~_ALIGNED, LOOKS_MAX, RELIEF, PAIR_MAX_NEEDED)
    if merged == ZERO and first > _ALIGNED:
        merged = _merge_pass(views, zone, ZERO, LOOKS_MAX, RELIEF, PAIR_MAX_NEEDED)
    return merged
