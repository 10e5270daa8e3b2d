"""A tally of all connections: how many there are of each kind, and which addresses have the most of them.

Who may    while
    count  anyone, beside anyone; it takes no lock and writes nothing that others see

A record is read between two looks at its life: the same LIVE word twice, so its key is of that life.  Its counters may be of
moments a little apart, which a sum over a million does not show.

Addresses are counted in a table of fixed size, so that nobody makes it grow: each address has eight places.  Where all are
taken the one with the fewest connections makes room, and who comes takes over its count: so a count is never too low, and
``others`` says by how much it may be too high.  Who has more than an eighth of what falls to its places is always there.

Ordering
    A1  acquire(life), contents, fence_acquire, life again    as in kernels/walk, W3

Source:
    Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005: Space-Saving,
    here in each bucket of a table.
"""

from __future__ import annotations

from ..shm.layout import (
    ENTRY,
    LINE_BYTES,
    TALKER,
    TALKER_BYTES,
    TALKERS_BUCKETS,
    TALKERS_PLACES,
    TALLY,
    TALLY_STATES,
    Life,
    Slab,
    Status,
    offset,
)
from . import entries, memory, tuples
from .endpoints import SCTP, TCP
from .jit import inlined, kernel
from .words import EIGHT, FOUR, GOLDEN, LOW_8, LOW_16, ONE, SIXTEEN, THREE, ZERO, u64

tally_at = memory.record_at(TALLY)
talker_at = memory.record_at(TALKER)

_ENTRIES = int(Slab.ENTRIES)
_LINE = u64(LINE_BYTES)
_AHEAD = u64(12)
"""Records fetched ahead of the one that is looked at."""
_LIVE = u64(Life.LIVE)
_SECOND = u64(8)
_HIGH = u64(16)
_KEY_LAST = tuples.ENTRY_KEY + tuples.LAST
_PACKETS, _BYTES = offset(ENTRY, "packets"), offset(ENTRY, "bytes")
_ORIG_IS_HIGH, _OVS = u64(Status.ORIG_IS_HIGH), u64(Status.OVS)
_SEEN_REPLY, _ASSURED, _RELATED = u64(Status.SEEN_REPLY), u64(Status.ASSURED), u64(Status.RELATED)
_TRANSLATED = u64(Status.SOURCE_NAT) | u64(Status.DESTINATION_NAT)
_IPV6 = u64(6)
_STATE_MAX = u64(TALLY_STATES - 1)
_PROTOCOLS, _STATES = offset(TALLY, "protocols"), offset(TALLY, "tcp")
_ROW = u64(8 * TALLY_STATES)
_SIZE, _BUCKET = u64(TALKER_BYTES), u64(TALKER_BYTES * TALKERS_PLACES)
_BUCKETS = u64(TALKERS_BUCKETS - 1)
assert offset(TALLY, "ovs") == _STATES + 8 * TALLY_STATES and offset(TALLY, "sctp") == _STATES + 16 * TALLY_STATES
assert TALKERS_BUCKETS & (TALKERS_BUCKETS - 1) == 0


@inlined
def _add_one(address):
    memory.set_le64(address, memory.le64(address) + ONE)


@kernel
def _credit(views, talkers, high, low, who, packets, octets):
    """Count one connection for an address."""
    secret = views.secret
    hashed = memory.mix(memory.mix(high ^ secret[0], low ^ secret[1]) ^ who ^ secret[2], GOLDEN ^ secret[3])
    bucket = talkers + (hashed & _BUCKETS) * _BUCKET
    place, fewest = bucket, ~ZERO
    for i in range(TALKERS_PLACES):
        at = bucket + u64(i) * _SIZE
        one = talker_at(at)
        if u64(one.who) == who and u64(one.address[0]) == high and u64(one.address[1]) == low:
            one.connections += ONE
            one.packets += packets
            one.bytes += octets
            return
        if u64(one.connections) < fewest:
            place, fewest = at, u64(one.connections)
    one = talker_at(place)
    one.address[0], one.address[1], one.who = high, low, who
    one.connections, one.others = fewest + ONE, fewest
    one.packets, one.bytes = packets, octets


