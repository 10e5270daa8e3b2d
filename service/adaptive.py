"""The marks of adaptive timeouts, by zone: set, taken away and shown; kernels/adaptive says what they do."""

from __future__ import annotations

from typing import Any

from ..shm.layout import CONNECTIONS_MAX, QUOTA, Region
from ..shm.views import Table
from .parameters import bad

NAME = "adaptive"
Marks = list[int]
"""Connections at which timeouts begin to be shortened, and at which they are as short as can be; none: they are not."""


def marks(name: str, value: Any) -> Marks:
    """Read both marks; 0 and an empty list are none.

    Raises:
        BadParameterError: it is something else.
    """
    listed: list[Any] = value if type(value) is list else [value]
    if listed in ([], [0]) and not any(type(one) is bool for one in listed):
        return []
    numbers = all(type(one) is int and 0 <= one <= CONNECTIONS_MAX for one in listed)
    if not numbers or len(listed) != 2 or listed[0] >= listed[1]:
        raise bad(
            name, f"two counts of connections, the first below the second and {CONNECTIONS_MAX} at most, or 0", value
        )
    return listed


class AdaptiveMarks:
    """The marks of one table; one writer at a time."""

    def __init__(self, table: Table) -> None:
        self._quotas = table.array(Region.CONTROL, "quotas", QUOTA)

    def of(self, zone: int) -> dict[str, Marks]:
        """Return the marks of a zone by name, nothing if it has none."""
        quota = self._quotas[zone]
        return {NAME: [int(quota["adaptive_start"]), int(quota["adaptive_end"])]} if quota["adaptive_end"] else {}

    def set(self, zone: int, wanted: Marks) -> None:
        """Set the marks of a zone, or take them away."""
        start, end = wanted or (0, 0)
        quota = self._quotas[zone]
        quota["adaptive_end"] = 0  # for a moment nothing is shortened, whatever both were
        quota["adaptive_start"] = start
        quota["adaptive_end"] = end
        quota["adapting"] = 0
