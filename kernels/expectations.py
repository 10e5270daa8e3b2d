"""Expectations: connections that a helper has foretold, found by where they will go.

Who may              while                     sees
    find      anyone     anyone does anything      a copy of one expectation, whole, or that there is none
    claim     who makes the connection             the same; one that is not PERMANENT is his alone, and gone
    add, prune, remove   holding the table's lock  -

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
from .words import EIGHT, FOUR, LOW_8, LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, TWO, ZERO, u64

NONE, FOUND, BUSY = ZERO, ONE, TWO
"""What ``find`` and ``claim`` say."""

READ_ROUNDS_MAX = 16
"""Looks without the lock while others change the table."""
PRUNE_RECORDS = 64
"""Records looked at in one call."""

SOURCE, DESTINATION = offset(EXPECTATION, "source"), offset(EXPECTATION, "destination")
LAST = offset(EXPECTATION, "last")
PARENT = offset(EXPECTATION, "parent")
EXPIRY = offset(EXPECTATION, "expiry_ms")
FLAGS = offset(EXPECTATION, "flags")
"""Of the word flags 32 | mark 32, which is always read and written as one."""
_ORDER = offset(EXPECTATION, "order")
_NEXT = offset(EXPECTATION, "next")
_NEXT_OF_PARENT = _NEXT + FOUR
_LOCK, _VERSION = offset(EXPECTATION_TABLE, "lock"), offset(EXPECTATION_TABLE, "version")
_ZONE, _COUNT = offset(EXPECTATION_TABLE, "zone"), offset(EXPECTATION_TABLE, "count")
_LATEST = offset(EXPECTATION_TABLE, "order")
_CURSOR, _HINT = offset(EXPECTATION_TABLE, "cursor"), offset(EXPECTATION_TABLE, "hint")
_SIZE = u64(EXPECTATION_BYTES)
_LINKS_WORD = offset(EXPECTATION, "next")
_WORDS = int(offset(EXPECTATION, "reserved2")) // 8
"""Up to the last one that says anything."""
_CHAIN_MASK = u64(CHAINS - 1)
_PARENT_CHAINS = u64(4 * CHAINS)
_MAX = u64(EXPECTATIONS_MAX)
_IN_USE, _SOURCE_ANY = u64(ExpectationFlag.IN_USE), u64(ExpectationFlag.SOURCE_ANY)
_PERMANENT, _CALL = u64(ExpectationFlag.PERMANENT), u64(ExpectationFlag.CALL)
_SOURCE_PORT_SHIFT = u64(48)
_KEY_WORD = u64(0xFFFFFFFFFFFF)
"""Of the last word: all but the source port."""
_FINAL = u64(0x9E3779B97F4A7C15)
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
    ports = (source_port << _SOURCE_PORT_SHIFT) | (destination_port << THIRTY_TWO)
    return ports | (zone << SIXTEEN) | (protocol << EIGHT) | family


@inlined
def zone_of(last):
    """Return the zone in a last word."""
    return (last >> SIXTEEN) & LOW_16


# ------------------------------------------------------------------------------------------------ chains
@inlined
def _chain_of(views, high, low, last):
    """Return the address of the word that begins the chain of a destination."""
    secret = views.secret
    mixed = memory.mix(high ^ secret[0], low ^ secret[1]) ^ (last & _KEY_WORD)
    return views.expectation_chains + (memory.mix(mixed ^ secret[2], _FINAL) & _CHAIN_MASK) * FOUR


@inlined
def _chain_of_parent(views, parent):
    mixed = memory.mix(parent ^ views.secret[3], _FINAL)
    return views.expectation_chains + _PARENT_CHAINS + (mixed & _CHAIN_MASK) * FOUR


@inlined
def chain_address(views, kind, chain):
    """Return the address of the word that begins a chain: ``kind`` 0 is by destination, 1 by parent."""
    return views.expectation_chains + kind * _PARENT_CHAINS + chain * FOUR


@inlined
def next_of(views, kind, index):
    """Return the index + 1 of what follows on a chain, 0 at its end."""
    return memory.read32(address(views, index) + _NEXT + kind * FOUR)


@kernel
def chain_of(views, kind, index):
    """Return the address of the word that begins the chain of a kind that an expectation belongs on."""
    if kind == ZERO:
        return _chain_by_destination(views, address(views, index))
    return _chain_of_parent(views, memory.read64(address(views, index) + PARENT))


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
    return _chain_of(views, high, low, memory.read64(expectation + LAST))


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


# ------------------------------------------------------------------------------------------------ what is looked for
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


@inlined
def _is_from(expectation, flags, source_high, source_low, source_port):
    """Return whether an expectation allows for a source."""
    port = memory.read64(expectation + LAST) >> _SOURCE_PORT_SHIFT
    if port != ZERO and port != source_port:
        return False
    if flags & _SOURCE_ANY != ZERO:
        return True
    differences = memory.read64(expectation + SOURCE) ^ source_high
    return (differences | (memory.read64(expectation + SOURCE + EIGHT) ^ source_low)) == ZERO


@inlined
def _ends(parsed):
    """Return a packet's source (two words), destination (two words), and last word."""
    last = u64(parsed.key[4])
    ports = last >> THIRTY_TWO
    low, high = ports >> SIXTEEN, ports & LOW_16
    rest = last & LOW_32
    if u64(parsed.high_is_source) != ZERO:
        word = (high << _SOURCE_PORT_SHIFT) | (low << THIRTY_TWO) | rest
        return u64(parsed.key[2]), u64(parsed.key[3]), u64(parsed.key[0]), u64(parsed.key[1]), word
    word = (low << _SOURCE_PORT_SHIFT) | (high << THIRTY_TWO) | rest
    return u64(parsed.key[0]), u64(parsed.key[1]), u64(parsed.key[2]), u64(parsed.key[3]), word


