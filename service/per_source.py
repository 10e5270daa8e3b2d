"""Budgets of connections by source address, by zone: set, shown, taken away.

kernels/sources says what is counted.
"""

from __future__ import annotations

from ..clients.errors import BadParameterError
from ..shm.layout import QUOTA, Region
from ..shm.views import Table
from .parameters import whole

NAME = "per_source"
LIMIT_MAX = (1 << 24) - 1
limit = whole(0, LIMIT_MAX)
"""Reads a budget; 0 is none."""


class PerSource:
    """The budgets of one table; one writer at a time."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._quotas = table.array(Region.CONTROL, "quotas", QUOTA)

    def of(self, zone: int) -> dict[str, int]:
        """Return the budget of a zone by name, nothing if it has none."""
        wanted = int(self._quotas[zone]["source_limit"])
        return {NAME: wanted} if wanted else {}

    def set(self, zone: int, wanted: int) -> None:
        """Give each source of a zone a budget, or take it away; it holds for connections that are made from now on.

        Raises:
            BadParameterError: the table has no counts of sources; nothing was changed.
        """
        if not wanted:
            self._quotas[zone]["source_limit"] = 0
            return
        if self._table.sources is None:
            raise BadParameterError(f"{NAME}: only the table of a service counts by source", {"parameter": NAME})
        self._quotas[zone]["has_sources"] = 1  # and stays: connections that are in have to leave
        self._quotas[zone]["source_limit"] = wanted
