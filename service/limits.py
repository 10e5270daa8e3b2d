"""Limits: how many connections there may be, in all and in each zone, as operators read and set them.

Changing one is one store, which every participant sees with its next commit.  A limit below the present count refuses new
connections and takes none away.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..clients.errors import BadParameterError
from ..shm.layout import GLOBAL, QUOTA, UNLIMITED, Region
from ..shm.views import Table
from .stats import limit_of


class Quotas:
    """The limits of one table."""

    def __init__(self, table: Table) -> None:
        self.capacity = table.geometry.connections
        self._globals = table.array(Region.CONTROL, "globals", GLOBAL)
        self._quotas = table.array(Region.CONTROL, "quotas", QUOTA)

    def get(self, zone: int | None = None) -> dict[str, Any]:
        """Return all limits beside their counts; of zones those that have their own, or the one that is asked for."""
        own = np.flatnonzero(self._quotas["has_limit"]).tolist() if zone is None else [zone]
        return {
            "global": {"limit": limit_of(self._globals["limit"][0]), "count": int(self._globals["count"][0])},
            "default": limit_of(self._globals["zone_limit_default"][0]),
            "zones": [self._zone(one) for one in own],
        }

    def _zone(self, zone: int) -> dict[str, Any]:
        quota = self._quotas[zone]
        own = bool(quota["has_limit"])
        limit = quota["limit"] if own else self._globals["zone_limit_default"][0]
        return {"zone": zone, "limit": limit_of(limit), "count": int(quota["count"]), "own": own}

    def set_total(self, limit: int | None) -> None:
        """Set the limit of the whole table; None is what it was made for.

        Raises:
            BadParameterError: the table has fewer records.
        """
        if limit is not None and limit > self.capacity:
            raise BadParameterError(
                f"global: the table was made for {self.capacity} connections, {limit} do not fit",
                {"parameter": "global", "most": self.capacity},
            )
        self._globals["limit"] = self.capacity if limit is None else limit

    def set_default(self, limit: int | None) -> None:
        """Set the limit of zones without their own."""
        self._globals["zone_limit_default"] = UNLIMITED if limit is None else limit

    def set_zone(self, zone: int, limit: int | None) -> None:
        """Give a zone a limit of its own."""
        self._quotas["limit"][zone] = UNLIMITED if limit is None else limit  # before the word that says that it holds
        self._quotas["has_limit"][zone] = 1

    def unset_zone(self, zone: int) -> bool:
        """Let a zone follow the default again; return whether it had a limit of its own."""
        had = bool(self._quotas["has_limit"][zone])
        self._quotas["has_limit"][zone] = 0
        return had
