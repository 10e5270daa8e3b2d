"""Warnings before a limit is reached: a zone, or all of them, with the marks of 75 and 90 percent, told once when passed.

    below 75 ---- at 75 ----> warned of 75 ---- at 90 ----> warned of 90
         <-- below 70 --           <-- below 85 --

A warning names the zone, its count and limit, and who has the most connections there (service/summary); it stands in the
log, and in ``stats`` for as long as the zone is as full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple

from . import log, looks

MARKS = (75, 90)
"""Percent of the limit."""
SLACK = 5
"""Percent below a mark at which it counts as left."""
INTERVAL_S = 1.0
TALKERS_MAX = 3
ALL = None
"""In place of a zone: the whole table."""
_log = log.logger("control")

Zone = int | None


class Fill(NamedTuple):
    """How full a zone is."""

    zone: Zone
    count: int
    limit: int

    @property
    def percent(self) -> float:
        """Of its limit."""
        return 100 * self.count / self.limit


class Levels:
    """The highest mark that each zone has passed and not left."""

    def __init__(self) -> None:
        self._marks: dict[Zone, int] = {}

    def look(self, fills: Iterable[tuple[Zone, int, int | None]]) -> Iterator[Fill]:
        """Take how full zones are; yield those that have passed a mark. A zone that is not named is empty."""
        before, self._marks = self._marks, {}
        for zone, count, limit in fills:
            if not limit:  # none, or nothing is let in anyway
                continue
            fill, mark = Fill(zone, count, limit), before.get(zone, 0)
            passed = max((one for one in MARKS if fill.percent >= one), default=0)
            kept = max((one for one in MARKS if one <= mark and fill.percent >= one - SLACK), default=0)
            if now := max(passed, kept):
                self._marks[zone] = now
            if now > mark:
                yield fill

    @property
    def marks(self) -> dict[Zone, int]:
        """The zones that have passed one, and which."""
        return self._marks


class Warnings:
    """What is told of one table."""

    def __init__(
        self,
        fills: Callable[[], Iterable[tuple[Zone, int, int | None]]],
        summary: Callable[[], Awaitable[dict[str, Any]]],
    ) -> None:
        """Prepare.

        Args:
            fills: says number, count and limit of zones, ``ALL`` for the whole table.
            summary: says who has the most connections.
        """
        self._fills, self._summary = fills, summary
        self._levels = Levels()
        self._last: dict[Zone, dict[str, Any]] = {}

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        await looks.again(self.look, INTERVAL_S, "limits were not looked at")

    async def look(self) -> None:
        """Tell of the zones that have passed a mark since the last look."""
        passed = list(self._levels.look(await asyncio.to_thread(lambda: list(self._fills()))))
        self._last = {zone: told for zone, told in self._last.items() if zone in self._levels.marks}
        if not passed:
            return
        told = await self._summary()
        for fill in passed:
            talkers = [
                {"address": one["address"], "zone": one["zone"], "connections": one["connections"]}
                for one in told["sources"]
                if fill.zone in (ALL, one["zone"])
            ][:TALKERS_MAX]
            self._last[fill.zone] = {
                "zone": fill.zone,
                "count": fill.count,
                "limit": fill.limit,
                "mark": self._levels.marks[fill.zone],
                "talkers": talkers,
            }
            _log.warning("%s", _said(fill, talkers), extra=log.facts(**self._last[fill.zone]))

    def told(self) -> list[dict[str, Any]]:
        """Return the warnings that hold: how full a zone was when it passed its mark, and who had the most then."""
        return [self._last[zone] for zone in self._levels.marks if zone in self._last]


def _said(fill: Fill, talkers: list[dict[str, Any]]) -> str:
    where = "the table" if fill.zone is ALL else f"zone {fill.zone}"
    most = ", ".join(f"{one['address']} {one['connections']}" for one in talkers)
    who = f"; most from {most}" if most else ""
    return f"{where} is {int(fill.percent)} % full: {fill.count} of {fill.limit} connections{who}"
