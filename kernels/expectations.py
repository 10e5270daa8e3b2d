"""The table of expectations: connections that a helper has foretold, on chains by where they will go, and by their parent.

    kernels/awaited      looks whether a packet was foretold, and takes what it finds
    kernels/expecting    foretells, within bounds, and takes that back

Who may               while                     sees
    read              anyone does anything      what A4 shows to be of one moment
    put, remove       holding the table's lock  -
    prune             holding nothing           -
    rebuild, settle   the repairer of who died under the lock

An expectation names its parent by public id, so by incarnation.  When the parent goes, nobody looks for its expectations:
one whose parent does not live any more, or not as that incarnation, is stale, which a match sees by itself.  What is stale
is removed by the sweep, and by whoever needs its room.

IN_USE in its flags is what makes a record an expectation.  Chains (by destination, by parent) and counts follow from the
records in use; so when a participant was killed under the lock, ``rebuild`` makes them anew.

Invariants, checked by audit
    X1  Each record in use is once on the chain of its destination and once on that of its parent, and no other is on any.
    X2  ZONE.expectations and the table's count are what is in use; ``zone`` names the one zone that may be wrong meanwhile.
    X3  version is even when nobody holds the lock.

Ordering
    E1  version to odd, release      every later store here is a release store too, so it stays behind
    E2  version to even, release     pairs with A4: what was changed before it
    A4  acquire version, read, fence, version again: the same and even, so what was read is of one moment
"""

from __future__ import annotations

from ..shm.layout import (
    CHAINS,
    EXPECTATION,
    EXPECTATION_BYTES,
    EXPECTATION_TABLE,
    EXPECTATIONS_MAX,
    ExpectationFlag,
    Life,
    offset,
)
from ..shm.reasons import Reason
from . import counters, entries, locks, memory, zones
from .jit import inlined, kernel
from .words import EIGHT, FOUR, GOLDEN, LOW_8, LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

PRUNE_RECORDS = 64
"""Records looked at in one call."""

SOURCE, DESTINATION = offset(EXPECTATION, "source"), offset(EXPECTATION, "destination")
LAST = offset(EXPECTATION, "last")
PARENT = offset(EXPECTATION, "parent")
EXPIRY = offset(EXPECTATION, "expiry_ms")
FLAGS = offset(EXPECTATION, "flags")
"""Of the word flags 32 | mark 32, which is always read and written as one."""
ORDER = offset(EXPECTATION, "order")
_KINDS = offset(EXPECTATION, "helper")
assert offset(EXPECTATION, "kind") == _KINDS + 1 and _KINDS % 8 == 0
NEXT = offset(EXPECTATION, "next")
NEXT_OF_PARENT = NEXT + FOUR
"""Both links are one word, which stays where it is when an expectation is copied."""
_LOCK, VERSION = offset(EXPECTATION_TABLE, "lock"), offset(EXPECTATION_TABLE, "version")
_ZONE, _COUNT = offset(EXPECTATION_TABLE, "zone"), offset(EXPECTATION_TABLE, "count")
_LATEST = offset(EXPECTATION_TABLE, "order")
_CURSOR, HINT = offset(EXPECTATION_TABLE, "cursor"), offset(EXPECTATION_TABLE, "hint")
_SIZE = u64(EXPECTATION_BYTES)
WORDS = int(offset(EXPECTATION, "reserved2")) // 8
"""Up to the last one that says anything."""
_CHAIN_MASK = u64(CHAINS - 1)
_PARENT_CHAINS = u64(4 * CHAINS)
MAX = u64(EXPECTATIONS_MAX)
_IN_USE = u64(ExpectationFlag.IN_USE)
SOURCE_PORT_SHIFT = u64(48)
KEY_WORD = u64(0xFFFFFFFFFFFF)
"""Of the last word: all but the source port."""
NEVER = u64(0xFFFFFFFFFFFFFFFF)
"""An expiry that does not come."""

expectation_at = memory.record_at(EXPECTATION)


@inlined
def address(views, expectation):
    """Return the address of an expectation."""
    return views.expectations + expectation * _SIZE


@inlined
def last_word(source_port, destination_port, zone, protocol, family):
    """Return the last word of an expectation."""
    ports = (source_port << SOURCE_PORT_SHIFT) | (destination_port << THIRTY_TWO)
    return ports | (zone << SIXTEEN) | (protocol << EIGHT) | family


