"""Zones: their words, their settings, and exact counts with limits that a killed participant cannot bend.

Who may                        while
    settings      anyone reads, the control plane writes with one store
    reserve       an inserter, holding the segments of its keys, before it stores a slot
    unreserve     who took records out of the index, before it frees them

A count is the records reserved or LIVE or not yet freed, and never over its limit (unless the limit was lowered).  It
changes only under its lock, zone's before global, with the values before in the intent's step word: after a kill it is
known whether it was done.  A bare atomic add could not be told.

Credits: a burst that is about to make several connections in a zone reserves them in one go, keeps what is not yet used in
its own intent line (*credit*), spends it one by one without a lock, and gives the rest back when the burst ends.  The
nearer a limit, the less it takes, one at a time in the end, so nobody is refused for another's unspent credit.

Ordering
    counts are release stores after the step word that announces them; the locks order them for everyone else.
"""

from __future__ import annotations

from ..shm.layout import (
    GLOBAL,
    MAX_RETRANS_SHIFT,
    POLICY_SHIFT,
    QUOTA,
    QUOTA_BYTES,
    ROSTER_MAX,
    UNLIMITED,
    ZONE,
    ZONE_BYTES,
    ZONE_DEPTH_BITS,
    ZONE_OFFSET_BITS,
    ZONE_VERSION_SHIFT,
    Setting,
    Step,
    offset,
)
from ..shm.reasons import Reason
from . import intents, locks, memory
from .jit import inlined, kernel
from .words import LOW_32, ONE, ZERO, u64

SHARES = u64(ROSTER_MAX)
"""Of the room below a limit, who takes credit gets one in so many at most: as much is left for each other participant."""

