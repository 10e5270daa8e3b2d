"""A budget of connections for each source address of a zone: a count by source, exact like the zone's own.

A connection is counted where its source is when it is published, and taken out when it is taken out of its zone's count;
``Status.SOURCE_COUNTED`` says that it is in.  The source is the address that opened it, before any translation.  Each
count changes only while its zone's count lock is held, and after a kill the step word and that bit say whether it was done.

    a cell's word                             the source
    0                                         none: it has no connections that are counted
    fingerprint 40 | count 24                 so many; the fingerprint is of zone and address, keyed as the table's hash

A source's cell is one of ``WINDOW``, from its home on.  Two sources of one window have one fingerprint once in 2^36: then
they share a budget.  Where all cells of the window are other sources' there is no cell, and who comes is refused; while
there are no more sources than connections that the table is sized for, that is so for one source in a million.

Who may                     while
    enter                   who publishes a connection, its segments locked: takes the zone's count lock
    leave                   who takes a record out of its zone's count, and holds that lock
    a cell 0 -> own         who holds the count lock of the source's zone: by swap, for zones share cells
    a cell own -> other     likewise: by store

What was there before a zone had a budget is not in, and a budget that is lowered drives nobody out.
"""

from __future__ import annotations

from ..shm.layout import BLOCK_RECORDS, QUOTA, Life, Setting, Status, Step, offset
from ..shm.reasons import Reason
from . import entries, intents, locks, memory, tuples, zones
from .jit import inlined, kernel
from .words import FOUR, GOLDEN, ONE, THREE, ZERO, u64

WINDOW = 16
"""Cells that a source may have: two cache lines, or three."""
COUNT_BITS = 24

_LIMIT, _HAS_SOURCES = offset(QUOTA, "source_limit"), offset(QUOTA, "has_sources")
_SOURCES = u64(Setting.SOURCES)
_COUNTED, _ORIG_IS_HIGH = u64(Status.SOURCE_COUNTED), u64(Status.ORIG_IS_HIGH)
_COUNT_MASK = u64((1 << COUNT_BITS) - 1)
_SHIFT = u64(COUNT_BITS)
_LOW_ADDRESS, _HIGH_ADDRESS = tuples.ENTRY_KEY, tuples.ENTRY_KEY + u64(16)
_WORD = u64(8)
_LIVE = u64(Life.LIVE)


@inlined
def is_counted(entry):
    """Return whether a connection is in the count of its source."""
    return memory.read32(entry + entries.STATUS) & _COUNTED != ZERO


@inlined
def are_in(views, zone):
    """Return whether connections of a zone may be in counts of their sources."""
    return memory.read32(zones.quota_address(views, zone) + _HAS_SOURCES) != ZERO


@inlined
def have_budget(views, zone):
    """Return whether each source of a zone has a budget."""
    return zones.settings_of(views, zone) & _SOURCES != ZERO


@kernel
def hash_of(views, entry):
    """Return the keyed hash of a connection's zone and source address."""
    secret = views.secret
    is_high = memory.read32(entry + entries.STATUS) & _ORIG_IS_HIGH != ZERO
    address = entry + (_HIGH_ADDRESS if is_high else _LOW_ADDRESS)
    zone = tuples.zone_of(entry + tuples.ENTRY_KEY)
    first = memory.mix(memory.read64(address) ^ secret[1], memory.read64(address + _WORD) ^ secret[2])
    return memory.mix(memory.mix(first ^ secret[3], zone ^ secret[0]) ^ secret[1], GOLDEN ^ secret[3])


@inlined
def _own(hash_):
    """Return what the word of a source's cell begins with, its count 0; never 0."""
    return ((hash_ >> _SHIFT) | ONE) << _SHIFT


@inlined
def _cell(views, hash_, i):
    return views.sources + (((hash_ + i) & (views.source_cells - ONE)) << THREE)


@kernel
def find(views, hash_):
    """Return the address of a source's cell, 0 when it has none; the zone's count lock is held."""
    own = _own(hash_)
    for i in range(WINDOW):
        cell = _cell(views, hash_, u64(i))
        if memory.acquire64(cell) & ~_COUNT_MASK == own:
            return cell
    return ZERO


@kernel
def _claim(views, hash_):
    """Count the first connection of a source; False when it finds no cell."""
    for i in range(WINDOW):
        cell = _cell(views, hash_, u64(i))
        if memory.acquire64(cell) == ZERO and memory.swap64(cell, ZERO, _own(hash_) | ONE):
            return True
    return False


@inlined
def _store(cell, hash_, count):
    memory.release64(cell, _own(hash_) | count if count != ZERO else ZERO)


