"""How fragments are put together, as operators read and set it, with how many wait and what became of those before.

The words and bounds are those of Open vSwitch's ``ipf-get-status``, but that no more may wait than there are buffers.
Changing one is one store, which every participant sees with its next fragment.
"""

from __future__ import annotations

from typing import Any

from ..shm.layout import DATAGRAM_BYTES_MAX, FRAGMENT_BYTES_MIN_LEAST, FRAGMENTS_MAX, STORE, Region, StoreFlag
from ..shm.reasons import Reason
from ..shm.views import Table
from .parameters import Reader, flag, whole

FIELDS = {"min_v4": "bytes_min", "min_v6": "bytes6_min", "max": "count_max"}
FLAGS = {"v4": StoreFlag.IPV4, "v6": StoreFlag.IPV6}
READERS: dict[str, Reader] = {
    "v4": flag,
    "v6": flag,
    "min_v4": whole(FRAGMENT_BYTES_MIN_LEAST, DATAGRAM_BYTES_MAX),
    "min_v6": whole(FRAGMENT_BYTES_MIN_LEAST, DATAGRAM_BYTES_MAX),
    "max": whole(1, FRAGMENTS_MAX),
}
"""What can be set, in the order in which it is shown."""
COUNTERS = {
    name: Reason[f"FRAGMENTS_{name.upper()}"]
    for name in ("accepted", "completed", "expired", "too_small", "overlapped", "purged")
}


class ReassemblySettings:
    """The store of fragments of one table."""

    def __init__(self, table: Table) -> None:
        self._store = table.array(Region.FRAGMENTS, "store", STORE)

    def get(self) -> dict[str, Any]:
        """Return what is set, and how many fragments wait."""
        store = self._store[0]
        told: dict[str, Any] = {name: bool(store["flags"] & bit) for name, bit in FLAGS.items()}
        told |= {name: int(store[field]) for name, field in FIELDS.items()}
        return told | {"waiting": int(store["count"])}

    def set(self, wanted: dict[str, bool | int]) -> None:
        """Set some of READERS' names, to values that these have read."""
        for name, value in wanted.items():
            if name in FLAGS:
                flags = int(self._store["flags"][0])
                self._store["flags"] = flags | FLAGS[name] if value else flags & ~FLAGS[name]
            else:
                self._store[FIELDS[name]] = value
