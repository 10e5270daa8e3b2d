"""Reasons by zone as a test reads them: a dict of each participant."""

from zonetrack.shm.layout import ROSTER_MAX, ZONE_REASON, ZONE_REASON_USED, ZONE_REASONS_MAX, Region


def rows_of(table):
    return table.array(Region.CONTROL, "zone_reasons", ZONE_REASON).reshape(ROSTER_MAX, ZONE_REASONS_MAX)


def counts(rows):
    """Return count by (zone, reason) of one participant; what had no room stands under None."""
    found = {}
    for what, _, n in rows.tolist():
        if what:
            found[(what & ~ZONE_REASON_USED) >> 8, what & 0xFF] = n
        elif n:
            found[None] = n
    return found