@inlined
def zone_of(last):
    """Return the zone in a last word."""
    return (last >> SIXTEEN) & LOW_16


@inlined
def kind_of(expectation):
    """Return the Foretold of an expectation."""
    return (memory.read64(expectation + _KINDS) >> EIGHT) & LOW_8


# ------------------------------------------------------------------------------------------------ chains
@inlined
def chain_of_destination(views, high, low, last):
    """Return the address of the word that begins the chain of a destination."""
    secret = views.secret
    mixed = memory.mix(high ^ secret[0], low ^ secret[1]) ^ (last & KEY_WORD)
    return views.expectation_chains + (memory.mix(mixed ^ secret[2], GOLDEN) & _CHAIN_MASK) * FOUR


@inlined
def chain_of_parent(views, parent):
    """Return the address of the word that begins the chain of a parent, given by its public id."""
    mixed = memory.mix(parent ^ views.secret[3], GOLDEN)
    return views.expectation_chains + _PARENT_CHAINS + (mixed & _CHAIN_MASK) * FOUR


@inlined
def chain_address(views, kind, chain):
    """Return the address of the word that begins a chain: ``kind`` 0 is by destination, 1 by parent."""
    return views.expectation_chains + kind * _PARENT_CHAINS + chain * FOUR


@inlined
def next_of(views, kind, index):
    """Return the index + 1 of what follows on a chain, 0 at its end."""
    return memory.read32(address(views, index) + NEXT + kind * FOUR)


@kernel
def chain_of(views, kind, index):
    """Return the address of the word that begins the chain of a kind that an expectation belongs on."""
    if kind == ZERO:
        return _chain_by_destination(views, address(views, index))
    return chain_of_parent(views, memory.read64(address(views, index) + PARENT))


@inlined
def lock_address(views):
    """Return the address of the table's lock."""
    return views.expectation_table + _LOCK


@inlined
def count_of(views):
    """Return how many expectations there are, at this moment."""
    return memory.read32(views.expectation_table + _COUNT)


@inlined
def _chain_by_destination(views, expectation):
    high, low = memory.read64(expectation + DESTINATION), memory.read64(expectation + DESTINATION + EIGHT)
    return chain_of_destination(views, high, low, memory.read64(expectation + LAST))


@inlined
def _push(views, index, chain, next_):
    """Put an expectation in front of a chain; ``next_`` is which of its two links."""
    memory.release32(address(views, index) + next_, memory.read32(chain))
    memory.release32(chain, index + ONE)


@kernel
def _unlink(views, index, chain, next_):
    """Take an expectation off a chain."""
    link = chain
    for _ in range(EXPECTATIONS_MAX):
        named = memory.read32(link)
        if named == ZERO:
            return
        if named == index + ONE:
            memory.release32(link, memory.read32(address(views, index) + next_))
            return
        link = address(views, named - ONE) + next_


# ------------------------------------------------------------------------------------------------ which are any
@inlined
def is_stale(views, expectation, now_ms):
    """Return whether an expectation came too late, or its parent does not live any more."""
    last = memory.read64(expectation + LAST)
    if memory.read64(expectation + EXPIRY) <= now_ms and zones.expires(views, zone_of(last)):
        return True
    parent = memory.read64(expectation + PARENT)
    record = parent & LOW_32
    if record >= views.records[0]:
        return True
    life = memory.acquire64(entries.address(views, record) + entries.LIFE)
    return life != entries.life(Life.LIVE, ZERO, parent >> THIRTY_TWO)


@inlined
def is_in_use(expectation):
    """Return whether there is an expectation at an address."""
    return memory.read64(expectation + FLAGS) & _IN_USE != ZERO


# ------------------------------------------------------------------------------------------------ under the lock
@kernel
def lock(views):
    """Take the table's lock; False when it was not had in time.  Nothing else is held, and nothing is taken while it is."""
    return locks.take(lock_address(views), views.me)


@inlined
def unlock(views):
    """Drop the table's lock."""
    locks.drop(lock_address(views))


@inlined
def _begin(views, zone):
    """Say that the table is being changed, and whose count with it (E1)."""
    table = views.expectation_table
    memory.release32(table + VERSION, (memory.read32(table + VERSION) + ONE) & LOW_32)
    memory.release32(table + _ZONE, zone)


@inlined
def _end(views):
    """Say that it is not any more (E2)."""
    table = views.expectation_table
    memory.release32(table + VERSION, (memory.read32(table + VERSION) + ONE) & LOW_32)


