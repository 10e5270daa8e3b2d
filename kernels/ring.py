"""Both ends of a ring between two processes that do not trust each other: one puts in, the other takes out.

A ring is a RING, descriptors and frames in a segment that the other side can write.  What an end knows for itself is its
END, which the other cannot reach.  Cursors count what has passed since the ring was made, and never wrap.

    RING word      who writes      says
        produced   the producer    so many descriptors, and their frames, are there
        consumed   the consumer    so many places may be used again
        waiting    both            1: the consumer sleeps until it is 0

Invariants, as far as the other end keeps them
    I1  consumed <= produced <= consumed + slots.  A cursor that breaks this is counted, and not followed.
    I2  Between consumed and produced, descriptors and the slots that they name are the consumer's; all others the
        producer's.

Ordering
    R1  release store of produced, after descriptors and frames    pairs with A1, the consumer's load
    R2  release store of consumed, after the copies out of them    pairs with A2, the producer's load
    F1  full fence between R1 and the load of waiting              pairs with F2, between the store of waiting and A1: not
        both ends can miss each other's store, so nobody sleeps while there is something

The words of a descriptor are loaded once each, by loads that a compiler may not repeat: the other end may change them in
between, and what was checked must be what is used.
"""

from __future__ import annotations

from ..shm.layout import (
    DESCRIPTOR,
    DESCRIPTOR_BYTES,
    END,
    FRAME,
    FRAME_BYTES,
    FRAME_SLOT_BYTES,
    LINE_BYTES,
    RING,
    VERDICT_BYTES,
    offset,
)
from . import futex, memory
from .jit import inlined, kernel
from .words import EIGHT, LOW_8, LOW_32, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

end_at = memory.record_at(END)
frame_at = memory.record_at(FRAME)

PRODUCED = offset(RING, "produced")
CONSUMED = offset(RING, "consumed")
WAITING = offset(RING, "waiting")
LOOKS_PER_YIELD = 15
"""A mask: every sixteenth look."""
_VERDICT = offset(DESCRIPTOR, "verdict")
_DESCRIPTOR = u64(DESCRIPTOR_BYTES)
_FRAME = u64(FRAME_BYTES)
_LINE = u64(LINE_BYTES)
TWELVE, FORTY = u64(12), u64(40)
SLOT = u64(FRAME_SLOT_BYTES)
DESCRIPTOR_WORDS, VERDICT_WORDS = DESCRIPTOR_BYTES // 8, VERDICT_BYTES // 8


# ------------------------------------------------------------------------------------------------ cursors
@kernel
def _look(end, word, own, least):
    """Load the other end's cursor, and follow it if it is one of ``least`` to ``least + slots``.

    If not, somebody wrote what is not his: our own word may be wrong too, and is said again.
    """
    peer = memory.acquire64(end.ring + word)  # A1, A2
    if peer - least <= end.slots:
        end.bad = ZERO
        end.peer = peer
        return
    if end.bad == ZERO:
        end.bad_cursors = end.bad_cursors + ONE
    end.bad = ONE
    memory.release64(end.ring + own, end.cursor)


@inlined
def filled(end, wanted):
    """Return how many descriptors there are for the consumer; looks again only where it knows of fewer than wanted."""
    if end.peer - end.cursor < wanted:
        _look(end, PRODUCED, CONSUMED, end.cursor)
    return end.peer - end.cursor


@inlined
def room(end, wanted):
    """Return how many descriptors the producer may put in; looks again only where it knows of fewer than wanted."""
    if end.peer + end.slots - end.cursor < wanted:
        _look(end, CONSUMED, PRODUCED, end.cursor - end.slots)
    return end.peer + end.slots - end.cursor


@inlined
def produce(end, count):
    """Hand over what was put in at the next ``count`` places."""
    end.cursor = end.cursor + count
    memory.release64(end.ring + PRODUCED, end.cursor)  # R1


@inlined
def consume(end, count):
    """Give back the next ``count`` places."""
    end.cursor = end.cursor + count
    memory.release64(end.ring + CONSUMED, end.cursor)  # R2


# ------------------------------------------------------------------------------------------------ places
@inlined
def descriptor_of(end, position):
    """Return the address of the descriptor at a position."""
    return end.descriptors + (position & (end.slots - ONE)) * _DESCRIPTOR


@inlined
def frame_of(end, slot):
    """Return the address of the frame in a slot, which there is."""
    return end.frames + slot * SLOT


