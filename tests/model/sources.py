"""Counts of sources: how many connections each has, changed under the count lock of the source's zone.

A source's cell is any that has its name; zones share cells, so an empty one is taken by swap.  A word beside the record says
whether it is in (Status.SOURCE_COUNTED).
"""

from __future__ import annotations

from .words import (
    LOAD,
    LOCK,
    OWN_STEP,
    OWN_STORE,
    SOURCE_SHIFT,
    STORE,
    SWAP,
    Step,
    cell_word,
    source_of,
    step_word,
    zone_of,
)


def find(table, source):
    """Return the cell of a source and its count; (-1, 0) when it has none."""
    for i in range(table.cells):
        cell = yield LOAD, table.cell + (source + i) % table.cells
        if cell >> SOURCE_SHIFT == source:
            return (source + i) % table.cells, cell & ((1 << SOURCE_SHIFT) - 1)
    return -1, 0


def _claim(table, source):
    """Count the first connection of a source; False when it finds no cell."""
    for i in range(table.cells):
        place = table.cell + (source + i) % table.cells
        cell = yield LOAD, place
        if not cell:
            if "source_by_store" in table.flaws:
                yield STORE, place, cell_word(source, 1)
                return True
            taken = yield SWAP, place, 0, cell_word(source, 1)
            if taken:
                return True
    return False


def enter(table, me, record, key):
    """Count a NEW record that is about to be published where its source is; False when the budget forbids it."""
    source, lock = source_of(key), table.count_lock + zone_of(key)
    if "source_no_lock" not in table.flaws:
        yield LOCK, lock, me
    cell, count = yield from find(table, source)
    if count >= table.budget:
        yield STORE, lock, 0
        return False
    if "source_no_step" not in table.flaws:
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.SOURCE_ENTER, count)
    good = True
    if cell < 0:
        good = yield from _claim(table, source)
    else:
        yield STORE, table.cell + cell, cell_word(source, count + 1)
    if good:
        yield STORE, table.counted + record, 1
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.LOCKS)
    if "source_no_lock" not in table.flaws:
        yield STORE, lock, 0
    return good


def leave(table, me, record, key, after):
    """Take a record out of the count of its source, if it is in; the lock is held, ``after`` is the step that follows."""
    if not table.cells:
        return
    is_in = yield LOAD, table.counted + record
    if not is_in:
        return
    cell, count = yield from find(table, source_of(key))
    if "leave_unnamed" not in table.flaws:
        yield OWN_STORE, table.intent(me, "record"), record + 1
    if "leave_no_step" not in table.flaws:
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.SOURCE_LEAVE, after, count)
    yield STORE, table.counted + record, 0
    yield STORE, table.cell + cell, cell_word(source_of(key), count - 1)
    yield OWN_STEP, table.intent(me, "step"), step_word(after)


def leave_alone(table, me, record, key, after):
    """As ``leave``, where the lock is not held."""
    if not table.cells:
        return
    is_in = yield LOAD, table.counted + record
    if is_in:
        yield LOCK, table.count_lock + zone_of(key), me
        yield from leave(table, me, record, key, after)
        yield STORE, table.count_lock + zone_of(key), 0


def settle(table, record, key, step, before, before_total):
    """The dead holds the lock: what it was counting is undone, what it was taking out is finished; return the step left."""
    if step == Step.SOURCE_ENTER:
        count, after = before, Step.LOCKS
    elif step == Step.SOURCE_LEAVE:
        count, after = before_total - 1, before
    else:
        return step
    yield STORE, table.counted + record, 0
    cell, _ = yield from find(table, source_of(key))
    if cell >= 0:
        yield STORE, table.cell + cell, cell_word(source_of(key), count)
    return after
