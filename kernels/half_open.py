"""A budget of half-open connections for a zone: each that is made takes a seat, of which there are only so many.

A connection is half-open from when it is made until its first reply.  Nobody gives a seat back: it is free when who sat on
it is not half-open any more, which its record says.  So a packet that replies, a delete, a flush and a death need to know
nothing of seats, nothing has to be repaired, and a zone never has more half-open connections than seats.

    a seat's word                            the record
    0                                        free
    incarnation | record + 1                 taken while it is NEW or LIVE in that incarnation and has seen no reply

A zone's seats (QUOTA.half_open_first, half_open_limit) are gone round by a hand, so who sat down first is met first.  When
``LOOKS_MAX`` of them in a row are taken there is no seat: the budget is exact up to so many seats, and beyond that may
refuse a connection while others come and go out of turn.

Who may                     while
    take a seat             who makes a connection, its record in state NEW: swaps the word that it has judged
    move the hand           likewise, with a plain store: where it stands is no more than a hint
    first, limit            the control plane
"""

from __future__ import annotations

from ..shm.layout import QUOTA, SEATS_MAX, Life, Status, offset
from . import entries, memory, zones
from .jit import kernel
from .words import LOW_32, ONE, THIRTY_TWO, THREE, ZERO, u64

LOOKS_MAX = u64(64)

_LIMIT, _FIRST, _HAND = (offset(QUOTA, f"half_open_{name}") for name in ("limit", "first", "hand"))
_SEATS = u64(SEATS_MAX)
_NEW, _LIVE = u64(Life.NEW), u64(Life.LIVE)
_SEEN_REPLY = u64(Status.SEEN_REPLY)


@kernel
def is_taken(views, word):
    """Return whether who sits on a seat is half-open; without its record's lock it may cease to be so."""
    if word == ZERO:
        return False
    entry = entries.address(views, (word & LOW_32) - ONE)
    life = memory.acquire64(entry + entries.LIFE)
    if entries.incarnation_of(life) != word >> THIRTY_TWO:
        return False
    state = entries.state_of(life)
    return state == _NEW or (state == _LIVE and memory.read32(entry + entries.STATUS) & _SEEN_REPLY == ZERO)


@kernel
def seat(views, zone, i):
    """Return the address of a zone's seat, the ``i``-th from its hand on; 0 when it has not so many."""
    quota = zones.quota_address(views, zone)
    limit = memory.read32(quota + _LIMIT)
    if i >= min(limit, LOOKS_MAX):
        return ZERO
    number = memory.read32(quota + _FIRST) + (memory.read32(quota + _HAND) + i) % limit
    if number >= _SEATS:  # first and limit were changed in between
        return ZERO
    return views.seats + (number << THREE)


@kernel
def sit_down(views, zone, record, incarnation):
    """Take a seat for a connection that is being made, its record in state NEW.

    Args:
        views: record of shm.views.
        zone: u64, one whose settings have HALF_OPEN.
        record, incarnation: u64.

    Returns:
        False when there is none.

    Concurrency:
        Beside anyone; a seat is swapped from the word that was judged, so of two who want it one gets it.
    """
    memory.seldom()
    if views.seats == ZERO:  # a table that no service has
        return True
    for i in range(LOOKS_MAX):
        address = seat(views, zone, u64(i))
        if address == ZERO:
            return False
        word = memory.acquire64(address)
        if not is_taken(views, word) and memory.swap64(address, word, (incarnation << THIRTY_TWO) | (record + ONE)):
            quota = zones.quota_address(views, zone)
            memory.write32(quota + _HAND, (memory.read32(quota + _HAND) + u64(i) + ONE) & LOW_32)
            return True
    return False
