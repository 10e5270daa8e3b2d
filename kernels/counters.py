"""A participant's counters: one writer each, on lines of its own; readers add up."""

from __future__ import annotations

from . import memory
from .jit import inlined
from .words import ONE, THREE, u64


@inlined
def add(views, reason, amount):
    """Add ``amount`` to the counter of ``reason``."""
    counter = views.counters + (u64(reason) << THREE)
    memory.set_le64(counter, memory.le64(counter) + amount)


@inlined
def count(views, reason):
    """Add one to the counter of ``reason``."""
    add(views, reason, ONE)
