"""State machines as rows: what may happen in a state, what comes of it, and why."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=IntEnum)
E = TypeVar("E", bound=IntEnum)


class Transition(NamedTuple, Generic[S, E]):
    """A row: in state ``before``, ``event`` leads to ``after``."""

    before: S
    event: E
    after: S
    why: str


def after(rows: Iterable[Transition[S, E]]) -> dict[tuple[S, E], S]:
    """Return where each row leads, by state and event; what is not there cannot happen.

    Raises:
        ValueError: two rows are about the same.
    """
    found: dict[tuple[S, E], S] = {}
    for row in rows:
        if (row.before, row.event) in found:
            raise ValueError(f"{row.event.name} of {row.before.name} stands in two rows")
        found[row.before, row.event] = row.after
    return found
