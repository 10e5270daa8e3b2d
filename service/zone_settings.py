"""How the packets of each zone are judged: settings by name, of all zones and of single ones.

A zone is set as all zones are, until it is set on its own; from then on what is said of all leaves it alone.  Every change
is one store of one word, which packets see at once; whose profile judges a connection was decided when it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..clients.errors import BadParameterError, UnknownParameterError
from ..shm.layout import GLOBAL, MAX_RETRANS_SHIFT, ZONE, ZONE_BYTES, Region, Setting, offset
from ..shm.views import Table
from . import adaptive, half_open, helper_rules, per_source
from .adaptive import AdaptiveMarks
from .half_open import HalfOpen
from .helper_rules import HelperRules
from .labels import NETFILTER, OVS, PROFILES
from .parameters import Reader, bad, flag, hint, nearest, whole
from .per_source import PerSource

PROFILE, MAX_RETRANS, ON_FULL = "profile", "max_retrans", "on_full"
SWITCHES = {
    setting.name.lower(): setting
    for setting in (Setting.LOOSE, Setting.BE_LIBERAL, Setting.IGNORE_INVALID_RST, Setting.SEQ_CHECK, Setting.CHECKSUM)
}
"""Settings that are on or off."""
REJECT, EARLY_DROP = "reject", "early_drop"
ON_FULL_OF = {NETFILTER: EARLY_DROP, OVS: REJECT}
"""What a profile's own system does with a new connection over a limit."""
JUDGED = int(Setting.OVS | Setting.EARLY_DROP | sum(SWITCHES.values())) | 0xFF << MAX_RETRANS_SHIFT
"""Bits of a zone's word that say how packets are judged."""


def profile(name: str, value: Any) -> str:
    """Read the name of a profile."""
    if value not in PROFILES:
        raise bad(name, " or ".join(PROFILES), value)
    return value


def on_full(name: str, value: Any) -> str:
    """Read what becomes of a connection over a limit."""
    if value not in (REJECT, EARLY_DROP):
        raise bad(name, f"{REJECT} or {EARLY_DROP}", value)
    return value


READERS: dict[str, Reader] = (
    {PROFILE: profile} | dict.fromkeys(SWITCHES, flag) | {MAX_RETRANS: whole(0, 255), ON_FULL: on_full}
)
"""By name: takes a setting as it came over the wire."""
READERS_OF_ONE: dict[str, Reader] = (
    READERS
    | dict.fromkeys(helper_rules.NAMES, helper_rules.ports)
    | {adaptive.NAME: adaptive.marks, half_open.NAME: half_open.limit, per_source.NAME: per_source.limit}
)
"""Those of a single zone: also ports of helpers, marks of adaptive timeouts, and budgets: half-open, and by source."""


BITS = SWITCHES | {PROFILE: Setting.OVS, ON_FULL: Setting.EARLY_DROP}
"""The bit of each setting that has one."""


def changes(name: str, value: Any) -> dict[str, Any]:
    """Read a map of settings.

    Raises:
        UnknownParameterError: there is no such setting.
        BadParameterError: a value cannot be, or there is none.
    """
    if type(value) is not dict:
        raise bad(name, "a map of settings", value)
    found = {}
    for key, one in value.items():
        if key not in READERS_OF_ONE:
            near = nearest(str(key), READERS_OF_ONE)
            raise UnknownParameterError(
                f"there is no setting {key!r:.100}{hint(near)}", {"parameter": f"{name}.{key!s:.100}"} | near
            )
        found[key] = READERS_OF_ONE[key](f"{name}.{key}", one)
    if not found:
        raise BadParameterError(f"{name}: names no setting", {"parameter": name})
    return found


def changed(word: int, wanted: Mapping[str, Any]) -> int:
    """Return a zone's word with some settings changed; a profile brings its own ``on_full``, unless that is said too."""
    if PROFILE in wanted and wanted.get(ON_FULL) is None:
        wanted = {**wanted, ON_FULL: ON_FULL_OF[wanted[PROFILE]]}
    for name, value in wanted.items():
        if name == MAX_RETRANS:
            word = word & ~(0xFF << MAX_RETRANS_SHIFT) | value << MAX_RETRANS_SHIFT
        else:
            bit = BITS[name]
            word = word | bit if value in (True, OVS, EARLY_DROP) else word & ~bit
    return word


