"""The store of fragments: datagrams that are not complete, by their key, and the fragments that there are of them.

    bucket -> DATAGRAM -> FRAGMENT -> FRAGMENT ...     in order of their offsets; the frame of each is in its buffer
              HOLDER   -> FRAGMENT ...                 whose verdict has come, until the holder collects it

A datagram ends when it is whole, refused or expired; its fragments then wait with their verdicts for those who hold them,
each for the participant that received it, since only that one can send it on.

Who may                 while                               sees
    anything here       holding the store's lock            all of it
    waits_for           anyone                              whether this participant holds a fragment

Invariants
    F1  FRAGMENT.word says what a fragment is: FREE on the free list, HELD on the list of one datagram, READY on the list of
        its holder, TAKEN on none.  All lists and counts follow from these words, so repair makes them anew.
    F2  STORE.count is the fragments that are not FREE, HOLDER.held those of one participant.
    F3  A datagram is OPEN or FAILED in the bucket of its key, WHOLE in none; its generation grows when it ends.

Ordering
    The lock orders everything.  A word is stored before the lists that follow from it (release; see kernels/intents).
"""

from __future__ import annotations

from ..shm.layout import (
    DATAGRAM,
    DATAGRAM_BYTES,
    FRAGMENT,
    FRAGMENT_BYTES,
    FRAGMENT_GENERATION_SHIFT,
    FRAGMENT_HOLDER_SHIFT,
    FRAGMENTS_MAX,
    FRAME_SLOT_BYTES,
    HOLDER,
    HOLDER_BYTES,
    NO_RECORD,
    STORE,
    VERDICT_BYTES,
    Assembly,
    CtState,
    Step,
    Wait,
    offset,
)
from ..shm.reasons import Reason
from . import counters, intents, locks, memory, tuples
from .jit import inlined, kernel
from .verdicts import verdict_at
from .words import FOUR, LOW_8, LOW_16, LOW_32, ONE, ZERO, u64

store_at = memory.record_at(STORE)
datagram_at = memory.record_at(DATAGRAM)
fragment_at = memory.record_at(FRAGMENT)

BUFFER = u64(FRAME_SLOT_BYTES)
NEVER = u64(0xFFFFFFFFFFFFFFFF)
_DATAGRAM, _FRAGMENT, _HOLDER, _VERDICT = (
    u64(DATAGRAM_BYTES),
    u64(FRAGMENT_BYTES),
    u64(HOLDER_BYTES),
    u64(VERDICT_BYTES),
)
_LOCK, _COUNT, _DUE = offset(STORE, "lock"), offset(STORE, "count"), offset(STORE, "due_ms")
_FREE_FRAGMENT, _FREE_DATAGRAM = offset(STORE, "free_fragment"), offset(STORE, "free_datagram")
_HELD, _READY = offset(HOLDER, "held"), offset(HOLDER, "ready")
KEY, BUCKET_NEXT = offset(DATAGRAM, "key"), offset(DATAGRAM, "next")
FIRST = offset(DATAGRAM, "first")
_WORD, NEXT, VERDICT = offset(FRAGMENT, "word"), offset(FRAGMENT, "next"), offset(FRAGMENT, "verdict")
_BUCKETS_MASK = u64(FRAGMENTS_MAX - 1)
_GENERATION_SHIFT, _HOLDER_SHIFT = u64(FRAGMENT_GENERATION_SHIFT), u64(FRAGMENT_HOLDER_SHIFT)
assert FRAGMENTS_MAX & (FRAGMENTS_MAX - 1) == 0


# ------------------------------------------------------------------------------------------------ addresses and words
@inlined
def datagram(views, number):
    """Return the address of a DATAGRAM."""
    return views.datagrams + number * _DATAGRAM


@inlined
def fragment(views, number):
    """Return the address of a FRAGMENT."""
    return views.fragments + number * _FRAGMENT