@kernel
def _count(out, last, status, state, expiry_ms, now_ms):
    """Count one connection by its kinds."""
    one = tally_at(out)
    one.connections += ONE
    if expiry_ms <= now_ms:
        one.expired += ONE
        one.overdue_ms = max(u64(one.overdue_ms), now_ms - expiry_ms)
    if status & _SEEN_REPLY == ZERO:
        one.unreplied += ONE
    if status & _ASSURED != ZERO:
        one.assured += ONE
    if status & _RELATED != ZERO:
        one.related += ONE
    if status & _TRANSLATED != ZERO:
        one.translated += ONE
    if last & LOW_8 == _IPV6:
        one.ipv6 += ONE
    protocol = (last >> EIGHT) & LOW_8
    _add_one(out + _PROTOCOLS + (protocol << THREE))
    if protocol == TCP:
        if status & _OVS == ZERO:
            _add_one(out + _STATES + (min(state, _STATE_MAX) << THREE))
        else:
            _add_one(out + _STATES + _ROW + (max(state & _STATE_MAX, state >> FOUR) << THREE))
    elif protocol == SCTP:
        _add_one(out + _STATES + _ROW + _ROW + (min(state, _STATE_MAX) << THREE))


@kernel
def _look(views, entry, now_ms, out, talkers):
    """Count the connection of a record, if it has one."""
    life = memory.acquire64(entry + entries.LIFE)
    if entries.state_of(life) != _LIVE:
        return
    key = entry + tuples.ENTRY_KEY
    low_high, low_low = memory.read64(key), memory.read64(key + _SECOND)
    high_high, high_low = memory.read64(key + _HIGH), memory.read64(key + _HIGH + _SECOND)
    last, expiry_ms = memory.read64(entry + _KEY_LAST), memory.read64(entry + entries.EXPIRY)
    packets = memory.read64(entry + _PACKETS) + memory.read64(entry + _PACKETS + _SECOND)
    octets = memory.read64(entry + _BYTES) + memory.read64(entry + _BYTES + _SECOND)
    e = entries.entry_at(entry)
    status, state = u64(e.status), u64(e.state)
    memory.fence_acquire()
    if memory.acquire64(entry + entries.LIFE) != life:  # A1
        return
    _count(out, last, status, state, expiry_ms, now_ms)
    if status & _ORIG_IS_HIGH != ZERO:
        low_high, high_high = high_high, low_high
        low_low, high_low = high_low, low_low
    who = (((last >> SIXTEEN) & LOW_16) << SIXTEEN) | (last & LOW_8)
    _credit(views, talkers, low_high, low_low, who, packets, octets)
    _credit(views, talkers, high_high, high_low, who | (ONE << EIGHT), packets, octets)


@kernel
def count(views, now_ms, slots_budget, cursor, out, talkers):
    """Count connections, from the cursor on.

    Args:
        now_ms: the moment to judge expiry by.
        slots_budget: records to visit at most.
        cursor: address of a u64, moved on: 0 at the beginning, the number of records when the walk is done.
        out: address of a TALLY, zero at the beginning.
        talkers: address of TALKER[TALKERS_BUCKETS * TALKERS_PLACES], likewise.

    Returns:
        The number of records visited.

    Concurrency:
        Beside any others; nothing shared is written.
    """
    first = memory.le64(cursor)
    records = views.records[_ENTRIES]
    end = first + min(records - min(first, records), slots_budget)
    for i in range(end - first):
        record = first + u64(i)
        if memory.read32(views.due + record * FOUR) != ZERO:
            if record + _AHEAD < records:
                ahead = entries.address(views, record + _AHEAD)
                memory.prefetch(ahead)
                memory.prefetch(ahead + _LINE + _LINE)
            _look(views, entries.address(views, record), now_ms, out, talkers)
    memory.set_le64(cursor, end)
    return end - first
