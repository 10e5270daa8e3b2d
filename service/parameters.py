"""Parameters of methods: each has a reader, which takes what came over the wire or says what it would have taken.

Nothing that a client sends is trusted: a value is of the type that was asked for, within its bounds, or an error that names
the parameter.  ``True`` is no number.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ..clients.errors import BadParameterError, UnknownParameterError
from ..shm.layout import UNLIMITED, ZONES_MAX

Reader = Callable[[str, Any], Any]
"""Takes a parameter's name and value, returns the value as handlers want it; raises BadParameterError."""


ABSENT: Any = object()
"""Of a parameter that was not given, where nil says something."""
_REQUIRED: Any = object()


class Parameter(NamedTuple):
    """A parameter of a method; one without a default must be given."""

    read: Reader
    default: Any = _REQUIRED


def bad(name: str, wanted: str, value: Any) -> BadParameterError:
    """Return the error for a value that will not do."""
    return BadParameterError(f"{name}: {wanted}, not {reprlib.repr(value)}", {"parameter": name})


def nearest(name: str, known: Iterable[str]) -> dict[str, Any]:
    """Return, for the detail of an error, the known name that somebody may have meant; nothing if none is near."""
    found = difflib.get_close_matches(name[:100], list(known), 1)
    return {"nearest": found[0]} if found else {}


def hint(near: Mapping[str, Any]) -> str:
    """Return the same for the text of an error."""
    return f"; did you mean {near['nearest']}?" if near else ""


def read(method: str, parameters: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all parameters of a method.

    Raises:
        UnknownParameterError: it has no parameter of that name.
        BadParameterError: one is missing, or its value will not do.
    """
    for name in given:
        if name not in parameters:
            near = nearest(name, parameters)
            raise UnknownParameterError(
                f"{method} has no parameter {reprlib.repr(name)}{hint(near)}", {"parameter": name[:100]} | near
            )
    values = {}
    for name, parameter in parameters.items():
        if name in given:
            values[name] = parameter.read(name, given[name])
        elif parameter.default is _REQUIRED:
            raise BadParameterError(f"{method} needs the parameter {name}", {"parameter": name})
        else:
            values[name] = parameter.default
    return values


# ------------------------------------------------------------------------------------------------ readers
def whole(low: int, high: int) -> Reader:
    """Return a reader of whole numbers within bounds."""

    def take(name: str, value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise bad(name, f"a whole number from {low} to {high}", value)
        return value

    return take


def nothing_or(reader: Reader) -> Reader:
    """Return a reader that takes nil too."""

    def take(name: str, value: Any) -> Any:
        return None if value is None else reader(name, value)

    return take


def flag(name: str, value: Any) -> bool:
    """Read a truth value."""
    if type(value) is not bool:
        raise bad(name, "true or false", value)
    return value


def text(name: str, value: Any) -> str:
    """Read text."""
    if type(value) is not str:
        raise bad(name, "text", value)
    return value


def one_of(words: Collection[str]) -> Reader:
    """Return a reader of one of some words."""

    def take(name: str, value: Any) -> str:
        if type(value) is not str or value not in words:
            raise bad(name, f"one of {', '.join(words)}", value)
        return value

    return take


def list_of(reader: Reader, length_max: int = 64) -> Reader:
    """Return a reader of lists."""

    def take(name: str, value: Any) -> list[Any]:
        if type(value) is not list or len(value) > length_max:
            raise bad(name, f"a list of at most {length_max}", value)
        return [reader(name, one) for one in value]

    return take


zone = whole(0, ZONES_MAX - 1)
limit = nothing_or(whole(0, UNLIMITED - 1))
"""Nil is no limit."""