@kernel
def _scan(views, parsed, now_ms):
    """Return the index + 1 of the expectation that a packet fits, 0 for none; the caller sees to it that nothing moves."""
    source_high, source_low, high, low, last = _ends(parsed)
    named = memory.read32(_chain_of(views, high, low, last))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO or named > _MAX:
            break
        expectation = address(views, named - ONE)
        flags = memory.read64(expectation + FLAGS)
        differences = memory.read64(expectation + DESTINATION) ^ high
        differences |= memory.read64(expectation + DESTINATION + EIGHT) ^ low
        differences |= (memory.read64(expectation + LAST) ^ last) & _KEY_WORD
        if (
            differences == ZERO
            and flags & (_IN_USE | _CALL) == _IN_USE
            and _is_from(expectation, flags, source_high, source_low, last >> _SOURCE_PORT_SHIFT)
            and not is_stale(views, expectation, now_ms)
        ):
            return named
        named = memory.read32(expectation + _NEXT)
    return ZERO


@kernel
def call_of(views, parsed):
    """Return the key that a packet of GRE lacks, which only names the call of its receiver; 0 when no call is known.

    PPTP's packets have the receiver's number of a call; the two numbers together are what both directions have in common.
    """
    memory.seldom()
    for _ in range(READ_ROUNDS_MAX):
        version = memory.acquire32(views.expectation_table + _VERSION)  # A4
        if version & ONE == ZERO:
            call = _scan_calls(views, parsed)
            memory.fence_acquire()
            if memory.acquire32(views.expectation_table + _VERSION) == version:
                return call
        memory.relax()
    return ZERO


@kernel
def _scan_calls(views, parsed):
    source_high, source_low, high, low, last = _ends(parsed)
    named = memory.read32(_chain_of(views, high, low, last))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO or named > _MAX:
            break
        expectation = address(views, named - ONE)
        differences = memory.read64(expectation + DESTINATION) ^ high
        differences |= memory.read64(expectation + DESTINATION + EIGHT) ^ low
        differences |= memory.read64(expectation + SOURCE) ^ source_high
        differences |= memory.read64(expectation + SOURCE + EIGHT) ^ source_low
        differences |= (memory.read64(expectation + LAST) ^ last) & _KEY_WORD
        is_call = memory.read64(expectation + FLAGS) & (_IN_USE | _CALL) == _IN_USE | _CALL
        if differences == ZERO and is_call and not is_stale(views, expectation, ZERO):
            return memory.read64(expectation + LAST) >> _SOURCE_PORT_SHIFT
        named = memory.read32(expectation + _NEXT)
    return ZERO


@kernel
def _copy(destination, source):
    for i in range(_WORDS):
        step = u64(8 * i)
        if step != _LINKS_WORD:
            memory.set_le64(destination + step, memory.read64(source + step))


