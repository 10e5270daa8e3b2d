"""The invariants of the store of fragments once more, in plain Python."""

from __future__ import annotations

import ctypes

import numpy as np
from zonetrack.shm.layout import (
    DATAGRAM,
    FRAGMENT,
    FRAGMENT_HOLDER_SHIFT,
    FRAGMENTS_MAX,
    HOLDER,
    REASSEMBLY,
    STORE,
    Assembly,
    Region,
    Wait,
)

COUNT = FRAGMENTS_MAX
"""Fragments and datagrams that there are; fewer where the rest is out of use (tests/support/kills)."""


def scratch(views):
    """Return the private REASSEMBLY of a participant."""
    buffer = (ctypes.c_uint8 * REASSEMBLY.itemsize).from_address(int(views["scratch"]))
    return np.frombuffer(buffer, REASSEMBLY)[0]


def waits(table):
    """Return the Wait of each fragment, and its holder."""
    words = table.array(Region.FRAGMENTS, "fragments", FRAGMENT)["word"][:COUNT]
    return words & np.uint64(0xFF), words >> np.uint64(FRAGMENT_HOLDER_SHIFT) & np.uint64(0xFFFF)


def _chain(records, first, field="next"):
    """Yield the numbers on a list."""
    for _ in range(FRAGMENTS_MAX + 1):
        if not first:
            return
        yield int(first) - 1
        first = records[field][int(first) - 1]
    yield -1


def faults(table):
    """Return what is wrong with the store when nobody is in it, as sentences."""
    store = table.array(Region.FRAGMENTS, "store", STORE)[0]
    holders = table.array(Region.FRAGMENTS, "holders", HOLDER)
    datagrams = table.array(Region.FRAGMENTS, "datagrams", DATAGRAM)[:COUNT]
    fragments = table.array(Region.FRAGMENTS, "fragments", FRAGMENT)[:COUNT]
    buckets = table.array(Region.FRAGMENTS, "fragment_buckets", "u4")
    return list(_faults(*waits(table), store, holders, datagrams, fragments, buckets))


def _faults(wait, holder, store, holders, datagrams, fragments, buckets):
    if store["lock"]:
        yield f"the store is locked by {store['lock']}"
    expected = {Wait.FREE: sorted(_chain(fragments, store["free_fragment"]))}
    expected[Wait.READY] = []
    for at in np.flatnonzero(holders["ready"]):
        mine = list(_chain(fragments, holders["ready"][at]))
        expected[Wait.READY] += mine
        if set(holder[mine].tolist()) != {at + 1}:
            yield f"fragments of others are on the list of {at + 1}"
    expected[Wait.HELD] = []
    for number in np.flatnonzero((datagrams["state"] == Assembly.OPEN) | (datagrams["state"] == Assembly.WHOLE)):
        mine = list(_chain(fragments, datagrams["first"][number]))
        expected[Wait.HELD] += mine
        starts = fragments["offset"][mine].tolist()
        if starts != sorted(starts):
            yield f"datagram {number} is out of order: {starts}"
    for state, numbers in expected.items():
        if sorted(numbers) != np.flatnonzero(wait == state).tolist():
            yield f"{state.name}: on lists are {len(numbers)} fragments, {(wait == state).sum()} say so"
    named = sorted(number for first in buckets[buckets != 0] for number in _chain(datagrams, first))
    wanted = np.flatnonzero((datagrams["state"] == Assembly.OPEN) | (datagrams["state"] == Assembly.FAILED)).tolist()
    if named != wanted:
        yield f"in buckets are {named}, wanted {wanted}"
    free = sorted(_chain(datagrams, store["free_datagram"]))
    if free != np.flatnonzero(datagrams["state"] == Assembly.FREE).tolist():
        yield f"{len(free)} datagrams are on the free list"
    if store["count"] != (wait != Wait.FREE).sum():
        yield f"{store['count']} fragments are counted, there are {(wait != Wait.FREE).sum()}"
    held = np.bincount(holder[wait != Wait.FREE].astype(int), minlength=len(holders) + 1)[1:]
    if (held != holders["held"]).any():
        yield f"holders are counted {holders['held'][:4]}, they hold {held[:4]}"
    if ((datagrams["state"] == Assembly.OPEN) & (datagrams["first"] == 0)).any():
        yield "a datagram is open without a fragment"
    if not (datagrams["expiry_ms"][datagrams["state"] != Assembly.FREE] >= store["due_ms"]).all():
        yield "a datagram expires before anything is due"
