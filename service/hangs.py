"""Workers that hang: those that have made no turn for so many looks in a row.

Looks, and not time, are counted: a keeper that was stopped itself has seen nothing in that time.
"""

from __future__ import annotations

from collections.abc import Mapping

LOOKS = 10
"""In a row, over the time after which a worker hangs."""


class Hangs:
    """What was seen of workers when they were looked at last."""

    due_s = 0.0
    """When they are to be looked at next."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int, int]] = {}
        """By numbers of workers: pid, turns, and at how many looks both were so."""

    def look(self, turns: Mapping[int, tuple[int, int]], hang_s: float, now_s: float) -> list[int]:
        """Look at those that run.

        Args:
            turns: by their numbers, the pid of each, and how many turns it has made.
            hang_s: time without a turn after which one hangs.
            now_s: the moment.

        Returns:
            The numbers of those that hang, each once.
        """
        self.due_s = now_s + hang_s / LOOKS
        seen = {number: (*now, self._looks(number, now)) for number, now in turns.items()}
        self._seen = seen
        return [number for number, (_, _, looks) in seen.items() if looks == LOOKS]

    def _looks(self, number: int, now: tuple[int, int]) -> int:
        """Return at how many looks a worker has stood where it does now, beyond the first."""
        *before, looks = self._seen.get(number, (0, 0, 0))
        return looks + 1 if tuple(before) == now else 0
