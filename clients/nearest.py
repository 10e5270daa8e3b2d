"""The nearest of some names, for whoever has typed one that is none of them."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that somebody may have meant, None if none is near."""
    import difflib  # not before somebody has mistyped

    return next(iter(difflib.get_close_matches(name[:100], list(known), 1)), None)


def hint(name: str, known: Iterable[str]) -> str:
    """Return the same for the text of an error."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else ""
