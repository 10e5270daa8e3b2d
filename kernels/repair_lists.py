"""The free lists of the dead: each record on one list, once, whichever store was the last.

A list is cut off in the middle of a push, of a pop, or of a chain's way from or to the pool.  What tells how far that came
is the top: a record that was just pushed, or is about to be popped, is the first of front or of back, and any other that
is free and whose owner died over it is on no list yet.  So nothing may be pushed before ``mend``, nor one record after
another without saying in between that the first is done.
"""

from __future__ import annotations

from ..shm.layout import PARTICIPANT, POOL_OWNER_SHIFT, Life, Slab, offset
from . import entries, memory
from .jit import inlined, kernel
from .words import FOUR, LOW_32, ONE, THREE, ZERO, u64

_FRONT = offset(PARTICIPANT, "front")
_FRONT_COUNT = offset(PARTICIPANT, "front_count")
_BACK = offset(PARTICIPANT, "back")
_OWNER_SHIFT = u64(POOL_OWNER_SHIFT)
_CHAIN = u64((1 << POOL_OWNER_SHIFT) - 1)
_ENTRIES, _EXTENSIONS = u64(Slab.ENTRIES), u64(Slab.EXTENSIONS)


@inlined
def _word(views, field, slab):
    return views.intent + field + slab * FOUR


@kernel
def _settle_pool(views, slab, front, back):
    """A chain between a list and the pool belongs to the list that begins with it, else to the pool."""
    for i in range(views.pool_words[slab]):
        word = views.pool[slab] + (u64(i) << THREE)
        chain = memory.acquire64(word)
        if chain >> _OWNER_SHIFT == views.me:
            first = chain & LOW_32
            memory.release64(word, ZERO if first == front or first == back else chain & _CHAIN)


@kernel
def mend(views, slab):
    """Bring the lists of one slab, and what of the pool is in their owner's name, to rest."""
    front = memory.read32(_word(views, _FRONT, slab))
    back = memory.read32(_word(views, _BACK, slab))
    if front == back and front != ZERO:  # on its way from one to the other; the back's count is the one that is right
        memory.release32(_word(views, _FRONT, slab), ZERO)
        front = ZERO
    _settle_pool(views, slab, front, back)
    count = ZERO
    for _ in range(views.records[slab]):
        if front == ZERO:
            break
        count += ONE
        front = memory.read32(entries.next_word(views, slab, front - ONE))
    memory.release32(_word(views, _FRONT_COUNT, slab), count)


@kernel
def _push_once(views, slab, record):
    first = record + ONE
    if memory.read32(_word(views, _FRONT, slab)) != first and memory.read32(_word(views, _BACK, slab)) != first:
        entries.push(views, slab, record)


@kernel
def unlink(views, entry):
    """Take the link to an extension back that the dead had not taken off its list yet; the record's lock is held."""
    first = memory.read32(_word(views, _FRONT, _EXTENSIONS))
    if first != ZERO and memory.read32(entry + entries.EXTENSION_LINK) == first:
        memory.release32(entry + entries.EXTENSION_LINK, ZERO)


@kernel
def release(views, record):
    """Free a record of the dead as ``entries.release`` does, or go on where the dead was killed in that."""
    entry = entries.address(views, record)
    extension = memory.read32(entry + entries.EXTENSION_LINK)
    if extension != ZERO:
        _push_once(views, _EXTENSIONS, extension - ONE)
        memory.release32(entry + entries.EXTENSION_LINK, ZERO)
    entries.set_due(views, record, entry, ZERO)
    incarnation = entries.incarnation_of(memory.read64(entry + entries.LIFE))
    memory.release64(entry + entries.LIFE, entries.life(Life.FREE, ZERO, incarnation))
    _push_once(views, _ENTRIES, record)
