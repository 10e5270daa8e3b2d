"""The part of the audit that looks at the store of fragments: lists, counts, buckets (F1 to F3 of kernels/fragments)."""

from __future__ import annotations

from ..shm.layout import FRAGMENTS_MAX, HOLDER, ROSTER_MAX, STORE, Assembly, Wait, offset
from . import fragments, memory
from .findings import Finding, report
from .jit import kernel
from .words import LOW_32, ONE, TWO, ZERO, u64

_FREE_FRAGMENT, _FREE_DATAGRAM = offset(STORE, "free_fragment"), offset(STORE, "free_datagram")
_HELD, _READY = offset(HOLDER, "held"), offset(HOLDER, "ready")
_BROKEN = LOW_32
_FREE, _OF_DATAGRAM, _OF_HOLDER = ZERO, ONE, TWO
"""Kinds of lists."""


@kernel
def _walk(views, first, kind, wait, owner, out):
    """Count the fragments on a list; each is in state ``wait``, and unless that is 0 of ``owner``.  _BROKEN if not."""
    named = first
    for n in range(FRAGMENTS_MAX + 1):
        if named == ZERO:
            return u64(n)
        word = fragments.word_of(views, named - ONE) if named <= u64(FRAGMENTS_MAX) else ZERO
        is_right = fragments.wait_of(word) == wait and (owner == ZERO or fragments.holder_of(word) == owner)
        if named > u64(FRAGMENTS_MAX) or not is_right:
            break
        named = memory.read32(fragments.fragment(views, named - ONE) + fragments.NEXT)
    report(out, Finding.FRAGMENT_LIST, named - ONE, kind, wait)
    return _BROKEN


@kernel
def _words(views, wait, owner):
    """Count the fragments whose words name a state, or any but FREE when that is 0, and unless that is 0 ``owner``."""
    n = ZERO
    for i in range(FRAGMENTS_MAX):
        word = fragments.word_of(views, u64(i))
        state = fragments.wait_of(word)
        is_meant = state == wait if wait != ZERO else state != u64(Wait.FREE)
        if is_meant and (owner == ZERO or fragments.holder_of(word) == owner):
            n += ONE
    return n


@kernel
def _audit_datagrams(views, out):
    """F1 and F3: each datagram is free, or found by its key; returns the fragments on their lists."""
    held = ZERO
    free = ZERO
    for i in range(FRAGMENTS_MAX):
        at = fragments.datagram(views, u64(i))
        state = u64(fragments.datagram_at(at).state)
        if state == u64(Assembly.FREE):
            free += ONE
            continue
        found = fragments.find(views, at + fragments.KEY)
        if (state != u64(Assembly.WHOLE)) != (found == u64(i) + ONE):
            report(out, Finding.DATAGRAM_LOST, u64(i), state, found)
            return _BROKEN
        n = _walk(views, memory.read32(at + fragments.FIRST), _OF_DATAGRAM, u64(Wait.HELD), ZERO, out)
        if n == _BROKEN:
            return n
        held += n
    named = memory.read32(views.store + _FREE_DATAGRAM)
    listed = ZERO
    for _ in range(FRAGMENTS_MAX + 1):
        if named == ZERO or named > u64(FRAGMENTS_MAX):
            break
        named = memory.read32(fragments.datagram(views, named - ONE) + fragments.BUCKET_NEXT)
        listed += ONE
    if named != ZERO or listed != free:
        report(out, Finding.DATAGRAM_LOST, (free - listed) & LOW_32, u64(Assembly.FREE), named)
        return _BROKEN
    return held


@kernel
def audit(views, out):
    """Check F1 to F3 of a table that nobody is working on.

    Args:
        out: address of u64[4]: the Finding and its three numbers.

    Returns:
        True when nothing is broken.
    """
    held = _audit_datagrams(views, out)
    if held == _BROKEN:
        return False
    free = _walk(views, memory.read32(views.store + _FREE_FRAGMENT), _FREE, u64(Wait.FREE), ZERO, out)
    if free == _BROKEN:
        return False
    ready = ZERO
    for i in range(ROSTER_MAX):
        owner = u64(i) + ONE
        at = fragments.holder(views, owner)
        if memory.read64(at) == ZERO:
            continue
        n = _walk(views, memory.read32(at + _READY), _OF_HOLDER, u64(Wait.READY), owner, out)
        if n == _BROKEN:
            return False
        ready += n
        if memory.read32(at + _HELD) != _words(views, ZERO, owner):
            return report(out, Finding.FRAGMENT_COUNT, owner, memory.read32(at + _HELD), _words(views, ZERO, owner))
    used = _words(views, ZERO, ZERO)
    if fragments.count(views) != used:
        return report(out, Finding.FRAGMENT_COUNT, ZERO, fragments.count(views), used)
    taken = _words(views, u64(Wait.TAKEN), ZERO)
    if free + used != u64(FRAGMENTS_MAX) or held + ready + taken != used:
        return report(out, Finding.FRAGMENT_LOST, free, held, ready)
    return True
