"""The sweep: a dense array of hints says which records may have expired, and only those are looked at.

Who may      while
    sweep    the owner of a block (``blocks``), beside anyone
    adopt    anyone who sweeps: a block whose owner left is an orphan

``due[]`` has a hint for each record, in units of 16 ms, 0 for a free one, and never later than the record's expiry.  A
pass reads it in order, four bytes a record.  Where a hint is due the record is locked: expired, it goes to the delete
list; refreshed meanwhile, the later hint is written back, under the lock, for else it might overwrite a shorter one that
a packet has just written.  What is due in this very unit and not yet expired is left as it is, without its lock: passes
that come by often would else lock it in each.

A cursor resumes where the budget ran out, so every slot is visited once per cycle whatever the budgets are: of slots to
visit, and of records to free, for that is what takes time.
"""

from __future__ import annotations

from ..shm.layout import BLOCK_RECORDS, DUE_UNIT_MS, PARTICIPANT, USED, End, Life, Step, offset
from ..shm.reasons import Reason
from . import counters, delete_list, entries, events, expectations, intents, locks, memory, tuples, zones
from .jit import inlined, kernel
from .words import FOUR, ONE, THREE, ZERO, u64

_CURSOR = offset(PARTICIPANT, "sweep_cursor")
_CLOCK = offset(PARTICIPANT, "clock_ms")
_BLOCK = u64(BLOCK_RECORDS)
_UNIT = u64(DUE_UNIT_MS)
_ORPHAN = u64(USED)
_EXPIRED = u64(End.EXPIRED)
FREED_MAX = u64(16_384)
"""Records that one call frees at most, but for the rest of a block: 3 ms.  The next begins where this one ended."""
_AHEAD = 8
"""Records fetched ahead of the one that is looked at."""


@inlined
def _is_own(views, block):
    """Return whether we sweep a block, after adopting it if its owner left."""
    word = views.blocks + block * FOUR
    owner = memory.acquire32(word)
    if owner == views.me:
        return True
    return owner == _ORPHAN and memory.swap32(word, _ORPHAN, views.me)


@kernel
def _collect(views, block, now_units):
    """Write the records of a block whose hint is due into ``candidates``; returns how many."""
    found = ZERO
    base = views.due + block * _BLOCK * FOUR
    for i in range(BLOCK_RECORDS):
        hint = memory.read32(base + u64(4 * i))
        if hint - ONE < now_units:  # 0, a free record, wraps and is never due
            memory.set_le64(views.candidates + (found << THREE), block * _BLOCK + u64(i))
            found += ONE
    return found


@inlined
def _is_early(views, record, now_ms):
    """Return whether a record whose hint is due expires later in this unit: a hint is right, and nothing is to be done."""
    expiry_ms = memory.read64(entries.address(views, record) + entries.EXPIRY)
    return expiry_ms > now_ms and entries.due_units(expiry_ms) <= now_ms // _UNIT


@kernel
def _judge(views, record, now_ms):
    """Look at one record whose hint is due; True when it went to the delete list."""
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    if not locks.take(entry + entries.LOCK, views.me):
        return False
    expired = False
    if entries.state_of(memory.acquire64(entry + entries.LIFE)) == u64(Life.LIVE):
        expiry_ms = memory.read64(entry + entries.EXPIRY)
        if expiry_ms > now_ms:
            entries.set_due(views, record, entry, entries.due_units(expiry_ms))
        elif zones.expires(views, tuples.zone_of(entry + tuples.ENTRY_KEY)):
            delete_list.end(views, record, _EXPIRED)
            expired = True
    locks.drop(entry + entries.LOCK)
    return expired


@kernel
def _sweep_block(views, block, now_ms):
    """Sweep one block; returns how many records went to the delete list."""
    n = _collect(views, block, now_ms // _UNIT)
    if n == ZERO:
        return ZERO
    looked = ZERO
    expired = ZERO
    for i in range(n):
        if u64(i) + u64(_AHEAD) < n:
            memory.prefetch(entries.address(views, memory.le64(views.candidates + (u64(i + _AHEAD) << THREE))))
        record = memory.le64(views.candidates + (u64(i) << THREE))
        if _is_early(views, record, now_ms):
            continue
        if not delete_list.make_room(views):
            break  # its lines wait for a lock; the hints stay due
        looked += ONE
        if _judge(views, record, now_ms):
            expired += ONE
    counters.add(views, Reason.SWEEP_LOOKED, looked)
    return expired


@kernel
def sweep(views, now_ms, slots_budget):
    """Sweep blocks that are ours, from the cursor on, and free what has expired.

    Args:
        now_ms: the moment to judge by.
        slots_budget: slots to visit at most, rounded up to a block; less when ``FREED_MAX`` were freed before.

    Returns:
        Records that went to the delete list in this call.  The list is empty afterwards but for lines whose lock was not
        had in time.

    Concurrency:
        Nothing is held between calls.  Beside any others.
    """
    memory.release64(views.intent + _CLOCK, now_ms)
    events.tick(views, now_ms)
    blocks = views.records[0] // _BLOCK
    block = memory.read32(views.intent + _CURSOR)
    visited = ZERO
    expired = ZERO
    for _ in range(blocks):
        if visited >= slots_budget or expired >= FREED_MAX:
            break
        if block >= blocks:
            block = ZERO
        if _is_own(views, block):
            expired += _sweep_block(views, block, now_ms)
            visited += _BLOCK
        block += ONE
        if block >= blocks:
            block = ZERO
            counters.count(views, Reason.SWEEP_CYCLES)
    memory.release32(views.intent + _CURSOR, block)
    delete_list.run(views)
    intents.done(views)
    expectations.prune(views, now_ms)
    counters.add(views, Reason.SWEEP_VISITED, visited)
    counters.add(views, Reason.SWEPT, expired)
    return expired
