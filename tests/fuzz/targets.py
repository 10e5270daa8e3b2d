"""What can be given nonsense, by name."""

from __future__ import annotations

from . import captures, frames, messages, rings, rules, saved
from .runs import Target

TARGETS = {
    one.name: one
    for one in (
        Target("frames", frames.world, 200_000),
        Target("captures", captures.world, 20_000),
        Target("messages", messages.world, 100_000),
        Target("rings", rings.world, 20_000),
        Target("saved", saved.world, 5_000),
        Target("rules", rules.world, 20_000),
    )
}