@inlined
def _add_to_counts(views, zone, amount):
    """Add 1, or 2**32 - 1 for one less, to both counts."""
    count = views.expectation_table + _COUNT
    memory.release32(count, (memory.read32(count) + amount) & LOW_32)
    of_zone = zones.expectations_address(views, zone)
    memory.release32(of_zone, (memory.read32(of_zone) + amount) & LOW_32)


@kernel
def remove(views, index):
    """Remove an expectation; the lock is held."""
    expectation = address(views, index)
    zone = zone_of(memory.read64(expectation + LAST))
    _begin(views, zone)
    memory.release64(expectation + FLAGS, ZERO)
    _unlink(views, index, _chain_by_destination(views, expectation), NEXT)
    _unlink(views, index, chain_of_parent(views, memory.read64(expectation + PARENT)), NEXT_OF_PARENT)
    _add_to_counts(views, zone, LOW_32)
    _end(views)


@kernel
def put(views, index, foretold):
    """Make the record ``index``, which is not in use, what stands at ``foretold``; the lock is held."""
    expectation = address(views, index)
    zone = zone_of(memory.le64(foretold + LAST))
    table = views.expectation_table
    order = memory.read64(table + _LATEST) + ONE
    _begin(views, zone)
    memory.release64(table + _LATEST, order)
    for i in range(WORDS):
        step = u64(8 * i)
        if step != NEXT and step != FLAGS:  # that one last
            memory.release64(expectation + step, memory.le64(foretold + step))
    memory.release64(expectation + ORDER, order)
    memory.release64(expectation + FLAGS, memory.le64(foretold + FLAGS) | _IN_USE)
    _push(views, index, _chain_by_destination(views, expectation), NEXT)
    _push(views, index, chain_of_parent(views, memory.read64(expectation + PARENT)), NEXT_OF_PARENT)
    _add_to_counts(views, zone, ONE)
    _end(views)


@kernel
def _prune(views, now_ms):
    memory.seldom()
    table = views.expectation_table
    begin = memory.read32(table + _CURSOR) % MAX
    removed = ZERO
    if not lock(views):
        return removed
    for i in range(PRUNE_RECORDS):
        index = (begin + u64(i)) % MAX
        expectation = address(views, index)
        if is_in_use(expectation) and is_stale(views, expectation, now_ms):
            remove(views, index)
            removed += ONE
    memory.release32(table + _CURSOR, (begin + u64(PRUNE_RECORDS)) % MAX)
    unlock(views)
    counters.add(views, Reason.EXPECTATION_EXPIRED, removed)
    return removed


@inlined
def prune(views, now_ms):
    """Remove what is stale among the next PRUNE_RECORDS records; costs one load where there are none.  Returns how many."""
    if count_of(views) == ZERO:
        return ZERO
    return _prune(views, now_ms)


# ------------------------------------------------------------------------------------------------ repair
@kernel
def rebuild(views):
    """Make chains and counts follow from the records in use, after somebody died under the lock, which is held.

    The count of one zone may be wrong, the one that the table names: counts of others are not touched, for a packet that
    reads 0 there would miss what was foretold.
    """
    table = views.expectation_table
    version = memory.read32(table + VERSION) | ONE
    memory.release32(table + VERSION, version)
    for i in range(2 * CHAINS):
        memory.release32(views.expectation_chains + u64(4 * i), ZERO)
    zone = memory.read32(table + _ZONE)
    total, of_zone = ZERO, ZERO
    for i in range(EXPECTATIONS_MAX):
        index = u64(i)
        expectation = address(views, index)
        if not is_in_use(expectation):
            continue
        _push(views, index, _chain_by_destination(views, expectation), NEXT)
        _push(views, index, chain_of_parent(views, memory.read64(expectation + PARENT)), NEXT_OF_PARENT)
        total += ONE
        if zone_of(memory.read64(expectation + LAST)) == zone:
            of_zone += ONE
    memory.release32(table + _COUNT, total)
    memory.release32(zones.expectations_address(views, zone), of_zone)
    memory.release32(table + VERSION, (version + ONE) & LOW_32)


@kernel
def settle(views):
    """Repair's part: what the dead left under the table's lock is made good, and the lock dropped."""
    if memory.acquire32(lock_address(views)) == views.me:
        rebuild(views)
        unlock(views)
