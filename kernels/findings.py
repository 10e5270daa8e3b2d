"""What an audit may find broken, and how a kernel says so."""

from __future__ import annotations

from enum import IntEnum

from . import memory
from .jit import kernel
from .words import EIGHT, ZERO, u64


class Finding(IntEnum):
    """What is broken; NONE when nothing is."""

    NONE = 0
    LOCK_HELD = 1  # I9: kind of lock, its index, its holder
    DIRECTORY_OUTSIDE = 2  # I8: zone, offset, depth
    DIRECTORY_OWNER = 3  # I8: zone, offset, owner
    ENTRY_OUTSIDE = 4  # I8: zone, entry, segment + 1
    SEGMENT_OWNER = 5  # I8: segment, owner, zone
    SEGMENT_DEPTH = 6  # I8: segment, depth, zone
    SEGMENT_SPAN = 7  # I8: segment, entry, zone: not 2**(zone depth - depth) entries side by side
    SEGMENT_SHARED = 8  # I8: segment, zone: named twice
    SEGMENT_LOST = 9  # I8: segment, owner: not named by a zone, not in the pool
    SEGMENT_DIRTY = 10  # I8: segment, slot: in the pool, but not empty
    DIRECTORY_LOST = 11  # I8: number, owner
    SLOT_OUTSIDE = 12  # I3: segment, slot, record
    SLOT_FREE = 13  # I3: segment, slot, record: names a FREE record
    SLOT_TAG = 14  # I3: segment, slot, record: not of one of its keys, or not in its pair of lines
    SLOT_PREFIX = 15  # I1: segment, slot, record: another segment is named for this hash
    DUPLICATE = 16  # I2: record, other record, zone
    SLOTS_MISSING = 17  # I1, I7: record, slots, keys
    RECORD_UNFINISHED = 18  # I7: record, life state, owner
    HINT = 19  # I9: record, hint, expiry in hint units
    ZONE_COUNT = 20  # I6: zone, count, content
    GLOBAL_COUNT = 21  # I6: count, content
    CREDIT = 22  # I6: participant, credit
    LIST = 23  # I10: slab, record, where: on two lists, not free, or no record at all
    LIST_COUNT = 24  # I10: slab, participant or pool word, count
    LOST = 25  # I10: slab, record: free, or of no connection, and on no list
    BUSY = 26  # a lock was not had in time: nothing is known
    EXPECTATION_CHAIN = 27  # X1: expectation, chain, kind of chain: on it twice, not in use, or on a wrong one
    EXPECTATION_LOST = 28  # X1: expectation, times on chains: in use, but not on both, or the reverse
    EXPECTATION_COUNT = 29  # X2: zone (ZONES_MAX: all), count, content
    FRAGMENT_LIST = 30  # F1: fragment, kind of list (free, datagram's, holder's), Wait: does not belong there
    FRAGMENT_COUNT = 31  # F2: owner id (0: all), count, content
    FRAGMENT_LOST = 32  # F1: fragments on the free list, on datagrams' and on holders': some are on none, or on two
    DATAGRAM_LOST = (
        33  # F3: datagram, Assembly, datagram + 1 that has its key; or how many are on no list, 0, where it ends
    )


_FINDING, _A, _B, _C = ZERO, EIGHT, u64(16), u64(24)


@kernel
def report(out, finding, a, b, c):
    """Write a Finding and its three numbers to u64[4] at ``out``; returns False, as a check that failed."""
    memory.set_le64(out + _FINDING, u64(finding))
    memory.set_le64(out + _A, a)
    memory.set_le64(out + _B, b)
    memory.set_le64(out + _C, c)
    return False
