"""Rules of helpers: connections of a zone to a port get a helper, which reads their control channel.

A rule is one word, so packets see it whole or not at all.  A zone with rules has a setting of its own that says so, which
is what packets look at first.  Connections that are there keep the helper that they have, or have not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..clients.errors import BadParameterError
from ..shm.layout import (
    EXPECTATION_TABLE,
    HELPER_RULES_MAX,
    RULE_HELPER_SHIFT,
    RULE_IN_USE,
    RULE_PROTOCOL_SHIFT,
    RULE_ZONE_SHIFT,
    ZONE,
    Helper,
    Region,
    Setting,
)
from ..shm.views import Table
from .parameters import bad, hint, nearest

TCP, UDP = 6, 17
PROTOCOLS = {Helper.FTP: TCP, Helper.TFTP: UDP, Helper.SIP: UDP, Helper.IRC: TCP, Helper.PPTP: TCP}
"""What each helper's control channel runs over."""
NAMES = {helper.name.lower(): helper for helper in PROTOCOLS}
OF_ANYBODY = frozenset({"irc"})
"""Helpers that foretell connections from any address."""
PORTS_MAX = (1 << 16) - 1

Rules = dict[str, list[int]]
"""Ports by the name of the helper."""


def helper_named(name: str, what: str = "helper") -> Helper:
    """Return a helper by its name.

    Raises:
        BadParameterError: there is none of this name.
    """
    if name not in NAMES:
        near = nearest(name, NAMES)
        raise BadParameterError(f"{what}: there is no helper {name!r:.100}{hint(near)}", {"parameter": what} | near)
    return NAMES[name]


def named_port(text: str) -> tuple[str, int]:
    """Read ``NAME=PORT``.

    Raises:
        BadParameterError: it is something else.
    """
    name, separator, port = text.partition("=")
    helper_named(name)
    if not separator or not port.isdecimal() or not 1 <= int(port) <= PORTS_MAX:
        raise BadParameterError(f"helper: {text!r:.100} is not NAME=PORT, a port being 1 to {PORTS_MAX}")
    return name, int(port)


def ports(name: str, value: Any) -> list[int]:
    """Read the ports of a helper: one, or a list of them; 0 and an empty list are none.

    Raises:
        BadParameterError: it is something else.
    """
    listed = value if type(value) is list else [value] if value != 0 or type(value) is not int else []
    for port in listed:
        if type(port) is not int or not 1 <= port <= PORTS_MAX:
            raise bad(name, f"a port from 1 to {PORTS_MAX}, a list of them, or 0 for none", port)
    return listed


class HelperRules:
    """The rules of one table; one writer at a time."""

    def __init__(self, table: Table) -> None:
        self._words = table.array(Region.CONTROL, "helper_rules", "u8")
        self._header = table.array(Region.CONTROL, "expectation_table", EXPECTATION_TABLE)
        self._settings = table.array(Region.CONTROL, "zones", ZONE)["settings"]

    def of(self, zone: int) -> Rules:
        """Return the ports of a zone by helper; helpers without are left out."""
        found: Rules = {}
        for _, of_zone, helper, port in self._rows():
            if of_zone == zone:
                found.setdefault(helper.name.lower(), []).append(port)
        return {name: sorted(ports) for name, ports in sorted(found.items())}

    def zones(self) -> list[int]:
        """Return the zones that have rules."""
        return sorted({zone for _, zone, _, _ in self._rows()})

    def set(self, zone: int, wanted: Mapping[str, Iterable[int]]) -> None:
        """Give each helper that is named its ports in a zone, instead of those it had.

        Raises:
            BadParameterError: there is no room for so many, or two helpers want one port.
        """
        rules = {name: set(ports) for name, ports in (self.of(zone) | dict(wanted)).items()}
        rows = {(port, PROTOCOLS[NAMES[name]]): NAMES[name] for name, ports in rules.items() for port in ports}
        if len(rows) != sum(map(len, rules.values())):
            raise BadParameterError("helpers: two of them want one port of one protocol", {"parameter": "helpers"})
        others = [at for at, of_zone, _, _ in self._rows() if of_zone != zone]
        if len(rows) + len(others) > HELPER_RULES_MAX:
            raise BadParameterError(
                f"helpers: at most {HELPER_RULES_MAX} rules, of all zones", {"parameter": "helpers"}
            )
        new = {
            RULE_IN_USE | helper << RULE_HELPER_SHIFT | protocol << RULE_PROTOCOL_SHIFT | zone << RULE_ZONE_SHIFT | port
            for (port, protocol), helper in rows.items()
        }
        for at, of_zone, _, _ in list(self._rows()):
            if of_zone == zone and int(self._words[at]) not in new:
                self._words[at] = 0
        new -= {int(word) for word in self._words if word}
        free = (at for at in range(HELPER_RULES_MAX) if not self._words[at])
        for word, at in zip(sorted(new), free, strict=False):
            self._words[at] = word
        in_use = [at for at, *_ in self._rows()]
        self._header["rules"] = max(in_use) + 1 if in_use else 0
        self._settings[zone] = (
            int(self._settings[zone]) | Setting.HELPERS if rows else int(self._settings[zone]) & ~Setting.HELPERS
        )

    def _rows(self) -> Iterable[tuple[int, int, Helper, int]]:
        """Yield place, zone, helper and port of each rule."""
        for at, word in enumerate(self._words.tolist()):
            if word:
                yield at, word >> RULE_ZONE_SHIFT & 0xFFFF, Helper(word >> RULE_HELPER_SHIFT & 0xFF), word & 0xFFFF