@inlined
def write(descriptor, tag, slot, captured, wire, link, flags):
    """Write the words of a descriptor but its verdict."""
    memory.write64(descriptor, tag)
    memory.write64(descriptor + EIGHT, slot | (captured << THIRTY_TWO))
    memory.write64(descriptor + SIXTEEN, wire | (link << THIRTY_TWO) | (flags << FORTY))


@inlined
def write_verdict(descriptor, verdict):
    """Write a copy of the VERDICT at address ``verdict`` into a descriptor."""
    for i in range(VERDICT_WORDS):
        memory.write64(descriptor + _VERDICT + u64(8 * i), memory.le64(verdict + u64(8 * i)))


@inlined
def fetch(place):
    """Load the words of a descriptor but its verdict, once each.

    Returns:
        tag, slot, captured bytes, wire bytes, link, flags: what the other end says.
    """
    tag = memory.acquire64(place)
    second = memory.acquire64(place + EIGHT)
    third = memory.acquire64(place + SIXTEEN)
    link, flags = (third >> THIRTY_TWO) & LOW_8, (third >> FORTY) & LOW_8
    return tag, second & LOW_32, second >> THIRTY_TWO, third & LOW_32, link, flags


# ------------------------------------------------------------------------------------------------ sleeping and waking
@kernel
def _ring_bell(word):
    memory.seldom()
    memory.release32(word, ZERO)
    futex.wake(word)


@inlined
def breathe(look):
    """Wait a moment between two looks: on the core, and now and then through the scheduler, for the other end may need
    this very core; to let it have it costs less than to sleep and be woken."""
    if look & LOOKS_PER_YIELD == LOOKS_PER_YIELD:
        memory.relax()
    else:
        memory.pause()


@inlined
def wake(end):
    """Wake the consumer if it sleeps, after ``produce``; returns 1 if it did, else 0."""
    memory.fence_full()  # F1
    if memory.acquire32(end.ring + WAITING) == ZERO:
        return ZERO
    _ring_bell(end.ring + WAITING)
    return ONE


@kernel
def rest(end, spins, timeout):
    """Wait until there is something for the consumer: look for it some times, then sleep.

    Args:
        end: END of the consumer.
        spins: looks before it sleeps.
        timeout: address of a TIMESPEC, the moment until when.

    Returns:
        How many descriptors there are; 0 when the moment has come, or for no reason.
    """
    for i in range(spins):
        ready = filled(end, ONE)
        if ready != ZERO:
            return ready
        breathe(i)
    word = end.ring + WAITING
    memory.release32(word, ONE)
    memory.fence_full()  # F2
    if filled(end, ONE) == ZERO:
        futex.wait(word, ONE, timeout)
    memory.release32(word, ZERO)
    return filled(end, ONE)


# ------------------------------------------------------------------------------------------------ a client's two ends
@kernel
def put(end, frames, count, tag):
    """Put frames in, as many as there is room for, and hand them over.

    Args:
        end: END of the producer.
        frames: address of FRAME[count]; of each, the first FRAME_SLOT_BYTES go.
        count: how many.
        tag: of the first; each has one more than the one before.

    Returns:
        How many went; wake the other end after the last.
    """
    n = min(count, room(end, count))
    for i in range(n):
        frame = frame_at(frames + u64(i) * _FRAME)
        position = end.cursor + u64(i)
        slot = position & (end.slots - ONE)
        captured = min(u64(frame.captured_bytes), SLOT)
        memory.copy(frame_of(end, slot), u64(frame.address), captured)
        place, wire = descriptor_of(end, position), u64(frame.wire_bytes)
        write(place, tag + u64(i), slot, captured, wire, u64(frame.link), u64(frame.flags))
    if n != ZERO:
        produce(end, n)
        wake(end)
    return n


@kernel
def take(end, descriptors, frames, count):
    """Take out what there is, with or without the frames.

    Args:
        end: END of the consumer.
        descriptors: out, address of DESCRIPTOR[count].
        frames: out, address of count * FRAME_SLOT_BYTES; 0 where they are not wanted.
        count: how many at most.

    Returns:
        How many there were.
    """
    n = min(count, filled(end, count))
    for i in range(n):
        place = descriptor_of(end, end.cursor + u64(i))
        out = descriptors + u64(i) * _DESCRIPTOR
        for word in range(DESCRIPTOR_WORDS):
            memory.set_le64(out + u64(8 * word), memory.read64(place + u64(8 * word)))
        if frames != ZERO:
            slot = memory.le32(out + EIGHT) & (end.slots - ONE)
            captured = min(memory.le32(out + TWELVE), SLOT)
            memory.copy(frames + u64(i) * SLOT, frame_of(end, slot), captured)
    if n != ZERO:
        consume(end, n)
    return n
