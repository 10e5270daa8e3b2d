"""How a participant that tracked packets leaves a table: it gives up the fragments that it holds, and then its place."""

from __future__ import annotations

import time

import numpy as np

from ..kernels import late
from ..shm import roster
from ..shm.views import Table

TRIES_MAX = 100
PAUSE_S = 0.01
"""A lock that is not had in a second is of somebody dead, whom nobody has repaired."""


def leave(table: Table, me: int, views: np.record) -> None:
    """Leave.

    Args:
        table: where.
        me: owner id from ``roster.join``.
        views: of the table, for ``me``.

    Raises:
        NotAtRest: an operation of its own is under way, or fragments could not be given up.
    """
    for _ in range(TRIES_MAX):
        if late.abandon(views):
            break
        time.sleep(PAUSE_S)
    roster.leave(table, me)
