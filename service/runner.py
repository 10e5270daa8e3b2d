"""A runner: a thread with a place of its own on the roster, for kernels that must not hold up the event loop.

Kernels let go of the GIL, so the loop goes on while one runs.  A place has one intent line, hence one operation at a time:
what is given to a runner is done in order, one after the other.  Long work comes in slices, so that those who wait take
turns; what cannot be cut (a flush, once begun) has a runner of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from ..shm import roster
from ..shm.layout import PARTICIPANT, Kind, Region
from ..shm.views import Table

P = ParamSpec("P")
T = TypeVar("T")


def now_ms() -> np.uint64:
    """Return the moment that kernels judge by: CLOCK_MONOTONIC in milliseconds."""
    return np.uint64(time.monotonic_ns() // 1_000_000)


class Runner:
    """One thread, one place."""

    def __init__(self, table: Table, name: str) -> None:
        """Take a place.

        Args:
            table: where.
            name: of the thread.

        Raises:
            RosterFull: there is no place.
        """
        self.table = table
        self.me = roster.join(table, Kind.CONTROL)
        self.views = table.views(self.me)
        self._place = table.array(Region.CONTROL, "participants", PARTICIPANT)[self.me - 1]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def do(self, work: Callable[Concatenate[np.record, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call ``work(views, ...)`` on the thread, after what was given to it before."""
        # in the thread's queue it cannot be abandoned half way: whoever stops waiting leaves it running to its end
        self._place["clock_ms"] = now_ms()  # for what is deleted
        call = self._thread.submit(work, self.views, *arguments, **named)
        return await asyncio.wrap_future(call)

    def close(self) -> None:
        """Wait for the work under way, and give the place back."""
        self._thread.shutdown(cancel_futures=True)
        roster.leave(self.table, self.me)
