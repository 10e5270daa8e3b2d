"""What a table should say, in plain dicts and sets, for one operation after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from zonetrack.shm.layout import DELETE_LIST_MAX
from zonetrack.shm.reasons import Reason

CROWDED = DELETE_LIST_MAX - 32
"""More lines than this, and a list is run before another is put on it."""


@dataclass(eq=False)
class Connection:
    """A connection that is live, marked by a participant, detached by a flush, or free again."""

    keys: tuple[int, ...]
    zone: int
    expiry_ms: int
    record: int
    state: str = "live"
    marker: int = 0


@dataclass
class Reference:
    """Connections by key, lists by participant, counts by what is not yet free."""

    zones: dict[int, int]
    """Zone of each key."""
    limits: dict[int, int] = field(default_factory=dict)
    limit: int | None = None
    connections: list[Connection] = field(default_factory=list)
    lines: dict[int, list[Connection]] = field(default_factory=dict)
    detached: dict[int, int] = field(default_factory=dict)
    """Zone that each participant is flushing."""

    def live(self, key: int) -> Connection | None:
        """Return the live connection of a key."""
        found = [c for c in self.connections if c.state == "live" and key in c.keys]
        assert len(found) <= 1
        return found[0] if found else None

    def count(self, zone: int | None = None) -> int:
        """Return how many connections a zone has, or all zones."""
        return sum(zone in (None, c.zone) for c in self.connections)

    def make(self, keys: tuple[int, ...]) -> set[Reason]:
        """Return the answers that a new connection with these keys may get: one, unless a flush makes room meanwhile."""
        if self.live(keys[0]):
            return {Reason.ADOPTED}
        if any(self.live(key) for key in keys[1:]):
            return {Reason.CLASH}
        zone = self.zones[keys[0]]
        leaving = [c for c in self.connections if c.state == "detached"]
        return {
            self._refusal(zone, self.count(zone) - gone_here, self.count() - gone)
            for gone in range(len(leaving) + 1)
            for gone_here in range(min(gone, sum(c.zone == zone for c in leaving)) + 1)
        }

    def _refusal(self, zone: int, count: int, total: int) -> Reason:
        if count >= self.limits.get(zone, 1 << 30):
            return Reason.ZONE_FULL
        if self.limit is not None and total >= self.limit:
            return Reason.FULL
        return Reason.NONE

    def made(self, keys: tuple[int, ...], expiry_ms: int, record: int) -> None:
        """A connection was made."""
        assert record not in [c.record for c in self.connections]
        self.connections.append(Connection(keys, self.zones[keys[0]], expiry_ms, record))

    def mark(self, me: int, connection: Connection) -> None:
        """A participant puts a live connection on its list."""
        connection.state, connection.marker = "marked", me
        self.lines.setdefault(me, []).append(connection)

    def is_crowded(self, me: int) -> bool:
        """Return whether a participant's list is run before the next mark."""
        return len(self.lines.get(me, [])) > CROWDED

    def run(self, me: int) -> None:
        """A participant runs its list: what no flush has taken is free."""
        for connection in self.lines.pop(me, []):
            if connection.state == "marked":
                self.connections.remove(connection)

    def sweep(self, me: int, records: set[int], now_ms: int) -> range:
        """A participant sweeps; ``records`` are those in its blocks.

        Returns:
            How many may go to its list: what is detached and not yet brought home expires like any other.
        """
        due = [c for c in self.connections if c.expiry_ms <= now_ms and c.record in records]
        expired = [c for c in due if c.state == "live"]
        detached = [c for c in due if c.state == "detached"]
        for connection in expired:
            if self.is_crowded(me):
                self.run(me)
            self.mark(me, connection)
        self.run(me)
        return range(len(expired), len(expired) + len(detached) + 1)

    def detach(self, me: int, zone: int) -> None:
        """A participant begins to flush a zone."""
        self.detached[me] = zone
        for connection in self.connections:
            if connection.zone == zone and connection.state in ("live", "marked"):
                connection.state, connection.marker = "detached", me

    def reclaimed(self, me: int) -> None:
        """A participant has finished its flush."""
        del self.detached[me]
        gone = [c for c in self.connections if c.state == "detached" and c.marker == me]
        for connection in gone:
            self.connections.remove(connection)
