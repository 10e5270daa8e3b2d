"""What `zonetrack load` has to know of a scenario that has a trial of its own: one row, at the end of the trial's room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Tick = Callable[[int], object]
"""Is told every now and then how many packets have been sent."""


class Trial(NamedTuple):
    """A row."""

    plan: Callable[..., Any]
    """Makes the plan of what was asked for."""
    packets_count: Callable[[Any], int]
    """Returns how many packets there are to a plan, for a bar that tells how far it is."""
    geometry: Callable[[Any], object]
    """Raises ValueError where there can be no table for a plan."""
    conduct: Callable[[Any, Tick], dict[str, float]]
    """Carries out one trial of a plan, and returns the figures by name; raises ZonetrackError if anything is wrong."""
