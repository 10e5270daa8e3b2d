"""A zone whose lock the dead holds: its split, first segment or detach is finished if anybody can have seen it, else undone.

What of the pools is in the dead's name tells how far it came, and goes where the zone's word says.  All is done under the
zone's lock (and, in a split, the segment's) that the dead holds, and the locks are dropped last.  Each store may be the
last of this repairer too: the next finds the same words to decide by.

    SPLIT, word changed            it is published: clear what moved, hand segment and directories over
    SPLIT, an entry names the new  others may be in the new segment already: finish the entries, publish, as above
    SPLIT, CREATE, else            nobody has seen it: back to the pools
    MERGE, all entries as before   nobody has seen it: the copies are cleared
    MERGE, else                    finish the entries, publish; what goes is in the dead's name, and empties into the pool
    HALVE, LAST                    what of the pools is in the dead's name goes where the zone's word says
    DETACH, word changed           the flush has happened: the directory is the dead's, to be reclaimed
"""

from __future__ import annotations

from ..shm.layout import DEPTH_MAX, NO_RECORD, SEGMENT, SEGMENT_BYTES, SLOTS, USED, Step, offset
from . import intents, locks, memory, segments, zones
from .jit import inlined, kernel
from .words import FOUR, ONE, SIXTY_FOUR, ZERO, u64

_NO_SEGMENT = u64(NO_RECORD)
_SEGMENT_SIZE = u64(SEGMENT_BYTES)
_DEPTH = offset(SEGMENT, "depth")
_USED = u64(USED)


@inlined
def _step_of(views):
    return intents.step_of(intents.step_word(views))


@inlined
def _entry(views, word, i):
    return views.directories + (zones.directory_of(word) + i) * FOUR


@kernel
def _is_named(views, word, segment):
    """Return whether the directory of a zone word names a segment."""
    if zones.directory_of(word) == ZERO:
        return False
    for i in range(ONE << zones.depth_of(word)):
        if memory.read32(_entry(views, word, u64(i))) == segment + ONE:
            return True
    return False


@kernel
def _private_segment(views):
    """Return the segment that the dead had taken and not yet handed over; it takes one at a time."""
    for i in range(views.segment_count):
        if memory.acquire32(segments.owner_address(views, u64(i))) == views.me:
            return u64(i)
    return _NO_SEGMENT


@kernel
def _publish(views, zone, word, segment, new):
    """Finish a split in place that somebody can have seen; returns the word that the zone has then."""
    if not _is_named(views, word, new):
        return word
    zone_depth = zones.depth_of(word)
    span = zone_depth + ONE - memory.read32(views.segments + new * _SEGMENT_SIZE + _DEPTH)
    upper = ONE << (span - ONE)
    for i in range(ONE << zone_depth):
        entry = _entry(views, word, u64(i))
        if u64(i) & upper != ZERO and memory.read32(entry) == segment + ONE:
            memory.release32(entry, new + ONE)  # R3
    after = zones.next_word(word, zone_depth, zones.directory_of(word))
    zones.publish_word(views, zone, after)  # R3
    return after


@kernel
def _finish_split(views, word, before, segment, new):
    """Clear what has moved, and of two directories keep the new one."""
    if new != _NO_SEGMENT:  # else that was done
        depth = memory.read32(views.segments + new * _SEGMENT_SIZE + _DEPTH)
        memory.release32(views.segments + segment * _SEGMENT_SIZE + _DEPTH, depth)
        bit = ONE << (SIXTY_FOUR - depth)
        base = segments.slots_address(views, segment)
        for i in range(SLOTS):
            if memory.read64(base + u64(8 * i)) & bit != ZERO:
                memory.release64(base + u64(8 * i), ZERO)  # R5
    _hand_on(views, word, before)


@kernel
def _hand_on(views, word, before):
    """Of two directories keep the new one; the old one is the dead's until it is in the pool."""
    directory = zones.directory_of(word)
    directory_before = zones.directory_of(before)
    if directory != directory_before:
        owner = segments.directory_owner(views, zones.depth_of(word), directory)
        if memory.acquire32(owner) == views.me:
            memory.release32(segments.directory_owner(views, zones.depth_of(before), directory_before), views.me)
            memory.release32(owner, _USED)


