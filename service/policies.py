"""Timeout policies: rows of lengths in seconds, and which row the connections of a zone get, as operators read and set them.

A length that is changed holds from a connection's next packet on; a zone's policy, for connections that begin after it.
"""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from ..clients.errors import BadParameterError, UnknownParameterError
from ..kernels.timeouts import DEFAULTS_MS, Timeout
from ..shm.layout import POLICIES_MAX, TIMEOUTS_MAX, ZONE, Region
from ..shm.views import Table
from .parameters import bad, hint, nearest

MS_MAX = (1 << 32) - 1
NAMES = {timeout.name.lower(): timeout for timeout in Timeout}


class Policies:
    """The timeout policies of one table."""

    def __init__(self, table: Table) -> None:
        self._rows = table.array(Region.CONTROL, "policies", "u4").reshape(POLICIES_MAX, TIMEOUTS_MAX)
        self._of_zones = table.array(Region.CONTROL, "zones", ZONE)["policy"]

    def get(self, policy: int | None = None) -> dict[str, Any]:
        """Return the lengths of policies in seconds, and the zones that have another policy than 0.

        Args:
            policy: which; None: 0, all that change something, and all that zones have.
        """
        zones = {int(zone): int(self._of_zones[zone]) for zone in np.flatnonzero(self._of_zones)}
        if policy is None:
            shown = sorted({0, *np.flatnonzero(self._rows.any(axis=1)).tolist(), *zones.values()})
        else:
            shown = [policy]
            zones = {zone: row for zone, row in zones.items() if row == policy}
        return {
            "policies": [{"policy": row, "timeouts": self._lengths(row)} for row in shown],
            "zones": [{"zone": zone, "policy": row} for zone, row in zones.items()],
        }

    def _lengths(self, policy: int) -> dict[str, float]:
        row = np.where(self._rows[policy] == 0, DEFAULTS_MS, self._rows[policy])
        return {name: int(row[timeout]) / 1000 for name, timeout in NAMES.items()}

    def set(self, policy: int, lengths: dict[Timeout, int]) -> None:
        """Change lengths of a policy, in milliseconds; 0 is the default again."""
        for timeout, length_ms in lengths.items():
            self._rows[policy][timeout] = length_ms

    def set_zone(self, zone: int, policy: int) -> None:
        """Choose the policy of a zone."""
        self._of_zones[zone] = policy


def lengths(name: str, value: Any) -> dict[Timeout, int]:
    """Read a map of timeouts to seconds, nil for the default, into milliseconds.

    Raises:
        UnknownParameterError: there is no such timeout.
        BadParameterError: a length cannot be.
    """
    if type(value) is not dict:
        raise bad(name, "a map of timeouts to seconds", value)
    found = {}
    for key, seconds in value.items():
        if key not in NAMES:
            near = nearest(key, NAMES)
            raise UnknownParameterError(
                f"there is no timeout {reprlib.repr(key)}{hint(near)}", {"parameter": f"{name}.{key[:100]}"} | near
            )
        found[NAMES[key]] = 0 if seconds is None else _milliseconds(f"{name}.{key}", seconds)
    if not found:
        raise BadParameterError(f"{name}: names no timeout", {"parameter": name})
    return found


def _milliseconds(name: str, seconds: Any) -> int:
    # written so that NaN fails
    if type(seconds) not in (int, float) or not 0.001 <= seconds <= MS_MAX / 1000:
        raise bad(name, f"seconds from 0.001 to {MS_MAX // 1000}, or nil for the default", seconds)
    return round(seconds * 1000)
