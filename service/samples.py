"""The samples of a table, read while their participants go on writing.

A sample is copied between two looks at its number (kernels/samples, W1): the same even number before and after the copy
means that nobody wrote meanwhile.  One that is written again and again while it is read is left out; its next one is there
soon.
"""

from __future__ import annotations

import numpy as np

from ..shm.layout import ROSTER_MAX, SAMPLE, SAMPLES_MAX, Region
from ..shm.views import Table

LOOKS_MAX = 8


class Samples:
    """Reads the samples of one table."""

    def __init__(self, table: Table) -> None:
        self._rings = table.array(Region.CONTROL, "samples", SAMPLE).reshape(ROSTER_MAX, SAMPLES_MAX)

    def of(self, owner: int, after: int = 0) -> np.ndarray:
        """Return the whole samples of a participant, oldest first, SAMPLE[n].

        Args:
            owner: its id, roster index + 1.
            after: number of the last one that is known already.
        """
        ring = self._rings[owner - 1]
        for _ in range(LOOKS_MAX):
            before = ring["number"].copy()
            found = ring.copy()
            whole = (before == ring["number"]) & (before == found["number"]) & (before % 2 == 0)
            if whole.all():
                break
        found = found[whole & (before > after)]
        return found[np.argsort(found["number"])]

    def recent(self, most: int, zone: int | None = None) -> list[tuple[int, np.void]]:
        """Return the latest samples of all participants, latest first, each with its participant's id.

        Args:
            most: how many at most.
            zone: of this zone alone.
        """
        used = np.flatnonzero(self._rings["number"].any(axis=1)) + 1
        found = [(int(owner), sample) for owner in used for sample in self.of(int(owner))]
        found = [one for one in found if zone is None or zone == zone_of(one[1])]
        return sorted(found, key=lambda one: int(one[1]["now_ms"]), reverse=True)[:most]


def zone_of(sample: np.void) -> int:
    """Return the zone of a sample."""
    return int(sample["key"][-1]) >> 16 & 0xFFFF