@inlined
def buffer(views, number):
    """Return the address of the frame of a fragment."""
    return views.buffers + number * BUFFER


@inlined
def word(generation, holder, wait):
    """Return the word of a fragment."""
    return (generation << _GENERATION_SHIFT) | (holder << _HOLDER_SHIFT) | u64(wait)


@inlined
def word_of(views, number):
    """Return the word of a fragment as it is."""
    return memory.acquire64(fragment(views, number) + _WORD)


@inlined
def wait_of(word_):
    """Return the Wait in a fragment's word."""
    return word_ & LOW_8


@inlined
def holder_of(word_):
    """Return the owner id in a fragment's word."""
    return (word_ >> _HOLDER_SHIFT) & LOW_16


@inlined
def generation_of(word_):
    """Return the generation in a fragment's word."""
    return word_ >> _GENERATION_SHIFT


@inlined
def set_word(views, number, word_):
    """Say what a fragment is from now on."""
    memory.release64(fragment(views, number) + _WORD, word_)


@inlined
def holder(views, owner):
    """Return the address of a HOLDER."""
    return views.holders + (owner - ONE) * _HOLDER


@inlined
def waits_for(views):
    """Return whether this participant holds any fragment: one load."""
    return memory.acquire64(holder(views, views.me)) != ZERO


@inlined
def has_ready(views):
    """Return whether a verdict has come for a fragment that this participant holds."""
    return memory.acquire32(holder(views, views.me) + _READY) != ZERO


@inlined
def due_ms(views):
    """Return the moment before which nothing in the store expires."""
    return memory.acquire64(views.store + _DUE)


@inlined
def set_due(views, moment_ms):
    """Set that moment."""
    memory.release64(views.store + _DUE, moment_ms)


@inlined
def bring_due(views, moment_ms):
    """Bring it forward, if it is later."""
    if moment_ms < due_ms(views):
        set_due(views, moment_ms)


@inlined
def count(views):
    """Return how many fragments wait."""
    return memory.read32(views.store + _COUNT)


# ------------------------------------------------------------------------------------------------ lock
@kernel
def lock(views):
    """Take the store's lock; False when it was not had in time."""
    intents.set_step(views, Step.FRAGMENTS)
    if locks.take(views.store + _LOCK, views.me):
        return True
    intents.done(views)
    return False


@inlined
def unlock(views):
    """Give it back."""
    locks.drop(views.store + _LOCK)
    intents.done(views)


@inlined
def lock_address(views):
    """Return the address of the lock."""
    return views.store + _LOCK


@inlined
def is_locked_by(views, owner):
    """Return whether a participant has the lock."""
    return memory.acquire32(lock_address(views)) == owner


# ------------------------------------------------------------------------------------------------ lists
@inlined
def push(head, records, size, link, number):
    """Put a record in front of the list whose first + 1 stands at address ``head``."""
    memory.write32(records + number * size + link, memory.read32(head))
    memory.release32(head, number + ONE)


@inlined
def _pop(head, records, size, link):
    """Take the first record of a list; returns it + 1, or 0."""
    first = memory.read32(head)
    if first != ZERO:
        memory.release32(head, memory.read32(records + (first - ONE) * size + link))
    return first


@inlined
def push_free_fragment(views, number):
    """Put a fragment on the free list."""
    push(views.store + _FREE_FRAGMENT, views.fragments, _FRAGMENT, NEXT, number)


@inlined
def push_free_datagram(views, number):
    """Put a datagram on the free list."""
    push(views.store + _FREE_DATAGRAM, views.datagrams, _DATAGRAM, BUCKET_NEXT, number)


@inlined
def push_ready(views, number, owner):
    """Put a fragment on the list of its holder."""
    push(holder(views, owner) + _READY, views.fragments, _FRAGMENT, NEXT, number)


