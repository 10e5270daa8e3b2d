"""Lock words that hold their owner's id, and the bounded way to wait for one.

A lock word is 0 or the id of its holder, so the dead are found.  Waiting is bounded in tries: first the core's own pause,
then the scheduler, so that ten workers on two cores do not convoy behind one that was preempted.  Who does not get a lock
undoes what it began and says BUSY; nothing waits for ever.

Order: segments ascending, two at most; zone; zone's count; global count.  A record's lock is a leaf.

Ordering
    take  swap, acq_rel: acquire alone would let the intent store sink below it
    drop  store release: what was written under the lock before its end
"""

from __future__ import annotations

from . import memory
from .jit import inlined, kernel
from .words import ZERO

PAUSES_MAX = 64
"""Tries on the core: a few microseconds, longer than any section under a lock takes when its holder runs."""
YIELDS_MAX = 20_000
"""Tries through the scheduler: some ten milliseconds on an idle machine, whole rounds of the run queue on a full one."""


@kernel
def wait(word, me):
    """Wait for the lock at address ``word``; False when it was not had in time."""
    for _ in range(PAUSES_MAX):
        memory.pause()
        if memory.acquire32(word) == ZERO and memory.swap32(word, ZERO, me):
            return True
    for _ in range(YIELDS_MAX):
        memory.relax()
        if memory.acquire32(word) == ZERO and memory.swap32(word, ZERO, me):
            return True
    return False


@inlined
def take(word, me):
    """Take the lock at address ``word`` for participant ``me``; False when it was not had in time."""
    if memory.swap32(word, ZERO, me):
        return True
    return wait(word, me)


@inlined
def drop(word):
    """Give back the lock at address ``word``."""
    memory.release32(word, ZERO)
