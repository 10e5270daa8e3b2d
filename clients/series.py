"""What a trial looked like while it ran: moments, and what had been done by each; rates are reckoned from neighbours.

Whoever watches a trial notes a moment every now and then; ``rows`` are what a plot shows and ``load --json --plot`` does not
print.  All counts only grow, but the connections, which are those of the moment.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..shm.layout import GLOBAL, PARTICIPANT, Region
from ..shm.reasons import Reason
from ..shm.views import Table


class Moment(NamedTuple):
    """How far everything was."""

    seconds: float
    packets: int
    connections: int
    freed: int
    calls_ns: int
    """Time that workers spent in calls that sent these packets."""


class Row(NamedTuple):
    """What happened between two moments, at the second of them."""

    seconds: float
    packets_per_second: float
    connections: int
    freed_per_second: float
    packet_ns: float | None
    """Time that a packet took whoever sent it; None where none was sent."""


@dataclass
class Series:
    """The moments of one trial."""

    moments: list[Moment] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def note(self, table: Table, watched: np.ndarray) -> None:
        """Note a moment.

        Args:
            table: that is loaded.
            watched: STREAM of each worker.
        """
        counters = table.array(Region.CONTROL, "participants", PARTICIPANT)["counters"]
        self.moments.append(
            Moment(
                time.monotonic() - self.began_s,
                int(watched["packets"].sum()),
                int(table.array(Region.CONTROL, "globals", GLOBAL)["count"][0]),
                int(counters[:, [Reason.SWEPT, Reason.EVICTED, Reason.FLUSHED]].sum()),
                int(watched["calls_ns"].sum()),
            )
        )

    def rows(self) -> list[Row]:
        """Return what happened between the moments; a moment in which nothing moved is left out."""
        rows = []
        for before, now in zip(self.moments, self.moments[1:], strict=False):
            seconds, packets = now.seconds - before.seconds, now.packets - before.packets
            if seconds <= 0:
                continue
            packet_ns = (now.calls_ns - before.calls_ns) / packets if packets > 0 else None
            rows.append(
                Row(now.seconds, packets / seconds, now.connections, (now.freed - before.freed) / seconds, packet_ns)
            )
        return rows
