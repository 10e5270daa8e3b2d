"""A worker's memory of which rules it has met: packets alike in all that the rules of a table ask for meet the same one.

Of few rules none is remembered, they are gone through as fast.  Of many, the first packet of a flow is looked up
(kernels/classify) and what it met is kept in one of four places that a hash of its fields chooses, under the mask of all
that any of those rules asks for; the next ones find it there, however many rules there are.  A place holds one flow; it says
for which generation and which part of a table it is good, so nothing is ever wiped.

Four, for with one in eight places taken every ninth flow would have to share its own.  A burst has them fetched for all of
its packets before the first is looked up (``foresee``).  A place is one line: it has room for seven words of what can be
asked of a packet, and the compiler says which of the nine they are, for all rules of a part.  Where these ask for more, two
lines are a place; the second says, too, for what it is good, so that none is taken for the half of another.

Concurrency: private memory, and a generation that nobody writes.
"""

from __future__ import annotations

from ..shm.layout import CACHED_BYTES, CACHED_MAX, CACHED_WAYS, CACHED_WORDS, FIELDS_BYTES, FIELDS_WORDS, LINE_BYTES
from . import classify, memory
from .classify import NO_RULE, subset_at
from .jit import inlined, kernel
from .memory import mix
from .words import EIGHT, LOW_8, LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, THREE, ZERO, u64

_CACHED = u64(CACHED_BYTES)
_WHAT = u64(8 * CACHED_WORDS)
_SET = u64(CACHED_WAYS * CACHED_BYTES)
_SETS_MASK = u64(CACHED_MAX // CACHED_WAYS - 1)
_WAY_SHIFT = u64(64 - CACHED_WAYS.bit_length() + 1)
_LINE, _WAYS = u64(LINE_BYTES), u64(CACHED_WAYS)
MORE_WORDS = FIELDS_WORDS - CACHED_WORDS
_SALTS = (u64(0x9E3779B97F4A7C15), u64(0xD6E8FEB86659FD93), u64(0xBF58476D1CE4E5B9))
assert CACHED_WORDS == 7 and CACHED_BYTES == LINE_BYTES and FIELDS_BYTES <= 1 << 8


@inlined
def _words(fields, mask, asked):
    """Return the seven words of a packet that are asked for, under the mask; of fewer, one that nobody asks for is 0."""
    return (
        _word(fields, mask, asked & LOW_8),
        _word(fields, mask, (asked >> EIGHT) & LOW_8),
        _word(fields, mask, (asked >> u64(16)) & LOW_8),
        _word(fields, mask, (asked >> u64(24)) & LOW_8),
        _word(fields, mask, (asked >> u64(32)) & LOW_8),
        _word(fields, mask, (asked >> u64(40)) & LOW_8),
        _word(fields, mask, (asked >> u64(48)) & LOW_8),
    )


@inlined
def _word(fields, mask, place):
    return memory.le64(fields + place) & memory.le64(mask + place)


@inlined
def _hash(fields, mask, asked):
    """Return a hash of all that is asked for of a packet."""
    a, b, c, d, e, f, g = _words(fields, mask, asked)
    low = mix(a ^ _SALTS[0], b ^ _SALTS[1])
    high = mix(c ^ _SALTS[1], d ^ _SALTS[2])
    last = mix(e ^ _SALTS[2], f ^ _SALTS[0])
    return mix(low ^ (high << ONE) ^ g, last ^ _SALTS[1])


@inlined
def _is_it(at, fields, mask, asked):
    a, b, c, d, e, f, g = _words(fields, mask, asked)
    # nothing tells flows apart as the first does
    if memory.le64(at) != a:
        return False
    different = (memory.le64(at + u64(8)) ^ b) | (memory.le64(at + u64(16)) ^ c) | (memory.le64(at + u64(24)) ^ d)
    different |= (memory.le64(at + u64(32)) ^ e) | (memory.le64(at + u64(40)) ^ f) | (memory.le64(at + u64(48)) ^ g)
    return different == ZERO


@kernel
def _are_these_too(at, good_for, fields, mask, more):
    """Return whether the second line of a place has the other words of a packet."""
    memory.apart()
    if memory.le64(at + _WHAT) != good_for:
        return False
    different = ZERO
    for i in range(MORE_WORDS):
        one = u64(i) << THREE
        different |= memory.le64(at + one) ^ _word(fields, mask, (more >> one) & LOW_8)
    return different == ZERO


@inlined
def _set_of(cache, fields, mask, asked):
    """Return the address of the places that may hold a flow."""
    return cache + (_hash(fields, mask, asked) & _SETS_MASK) * _SET


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
    at = _set_of(cache, fields, generation + u64(subset.mask), u64(subset.asked))
    memory.prefetch(at)
    memory.prefetch(at + _LINE)
    return at


@kernel
def _put(at, good_for, fields, mask, places, count):
    """Write some words of a flow into a line, and for what they are good."""
    memory.apart()
    for i in range(count):
        one = u64(i) << THREE
        memory.set_le64(at + one, _word(fields, mask, (places >> one) & LOW_8))
    memory.set_le64(at + _WHAT, good_for)


@kernel
def _remember(first, good_for, fields, mask, subset, number):
    """Put what a flow has met into one of its places: one that is good for nothing any more, else one by chance."""
    memory.seldom()
    asked, wide = u64(subset.asked), u64(subset.is_wide)
    way = (_word(fields, mask, asked & LOW_8) * _SALTS[0]) >> _WAY_SHIFT
    at = first + (way & ~wide) * _CACHED
    for other in range(_WAYS >> wide):
        line = first + (u64(other) << wide) * _CACHED
        if memory.le64(line + _WHAT) >> THIRTY_TWO != good_for >> THIRTY_TWO:
            at = line
            break
    if wide != ZERO:
        _put(at + _LINE, good_for, fields, mask, u64(subset.more), u64(MORE_WORDS))
    _put(at, good_for | (number + ONE if number != NO_RULE else ZERO), fields, mask, asked, u64(CACHED_WORDS))


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
    mask, asked, wide = generation + u64(subset.mask), u64(subset.asked), u64(subset.is_wide)
    first = foreseen if foreseen != ZERO else _set_of(cache, fields, mask, asked)
    good_for = ((word & LOW_32) << THIRTY_TWO) | (place << SIXTEEN)
    for way in range(_WAYS >> wide):
        at = first + (u64(way) << wide) * _CACHED
        what = memory.le64(at + _WHAT)
        if what & ~LOW_16 == good_for and _is_it(at, fields, mask, asked):
            if wide == ZERO or _are_these_too(at + _LINE, good_for, fields, mask, u64(subset.more)):
                return (what & LOW_16) - ONE if what & LOW_16 != ZERO else NO_RULE
    number = classify.within(generation, place, fields, rows)
    _remember(first, good_for, fields, mask, subset, number)
    return number
