"""Connections whose packets nobody saw for a while: what their protocols go by is learned again, not held against them.

A table that is kept while no worker lives grows old: both ends go on, and sequence numbers, windows and tags in the records
are those of before.  Before anybody tracks again, each such record is marked TORN, as one is whose last writer died: the
first packet of either side is then believed, and what follows is judged by it.
"""

from __future__ import annotations

import numpy as np

from ..shm.layout import ENTRY, Life, Region, Status
from ..shm.views import Table

PROTOCOLS = (6, 132)
"""TCP and SCTP: those whose packets are judged by what the ones before have said."""
_STEP = 1 << 16


def mark(entries: np.ndarray) -> int:
    """Mark those of ENTRY[n] that are connections; nobody else works on them.  Returns how many there are."""
    live = entries["life"] & np.uint64(0xFF) == Life.LIVE
    protocols = entries["key"][:, 4] >> np.uint64(8) & np.uint64(0xFF)
    meant = live & np.isin(protocols, PROTOCOLS)
    entries["status"][meant] |= np.uint16(Status.TORN)
    return int(meant.sum())


def mark_all(table: Table) -> int:
    """Mark all connections of a table that nobody tracks with at this moment; returns how many there are."""
    entries, due = table.array(Region.ENTRIES, "entries", ENTRY), table.array(Region.DUE, "due", "u4")
    marked = 0
    for first in range(0, len(entries), _STEP):
        if due[first : first + _STEP].any():  # else nothing is there, and its pages need not be touched
            marked += mark(entries[first : first + _STEP])
    return marked
