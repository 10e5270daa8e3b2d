"""Which rules a worker goes by: the latest that were published, looked at between bursts (shm/rulebook has the protocol).

Ordering
    A1  acquire load of `published`                     pairs with R1: the generation before its name
    F2  full fence between the store of the acknowledged word and the second load of `published`; who publishes writes a slot
        only after a look at all acknowledged words, which comes after the store of `published`
"""

from __future__ import annotations

from ..shm.layout import GENERATION_BYTES_MAX, HIT_BYTES
from . import memory
from .classify import generation_at
from .jit import inlined, kernel
from .words import ONE, ZERO, u64

LOOKS_MAX = 64
"""Publications in a row that overtake a worker at most; each takes a millisecond, a look some nanoseconds."""

_SLOT_BYTES = u64(GENERATION_BYTES_MAX)
_HIT = u64(HIT_BYTES)


@kernel
def _follow(pipe):
    memory.seldom()
    for _ in range(LOOKS_MAX):
        word = memory.acquire64(pipe.published)  # A1
        memory.release64(pipe.acknowledged, word)
        memory.fence_full()  # F2
        if memory.acquire64(pipe.published) != word:
            continue
        pipe.word = word
        if word == ZERO:
            pipe.generation = ZERO
            return True
        generation = pipe.slots + (word & ONE) * _SLOT_BYTES
        head = generation_at(generation)
        pipe.generation = generation
        pipe.hits = generation + u64(head.hits) + pipe.worker * u64(head.rule_count) * _HIT
        return True
    return False


@inlined
def pick_up(pipe):
    """Go by the rules that hold now.

    Args:
        pipe: PIPE of this worker; `word`, `generation`, `hits` are written where others hold now.

    Returns:
        False where publications overtook this worker: it must go by nothing until it has looked again.
    """
    if memory.acquire64(pipe.published) == pipe.word:
        return True
    return _follow(pipe)