@kernel
def find(views, parsed, now_ms):
    """Look whether a packet that has no connection was foretold; nothing is changed.

    Args:
        parsed: PARSED with reason NONE.
        now_ms: the moment to judge staleness by.

    Returns:
        FOUND: a copy stands at ``views.expected``.  NONE.  BUSY: the table was being changed each time.

    Concurrency:
        Takes no lock, but when others were in the way READ_ROUNDS_MAX times.
    """
    memory.seldom()
    for _ in range(READ_ROUNDS_MAX):
        version = memory.acquire32(views.expectation_table + _VERSION)  # A4
        if version & ONE == ZERO:
            named = _scan(views, parsed, now_ms)
            if named != ZERO:
                _copy(views.expected, address(views, named - ONE))
            memory.fence_acquire()
            if memory.acquire32(views.expectation_table + _VERSION) == version:
                return FOUND if named != ZERO else NONE
        memory.relax()
    if not lock(views):
        return BUSY
    named = _scan(views, parsed, now_ms)
    if named != ZERO:
        _copy(views.expected, address(views, named - ONE))
    unlock(views)
    return FOUND if named != ZERO else NONE


@kernel
def claim(views, parsed, now_ms):
    """Take the expectation that ``find`` found for a connection about to be made.

    Returns:
        FOUND: it is ours, a copy at ``views.expected``; NONE: somebody else had it first; BUSY.

    Concurrency:
        Nothing is held; takes the table's lock for what is not PERMANENT.
    """
    memory.seldom()
    if memory.le64(views.expected + FLAGS) & _PERMANENT != ZERO:
        counters.count(views, Reason.EXPECTATION_MATCHED)
        return FOUND
    if not lock(views):
        return BUSY
    named = _scan(views, parsed, now_ms)
    if named != ZERO:
        _copy(views.expected, address(views, named - ONE))
        if memory.le64(views.expected + FLAGS) & _PERMANENT == ZERO:
            _remove(views, named - ONE)
        counters.count(views, Reason.EXPECTATION_MATCHED)
    unlock(views)
    return FOUND if named != ZERO else NONE


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
    memory.release32(table + _VERSION, (memory.read32(table + _VERSION) + ONE) & LOW_32)
    memory.release32(table + _ZONE, zone)


@inlined
def _end(views):
    """Say that it is not any more (E2)."""
    table = views.expectation_table
    memory.release32(table + _VERSION, (memory.read32(table + _VERSION) + ONE) & LOW_32)


@inlined
def _add_to_counts(views, zone, amount):
    """Add 1, or 2**32 - 1 for one less, to both counts."""
    count = views.expectation_table + _COUNT
    memory.release32(count, (memory.read32(count) + amount) & LOW_32)
    of_zone = zones.expectations_address(views, zone)
    memory.release32(of_zone, (memory.read32(of_zone) + amount) & LOW_32)


@kernel
def _remove(views, index):
    """Remove an expectation; the lock is held."""
    expectation = address(views, index)
    zone = zone_of(memory.read64(expectation + LAST))
    _begin(views, zone)
    memory.release64(expectation + FLAGS, ZERO)
    _unlink(views, index, _chain_by_destination(views, expectation), _NEXT)
    _unlink(views, index, _chain_of_parent(views, memory.read64(expectation + PARENT)), _NEXT_OF_PARENT)
    _add_to_counts(views, zone, LOW_32)
    _end(views)


@kernel
def _put(views, index, foretold):
    """Make the record ``index``, which is not in use, what stands at ``foretold``; the lock is held."""
    expectation = address(views, index)
    zone = zone_of(memory.le64(foretold + LAST))
    table = views.expectation_table
    order = memory.read64(table + _LATEST) + ONE
    _begin(views, zone)
    memory.release64(table + _LATEST, order)
    for i in range(_WORDS):
        step = u64(8 * i)
        if step != _LINKS_WORD and step != FLAGS:  # that one last
            memory.release64(expectation + step, memory.le64(foretold + step))
    memory.release64(expectation + _ORDER, order)
    memory.release64(expectation + FLAGS, memory.le64(foretold + FLAGS) | _IN_USE)
    _push(views, index, _chain_by_destination(views, expectation), _NEXT)
    _push(views, index, _chain_of_parent(views, memory.read64(expectation + PARENT)), _NEXT_OF_PARENT)
    _add_to_counts(views, zone, ONE)
    _end(views)