@kernel
def _first_named(views, word, segment):
    """Return the first entry of a zone's directory that names a segment, and how many do."""
    first = ZERO
    named = ZERO
    for i in range(ONE << zones.depth_of(word)):
        if memory.read32(_entry(views, word, u64(i))) == segment + ONE:
            first = first if named != ZERO else u64(i)
            named += ONE
    return first, named


@kernel
def _settle_merge(views, zone, word, before):
    """Finish a merge that somebody can have seen, else clear what was copied; returns the word that the zone has then."""
    gone = _private_segment(views)
    if gone == _NO_SEGMENT:  # it had not begun, or all was done
        return word
    kept = memory.read32(views.intent + intents.SEGMENT_SPLIT) - ONE
    depth = memory.read32(views.segments + gone * _SEGMENT_SIZE + _DEPTH)
    if depth == ZERO:  # what it had is cleared
        return word
    if word == before:
        span = ONE << (zones.depth_of(word) - depth)
        _, named = _first_named(views, word, gone)
        if named == span:
            bit = ONE << (SIXTY_FOUR - depth)
            base = segments.slots_address(views, kept)
            for i in range(SLOTS):
                if memory.read64(base + u64(8 * i)) & bit != ZERO:
                    memory.release64(base + u64(8 * i), ZERO)  # R5
            return word
        first, _ = _first_named(views, word, kept)
        for i in range(span):
            memory.release32(_entry(views, word, first + span + u64(i)), kept + ONE)  # R3
        word = zones.next_word(word, zones.depth_of(word), zones.directory_of(word))
        zones.publish_word(views, zone, word)  # R3
    memory.release32(views.segments + kept * _SEGMENT_SIZE + _DEPTH, depth - ONE)
    return word


@kernel
def _empty(views, segment):
    base = segments.slots_address(views, segment)
    for i in range(SLOTS):
        memory.release64(base + u64(8 * i), ZERO)
    memory.release32(views.segments + segment * _SEGMENT_SIZE + _DEPTH, ZERO)


@kernel
def _hand_over(views, word):
    """What of the pools is the dead's goes to the zone where its word names it, else back."""
    for i in range(views.segment_count):
        owner = segments.owner_address(views, u64(i))
        if memory.acquire32(owner) == views.me:
            if _is_named(views, word, u64(i)):
                memory.release32(owner, _USED)
            else:
                _empty(views, u64(i))
                memory.release32(owner, ZERO)
    current = ZERO
    if zones.directory_of(word) != ZERO:
        current = segments.directory_owner(views, zones.depth_of(word), zones.directory_of(word))
    for i in range(views.directory_first[DEPTH_MAX + 1]):
        owner = views.directory_owners + u64(4 * i)
        if memory.acquire32(owner) == views.me:
            memory.release32(owner, _USED if owner == current else ZERO)


@kernel
def settle(views, zone):
    """Bring a zone whose lock the dead holds to rest, and drop the lock; the step says what is left of the operation."""
    step = _step_of(views)
    word = zones.load_word(views, zone)
    before = memory.read64(views.intent + intents.ZONE_WORD)
    if step == u64(Step.DETACH):
        if before == ZERO or word == before:
            intents.done(views)
        else:
            memory.release32(
                segments.directory_owner(views, zones.depth_of(before), zones.directory_of(before)), views.me
            )
            intents.set_step_with_cursor(views, Step.RECLAIM, ZERO)
    elif step == u64(Step.SPLIT):
        new = _private_segment(views)
        segment = memory.read32(views.intent + intents.SEGMENT_SPLIT) - ONE
        if new != _NO_SEGMENT and word == before:
            word = _publish(views, zone, word, segment, new)
        if word != before:
            _finish_split(views, word, before, segment, new)
        _hand_over(views, word)
        intents.set_step(views, Step.LOCKS)
    elif step == u64(Step.CREATE):
        _hand_over(views, word)
        intents.set_step(views, Step.ALLOC)
    elif step == u64(Step.MERGE):
        _hand_over(views, _settle_merge(views, zone, word, before))
        intents.done(views)
    elif step == u64(Step.HALVE) or step == u64(Step.LAST):
        if word != before and step == u64(Step.HALVE):
            _hand_on(views, word, before)
        _hand_over(views, word)
        intents.done(views)
    locks.drop(zones.lock_address(views, zone))