@inlined
def _set_counted(entry, is_in):
    """Say in a record that it is in; it is NEW or DEAD, and ours."""
    word = memory.read32(entry + entries.STATUS)
    memory.release32(entry + entries.STATUS, word | _COUNTED if is_in else word & ~_COUNTED)


@kernel
def enter(views, record, zone):
    """Count a record that is about to be published where its source is.

    Args:
        views: record of shm.views.
        record: u64, NEW; its whole key is written and the intent names it.
        zone: u64, one whose sources have a budget.

    Returns:
        NONE.  SOURCE_FULL: its source has as many as it may have, or no cell.  BUSY: the lock was not had.

    Concurrency:
        The segments of the record's keys are locked; nothing after this can fail.  Intent: SOURCE_ENTER, then LOCKS.
    """
    memory.seldom()
    if views.sources == ZERO:  # a table that no service has
        return u64(Reason.NONE)
    lock = zones.count_lock_address(views, zone)
    if not locks.take(lock, views.me):
        return u64(Reason.BUSY)
    entry = entries.address(views, record)
    hash_ = hash_of(views, entry)
    cell = find(views, hash_)
    count = memory.read64(cell) & _COUNT_MASK if cell != ZERO else ZERO
    limit = memory.read32(zones.quota_address(views, zone) + _LIMIT)
    if limit != ZERO and count >= limit:
        locks.drop(lock)
        return u64(Reason.SOURCE_FULL)
    intents.set_step_with_cursor(views, Step.SOURCE_ENTER, count)
    is_in = True
    if cell == ZERO:
        is_in = _claim(views, hash_)
    else:
        _store(cell, hash_, count + ONE)
    if is_in:
        _set_counted(entry, True)
    intents.set_step(views, Step.LOCKS)
    locks.drop(lock)
    return u64(Reason.NONE) if is_in else u64(Reason.SOURCE_FULL)


@kernel
def leave(views, record, after):
    """Take a record that is in out of the count of its source.

    Args:
        views: record of shm.views.
        record: u64, NEW or DEAD, and ours.
        after: u64, the Step to go on with.

    Concurrency:
        The count lock of its zone is held.  Intent: SOURCE_LEAVE, record; then ``after``.
    """
    memory.seldom()
    entry = entries.address(views, record)
    hash_ = hash_of(views, entry)
    cell = find(views, hash_) if views.sources != ZERO else ZERO
    count = memory.read64(cell) & _COUNT_MASK if cell != ZERO else ZERO
    intents.set_field(views, intents.RECORD, record + ONE)
    intents.set_step_with_counts(views, Step.SOURCE_LEAVE, after, count)
    _set_counted(entry, False)
    if cell != ZERO:
        _store(cell, hash_, count - ONE)
    intents.set_step(views, after)


@kernel
def settle(views, record):
    """The dead holds the count lock of a zone: what it was counting is undone, what it was taking out is finished.

    Args:
        views: of the dead.
        record: u64, what its intent names.
    """
    word = intents.step_word(views)
    step = intents.step_of(word)
    if step != u64(Step.SOURCE_ENTER) and step != u64(Step.SOURCE_LEAVE):
        return
    memory.seldom()
    entry = entries.address(views, record)
    hash_ = hash_of(views, entry)
    cell = find(views, hash_) if views.sources != ZERO else ZERO
    before, count = intents.counts_of(word)
    after = u64(Step.LOCKS)
    if step == u64(Step.SOURCE_LEAVE):
        after = before
        count -= ONE
    _set_counted(entry, False)
    if cell != ZERO:
        _store(cell, hash_, count)
    intents.set_step(views, after)


@kernel
def recount(views):
    """Count all connections that are in once more, where all cells are 0 and nobody else runs: the table was kept.

    Returns:
        How many there are.
    """
    found = ZERO
    for block in range(views.records[0] // u64(BLOCK_RECORDS)):
        if memory.acquire32(views.blocks + u64(block) * FOUR) == ZERO:  # never used: leave its pages alone
            continue
        for i in range(BLOCK_RECORDS):
            entry = entries.address(views, u64(block) * u64(BLOCK_RECORDS) + u64(i))
            if not is_counted(entry) or entries.state_of(memory.acquire64(entry + entries.LIFE)) != _LIVE:
                continue
            hash_ = hash_of(views, entry)
            cell = find(views, hash_)
            if cell != ZERO:
                _store(cell, hash_, (memory.read64(cell) & _COUNT_MASK) + ONE)
            elif not _claim(views, hash_):
                _set_counted(entry, False)
                continue
            found += ONE
    return found
