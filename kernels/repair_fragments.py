"""The store of fragments after somebody died holding its lock: every fragment on one list again, each datagram refused.

Only the words of the fragments are believed: who holds each, and how far it has come.  Lists, counts and datagrams are made
anew from them, so whoever is killed over this can be followed by another who begins again.

    HELD     its datagram cannot be told any more: READY, refused
    READY    on the list of its holder
    TAKEN    of a living holder, who is answering it: it stays his
    FREE     on the free list
"""

from __future__ import annotations

from ..shm.layout import DATAGRAM, FRAGMENTS_MAX, ROSTER_MAX, Assembly, Wait, offset
from ..shm.reasons import Reason
from . import counters, fragments, memory
from .jit import kernel
from .words import FOUR, LOW_32, ONE, ZERO, u64

_OFFSET_GENERATION = offset(DATAGRAM, "generation")


@kernel
def settle(views):
    """Bring the store to rest, if the dead has its lock, and give that back.

    Args:
        views: record of shm.views of the dead.

    Concurrency:
        Beside all the living, one repairer at a time: what the dead has locked nobody else changes, but for fragments that
        their holders have TAKEN.
    """
    if not fragments.is_locked_by(views, views.me):
        return
    memory.seldom()
    fragments.empty_lists(views)
    for i in range(ROSTER_MAX):
        memory.release64(fragments.holder(views, u64(i) + ONE), ZERO)
    for i in range(FRAGMENTS_MAX):
        memory.release32(views.fragment_buckets + u64(i) * FOUR, ZERO)
        at = fragments.datagram(views, u64(i))
        fields = fragments.datagram_at(at)
        fields.state = u64(Assembly.FREE)
        fields.first = ZERO
        memory.release32(at + _OFFSET_GENERATION, (u64(fields.generation) + ONE) & LOW_32)
        fragments.push_free_datagram(views, u64(i))
    for i in range(FRAGMENTS_MAX):
        word = fragments.word_of(views, u64(i))
        wait = fragments.wait_of(word)
        owner = fragments.holder_of(word)
        if wait == u64(Wait.FREE):
            fragments.push_free_fragment(views, u64(i))
            continue
        fragments.add_to_counts(views, owner, ONE)
        if wait == u64(Wait.HELD):
            fragments.refusal(views, u64(i), ZERO, ZERO, u64(Reason.FRAGMENT_EXPIRED))
            counters.count(views, Reason.FRAGMENTS_EXPIRED)
        if wait != u64(Wait.TAKEN):
            fragments.set_word(views, u64(i), fragments.word(fragments.generation_of(word), owner, Wait.READY))
            fragments.push_ready(views, u64(i), owner)
    fragments.set_due(views, ZERO)  # whoever looks next finds out
    fragments.unlock(views)
