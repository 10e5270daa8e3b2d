"""The dead of a table: what they were killed over is repaired, then their places are emptied for whoever joins next.

Any process may do it, beside all the living: the keeper when a child has died, who opens a table that was left, an audit.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ..kernels import repair
from ..shm import roster
from ..shm.layout import Step
from ..shm.views import Table
from . import warmup


class Burial(NamedTuple):
    """What became of the dead, by owner id."""

    buried: dict[int, Step]
    """The step in which each was killed."""
    left: list[int]
    """Who waits for a lock that somebody alive does not give: to be tried again."""

    @property
    def interrupted(self) -> dict[int, str]:
        """Those of the buried who were killed within an operation, and its step, in words."""
        return {owner: step.name for owner, step in self.buried.items() if step is not Step.NONE}


def bury_dead(table: Table) -> Burial:
    """Repair and bury all whose process is gone."""
    if all(place.alive for place in roster.present(table)):
        return Burial({}, [])
    _ensure_kernels()
    return Burial(*roster.lay_to_rest(table, lambda owner: bool(repair.repair(table.views(owner)))))


@cache
def _ensure_kernels() -> None:
    warmup.ensure()
