"""Audit of a table from Python: scratch memory for the kernels, and words for what they find."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels import audit
from ..kernels.audit import Finding
from ..shm.layout import EXPECTATIONS_MAX, ZONES_MAX, Slab
from ..shm.views import Table


@dataclass(frozen=True)
class Broken:
    """The first invariant that was found broken, and the three numbers that kernels/audit lists beside it."""

    finding: Finding
    numbers: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.finding.name.lower()} {' '.join(map(str, self.numbers))}"


def _address(array: np.ndarray) -> np.uint64:
    return np.uint64(array.ctypes.data)


def _broken(out: np.ndarray) -> Broken | None:
    finding = Finding(int(out[0]))
    return None if finding is Finding.NONE else Broken(finding, (int(out[1]), int(out[2]), int(out[3])))


def at_rest(table: Table) -> Broken | None:
    """Check every invariant of a table that nobody is working on; None when all hold."""
    geometry = table.geometry
    segments = np.zeros(geometry.segments, "u1")
    directories = np.zeros(geometry.directory_first[-1], "u1")
    slots = np.zeros(geometry.records(Slab.ENTRIES), "u1")
    content = np.zeros(ZONES_MAX, "u4")
    listed = np.zeros(sum(geometry.records(slab) for slab in Slab), "u1")
    expected, expected_seen = np.zeros(ZONES_MAX, "u4"), np.zeros(EXPECTATIONS_MAX, "u1")
    out = np.zeros(4, "u8")
    scratch = (segments, directories, slots, content, listed, expected, expected_seen, out)
    audit.audit_at_rest(table.views(0), *map(_address, scratch))
    return _broken(out)


def live(table: Table, me: int) -> Broken | None:
    """Check, beside others at work, what holds in every state; ``me`` is a participant that does nothing else."""
    out = np.zeros(4, "u8")
    audit.audit_live(table.views(me), _address(out))
    return _broken(out)
