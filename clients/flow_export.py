"""What is told of connections to a collector of flows, and when: at their end, and of long ones in between.

    a connection ends                        the rest of it, and why
    it goes on for the active timeout        what went since the record before (active timeout)
    it is silent for the idle timeout        likewise, if anything went (idle timeout); it may go on later

Ends are events.  The others are seen in dumps, a look each time the shorter timeout has passed; of what is in a dump is
remembered what was told.  So a connection that is over before a look costs one record, and no memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .connections import TCP, TCP_STATES
from .ipfix import EndReason, Flows

if TYPE_CHECKING:
    import numpy as np

REASONS = {
    "none": EndReason.IDLE,
    "expired": EndReason.IDLE,
    "closed": EndReason.ENDED,
    "replaced": EndReason.ENDED,
    "deleted": EndReason.FORCED,
    "flushed": EndReason.FORCED,
    "evicted": EndReason.RESOURCES,
}
"""By the ends of events."""
OVER = ("LAST_ACK", "TIME_WAIT", "CLOSE")
"""States of TCP in which the hosts have ended a connection, before its time is over."""


class Told:
    """What was told of connections that have been seen in a look.

    Args:
        active_ms: the active timeout.
        idle_ms: the idle timeout.
    """

    def __init__(self, active_ms: int, idle_ms: int) -> None:
        import numpy as np

        self.active_ms, self.idle_ms = active_ms, idle_ms
        self._ids = np.zeros(0, "u8")
        self._told = np.zeros((0, 4), "u8")  # packets and octets, both ways, that were told
        self._seen = np.zeros((0, 4), "u8")  # likewise that were seen last
        self._told_ms = np.zeros(0, "u8")
        self._moved_ms = np.zeros(0, "u8")  # when they were seen to have grown

    def __len__(self) -> int:
        return len(self._ids)

    def look(self, rows: np.ndarray, now_ms: int) -> Flows:
        """Take in a dump, and return what is to be told of those that go on, or have gone silent.

        Args:
            rows: the whole table.
            now_ms: since 1970.
        """
        import numpy as np

        rows = rows[np.argsort(rows["id"])]
        counted = _counted(rows)
        told, seen = np.zeros_like(counted), np.zeros_like(counted)
        told_ms, moved_ms = rows["start_ms"].copy(), rows["start_ms"].copy()
        places, known = self._find(rows["id"])
        told[known], seen[known] = self._told[places[known]], self._seen[places[known]]
        told_ms[known], moved_ms[known] = self._told_ms[places[known]], self._moved_ms[places[known]]
        moved_ms[(counted != seen).any(axis=1)] = now_ms
        is_untold = (counted != told).any(axis=1)
        is_silent = is_untold & (moved_ms.astype("i8") + self.idle_ms <= now_ms)
        is_long = is_untold & ~is_silent & (told_ms.astype("i8") + self.active_ms <= now_ms)
        which = np.flatnonzero(is_silent | is_long)
        reasons = np.where(is_silent[which], EndReason.IDLE, EndReason.ACTIVE).astype("u1")
        flows = _flows(rows[which], counted[which] - told[which], reasons, np.full(len(which), now_ms, "u8"))
        told[which], told_ms[which] = counted[which], now_ms
        self._ids, self._told, self._seen = rows["id"].copy(), told, counted
        self._told_ms, self._moved_ms = told_ms, moved_ms
        return flows

    def end(self, events: np.ndarray, ends: list[str]) -> Flows:
        """Return what is to be told of connections that have ended.

        Args:
            events: rows of their DESTROY.
            ends: names of the reasons, by their numbers.
        """
        import numpy as np

        counted = _counted(events)
        places, known = self._find(events["id"])
        counted[known] -= np.minimum(counted[known], self._told[places[known]])
        by_end = np.array([REASONS.get(name, EndReason.FORCED) for name in ends], "u1")
        reasons = by_end[np.minimum(events["end"], len(ends) - 1)]
        over = np.isin(events["state"], [TCP_STATES.index(name) for name in OVER]) & (events["protocol"] == TCP)
        reasons = np.where(over & (reasons == EndReason.IDLE), EndReason.ENDED, reasons).astype("u1")
        return _flows(events, counted, reasons, events["time_ms"])

    def begin(self, events: np.ndarray) -> Flows:
        """Return what is to be told of connections that have begun, where that is wanted: nothing has gone yet."""
        import numpy as np

        return _flows(events, np.zeros((len(events), 4), "u8"), np.zeros(len(events), "u1"), events["time_ms"])

    def _find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where connections stand, and which of them are known."""
        import numpy as np

        places = np.searchsorted(self._ids, ids)
        known = places < len(self._ids)
        known[known] = self._ids[places[known]] == ids[known]
        return places, known


def _counted(rows: np.ndarray) -> np.ndarray:
    """Return packets and octets of both ways, u8[n, 4]."""
    import numpy as np

    return np.concatenate((rows["packets"], rows["bytes"]), axis=1)


def _flows(rows: np.ndarray, counted: np.ndarray, reasons: np.ndarray, ends_ms: np.ndarray) -> Flows:
    return Flows(rows, counted[:, :2], counted[:, 2:], reasons, ends_ms)