@inlined
def _is_same(expectation, other):
    """Return whether two expectations are for the same connections: same ends, ports and zone."""
    differences = ZERO
    for i in range(5):
        step = u64(8 * i)
        differences |= memory.read64(expectation + step) ^ memory.le64(other + step)
    flags = memory.read64(expectation + FLAGS) ^ memory.le64(other + FLAGS)
    return differences == ZERO and flags & (_SOURCE_ANY | _CALL) == ZERO


@inlined
def _overlaps(expectation, other):
    """Return whether there are connections that both expectations are for; they have one destination."""
    differences = memory.read64(expectation + DESTINATION) ^ memory.le64(other + DESTINATION)
    differences |= memory.read64(expectation + DESTINATION + EIGHT) ^ memory.le64(other + DESTINATION + EIGHT)
    differences |= (memory.read64(expectation + LAST) ^ memory.le64(other + LAST)) & _KEY_WORD
    flags, other_flags = memory.read64(expectation + FLAGS), memory.le64(other + FLAGS)
    if differences != ZERO or (flags ^ other_flags) & _CALL != ZERO:
        return False
    port = memory.read64(expectation + LAST) >> _SOURCE_PORT_SHIFT
    other_port = memory.le64(other + LAST) >> _SOURCE_PORT_SHIFT
    if port != other_port and port != ZERO and other_port != ZERO:
        return False
    if (flags | other_flags) & _SOURCE_ANY != ZERO:
        return True
    differences = memory.read64(expectation + SOURCE) ^ memory.le64(other + SOURCE)
    return (differences | (memory.read64(expectation + SOURCE + EIGHT) ^ memory.le64(other + SOURCE + EIGHT))) == ZERO


@kernel
def _clear_the_way(views, foretold, now_ms):
    """Remove what is stale, or says the same for the same parent, on the chain that a new expectation will be on.

    Returns:
        False when another parent's expectation is for some of the same connections.
    """
    high, low = memory.le64(foretold + DESTINATION), memory.le64(foretold + DESTINATION + EIGHT)
    named = memory.read32(_chain_of(views, high, low, memory.le64(foretold + LAST)))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO:
            break
        index = named - ONE
        expectation = address(views, index)
        named = memory.read32(expectation + _NEXT)
        if is_stale(views, expectation, now_ms):
            _remove(views, index)
            counters.count(views, Reason.EXPECTATION_EXPIRED)
        elif _overlaps(expectation, foretold):
            same = memory.read64(expectation + PARENT) == memory.le64(foretold + PARENT)
            if not same or not _is_same(expectation, foretold):
                return False
            _remove(views, index)
    return True


@kernel
def _make_room_of_parent(views, foretold, most, now_ms):
    """Remove what is stale of the parent, and its oldest of the same kind when there are ``most`` of that kind."""
    parent = memory.le64(foretold + PARENT)
    kind = u64(expectation_at(foretold).kind)
    call = memory.le64(foretold + FLAGS) & _CALL
    named = memory.read32(_chain_of_parent(views, parent))
    count = ZERO
    oldest, oldest_order = ZERO, NEVER
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO:
            break
        index = named - ONE
        expectation = address(views, index)
        named = memory.read32(expectation + _NEXT_OF_PARENT)
        if is_stale(views, expectation, now_ms):
            _remove(views, index)
            counters.count(views, Reason.EXPECTATION_EXPIRED)
            continue
        same_kind = _kind_of(expectation) == kind and memory.read64(expectation + FLAGS) & _CALL == call
        if memory.read64(expectation + PARENT) == parent and same_kind:
            count += ONE
            order = memory.read64(expectation + _ORDER)
            if order < oldest_order:
                oldest, oldest_order = index, order
    if count >= most:
        _remove(views, oldest)
        counters.count(views, Reason.HELPER_DROPPED)


_KINDS = offset(EXPECTATION, "helper")
assert offset(EXPECTATION, "kind") == _KINDS + ONE and _KINDS % EIGHT == ZERO


@inlined
def _kind_of(expectation):
    return (memory.read64(expectation + _KINDS) >> EIGHT) & LOW_8


