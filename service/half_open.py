"""Budgets of half-open connections, by zone: set, taken away, and how many seats are taken.

kernels/half_open says who sits where.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..clients.errors import BadParameterError
from ..shm.layout import ENTRY, QUOTA, SEATS_MAX, Life, Region, Status
from ..shm.views import Table
from .parameters import whole

NAME = "half_open"
LIMIT_MAX = 1 << 20
limit = whole(0, LIMIT_MAX)
"""Reads a budget; 0 is none."""


class HalfOpen:
    """The budgets of one table; one writer at a time."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._quotas = table.array(Region.CONTROL, "quotas", QUOTA)

    def of(self, zone: int) -> dict[str, int]:
        """Return the budget of a zone by name, nothing if it has none."""
        wanted = int(self._quotas[zone]["half_open_limit"])
        return {NAME: wanted} if wanted else {}

    def set(self, zone: int, wanted: int) -> None:
        """Give a zone a budget, or take it away; it holds for connections that are made from now on.

        Raises:
            BadParameterError: there are not so many seats left, or none at all; nothing was changed.
        """
        quota = self._quotas[zone]
        if wanted == int(quota["half_open_limit"]):
            return
        first = self._room(zone, wanted) if wanted else 0
        quota["half_open_limit"] = 0
        quota["half_open_hand"], quota["half_open_first"] = 0, first
        if wanted and self._table.seats is not None:
            self._table.seats.words[first : first + wanted] = 0
        quota["half_open_limit"] = wanted

    def _room(self, zone: int, wanted: int) -> int:
        """Return the first of so many seats that no other zone has."""
        if self._table.seats is None:
            raise BadParameterError(f"{NAME}: only the table of a service has seats", {"parameter": NAME})
        others = np.flatnonzero(self._quotas["half_open_limit"])
        taken = self._quotas[others[others != zone]]
        free = 0
        for first, count in sorted(
            zip(taken["half_open_first"].tolist(), taken["half_open_limit"].tolist(), strict=True)
        ):
            if first - free >= wanted:
                break
            free = first + count
        if free + wanted > SEATS_MAX:
            raise BadParameterError(
                f"{NAME}: of {SEATS_MAX} seats there are not {wanted} in a row that no other zone has",
                {"parameter": NAME},
            )
        return free

    def count(self, zone: int) -> int:
        """Return how many seats of a zone are taken."""
        quota, seats = self._quotas[zone], self._table.seats
        if seats is None or not quota["half_open_limit"]:
            return 0
        words = seats.words[quota["half_open_first"] :][: quota["half_open_limit"]]
        words = words[words != 0]
        entries = self._table.array(Region.ENTRIES, "entries", ENTRY)[(words & 0xFFFFFFFF).astype("i8") - 1]
        states = entries["life"] & 0xFF
        unreplied = (states == Life.LIVE) & (entries["status"] & Status.SEEN_REPLY == 0)
        return int(np.count_nonzero((entries["life"] >> 32 == words >> 32) & (unreplied | (states == Life.NEW))))


def seat_all(quotas: np.ndarray) -> None:
    """Give each zone its seats, one zone behind the other, where only limits are known; who finds none has no budget.

    Args:
        quotas: QUOTA[zones] of a table that nobody uses; written.
    """
    wanted = np.flatnonzero(quotas["half_open_limit"])
    ends = np.cumsum(quotas["half_open_limit"][wanted].astype("u8"))
    fits = ends <= SEATS_MAX
    quotas["half_open_first"][wanted] = np.where(fits, ends - quotas["half_open_limit"][wanted], 0)
    quotas["half_open_hand"][wanted] = 0
    quotas["half_open_limit"][wanted[~fits]] = 0


def figures(budgets: HalfOpen, zone: int) -> dict[str, Any]:
    """Return how many half-open connections of a zone have a seat, nothing where it has no budget."""
    return {"half_open_count": budgets.count(zone)} if budgets.of(zone) else {}
