"""The board: a line for each worker, on which keeper and worker write what anybody may read.

Memory that the processes of a service share, a part of its estate.  Each field has one writer and is
one aligned word, so there is nothing to lock; a reader may see a worker between two of its lives, never a torn number.

Who writes        what
    keeper        pid, life, restarts, started_ms    as the worker's life goes on
    the worker    owner, calls, packets              owner is 0 until it has joined the roster
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .crew import shared
from .lives import Life

LINE = np.dtype(
    [
        ("pid", "u4"),  # 0: none at the moment
        ("life", "u4"),  # Life
        ("restarts", "u8"),
        ("started_ms", "u8"),  # wall clock
        ("owner", "u8"),  # its place on the roster
        ("calls", "u8"),  # into the compiled loop, of all its lives
        ("packets", "u8"),  # likewise
        ("reserved", "u8", (2,)),
    ],
    align=True,
)
"""A cache line, so that workers do not disturb each other."""


class Board:
    """Lines of the workers, numbered from 0, and the queues that each of them polls."""

    def __init__(
        self,
        workers: int,
        queues: Callable[[int], Sequence[tuple[str, int]]] = lambda worker: (),
        lines: np.ndarray | None = None,
    ) -> None:
        """Hang up a board.

        Args:
            workers: how many there are.
            queues: returns the port and the number of each queue that a worker polls now.
            lines: LINE[n], of the estate; None: this process's and those of whoever it forks.
        """
        self.queues = queues
        self.lines = shared(LINE, workers) if lines is None else lines[:workers]

    def workers(self) -> list[dict[str, Any]]:
        """Return what stands on each line, in plain values."""
        return [
            {
                "number": number,
                "pid": int(line["pid"]),
                "state": Life(line["life"]).name.lower(),
                "restarts": int(line["restarts"]),
                "started": int(line["started_ms"]) / 1_000,
                "owner": int(line["owner"]),
                "calls": int(line["calls"]),
                "packets": int(line["packets"]),
                "queues": [[port, queue] for port, queue in self.queues(number)],
            }
            for number, line in enumerate(self.lines)
        ]