@kernel
def _free_record(views, now_ms):
    """Return the index of a record that is not in use, _MAX when all are; when all are, after what is stale was removed."""
    for _ in range(2):
        if count_of(views) < _MAX:
            begin = memory.read32(views.expectation_table + _HINT)
            for i in range(EXPECTATIONS_MAX):
                index = (begin + u64(i)) % _MAX
                if not is_in_use(address(views, index)):
                    memory.release32(views.expectation_table + _HINT, index + ONE)
                    return index
        for i in range(EXPECTATIONS_MAX):
            if is_in_use(address(views, u64(i))) and is_stale(views, address(views, u64(i)), now_ms):
                _remove(views, u64(i))
                counters.count(views, Reason.EXPECTATION_EXPIRED)
    return _MAX


@kernel
def add(views, foretold, most, now_ms):
    """Make what stands at ``foretold`` an expectation.

    One that says the same for the same parent is replaced.  Where the parent has ``most`` of its kind, the oldest makes
    room.

    Returns:
        NONE: it is one.  CLASH: another parent's is for the same connections.  EXPECTATIONS_FULL, BUSY.

    Concurrency:
        Nothing is held; takes the table's lock.
    """
    memory.seldom()
    if not lock(views):
        return u64(Reason.BUSY)
    reason = u64(Reason.NONE)
    if not _clear_the_way(views, foretold, now_ms):
        reason = u64(Reason.CLASH)
    else:
        _make_room_of_parent(views, foretold, most, now_ms)
        index = _free_record(views, now_ms)
        if index == _MAX:
            reason = u64(Reason.EXPECTATIONS_FULL)
        else:
            _put(views, index, foretold)
            counters.count(views, Reason.EXPECTED)
    unlock(views)
    return reason


@kernel
def withdraw(views, foretold):
    """Remove the expectation that was made of what stands at ``foretold``, if the lock is to be had."""
    memory.seldom()
    if not lock(views):
        return
    parent = memory.le64(foretold + PARENT)
    named = memory.read32(_chain_of_parent(views, parent))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO:
            break
        index = named - ONE
        expectation = address(views, index)
        if memory.read64(expectation + PARENT) == parent and _is_same(expectation, foretold):
            _remove(views, index)
            break
        named = memory.read32(expectation + _NEXT_OF_PARENT)
    unlock(views)


@kernel
def remove_of(views, parent, kinds):
    """Remove the expectations of a parent, given by its public id, that are of some kinds (a bit for each Foretold).

    Returns:
        False when the lock was not had in time.
    """
    memory.seldom()
    if not lock(views):
        return False
    named = memory.read32(_chain_of_parent(views, parent))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO:
            break
        expectation = address(views, named - ONE)
        index = named - ONE
        named = memory.read32(expectation + _NEXT_OF_PARENT)
        if memory.read64(expectation + PARENT) == parent and kinds >> _kind_of(expectation) & ONE != ZERO:
            _remove(views, index)
    unlock(views)
    return True


@kernel
def _prune(views, now_ms):
    memory.seldom()
    table = views.expectation_table
    begin = memory.read32(table + _CURSOR) % _MAX
    removed = ZERO
    if not lock(views):
        return removed
    for i in range(PRUNE_RECORDS):
        index = (begin + u64(i)) % _MAX
        expectation = address(views, index)
        if is_in_use(expectation) and is_stale(views, expectation, now_ms):
            _remove(views, index)
            removed += ONE
    memory.release32(table + _CURSOR, (begin + u64(PRUNE_RECORDS)) % _MAX)
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
    version = memory.read32(table + _VERSION) | ONE
    memory.release32(table + _VERSION, version)
    for i in range(2 * CHAINS):
        memory.release32(views.expectation_chains + u64(4 * i), ZERO)
    zone = memory.read32(table + _ZONE)
    total, of_zone = ZERO, ZERO
    for i in range(EXPECTATIONS_MAX):
        index = u64(i)
        expectation = address(views, index)
        if not is_in_use(expectation):
            continue
        _push(views, index, _chain_by_destination(views, expectation), _NEXT)
        _push(views, index, _chain_of_parent(views, memory.read64(expectation + PARENT)), _NEXT_OF_PARENT)
        total += ONE
        if zone_of(memory.read64(expectation + LAST)) == zone:
            of_zone += ONE
    memory.release32(table + _COUNT, total)
    memory.release32(zones.expectations_address(views, zone), of_zone)
    memory.release32(table + _VERSION, (version + ONE) & LOW_32)


@kernel
def settle(views):
    """Repair's part: what the dead left under the table's lock is made good, and the lock dropped."""
    if memory.acquire32(lock_address(views)) == views.me:
        rebuild(views)
        unlock(views)
