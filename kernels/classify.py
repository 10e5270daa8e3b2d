"""Which rule of a table a packet meets: the strongest that matches (service/rules_compile says how rules are laid out).

Few rules are gone through.  Of many, each field that they ask for gives a row of bits, found by bisection, a bit for each
rule that this value leaves possible; what all rows have in common is compared in full, the strongest first.  So a lookup
costs a bisection a field and reads some lines, however many different masks there are; the comparison decides, so a
field that could not be cut costs time and never a wrong rule.

Concurrency: reads a generation that nobody writes, and private memory.
"""

from __future__ import annotations

from ..shm.layout import (
    DIMENSION,
    DIMENSION_BYTES,
    FIELDS,
    FIELDS_WORDS,
    GENERATION,
    RULE,
    RULE_BYTES,
    SUBSET,
    SUBSET_BYTES,
    offset,
)
from . import memory
from .jit import inlined, kernel
from .words import EIGHT, FOUR, ONE, THREE, TWO, ZERO, u64

NO_RULE = u64(0xFFFFFFFF)
HEAD = 4
"""Of many rules, the strongest that are compared before anything is looked up: what holds for most packets stands there."""
STEPS_MAX = 32
"""Of a bisection."""
WORD_BITS = 64

generation_at = memory.record_at(GENERATION)
fields_at = memory.record_at(FIELDS)
rule_at = memory.record_at(RULE)
subset_at = memory.record_at(SUBSET)
dimension_at = memory.record_at(DIMENSION)

_MASK = offset(RULE, "mask")
_CT_STATE = offset(FIELDS, "ct_state")
_RULE, _SUBSET, _DIMENSION = u64(RULE_BYTES), u64(SUBSET_BYTES), u64(DIMENSION_BYTES)
_ALL = u64(0xFFFFFFFFFFFFFFFF)


@inlined
def rule_of(generation, number):
    """Return the address of a rule."""
    return generation + u64(generation_at(generation).rules) + number * _RULE


@inlined
def matches(rule, fields):
    """Return whether a packet is as a rule, at its address, wants it."""
    different = ZERO
    for i in range(FIELDS_WORDS):
        at = u64(i) << THREE
        different |= (memory.le64(fields + at) ^ memory.le64(rule + at)) & memory.le64(rule + _MASK + at)
    if different != ZERO:
        return False
    wanted, found = rule_at(rule), fields_at(fields)
    sport, dport = u64(found.sport), u64(found.dport)
    return (
        sport >= u64(wanted.sport_low)
        and sport <= u64(wanted.sport_high)
        and dport >= u64(wanted.dport_low)
        and dport <= u64(wanted.dport_high)
    )


@inlined
def _value(fields, place, size):
    at = fields + place
    if size == EIGHT:
        return memory.le64(at)
    if size == TWO:
        return memory.le16(at)
    if size == FOUR:
        return memory.le32(at)
    return memory.byte(at)


@inlined
def _row(generation, dimension, words, fields):
    """Return the address of the row of the interval that a packet's value is in."""
    value = _value(fields, u64(dimension.place), u64(dimension.size))
    bounds = generation + u64(dimension.bounds)
    low = ZERO
    left = u64(dimension.count)
    for _ in range(STEPS_MAX):
        if left <= ONE:
            break
        half = left >> ONE
        # arithmetic, for which way it goes is anybody's guess
        if memory.le64(bounds + ((low + half) << THREE)) <= value:
            low += half
        left -= half
    row = memory.le32(generation + u64(dimension.rows_of) + (low << TWO))
    return generation + u64(dimension.rows) + ((row * (words + ONE)) << THREE)


@inlined
def _go_through(generation, numbers, count, fields):
    for i in range(count):
        number = memory.le32(numbers + (u64(i) << TWO))
        if matches(rule_of(generation, number), fields):
            return number
    return NO_RULE


@kernel
def _cut(generation, subset, fields, rows):
    """Find the rule of a subset with dimensions."""
    memory.apart()
    numbers = generation + u64(subset.rules)
    words = u64(subset.words)
    count = u64(subset.dimension_count)
    summary = _ALL
    for i in range(count):
        dimension = dimension_at(generation + u64(subset.dimensions) + u64(i) * _DIMENSION)
        row = _row(generation, dimension, words, fields)
        memory.set_le64(rows + (u64(i) << THREE), row)
        summary &= memory.le64(row)
    for _ in range(words):
        if summary == ZERO:
            break
        word = memory.lowest_bit(summary)
        summary &= summary - ONE
        possible = _ALL
        for i in range(count):
            possible &= memory.le64(memory.le64(rows + (u64(i) << THREE)) + ((word + ONE) << THREE))
        for _ in range(WORD_BITS):
            if possible == ZERO:
                break
            place = (word << u64(6)) + memory.lowest_bit(possible)
            possible &= possible - ONE
            number = memory.le32(numbers + (place << TWO))
            if matches(rule_of(generation, number), fields):
                return number
    return NO_RULE


@inlined
def part_of(generation, table, fields):
    """Return which part of a table a packet of this ct_state can meet, 0: none."""
    by_state = memory.le32(generation + u64(generation_at(generation).tables) + (table << TWO))
    if by_state == ZERO:
        return ZERO
    return memory.le16(generation + by_state + (memory.byte(fields + _CT_STATE) << ONE))


@inlined
def subset_address(generation, place):
    """Return the address of the SUBSET that ``part_of`` named."""
    return generation + u64(generation_at(generation).subsets) + (place - ONE) * _SUBSET


@kernel
def within(generation, place, fields, rows):
    """Find the rule that a packet meets in a part of a table, which ``part_of`` named; else as ``classify``."""
    subset = subset_at(subset_address(generation, place))
    numbers = generation + u64(subset.rules)
    if u64(subset.dimension_count) == ZERO:
        return _go_through(generation, numbers, u64(subset.count), fields)
    number = _go_through(generation, numbers, u64(HEAD), fields)
    if number != NO_RULE:
        return number
    return _cut(generation, subset, fields, rows)


@kernel
def classify(generation, table, fields, rows):
    """Find the rule that a packet meets in a table.

    Args:
        generation: address of a GENERATION.
        table: u64, below RULE_TABLES_MAX.
        fields: address of the packet's FIELDS.
        rows: address of u64[DIMENSIONS_MAX], scratch.

    Returns:
        The rule's number, NO_RULE when none matches.

    Concurrency:
        As this room's beginning says.

    Source:
        Lakshman and Stiliadis, 1998; Baboescu and Varghese, "Scalable packet classification", 2001.
    """
    memory.apart()
    place = part_of(generation, table, fields)
    return within(generation, place, fields, rows) if place != ZERO else NO_RULE