_ZONE_SIZE = u64(ZONE_BYTES)
_QUOTA_SIZE = u64(QUOTA_BYTES)
_WORD = offset(ZONE, "word")
_SETTINGS = offset(ZONE, "settings")
_MAX_RETRANS = offset(ZONE, "max_retrans")
_EXPECTATIONS = offset(ZONE, "expectations")
assert [int(offset(ZONE, field) - _SETTINGS) for field in ("settings", "max_retrans", "policy")] == [
    *(0, MAX_RETRANS_SHIFT // 8, POLICY_SHIFT // 8)
]
_ZONE_LOCK = offset(QUOTA, "zone_lock")
_COUNT_LOCK = offset(QUOTA, "count_lock")
_COUNT = offset(QUOTA, "count")
_GLOBAL_LOCK = offset(GLOBAL, "count_lock")
_GLOBAL_COUNT = offset(GLOBAL, "count")
_GLOBAL_LIMIT = offset(GLOBAL, "limit")
_LIMIT_DEFAULT = offset(GLOBAL, "zone_limit_default")
_LIMIT = offset(QUOTA, "limit")
_HAS_LIMIT = offset(QUOTA, "has_limit")
_OFFSET_MASK = u64((1 << ZONE_OFFSET_BITS) - 1)
_DEPTH_SHIFT = u64(ZONE_OFFSET_BITS)
_DEPTH_MASK = u64((1 << ZONE_DEPTH_BITS) - 1)
_VERSION_SHIFT = u64(ZONE_VERSION_SHIFT)
_UNLIMITED = u64(UNLIMITED)


# ------------------------------------------------------------------------------------------------ zone words
@inlined
def address(views, zone):
    """Return the address of a zone's hot record, which begins with its word."""
    return views.zones + zone * _ZONE_SIZE


@inlined
def load_word(views, zone):
    """Load a zone's word (A1)."""
    return memory.acquire64(views.zones + zone * _ZONE_SIZE)


@inlined
def retransmissions_max_at(address_):
    """Return how often a zone, whose hot record stands at an address, lets a segment be sent again."""
    return memory.byte(address_ + _MAX_RETRANS)


@inlined
def publish_word(views, zone, word):
    """Store a zone's word (R3); its zone lock is held."""
    memory.release64(views.zones + zone * _ZONE_SIZE + _WORD, word)


@inlined
def next_word(word, depth, directory):
    """Return the word that follows ``word``: version + 1, another depth and directory offset (0: none)."""
    version = ((word >> _VERSION_SHIFT) + ONE) & LOW_32
    return (version << _VERSION_SHIFT) | (depth << _DEPTH_SHIFT) | directory


@inlined
def depth_of(word):
    """Return the depth of the directory: it has 2**depth entries."""
    return (word >> _DEPTH_SHIFT) & _DEPTH_MASK


@inlined
def directory_of(word):
    """Return the offset of the directory in 32-bit words, 0 when the zone has none."""
    return word & _OFFSET_MASK


@inlined
def lock_address(views, zone):
    """Return the address of a zone's lock, which guards its word."""
    return views.quotas + zone * _QUOTA_SIZE + _ZONE_LOCK


@inlined
def settings_of(views, zone):
    """Return how a zone is set, in one load: Setting bits 16 | max_retrans 8 | policy 8, from the lowest bit."""
    return memory.le32(views.zones + zone * _ZONE_SIZE + _SETTINGS)


@inlined
def policy_of(views, zone):
    """Return the row of POLICIES that connections of a zone get."""
    return settings_of(views, zone) >> u64(POLICY_SHIFT)


@inlined
def expires(views, zone):
    """Return whether connections of a zone expire at all."""
    return settings_of(views, zone) & u64(Setting.NO_EXPIRY) == ZERO


@inlined
def expectations_address(views, zone):
    """Return the address of the word that says how many expectations a zone has."""
    return views.zones + zone * _ZONE_SIZE + _EXPECTATIONS


# ------------------------------------------------------------------------------------------------ counts
@inlined
def quota_address(views, zone):
    """Return the address of a zone's QUOTA."""
    return views.quotas + zone * _QUOTA_SIZE


@inlined
def count_lock_address(views, zone):
    """Return the address of the lock of a zone's counts."""
    return views.quotas + zone * _QUOTA_SIZE + _COUNT_LOCK


@inlined
def count_of(views, zone):
    """Return how many connections a zone has, at this moment."""
    return memory.read32(views.quotas + zone * _QUOTA_SIZE + _COUNT)


@inlined
def global_count(views):
    """Return how many connections there are, at this moment."""
    return memory.read32(views.globals + _GLOBAL_COUNT)


@inlined
def limit_of(views, zone):
    """Return the limit that holds for a zone: its own, else the default."""
    quota = views.quotas + zone * _QUOTA_SIZE
    if memory.read32(quota + _HAS_LIMIT) != ZERO:
        return memory.read32(quota + _LIMIT)
    return memory.read32(views.globals + _LIMIT_DEFAULT)


@inlined
def global_limit(views):
    """Return the limit of the whole table."""
    return memory.read32(views.globals + _GLOBAL_LIMIT)


@inlined
def _room(limit, count):
    if limit == _UNLIMITED:
        return _UNLIMITED
    return limit - count if limit > count else ZERO


@kernel
def lock_counts(views, zone):
    """Take the zone's and the global count's lock; False (none held) when they were not had in time."""
    zone_lock = views.quotas + zone * _QUOTA_SIZE + _COUNT_LOCK
    if not locks.take(zone_lock, views.me):
        return False
    if not locks.take(views.globals + _GLOBAL_LOCK, views.me):
        locks.drop(zone_lock)
        return False
    return True


@inlined
def unlock_counts(views, zone):
    """Drop the global and the zone's count lock."""
    locks.drop(views.globals + _GLOBAL_LOCK)
    locks.drop(views.quotas + zone * _QUOTA_SIZE + _COUNT_LOCK)


@inlined
def store_counts(views, zone, zone_count, total):
    """Store both counts; both locks are held and the step word says what they were."""
    memory.release32(views.quotas + zone * _QUOTA_SIZE + _COUNT, zone_count)
    memory.release32(views.globals + _GLOBAL_COUNT, total)


@kernel
def refusal(views, zone):
    """Return why not one more connection fits, NONE when one does; without locks, so a wait for room costs no one."""
    if _room(limit_of(views, zone), count_of(views, zone)) == ZERO:
        return u64(Reason.ZONE_FULL)
    if _room(global_limit(views), global_count(views)) == ZERO:
        return u64(Reason.FULL)
    return u64(Reason.NONE)


@kernel
def take_credit(views, zone, wanted):
    """Reserve up to ``wanted`` connections in a zone as credit; there is none left from before.

    Returns:
        Reason.NONE when at least one was reserved; ZONE_FULL, FULL, or BUSY when the locks were not had.

    Concurrency:
        Called with the segments of a key locked.  Intent: CREDIT_WRITING with both counts before.
    """
    reason = refusal(views, zone)
    if reason != u64(Reason.NONE):
        return reason
    if not lock_counts(views, zone):
        return u64(Reason.BUSY)
    count = count_of(views, zone)
    total = global_count(views)
    zone_room = _room(limit_of(views, zone), count)
    room = _room(global_limit(views), total)
    if zone_room == ZERO or room == ZERO:
        unlock_counts(views, zone)
        return u64(Reason.ZONE_FULL) if zone_room == ZERO else u64(Reason.FULL)
    n = max(min(wanted, min(zone_room, room) // SHARES), ONE)
    intents.set_field(views, intents.CREDIT_ZONE, zone)
    intents.set_step_with_counts(views, Step.CREDIT_WRITING, count, total)
    store_counts(views, zone, count + n, total + n)
    intents.set_field(views, intents.CREDIT, n)  # the last word, so that repair sees whether it was done
    intents.set_step(views, Step.LOCKS)
    unlock_counts(views, zone)
    return u64(Reason.NONE)


@inlined
def credit(views):
    """Return the own unspent credit."""
    return memory.read32(views.intent + intents.CREDIT)


@inlined
def credit_zone(views):
    """Return the zone that the own credit is for."""
    return memory.read32(views.intent + intents.CREDIT_ZONE)


@inlined
def spend_credit(views):
    """Use one of the own credit for the record in the intent."""
    before = credit(views)
    intents.set_step_with_cursor(views, Step.SPEND, before)
    intents.set_field(views, intents.CREDIT, before - ONE)
    intents.set_step(views, Step.RESERVED)


@kernel
def return_credit(views):
    """Give unspent credit back; nothing else is under way.  False when the locks were not had: it stays for later."""
    n = credit(views)
    if n == ZERO:
        return True
    zone = credit_zone(views)
    if not lock_counts(views, zone):
        return False
    count = count_of(views, zone)
    total = global_count(views)
    intents.set_step_with_counts(views, Step.CREDIT_BACK_WRITING, count, total)
    store_counts(views, zone, count - n, total - n)
    intents.set_field(views, intents.CREDIT, ZERO)  # the last word, so that repair sees whether it was done
    intents.done(views)
    unlock_counts(views, zone)
    return True
