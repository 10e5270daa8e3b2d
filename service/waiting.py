"""Who waited in vain for a lock looks whether its owner is dead, and repairs: there may be nobody else who does.

A kernel gives up a lock after a bounded wait and says BUSY.  The keeper repairs who dies within milliseconds; where there is
no keeper, or it is at something else, whoever met the lock does the same, under the same lock of the roster.
"""

from __future__ import annotations

import time

from ..shm import roster
from ..shm.reasons import Reason
from ..shm.views import Table
from . import burial, log

LOOK_INTERVAL_S = 0.02
"""Between two looks at the roster, each of which asks the kernel about every process on it."""
_log = log.logger("waiting")


def see_to(table: Table) -> bool:
    """Repair and bury whoever is dead; return whether anybody was."""
    done = burial.bury_dead(table)
    if done.buried:
        _log.warning("a lock of the dead was waited for", extra=log.facts(repaired=done.interrupted))
    return bool(done.buried)


class Waiter:
    """One participant, and how often it was told BUSY."""

    def __init__(self, table: Table, me: int) -> None:
        """Begin to watch.

        Args:
            table: where.
            me: the owner id of the participant, a worker.
        """
        self._table = table
        self._counter = roster.participants(table)[me - 1]["counters"][Reason.BUSY :][:1]
        self._seen = int(self._counter[0])
        self._looked_s = 0.0

    def look(self) -> bool:
        """Look at the roster if something was BUSY since the last look; return whether somebody was repaired."""
        if self._counter[0] == self._seen:
            return False
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_INTERVAL_S:
            return False
        self._looked_s, self._seen = now_s, int(self._counter[0])
        return see_to(self._table)