def shown(word: int) -> dict[str, Any]:
    """Return the settings of a zone's word by name."""
    return {
        PROFILE: PROFILES[bool(word & Setting.OVS)],
        **{name: bool(word & setting) for name, setting in SWITCHES.items()},
        ON_FULL: EARLY_DROP if word & Setting.EARLY_DROP else REJECT,
        MAX_RETRANS: word >> MAX_RETRANS_SHIFT & 0xFF,
    }


class ZoneSettings:
    """The settings of the zones of one table."""

    def __init__(self, table: Table) -> None:
        words = table.array(Region.CONTROL, "zones", "u4").reshape(-1, ZONE_BYTES // 4)
        self._words = words[:, int(offset(ZONE, "settings")) // 4]
        self._default = table.array(Region.CONTROL, "globals", GLOBAL)["settings"]
        self._helpers, self._adaptive = HelperRules(table), AdaptiveMarks(table)
        self._half_open, self._per_source = HalfOpen(table), PerSource(table)

    @property
    def own(self) -> np.ndarray:
        """Of each zone, whether it is set on its own."""
        return self._words & np.uint32(Setting.OWN) != 0

    def of(self, zone: int) -> dict[str, Any]:
        """Return how a zone is set, and the ports of its helpers, marks and budgets, of those that have any."""
        own = self._helpers.of(zone) | self._adaptive.of(zone) | self._half_open.of(zone) | self._per_source.of(zone)
        return shown(int(self._words[zone])) | own

    def is_own(self, zone: int) -> bool:
        """Return whether a zone is set on its own."""
        return bool(self._words[zone] & Setting.OWN)

    def set(self, zone: int, wanted: Mapping[str, Any]) -> None:
        """Change some settings of a zone, which is set on its own from now on.

        Raises:
            BadParameterError: the rules of helpers or a budget cannot be; nothing was changed.
        """
        if per_source.NAME in wanted:
            self._per_source.set(zone, wanted[per_source.NAME])
        if half_open.NAME in wanted:
            self._half_open.set(zone, wanted[half_open.NAME])
            self._mark(zone, Setting.HALF_OPEN, bool(wanted[half_open.NAME]))
        if per_source.NAME in wanted:
            self._mark(zone, Setting.SOURCES, bool(wanted[per_source.NAME]))
        self._helpers.set(zone, {name: ports for name, ports in wanted.items() if name in helper_rules.NAMES})
        judged = {name: value for name, value in wanted.items() if name in READERS}
        self._words[zone] = changed(int(self._words[zone]), judged) | Setting.OWN
        if adaptive.NAME in wanted:
            self._adapt(zone, wanted[adaptive.NAME])

    def _adapt(self, zone: int, marks: adaptive.Marks) -> None:
        self._adaptive.set(zone, marks)
        self._mark(zone, Setting.ADAPTIVE, bool(marks))

    def _mark(self, zone: int, setting: Setting, is_on: bool) -> None:
        without = int(self._words[zone]) & ~setting
        self._words[zone] = without | setting if is_on else without

    def unset(self, zone: int) -> bool:
        """Set a zone as all are, without helpers, marks and budgets; return whether it was set on its own."""
        was = self.is_own(zone)
        self._helpers.set(zone, dict.fromkeys(helper_rules.NAMES, ()))
        self._adapt(zone, [])
        self._half_open.set(zone, 0)
        self._mark(zone, Setting.HALF_OPEN, False)
        self._per_source.set(zone, 0)
        self._mark(zone, Setting.SOURCES, False)
        self._words[zone] = int(self._words[zone]) & ~(JUDGED | Setting.OWN) | int(self._default[0])
        return was

    def set_all(self, wanted: Mapping[str, Any]) -> None:
        """Change some settings of all zones but those that are set on their own."""
        self._default[0] = changed(int(self._default[0]), wanted)
        words = np.where(self.own, self._words, self._words & np.uint32(~JUDGED & 0xFFFFFFFF) | self._default[0])
        differ = np.flatnonzero(words != self._words)
        self._words[differ] = words[differ]
