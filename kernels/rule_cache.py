"""A worker's memory of which rules it has met: packets alike in all that the rules of a table ask for meet the same one.

Of few rules none is remembered, they are gone through as fast.  Of many, the first packet of a flow is looked up
(kernels/classify) and what it met is kept in one of four places that a hash of its fields chooses, under the mask of all
that any of those rules asks for; the next ones find it there, however many rules there are.  A place holds one flow; it says
for which generation and which part of a table it is good, so nothing is ever wiped.

Four, for with one in eight places taken every ninth flow would have to share its own.  A burst has them fetched for all of
its packets before the first is looked up (``foresee``).

Concurrency: private memory, and a generation that nobody writes.
"""

from __future__ import annotations

from ..shm.layout import CACHED_BYTES, CACHED_MAX, CACHED_WAYS, FIELDS, FIELDS_WORDS, LINE_BYTES, offset
from . import classify, memory
from .classify import NO_RULE, subset_at
from .jit import inlined, kernel
from .memory import mix
from .words import LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, THREE, ZERO, u64

_CACHED = u64(CACHED_BYTES)
_WHAT = u64(8 * FIELDS_WORDS)
_SET = u64(CACHED_WAYS * CACHED_BYTES)
_SETS_MASK = u64(CACHED_MAX // CACHED_WAYS - 1)
_WAY_SHIFT = u64(64 - CACHED_WAYS.bit_length() + 1)
_LINE = u64(LINE_BYTES)
_PORTS = offset(FIELDS, "sport") & ~u64(7)
_SALTS = (u64(0x9E3779B97F4A7C15), u64(0xD6E8FEB86659FD93), u64(0xBF58476D1CE4E5B9))
assert FIELDS_WORDS == 9 and CACHED_WAYS * CACHED_BYTES % LINE_BYTES == 0


@inlined
def _masked(fields, mask, i):
    return memory.le64(fields + i) & memory.le64(mask + i)


@inlined
def _hash(fields, mask):
    """Return a hash of all that is asked for of a packet."""
    a = mix(_masked(fields, mask, u64(0)) ^ _SALTS[0], _masked(fields, mask, u64(8)) ^ _SALTS[1])
    b = mix(_masked(fields, mask, u64(16)) ^ _SALTS[1], _masked(fields, mask, u64(24)) ^ _SALTS[2])
    c = mix(_masked(fields, mask, u64(32)) ^ _SALTS[2], _masked(fields, mask, u64(40)) ^ _SALTS[0])
    d = mix(_masked(fields, mask, u64(48)) ^ _SALTS[0], _masked(fields, mask, u64(56)) ^ _SALTS[2])
    return mix(a ^ (b << ONE) ^ _masked(fields, mask, u64(64)), c ^ (d << ONE) ^ _SALTS[1])


@inlined
def _is_it(at, fields, mask):
    # nothing tells flows apart as their ports do
    if memory.le64(at + _PORTS) != _masked(fields, mask, _PORTS):
        return False
    different = ZERO
    for i in range(FIELDS_WORDS):
        word = u64(i) << THREE
        different |= memory.le64(at + word) ^ _masked(fields, mask, word)
    return different == ZERO


@inlined
def _set_of(cache, fields, mask):
    """Return the address of the places that may hold a flow."""
    return cache + (_hash(fields, mask) & _SETS_MASK) * _SET


@kernel
def foresee(cache, generation, table, fields):
    """Fetch the memory that ``find`` will read.

    Args:
        cache, generation, table, fields: as for ``find``.

    Returns:
        Where it will look, which it needs not reckon again; 0 where nothing is remembered.
    """
    memory.apart()
    place = classify.part_of(generation, table, fields)
    if place == ZERO:
        return ZERO
    subset = subset_at(classify.subset_address(generation, place))
    if u64(subset.mask) == ZERO:
        return ZERO
    at = _set_of(cache, fields, generation + u64(subset.mask))
    memory.prefetch(at)
    memory.prefetch(at + _LINE)
    return at


@kernel
def _remember(first, good_for, fields, mask, number):
    """Put what a flow has met into one of its places: one that is good for nothing any more, else one by chance."""
    memory.seldom()
    at = first + ((memory.le64(fields + _PORTS) * _SALTS[0]) >> _WAY_SHIFT) * _CACHED
    for way in range(CACHED_WAYS):
        other = first + u64(way) * _CACHED
        if memory.le64(other + _WHAT) >> THIRTY_TWO != good_for >> THIRTY_TWO:
            at = other
            break
    for i in range(FIELDS_WORDS):
        one = u64(i) << THREE
        memory.set_le64(at + one, _masked(fields, mask, one))
    memory.set_le64(at + _WHAT, good_for | (number + ONE if number != NO_RULE else ZERO))


@kernel
def find(cache, word, generation, table, fields, rows, foreseen):
    """Find the rule that a packet meets in a table, as ``classify.classify`` does.

    Args:
        cache: address of CACHED[CACHED_MAX], at the beginning of a line.
        word: PIPE.word, which names the generation.
        generation, table, fields, rows: as for ``classify.classify``.
        foreseen: what ``foresee`` returned for the same packet and table, 0 where it was not called.

    Returns:
        The rule's number, NO_RULE when none matches.
    """
    memory.apart()
    place = classify.part_of(generation, table, fields)
    if place == ZERO:
        return NO_RULE
    subset = subset_at(classify.subset_address(generation, place))
    if u64(subset.mask) == ZERO:
        return classify.within(generation, place, fields, rows)
    mask = generation + u64(subset.mask)
    first = foreseen if foreseen != ZERO else _set_of(cache, fields, mask)
    good_for = ((word & LOW_32) << THIRTY_TWO) | (place << SIXTEEN)
    for way in range(CACHED_WAYS):
        at = first + u64(way) * _CACHED
        what = memory.le64(at + _WHAT)
        if what & ~LOW_16 == good_for and _is_it(at, fields, mask):
            return (what & LOW_16) - ONE if what & LOW_16 != ZERO else NO_RULE
    number = classify.within(generation, place, fields, rows)
    _remember(first, good_for, fields, mask, number)
    return number
