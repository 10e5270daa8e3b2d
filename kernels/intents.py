"""What a participant is about to do to the table, in its own line, where repair will read it after its death.

Who may      writes          reads
    the owner    its own line    -
    repair       the dead's line the dead's line, after the kernel says that its owner is gone

Invariants
    ONE operation at a time: nobody begins a second inside the first, for there is one line.
    What must change together is one word: the step with the counts before it, the step with a flush's cursor.

Ordering
    Every store here is a release store, and so is every store that an intent announces: a plain store may be moved above
    an earlier release store by the compiler.  No fence: an intent is read only after its owner's death was learnt from
    the kernel.
"""

from __future__ import annotations

from ..shm.layout import BEFORE_BITS, INTENT, STEP_BITS, Step, offset
from . import memory
from .jit import inlined
from .words import ONE, u64

STEP = offset(INTENT, "step")
ZONE_WORD = offset(INTENT, "zone_word")
RECORD = offset(INTENT, "record")
INCARNATION = offset(INTENT, "incarnation")
SEGMENT_LOW = offset(INTENT, "segment_low")
SEGMENT_HIGH = offset(INTENT, "segment_high")
SEGMENT_SPLIT = offset(INTENT, "segment_split")
ZONE = offset(INTENT, "zone")
CREDIT = offset(INTENT, "credit")
CREDIT_ZONE = offset(INTENT, "credit_zone")
CURSOR = offset(INTENT, "cursor")

_GLOBAL_SHIFT = u64(STEP_BITS)
_ZONE_SHIFT = u64(STEP_BITS + BEFORE_BITS)
_STEP_MASK, _BEFORE_MASK = u64((1 << STEP_BITS) - 1), u64((1 << BEFORE_BITS) - 1)


@inlined
def set_step(views, step):
    """Say how far the operation has come."""
    memory.release64(views.intent + STEP, u64(step))


@inlined
def set_step_with_counts(views, step, zone_count, global_count):
    """Say, in one store, how far it has come and what both counts were before."""
    word = (zone_count << _ZONE_SHIFT) | (global_count << _GLOBAL_SHIFT) | u64(step)
    memory.release64(views.intent + STEP, word)


@inlined
def set_step_with_cursor(views, step, cursor):
    """Say, in one store, how far it has come and a number with it: where to go on, or a value before."""
    memory.release64(views.intent + STEP, (cursor << _GLOBAL_SHIFT) | u64(step))


@inlined
def set_record(views, record, step):
    """Begin with ``record`` (index), or go on to another."""
    intent = views.intent
    memory.release32(intent + RECORD, record + ONE)
    memory.release64(intent + STEP, u64(step))


@inlined
def set_segments(views, low, high):
    """Name the segments (indices) that will be locked, before they are."""
    memory.release32(views.intent + SEGMENT_LOW, low + ONE)
    memory.release32(views.intent + SEGMENT_HIGH, high + ONE)


@inlined
def set_field(views, field, value):
    """Store a 32-bit field of the own intent."""
    memory.release32(views.intent + field, value)


@inlined
def set_zone(views, zone, zone_word):
    """Name the zone that will be locked, and the word that it had."""
    memory.release32(views.intent + ZONE, zone)
    memory.release64(views.intent + ZONE_WORD, zone_word)


@inlined
def step_word(views):
    """Return the word of the step as it is."""
    return memory.read64(views.intent + STEP)


@inlined
def step_of(word):
    """Return the Step in such a word."""
    return word & _STEP_MASK


@inlined
def counts_of(word):
    """Return both counts in such a word, of the zone and of all, as ``set_step_with_counts`` has them."""
    return word >> _ZONE_SHIFT, (word >> _GLOBAL_SHIFT) & _BEFORE_MASK


@inlined
def cursor_of(word):
    """Return the number in such a word that ``set_step_with_cursor`` was given."""
    return word >> _GLOBAL_SHIFT


@inlined
def done(views):
    """Say that nothing is under way."""
    memory.release64(views.intent + STEP, u64(Step.NONE))
