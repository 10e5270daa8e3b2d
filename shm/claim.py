"""The claim on an instance: a lock on its CONTROL segment's file, whose length is the pid of who holds it.

One process makes and owns an instance; workers and tools attach without a claim.  The lock (shm/file_locks) covers the bytes
from 0 to the owner's pid, so the lock and its holder's name are one thing: there is no moment when one is without the other,
nothing to write down, and nothing that a dead owner leaves behind.  It stands on the segment itself, so that a claim cannot
be had beside another by naming another runtime directory.

A forked child shares its parent's descriptions and so would go on holding the lock after the parent's death: children
close theirs at once.  What is exec'd never has it.
"""

from __future__ import annotations

import os
import weakref
from typing import Self

from . import file_locks
from .errors import InUse

_held: weakref.WeakSet[Claim] = weakref.WeakSet()


class Claim:
    """A claim that is held, until ``drop`` or the end of the process."""

    def __init__(self, name: str, descriptor: int) -> None:
        """Take the claim.

        Args:
            name: of the instance, for the error.
            descriptor: of its CONTROL segment's file.

        Raises:
            InUse: another process, or another claim of this one, has it.
        """
        self._descriptor = -1
        self._descriptor = file_locks.reopen(descriptor)
        _held.add(self)
        while not file_locks.take(self._descriptor, 0, os.getpid()):
            pid = holder(descriptor)
            if pid:  # else it has just been dropped: again
                self.drop()
                raise InUse(name, "no other process", f"process {pid}", pid)

    @property
    def held(self) -> bool:
        """Whether it is; never in a forked child."""
        return self._descriptor >= 0

    def drop(self) -> None:
        """Let others claim."""
        if self.held:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        """Drop it at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Drop it."""
        self.drop()

    def __del__(self) -> None:
        """Drop what nobody refers to any more."""
        self.drop()


def holder(descriptor: int) -> int:
    """Return the pid of who claims the instance of a CONTROL segment's file, 0 when nobody does."""
    return file_locks.held(descriptor, 0, 0)


def _drop_all() -> None:
    for claim in list(_held):
        claim.drop()


os.register_at_fork(after_in_child=_drop_all)
