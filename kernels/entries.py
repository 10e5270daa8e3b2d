"""The slabs of records: who has which free record, and the life of a connection's record.

Who may                       while                      sees
    take, push     the owner of the list, nobody beside  its own lists; the pool's words by swap
    mark           anyone     holding the record's lock  LIVE -> DEAD | me, once
    release        who cleared the record's slots        DEAD | me -> FREE, on its own list

A free record is linked through its ``next`` word.  A participant has two lists per slab, *front* (taken from and given to)
and *back*; each has at most BLOCK_RECORDS.  When front is full it becomes back, and a back that is in the way goes to the
pool as one chain; when front is empty back becomes front, and when both are, a chain is taken from the pool.  So a chain
moves once in BLOCK_RECORDS operations, and records that one participant frees and another needs find their way.  The
count of an empty list means nothing.

The pool's words (owner 16 | count 16 | first record + 1)
    0            -> chain | me    put: then own list emptied, then owner 0
    chain        -> chain | me    take: then own list filled, then 0
    A word with a dead owner belongs to the dead's list if that list begins with the chain, else to the pool.

life (incarnation 32 | owner << 8 | state)
    FREE -> NEW | me      take      incarnation + 1; who holds it writes key and contents
    NEW  -> LIVE          index     after all slots: the commit point of an insert
    LIVE -> DEAD | me     mark      under the record's lock: the commit point of a delete
    DEAD -> FREE          release   after all its slots are cleared, by who cleared them
    NEW  -> FREE          release   by its owner
  never DEAD -> LIVE, nor FREE while a slot names the record.

A block of the slab is swept by whom ``blocks`` names: the first who took a chain from it, or who adopted it (kernels/sweep).
"""

from __future__ import annotations

from ..shm.layout import (
    BLOCK_RECORDS,
    DUE_UNIT_MS,
    ENTRY,
    ENTRY_BYTES,
    EXTENSION,
    EXTENSION_BYTES,
    HELPER_STATE_BYTES,
    KEY_WORDS,
    LINE_BYTES,
    NO_RECORD,
    PARTICIPANT,
    POOL_COUNT_SHIFT,
    POOL_OWNER_SHIFT,
    Life,
    Slab,
    Step,
    offset,
)
from . import intents, memory
from .jit import inlined, kernel
from .words import FOUR, LOW_8, LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, THREE, ZERO, u64

NONE = u64(NO_RECORD)
"""No record: none left, none found."""

LIFE = offset(ENTRY, "life")
EXPIRY = offset(ENTRY, "expiry_ms")
LOCK = offset(ENTRY, "lock")
STATUS = offset(ENTRY, "status")
HINT = offset(ENTRY, "hint")
PROTOCOL = offset(ENTRY, "protocol")
EXTENSION_LINK = offset(ENTRY, "extension")

assert offset(ENTRY, "state") == STATUS + 2 and offset(ENTRY, "policy") == STATUS + 3

_SIZE = u64(ENTRY_BYTES)
_EXTENSION_SIZE = u64(EXTENSION_BYTES)
_NEXT = offset(ENTRY, "next")
_EXTENSION_NEXT = offset(EXTENSION, "next")
_LABEL, _HELPER_STATE = offset(EXTENSION, "label"), offset(EXTENSION, "helper_state")
_REPLY_KEY_LAST = offset(EXTENSION, "reply_key") + u64(8 * (KEY_WORDS - 1))
"""Offset in an extension of the word that is never 0 in a key."""
_FRONT = offset(PARTICIPANT, "front")
_FRONT_COUNT = offset(PARTICIPANT, "front_count")
_BACK = offset(PARTICIPANT, "back")
_BACK_COUNT = offset(PARTICIPANT, "back_count")
_POOL_HINT = offset(PARTICIPANT, "pool_hint")
_BLOCK = u64(BLOCK_RECORDS)
_OWNER_SHIFT = u64(POOL_OWNER_SHIFT)
CHAIN_COUNT_SHIFT = u64(POOL_COUNT_SHIFT)
_LIFE_OWNER_SHIFT = u64(8)
_DUE_UNIT = u64(DUE_UNIT_MS)
_LINE = u64(LINE_BYTES)
_ENTRIES = u64(Slab.ENTRIES)

entry_at = memory.record_at(ENTRY)
extension_at = memory.record_at(EXTENSION)


@inlined
def address(views, record):
    """Return the address of an entry."""
    return views.entries + record * _SIZE


@inlined
def outline(entry):
    """Return status 16 | state 8 | policy 8 of an entry: what a packet may change and people are told of."""
    return memory.le32(entry + STATUS)


@inlined
def extension_address(views, extension):
    """Return the address of an extension record."""
    return views.extensions + extension * _EXTENSION_SIZE