@inlined
def pop_ready(views):
    """Take the next own fragment whose verdict has come; returns it + 1, or 0."""
    return _pop(holder(views, views.me) + _READY, views.fragments, _FRAGMENT, NEXT)


@inlined
def add_to_counts(views, owner, amount):
    """Count a fragment more, or with 2**32 - 1 one less."""
    held = holder(views, owner) + _HELD
    memory.release32(held, (memory.read32(held) + amount) & LOW_32)
    memory.release32(views.store + _COUNT, (memory.read32(views.store + _COUNT) + amount) & LOW_32)


@inlined
def empty_lists(views):
    """Forget all lists and counts: what the words of the fragments say is to be put on them anew."""
    memory.release32(views.store + _FREE_FRAGMENT, ZERO)
    memory.release32(views.store + _FREE_DATAGRAM, ZERO)
    memory.release32(views.store + _COUNT, ZERO)


# ------------------------------------------------------------------------------------------------ one fragment
@inlined
def new_fragment(views):
    """Return a fragment + 1 of ours, HELD but on no list yet; 0 when there is none."""
    first = _pop(views.store + _FREE_FRAGMENT, views.fragments, _FRAGMENT, NEXT)
    if first != ZERO:
        set_word(views, first - ONE, word(generation_of(word_of(views, first - ONE)), views.me, Wait.HELD))
        add_to_counts(views, views.me, ONE)
    return first


@kernel
def free_fragment(views, number):
    """Free a fragment that is on no list."""
    before = word_of(views, number)
    set_word(views, number, word((generation_of(before) + ONE) & LOW_32, ZERO, Wait.FREE))
    add_to_counts(views, holder_of(before), LOW_32)
    push_free_fragment(views, number)


@kernel
def refusal(views, number, zone, protocol, reason):
    """Write into a fragment the verdict that its datagram is refused."""
    verdict = verdict_at(fragment(views, number) + VERDICT)
    verdict.ct_state = u64(CtState.INV) | u64(CtState.TRK)
    verdict.reason = reason
    verdict.direction = ZERO
    verdict.flags = ZERO
    verdict.zone = zone
    verdict.protocol = protocol
    verdict.state = ZERO
    verdict.record = u64(NO_RECORD)
    verdict.incarnation = ZERO
    verdict.mark = ZERO
    verdict.timeout_ms = ZERO


@inlined
def make_ready(views, number, patient_until_ms):
    """Give a fragment, in which its verdict stands, to its holder, who has until that moment at least to collect it."""
    before = word_of(views, number)
    fields = fragment_at(fragment(views, number))
    fields.purge_ms = max(u64(fields.purge_ms), patient_until_ms)
    set_word(views, number, word(generation_of(before), holder_of(before), Wait.READY))
    push_ready(views, number, holder_of(before))
    bring_due(views, u64(fields.purge_ms))


@kernel
def leave_ready(views, number, owner):
    """Take a fragment off the list of its holder."""
    link = holder(views, owner) + _READY
    for _ in range(FRAGMENTS_MAX):
        if memory.read32(link) == number + ONE:
            memory.release32(link, memory.read32(fragment(views, number) + NEXT))
            return
        link = fragment(views, memory.read32(link) - ONE) + NEXT


# ------------------------------------------------------------------------------------------------ one datagram
@inlined
def bucket(views, key):
    """Return the address of the bucket of a key."""
    return views.fragment_buckets + ((tuples.hash_key(views, key) & _BUCKETS_MASK) * FOUR)


@kernel
def find(views, key):
    """Return the datagram + 1 whose key equals the one at an address, or 0."""
    number = memory.read32(bucket(views, key))
    for _ in range(FRAGMENTS_MAX):
        if number == ZERO or tuples.equal(datagram(views, number - ONE) + KEY, key):
            break
        number = memory.read32(datagram(views, number - ONE) + BUCKET_NEXT)
    return number


