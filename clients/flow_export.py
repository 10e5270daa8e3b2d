"""What is told of connections to a collector of flows, and when: at their end, and of long ones in between.

    a connection ends                        the rest of it, and why
    it goes on for the active timeout        what went since the record before (active timeout)
    it is silent for the idle timeout        likewise, if anything went (idle timeout); it may go on later

Ends are events.  The others are seen in dumps, a look each time the shorter timeout has passed; of what is in a dump is
remembered what was told.  So a connection that is over before a look costs one record, and no memory.  Of one that is in no
dump any more it is remembered until its end has been heard of.
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
TOLD = [("id", "u8"), ("told", "u8", (4,)), ("told_ms", "u8")]
"""What a successor has to know of a connection: packets and octets, both ways, that were told, and when."""
_AT_NEXT_LOOK = (1 << 64) - 1
"""Of what is missing in a dump for the first time."""
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
        self._gone = np.zeros(0, "u8")  # event up to which the end is heard of, of what is in no dump any more; else 0

    def __len__(self) -> int:
        return len(self._ids)

    def rows(self) -> np.ndarray:
        """Return what a successor has to know, TOLD[n]."""
        import numpy as np

        which = self._told.any(axis=1)
        rows = np.zeros(int(which.sum()), TOLD)
        rows["id"], rows["told"], rows["told_ms"] = self._ids[which], self._told[which], self._told_ms[which]
        return rows

    def take_up(self, rows: np.ndarray) -> None:
        """Know what a predecessor has told: its ``rows``."""
        import numpy as np

        self._ids, self._told, self._told_ms = rows["id"].copy(), rows["told"].copy(), rows["told_ms"].copy()
        self._seen, self._moved_ms = self._told.copy(), self._told_ms.copy()
        self._gone = np.zeros(len(rows), "u8")

    def look(self, rows: np.ndarray, now_ms: int, sequence: int, heard: int) -> Flows:
        """Take in a dump, and return what is to be told of those that go on, or have gone silent.

        Args:
            rows: the whole table.
            now_ms: since 1970.
            sequence: of the dump: all events up to it have happened to what it shows.
            heard: number of the event up to which all ends have been taken in.
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
        # whose end was told of while the dump before was made is known once all up to this dump has been heard
        is_gone = ~np.isin(self._ids, rows["id"]) & self._told.any(axis=1)
        until = np.where(self._gone == _AT_NEXT_LOOK, max(sequence, 1), self._gone)
        until[until == 0] = _AT_NEXT_LOOK
        kept = np.flatnonzero(is_gone & (until > heard))
        self._ids = np.concatenate((rows["id"], self._ids[kept]))
        order = np.argsort(self._ids)
        self._ids = self._ids[order]
        self._told = np.concatenate((told, self._told[kept]))[order]
        self._seen = np.concatenate((counted, self._seen[kept]))[order]
        self._told_ms = np.concatenate((told_ms, self._told_ms[kept]))[order]
        self._moved_ms = np.concatenate((moved_ms, self._moved_ms[kept]))[order]
        self._gone = np.concatenate((np.zeros(len(rows), "u8"), until[kept]))[order]
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