# ------------------------------------------------------------------------------------------------ life
@inlined
def life(state, owner, incarnation):
    """Return a life word."""
    return (incarnation << THIRTY_TWO) | (owner << _LIFE_OWNER_SHIFT) | u64(state)


@inlined
def state_of(word):
    """Return the Life of a life word."""
    return word & LOW_8


@inlined
def owner_of(word):
    """Return the owner of a life word that is NEW or DEAD."""
    return (word >> _LIFE_OWNER_SHIFT) & LOW_16


@inlined
def incarnation_of(word):
    """Return the incarnation of a life word."""
    return word >> THIRTY_TWO


# ------------------------------------------------------------------------------------------------ expiry
@inlined
def due_units(expiry_ms):
    """Return a moment in units of ``due[]``, rounded down: a hint is never later than the expiry; 0 would mean free."""
    units = min(expiry_ms // _DUE_UNIT, LOW_32)  # cut off instead, a far moment could look free
    return units if units != ZERO else ONE


@inlined
def set_expiry(views, record, entry, expiry_ms):
    """Set when a record expires, and lower its hint if that is later now; the record's lock is held.

    The hint stands in the entry too, so the dense array is touched only when life really became shorter than it says.
    """
    memory.write64(entry + EXPIRY, expiry_ms)
    if expiry_ms // _DUE_UNIT < memory.read32(entry + HINT):
        set_due(views, record, entry, due_units(expiry_ms))


@inlined
def set_due(views, record, entry, units):
    """Write a record's hint; only under its lock, in state NEW, or by who frees it."""
    memory.write32(entry + HINT, units)
    memory.write32(views.due + record * FOUR, units)


# ------------------------------------------------------------------------------------------------ free lists
@inlined
def next_word(views, slab, record):
    """Return the address of the word that links a free record to the next of its list."""
    if slab == _ENTRIES:
        return address(views, record) + _NEXT
    return extension_address(views, record) + _EXTENSION_NEXT


@inlined
def _list(views, field, slab):
    return views.intent + field + slab * FOUR


@kernel
def _claim_block(views, slab, record):
    """Become the sweeper of the block that ``record`` is in, if nobody is."""
    block = views.blocks + (record // _BLOCK) * FOUR
    if slab == _ENTRIES and memory.acquire32(block) == ZERO:
        memory.swap32(block, ZERO, views.me)


@kernel
def _take_chain(views, slab):
    """Fill the empty front list with a chain of the pool; False when there is none."""
    words = views.pool_words[slab]
    mine = views.me << _OWNER_SHIFT
    hint = _list(views, _POOL_HINT, slab)
    at = memory.read32(hint)
    for _ in range(words):
        word = views.pool[slab] + (at << THREE)
        at = at + ONE if at + ONE < words else ZERO
        chain = memory.acquire64(word)
        if chain == ZERO or chain >> _OWNER_SHIFT != ZERO:
            continue
        if memory.swap64(word, chain, chain | mine):
            memory.release32(_list(views, _FRONT_COUNT, slab), (chain >> CHAIN_COUNT_SHIFT) & LOW_16)
            memory.release32(_list(views, _FRONT, slab), chain & LOW_32)
            memory.release64(word, ZERO)
            memory.write32(hint, at)
            _claim_block(views, slab, (chain & LOW_32) - ONE)
            return True
    return False


@kernel
def put_chain(views, slab, first, count):
    """Hand the back list, which begins with ``first`` (index + 1), to the pool; False when the pool has no word free."""
    words = views.pool_words[slab]
    chain = (count << CHAIN_COUNT_SHIFT) | first
    for i in range(words):
        word = views.pool[slab] + (((first // _BLOCK) + u64(i)) % words << THREE)
        if memory.acquire64(word) == ZERO and memory.swap64(word, ZERO, chain | (views.me << _OWNER_SHIFT)):
            memory.release32(_list(views, _BACK, slab), ZERO)
            memory.release64(word, chain)
            return True
    return False


@kernel
def _refill(views, slab):
    """Bring records to the empty front list: from back, else from the pool; False when there are none."""
    back = memory.read32(_list(views, _BACK, slab))
    if back == ZERO:
        return _take_chain(views, slab)
    memory.release32(_list(views, _FRONT_COUNT, slab), memory.read32(_list(views, _BACK_COUNT, slab)))
    memory.release32(_list(views, _FRONT, slab), back)
    memory.release32(_list(views, _BACK, slab), ZERO)
    return True


@inlined
def _pop(views, slab, first):
    """Take the top record, ``first`` (index + 1), off the front list, and fetch the one that is on top then."""
    following = memory.read32(next_word(views, slab, first - ONE))
    if following != ZERO and slab == _ENTRIES:
        upcoming = address(views, following - ONE)
        memory.prefetch(upcoming)
        memory.prefetch(upcoming + _LINE)
        memory.prefetch(upcoming + _LINE + _LINE)
        memory.prefetch(views.due + (following - ONE) * FOUR)
    elif following != ZERO:
        memory.prefetch(extension_address(views, following - ONE))
        memory.prefetch(extension_address(views, following - ONE) + _LINE)
    count = _list(views, _FRONT_COUNT, slab)
    memory.release32(_list(views, _FRONT, slab), following)
    memory.release32(count, memory.read32(count) - ONE)


@kernel
def push(views, slab, record):
    """Put a free record on the front list, and make room in it when it is full."""
    count_word = _list(views, _FRONT_COUNT, slab)
    front_word = _list(views, _FRONT, slab)
    memory.write32(next_word(views, slab, record), memory.read32(front_word))
    memory.release32(front_word, record + ONE)
    count = memory.read32(count_word) + ONE
    memory.release32(count_word, count)
    if count < _BLOCK:
        return
    back_word = _list(views, _BACK, slab)
    back = memory.read32(back_word)
    if back != ZERO and not put_chain(views, slab, back, memory.read32(_list(views, _BACK_COUNT, slab))):
        return  # no word free in the pool: the list simply grows
    memory.release32(_list(views, _BACK_COUNT, slab), count)
    memory.release32(back_word, memory.read32(front_word))
    memory.release32(front_word, ZERO)
    memory.release32(count_word, ZERO)


@kernel
def take(views):
    """Take a free record and make it NEW.

    Returns:
        The record's index, or NONE when the slab has none for this participant.

    Concurrency:
        The own list has one writer.  Intent: ALLOC, record.
    """
    first = memory.read32(_list(views, _FRONT, _ENTRIES))
    if first == ZERO:
        if not _refill(views, _ENTRIES):
            return NONE
        first = memory.read32(_list(views, _FRONT, _ENTRIES))
    record = first - ONE
    entry = address(views, record)
    intents.set_record(views, record, Step.ALLOC)
    word = memory.acquire64(entry + LIFE)
    memory.release64(entry + LIFE, life(Life.NEW, views.me, (incarnation_of(word) + ONE) & LOW_32))
    _pop(views, _ENTRIES, first)
    return record


@kernel
def take_extension(views, record):
    """Give a record an extension; False when there is none left.

    The intent names the record, which is NEW (ALLOC) or whose lock is held (CHANGE).
    """
    slab = u64(Slab.EXTENSIONS)
    first = memory.read32(_list(views, _FRONT, slab))
    if first == ZERO:
        if not _refill(views, slab):
            return False
        first = memory.read32(_list(views, _FRONT, slab))
    extension = extension_address(views, first - ONE)
    memory.write64(extension + _REPLY_KEY_LAST, ZERO)  # its last owner may have had one, and a label, and a helper
    memory.set_bytes(extension + _LABEL, ZERO, SIXTEEN)
    memory.set_bytes(extension + _HELPER_STATE, ZERO, u64(HELPER_STATE_BYTES))
    # before it leaves the list: repair finds it on top
    memory.release32(address(views, record) + EXTENSION_LINK, first)
    _pop(views, slab, first)
    return True


@inlined
def with_extension(views, record):
    """Give a record an extension if it has none, as ``take_extension`` does; False when there is none left."""
    if memory.read32(address(views, record) + EXTENSION_LINK) != ZERO:
        return True
    return take_extension(views, record)


@inlined
def extension_of(views, entry):
    """Return the address of the extension of an entry that has one."""
    return extension_address(views, memory.read32(entry + EXTENSION_LINK) - ONE)


@kernel
def release(views, record):
    """Free a NEW or DEAD record of ours that no slot names and no count holds, and its extension; step NONE after it."""
    entry = address(views, record)
    extension = memory.read32(entry + EXTENSION_LINK)
    if extension != ZERO:
        push(views, u64(Slab.EXTENSIONS), extension - ONE)
        memory.release32(entry + EXTENSION_LINK, ZERO)
    set_due(views, record, entry, ZERO)
    word = memory.read64(entry + LIFE)
    memory.release64(entry + LIFE, life(Life.FREE, ZERO, incarnation_of(word)))
    push(views, _ENTRIES, record)


@inlined
def second_key(views, entry):
    """Return the address of a record's reply key, or 0 when it has one key for both directions."""
    extension = memory.read32(entry + EXTENSION_LINK)
    if extension == ZERO:
        return ZERO
    reply = extension_address(views, extension - ONE)
    return reply if memory.read64(reply + _REPLY_KEY_LAST) != ZERO else ZERO
