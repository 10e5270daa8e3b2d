"""The table's operations one at a time, for tests that speak of keys and not of packets."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from zonetrack.kernels import delete_list, entries, index, intents, locks, memory, tuples, zones
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import THIRTY_TWO, ZERO, u64
from zonetrack.shm.layout import KEY_WORDS, Step
from zonetrack.shm.reasons import Reason

KEY_BYTES = u64(8 * KEY_WORDS)


def key(low: int, high: int, low_port: int = 0, high_port: int = 0, zone: int = 0, protocol: int = 17) -> np.ndarray:
    """Return the five words of an IPv4 key; the caller keeps canonical order."""
    last = low_port << 48 | high_port << 32 | zone << 16 | protocol << 8 | 4
    return np.array([0, low, 0, high, last], "u8")


def at(words: np.ndarray | None) -> np.uint64:
    """Return the address of an array, 0 for none."""
    return np.uint64(0 if words is None else words.ctypes.data)


@kernel
def make(views, key_, reply_key, expiry_ms, wanted):
    """Make a connection with one key, or two when ``reply_key`` is not 0.

    Returns:
        Reason << 32 | record; the record is NONE when no record was to be had.
    """
    zone = tuples.zone_of(key_)
    if zones.credit(views) != ZERO and zones.credit_zone(views) != zone and not zones.return_credit(views):
        return (u64(Reason.BUSY) << THIRTY_TWO) | entries.NONE
    record = entries.take(views)
    if record == entries.NONE:
        intents.done(views)
        return (u64(Reason.SLAB_FULL) << THIRTY_TWO) | entries.NONE
    entry = entries.address(views, record)
    locks.take(entry + entries.LOCK, views.me)
    tuples.copy_key(entry + tuples.ENTRY_KEY, key_)
    memory.write64(entry + entries.EXPIRY, expiry_ms)
    entries.set_due(views, record, entry, entries.due_units(expiry_ms))
    locks.drop(entry + entries.LOCK)
    reason = u64(Reason.NONE)
    if reply_key != ZERO:
        if entries.take_extension(views, record):
            extension = memory.read32(entry + entries.EXTENSION_LINK) - u64(1)
            tuples.copy_key(entries.extension_address(views, extension) + tuples.EXTENSION_KEY, reply_key)
        else:
            reason = u64(Reason.EXTENSION_FULL)
    if reason == u64(Reason.NONE):
        reason = index.insert(views, record, zone, wanted)
    if reason != u64(Reason.NONE):
        intents.set_record(views, record, Step.ALLOC)
        entries.release(views, record)
        intents.done(views)
    return (reason << THIRTY_TWO) | record


@kernel
def find(views, key_):
    """Return the record of a key, MISS or BUSY; its lock is dropped again."""
    record = index.find(views, key_, tuples.hash_key(views, key_), tuples.zone_of(key_))
    if record != index.MISS and record != index.BUSY:
        locks.drop(entries.address(views, record) + entries.LOCK)
    intents.done(views)
    return record


@kernel
def refresh(views, key_, expiry_ms):
    """Set the expiry of a key's connection as a packet would; its record, MISS or BUSY."""
    record = index.find(views, key_, tuples.hash_key(views, key_), tuples.zone_of(key_))
    if record != index.MISS and record != index.BUSY:
        entry = entries.address(views, record)
        entries.set_expiry(views, record, entry, expiry_ms)
        locks.drop(entry + entries.LOCK)
    intents.done(views)
    return record


@kernel
def mark(views, key_):
    """Make a key's connection DEAD and put it on the own delete list; its record, MISS or BUSY."""
    if not delete_list.make_room(views):
        return index.BUSY
    record = index.find(views, key_, tuples.hash_key(views, key_), tuples.zone_of(key_))
    if record != index.MISS and record != index.BUSY:
        delete_list.mark(views, record)
        locks.drop(entries.address(views, record) + entries.LOCK)
    intents.done(views)
    return record


@kernel
def mark_unasked(views, keys, count):
    """Make the connections of keys DEAD and put them on the own delete list, whether or not it is crowded."""
    for i in range(count):
        key_ = keys + u64(i) * KEY_BYTES
        record = index.find(views, key_, tuples.hash_key(views, key_), tuples.zone_of(key_))
        delete_list.mark(views, record)
        locks.drop(entries.address(views, record) + entries.LOCK)
    intents.done(views)


@kernel
def remove(views, key_):
    """Delete a key's connection, out of the index too; its record, MISS or BUSY."""
    record = mark(views, key_)
    delete_list.run(views)
    return record


class Operation(IntEnum):
    """What ``many`` does with each key."""

    MAKE = 0
    FIND = 1
    REFRESH = 2
    MARK = 3
    REMOVE = 4


@kernel
def many(views, operation, keys, reply_keys, count, expiry_ms, wanted, results):
    """Do one operation with each of many keys.

    Args:
        operation: Operation, as u64.
        keys: address of count keys.
        reply_keys: address of as many for MAKE, 0 when connections have one key.
        expiry_ms: for MAKE and REFRESH.
        wanted: for MAKE, the credit to ask for.
        results: address of u64[count], what the operation returned.
    """
    for i in range(count):
        key_ = keys + u64(i) * KEY_BYTES
        result = ZERO
        if operation == u64(Operation.MAKE):
            reply_key = reply_keys + u64(i) * KEY_BYTES if reply_keys != ZERO else ZERO
            result = make(views, key_, reply_key, expiry_ms, wanted)
        elif operation == u64(Operation.FIND):
            result = find(views, key_)
        elif operation == u64(Operation.REFRESH):
            result = refresh(views, key_, expiry_ms)
        elif operation == u64(Operation.MARK):
            result = mark(views, key_)
        else:
            result = remove(views, key_)
        memory.set_le64(results + u64(8 * i), result)
    zones.return_credit(views)
