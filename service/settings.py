"""What the configuration says about a table, written into it: limits, and how packets are judged.

Each is one store that packets see at once.  Limits that the configuration does not name stay as operators have set them.
"""

from __future__ import annotations

import numpy as np

from ..shm.layout import UNLIMITED, ZONE, Region, Setting
from ..shm.views import Table
from .config import Config, Limits, Tracking
from .limits import Quotas


def apply(table: Table, config: Config) -> None:
    """Write all of it."""
    limit(table, config.limits)
    judge(table, config.tracking)


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
    """Write how packets are judged, for all zones; what other settings a zone has is left alone."""
    wanted = {
        Setting.LOOSE: tracking.loose,
        Setting.BE_LIBERAL: tracking.liberal,
        Setting.SEQ_CHECK: tracking.seq_check,
        Setting.IGNORE_INVALID_RST: tracking.ignore_invalid_rst,
        Setting.CHECKSUM: tracking.checksum,
    }
    settings = table.array(Region.CONTROL, "zones", ZONE)["settings"]
    others = np.uint16(0xFFFF & ~sum(wanted))
    settings[:] = settings & others | np.uint16(sum(setting for setting, holds in wanted.items() if holds))
