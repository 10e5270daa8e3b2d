"""What the configuration says about a table, written into it: limits, timeouts, and how packets are judged.

Each is one store that packets see at once.  Limits, timeouts and zones that the configuration does not name stay as
operators have set them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..shm.layout import UNLIMITED
from ..shm.views import Table
from . import policies
from .config import Config, Limits, Tracking
from .limits import Quotas
from .policies import Policies
from .zone_settings import READERS, ZoneSettings


def apply(table: Table, config: Config) -> None:
    """Write all of it."""
    limit(table, config.limits)
    judge(table, config.tracking)
    time(table, config.timeouts)
    single_out(table, config.zones)


def limit(table: Table, limits: Limits) -> None:
    """Write the limits that are named.

    Raises:
        BadParameterError: the table was made for fewer connections than its limit.
    """
    quotas = Quotas(table)
    if limits.global_ is not None:
        quotas.set_total(_number(limits.global_))
    if limits.default is not None:
        quotas.set_default(_number(limits.default))
    for zone, most in limits.zones.items():
        quotas.set_zone(zone, _number(most))


def _number(limit: int) -> int | None:
    return None if limit == UNLIMITED else limit


def judge(table: Table, tracking: Tracking) -> None:
    """Write how packets are judged, for all zones that are not set on their own."""
    ZoneSettings(table).set_all({name: getattr(tracking, name) for name in READERS})


def time(table: Table, timeouts: Mapping[int | str, Mapping[str, float]]) -> None:
    """Write the timeout policies that are named, and what they say; what they do not is left alone."""
    rows = Policies(table)
    for policy, seconds in timeouts.items():
        rows.set(rows.make(policy), policies.lengths(str(policy), dict(seconds)))


def single_out(table: Table, zones: Mapping[int, Mapping[str, Any]]) -> None:
    """Write what zones have of their own.

    Raises:
        NothingMatchedError: a zone shall have a policy that there is not.
    """
    settings, rows = ZoneSettings(table), Policies(table)
    chosen = {zone: rows.find(wanted["policy"]) for zone, wanted in zones.items() if "policy" in wanted}
    for zone, wanted in zones.items():
        judged = {name: value for name, value in wanted.items() if name != "policy"}
        if judged:
            settings.set(zone, judged)
        if zone in chosen:
            rows.set_zone(zone, chosen[zone])
