"""Verdicts that come late: of fragments that waited, to the participant that holds them.

    collect    take the fragments whose verdict has come; they are the caller's until it collects again
    expire     refuse datagrams that were not completed in time, and give up verdicts that nobody collects
    abandon    leave: whoever holds fragments gives them up, and refuses the datagrams that miss them now

A datagram expires by the clock of who received its first fragment, since in a replay each worker has its own; for others it
does so ``purge_ms`` later.

Concurrency: beside all others.  Collecting costs one load while the participant holds no fragment, and two or three while
none of its verdicts has come.
"""

from __future__ import annotations

from ..shm.layout import BURST_PACKETS_MAX, FRAGMENTS_MAX, REASSEMBLY, Assembly, CtState, Wait, offset
from ..shm.reasons import Reason
from . import counters, fragments, memory, zone_reasons
from .jit import inlined, kernel
from .verdicts import verdict_at
from .words import ONE, TWO, ZERO, u64

scratch_at = memory.record_at(REASSEMBLY)

_LATE = offset(REASSEMBLY, "late")
_READY = u64(Wait.READY)
_EXPIRED = u64(Reason.FRAGMENT_EXPIRED)
LATE_MAX = BURST_PACKETS_MAX
"""Verdicts that are collected at once."""


@inlined
def number_of(views, k):
    """Return the fragment that stands in place ``k`` of those collected."""
    return memory.le32(views.scratch + _LATE + (k << TWO))


@kernel
def _purge(views, now_ms):
    """Give up fragments whose verdict nobody has collected; returns when the next would be."""
    due_ms = fragments.NEVER
    for i in range(FRAGMENTS_MAX):
        word = fragments.word_of(views, u64(i))
        if fragments.wait_of(word) != _READY:
            continue
        purge_ms = u64(fragments.fragment_at(fragments.fragment(views, u64(i))).purge_ms)
        if purge_ms <= now_ms:
            fragments.leave_ready(views, u64(i), fragments.holder_of(word))
            fragments.free_fragment(views, u64(i))
            counters.count(views, Reason.FRAGMENTS_PURGED)
        else:
            due_ms = min(due_ms, purge_ms)
    return due_ms


@kernel
def expire(views, now_ms):
    """Refuse what was not completed in time; the store is locked."""
    memory.seldom()
    due_ms = fragments.NEVER
    patience_ms = u64(fragments.store_at(views.store).purge_ms)
    for i in range(FRAGMENTS_MAX):
        fields = fragments.datagram_at(fragments.datagram(views, u64(i)))
        state = u64(fields.state)
        expiry_ms = u64(fields.expiry_ms)
        if state == u64(Assembly.FREE) or expiry_ms == fragments.NEVER:
            continue
        if u64(fields.owner) != views.me:
            expiry_ms += patience_ms
        if expiry_ms > now_ms:
            due_ms = min(due_ms, u64(fields.expiry_ms))
        else:
            fragments.refuse_all(views, u64(i), _EXPIRED, now_ms + patience_ms)
    fragments.set_due(views, min(due_ms, _purge(views, now_ms)))


@kernel
def _collect(views, now_ms):
    memory.seldom()
    scratch = scratch_at(views.scratch)
    if not fragments.lock(views):
        return ZERO
    for k in range(u64(scratch.late_count)):
        fragments.free_fragment(views, number_of(views, u64(k)))
    if now_ms >= fragments.due_ms(views):
        expire(views, now_ms)
    n = ZERO
    for _ in range(LATE_MAX):
        first = fragments.pop_ready(views)
        if first == ZERO:
            break
        word = fragments.word_of(views, first - ONE)
        fragments.set_word(views, first - ONE, fragments.word(fragments.generation_of(word), views.me, Wait.TAKEN))
        memory.set_le32(views.scratch + _LATE + (n << TWO), first - ONE)
        n += ONE
    scratch.late_count = n
    scratch.late_next = ZERO
    fragments.unlock(views)
    for k in range(n):
        verdict = verdict_at(fragments.fragment(views, number_of(views, u64(k))) + fragments.VERDICT)
        reason = u64(verdict.reason)
        if reason != ZERO:
            counters.count(views, reason)
            zone_reasons.count(views, u64(verdict.zone), reason)
        if u64(verdict.ct_state) & u64(CtState.INV) != ZERO:
            counters.count(views, Reason.INVALID)
    return n


@inlined
def collect(views, now_ms):
    """Give back the fragments that were collected before, and take those whose verdict has come since.

    Args:
        views: record of shm.views.
        now_ms: u64.

    Returns:
        How many, at most LATE_MAX; `number_of` says which.  Their FRAGMENT and buffer are the caller's until it calls again,
        which it does until there are none.
    """
    if not fragments.waits_for(views):
        return ZERO
    if u64(scratch_at(views.scratch).late_count) == ZERO and not fragments.has_ready(views):
        if now_ms < fragments.due_ms(views):
            return ZERO
    return _collect(views, now_ms)


@kernel
def next_one(views, now_ms):
    """Return the next of the fragments collected + 1, having collected if there was none left; 0 when there is none."""
    memory.seldom()
    scratch = scratch_at(views.scratch)
    if u64(scratch.late_next) >= u64(scratch.late_count) and collect(views, now_ms) == ZERO:
        return ZERO
    k = u64(scratch.late_next)
    scratch.late_next = k + ONE
    return number_of(views, k) + ONE


@kernel
def _misses_ours(views, number):
    """Return whether a datagram has a fragment of this participant, or its verdict was this participant's to give."""
    fields = fragments.datagram_at(fragments.datagram(views, number))
    if u64(fields.state) == u64(Assembly.WHOLE) and u64(fields.owner) == views.me:
        return True
    following = u64(fields.first)
    for _ in range(FRAGMENTS_MAX):
        if following == ZERO:
            break
        if fragments.holder_of(fragments.word_of(views, following - ONE)) == views.me:
            return True
        following = memory.read32(fragments.fragment(views, following - ONE) + fragments.NEXT)
    return False


@kernel
def abandon(views):
    """Give up all fragments that this participant holds.

    Args:
        views: record of shm.views of one who leaves, or is dead.

    Returns:
        False when the store's lock was not had in time.
    """
    # under the lock even to see that there are none: while a death over it is repaired, nobody is counted as a holder
    if not fragments.lock(views):
        return False
    if not fragments.waits_for(views):
        fragments.unlock(views)
        return True
    for i in range(FRAGMENTS_MAX):
        state = u64(fragments.datagram_at(fragments.datagram(views, u64(i))).state)
        if state != u64(Assembly.FREE) and _misses_ours(views, u64(i)):
            fragments.refuse_all(views, u64(i), _EXPIRED, ZERO)
    for i in range(FRAGMENTS_MAX):
        word = fragments.word_of(views, u64(i))
        if fragments.wait_of(word) != u64(Wait.FREE) and fragments.holder_of(word) == views.me:
            if fragments.wait_of(word) == _READY:
                fragments.leave_ready(views, u64(i), views.me)
            fragments.free_fragment(views, u64(i))
            counters.count(views, Reason.FRAGMENTS_PURGED)
    fragments.unlock(views)
    return True