@kernel
def new_datagram(views, key, expiry_ms, ovs):
    """Return an empty datagram + 1 in the bucket of its key, 0 when there is none."""
    first = _pop(views.store + _FREE_DATAGRAM, views.datagrams, _DATAGRAM, BUCKET_NEXT)
    if first == ZERO:
        return first
    at = datagram(views, first - ONE)
    tuples.copy_key(at + KEY, key)
    fields = datagram_at(at)
    fields.expiry_ms = expiry_ms
    fields.state = u64(Assembly.OPEN)
    fields.ovs = ovs
    fields.owner = views.me
    fields.first = ZERO
    fields.end = ZERO
    fields.bytes = ZERO
    fields.total = ZERO
    push(bucket(views, key), views.datagrams, _DATAGRAM, BUCKET_NEXT, first - ONE)
    bring_due(views, expiry_ms)
    return first


@kernel
def leave_bucket(views, number):
    """Take a datagram out of its bucket."""
    at = datagram(views, number)
    link = bucket(views, at + KEY)
    for _ in range(FRAGMENTS_MAX):
        if memory.read32(link) == number + ONE:
            memory.release32(link, memory.read32(at + BUCKET_NEXT))
            return
        link = datagram(views, memory.read32(link) - ONE) + BUCKET_NEXT


@inlined
def free_datagram(views, number):
    """Free a datagram that has no fragments and is in no bucket."""
    fields = datagram_at(datagram(views, number))
    fields.state = u64(Assembly.FREE)
    fields.generation = (u64(fields.generation) + ONE) & LOW_32
    push_free_datagram(views, number)


@kernel
def _refuse_fragments(views, number, reason, patient_until_ms):
    """Give all fragments of a datagram the verdict that it is refused."""
    at = datagram(views, number)
    zone, protocol = tuples.zone_of(at + KEY), tuples.protocol_of(at + KEY)
    refused = ZERO
    following = memory.read32(at + FIRST)
    for _ in range(FRAGMENTS_MAX):
        if following == ZERO:
            break
        fragment_number = following - ONE
        following = memory.read32(fragment(views, fragment_number) + NEXT)
        refusal(views, fragment_number, zone, protocol, reason)
        make_ready(views, fragment_number, patient_until_ms)
        refused += ONE
    memory.release32(at + FIRST, ZERO)
    if reason == u64(Reason.FRAGMENT_EXPIRED):
        counters.add(views, Reason.FRAGMENTS_EXPIRED, refused)


@kernel
def refuse_all(views, number, reason, patient_until_ms):
    """Refuse a datagram, and free it; for ``patient_until_ms`` see `make_ready`."""
    memory.seldom()
    if u64(datagram_at(datagram(views, number)).state) != u64(Assembly.WHOLE):
        leave_bucket(views, number)
    _refuse_fragments(views, number, reason, patient_until_ms)
    free_datagram(views, number)


@kernel
def fail(views, number, reason):
    """Refuse a datagram; by the rules of `ovs` also what else comes of it, until it would have expired."""
    memory.seldom()
    fields = datagram_at(datagram(views, number))
    if u64(fields.ovs) == ZERO:
        refuse_all(views, number, reason, ZERO)
    else:
        _refuse_fragments(views, number, reason, ZERO)
        fields.state = u64(Assembly.FAILED)


@kernel
def settle_all(views, number, verdict):
    """Give all fragments of a WHOLE datagram the verdict at an address, and free the datagram."""
    at = datagram(views, number)
    following = memory.read32(at + FIRST)
    for _ in range(FRAGMENTS_MAX):
        if following == ZERO:
            break
        fragment_number = following - ONE
        following = memory.read32(fragment(views, fragment_number) + NEXT)
        memory.copy(fragment(views, fragment_number) + VERDICT, verdict, _VERDICT)
        make_ready(views, fragment_number, ZERO)
    memory.release32(at + FIRST, ZERO)
    free_datagram(views, number)
