"""Figures of a table in plain values: counters by name, connections and limits of zones.

Counters have one writer each and are read as they stand; sums over all places count since the table was made.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np

from ..shm import roster
from ..shm.layout import (
    EXPECTATION_TABLE,
    GLOBAL,
    QUOTA,
    UNLIMITED,
    ZONE,
    ZONE_REASON,
    ZONE_REASON_USED,
    Region,
)
from ..shm.reasons import Reason
from ..shm.views import Table
from . import half_open, sweeping
from .half_open import HalfOpen
from .policies import Policies
from .runner import now_ms
from .zone_settings import ZoneSettings

COUNTED = {reason: reason.name.lower() for reason in Reason if reason is not Reason.NONE}
ZONES_SHOWN = 256
"""Of the totals; ``zones`` has them all."""
OF_WORKERS = (
    *(Reason.PACKETS, Reason.BYTES, Reason.HIT, Reason.MISS, Reason.INVALID, Reason.INSERT, Reason.REMOVE),
    *(Reason.SWEPT, Reason.BUSY),
)
"""Counters that are shown of each worker."""
OF_PACKETS = (*(reason for reason in Reason if Reason.NONE < reason < Reason.INSERT), Reason.TCP_SEQ_CHK_BYPASS)
"""What a packet can get as its reason."""
LET_BY = (Reason.NOIP, Reason.NOT_TRACKED, Reason.TCP_SYN_CHALLENGE, Reason.TCP_SEQ_CHK_BYPASS, Reason.RELEARNED)


class Fate(StrEnum):
    """What became of a packet that got a reason."""

    INVALID = "invalid"
    REFUSED = "refused"  # its connection was not made
    LET_BY = "let_by"  # neither: it is not followed

    @classmethod
    def of(cls, reason: Reason) -> Fate:
        """Return what a reason of packets says."""
        if reason in LET_BY:
            return cls.LET_BY
        return cls.REFUSED if Reason.HELPER_REFUSED < reason < Reason.INSERT else cls.INVALID

    @property
    def reasons(self) -> list[Reason]:
        """The reasons that say so."""
        return [reason for reason in OF_PACKETS if Fate.of(reason) is self]


def limit_of(value: int) -> int | None:
    """Return a limit as clients have it: None is no limit."""
    return None if value == UNLIMITED else int(value)


class Stats:
    """Reads the figures of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._places = roster.participants(table)
        self._globals = table.array(Region.CONTROL, "globals", GLOBAL)
        self._zones = table.array(Region.CONTROL, "zones", ZONE)
        self._quotas = table.array(Region.CONTROL, "quotas", QUOTA)
        self._expectations = table.array(Region.CONTROL, "expectation_table", EXPECTATION_TABLE)
        self._settings = ZoneSettings(table)
        self._policies = Policies(table)
        self._half_open = HalfOpen(table)
        self._zone_reasons = table.array(Region.CONTROL, "zone_reasons", ZONE_REASON)

    # -------------------------------------------------------------------------------------------- counters
    def counters(self) -> dict[str, int]:
        """Return every counter by its name, of all participants together."""
        totals = self._places["counters"].sum(axis=0)
        return {name: int(totals[reason]) for reason, name in COUNTED.items()}

    def reasons(self) -> dict[str, dict[str, int]]:
        """Return how often packets got which reason, by what it says; counts that are not 0."""
        totals = self._places["counters"].sum(axis=0)
        return {fate: {COUNTED[one]: int(totals[one]) for one in fate.reasons if totals[one]} for fate in Fate}

    def of_place(self, owner: int) -> dict[str, int]:
        """Return the counters of a place on the roster that tell of a worker's work."""
        counters = self._places[owner - 1]["counters"]
        return {COUNTED[reason]: int(counters[reason]) for reason in OF_WORKERS}

    def reasons_of_place(self, owner: int) -> dict[str, int]:
        """Return why packets of a place on the roster were invalid, not followed or not committed: counts that are not 0."""
        counters = self._places[owner - 1]["counters"]
        return {COUNTED[reason]: int(counters[reason]) for reason in OF_PACKETS if counters[reason]}

    def reasons_of_zone(self, zone: int) -> dict[str, int]:
        """Return the same of a zone, of all places together; what found no room to be counted by zone is missing."""
        found: dict[str, int] = {}
        wanted = np.uint32(ZONE_REASON_USED >> 8 | zone)
        for what, _, count in self._zone_reasons[self._zone_reasons["what"] >> 8 == wanted].tolist():
            name = COUNTED[Reason(what & 0xFF)]
            found[name] = found.get(name, 0) + count
        return dict(sorted(found.items()))

    def reasons_without_zone(self) -> int:
        """Return how many reasons of packets found no room to be counted by zone."""
        return int(self._zone_reasons["count"][self._zone_reasons["what"] == 0].sum())

    # -------------------------------------------------------------------------------------------- connections
    def count(self, zone: int | None = None) -> int:
        """Return the connections of a zone, or of all, as limits see them: what has expired and was not swept yet is in."""
        return int(self._globals["count"][0] if zone is None else self._quotas["count"][zone])

    def totals(self) -> dict[str, Any]:
        """Return what there is of the whole table."""
        geometry = self.table.geometry
        return {
            "connections": self.count(),
            "limit": limit_of(self._globals["limit"][0]),
            "capacity": geometry.connections,
            "zones_in_use": int(np.count_nonzero(self._quotas["count"])),
            "expectations": int(self._expectations["count"][0]),
            "table_bytes": geometry.total_bytes,
            "reasons_without_zone": self.reasons_without_zone(),
            "sweep": sweeping.figures(self.table, int(now_ms())),
        }

    # -------------------------------------------------------------------------------------------- zones
    def busiest(self) -> list[dict[str, Any]]:
        """Return the zones with the most connections."""
        return [{"zone": zone, "count": count} for zone, count, _ in self.fill()[:ZONES_SHOWN]]

    def fill(self) -> list[tuple[int, int, int | None]]:
        """Return number, count and limit of every zone that has connections, the fullest by count first."""
        counts = self._quotas["count"]
        in_use = np.flatnonzero(counts)
        in_use = in_use[np.argsort(counts[in_use], kind="stable")[::-1]]
        quotas = self._quotas[in_use]
        limits = np.where(quotas["has_limit"] != 0, quotas["limit"], self._globals["zone_limit_default"][0])
        rows = zip(in_use.tolist(), quotas["count"].tolist(), limits.tolist(), strict=True)
        return [(zone, count, limit_of(limit)) for zone, count, limit in rows]

    def fills(self) -> list[tuple[int | None, int, int | None]]:
        """Return the same with the whole table, without a number, first."""
        return [(None, self.count(), limit_of(self._globals["limit"][0])), *self.fill()]

    def zones(self) -> list[dict[str, Any]]:
        """Return every zone that has connections, or something set that others have not."""
        shown = self._quotas["count"] != 0
        shown |= self._quotas["has_limit"] != 0
        shown |= self._zones["policy"] != 0
        shown |= self._settings.own
        return [self.zone(int(zone)) for zone in np.flatnonzero(shown)]

    def zone(self, zone: int) -> dict[str, Any]:
        """Return one zone."""
        quota, policy = self._quotas[zone], int(self._zones[zone]["policy"])
        return {
            "zone": zone,
            "count": int(quota["count"]),
            "limit": limit_of(quota["limit"] if quota["has_limit"] else self._globals["zone_limit_default"][0]),
            "limit_is_own": bool(quota["has_limit"]),
            "policy": policy,
            "policy_name": self._policies.name(policy),
            "settings": self._settings.of(zone),
            "settings_are_own": self._settings.is_own(zone),
            "reasons": self.reasons_of_zone(zone),
            **half_open.figures(self._half_open, zone),
        }
