"""Rows of a file whose layout is not ours: read by the names of their fields.

A file says how its rows are laid out, and what the bits of its words are called.  A field that is called the same is taken
over, whatever its place or width; one that we do not know is left out, one that it does not have is 0.  What was given
another name stands in RENAMED, a row each.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from ..shm.layout import Setting, Status


class Renamed(NamedTuple):
    """A field that was called otherwise in files up to a version of the shared format."""

    kind: str
    version: int
    before: str
    after: str


RENAMED: tuple[Renamed, ...] = ()
"""No field of what is saved has had another name so far."""
BITS: dict[str, tuple[type[IntEnum], tuple[tuple[str, str], ...]]] = {
    "Status": (Status, (("entries", "status"),)),
    "Setting": (Setting, (("zones", "settings"), ("globals", "settings"))),
}
"""Enums of bits, and the fields, by kind of row, that hold them."""


def described(dtype: np.dtype) -> Any:
    """Return how a dtype is laid out, in terms of JSON."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"of": described(base), "shape": list(shape)}
    if dtype.fields is None:
        return dtype.str
    fields = {name: [described(kind), int(at)] for name, (kind, at, *_) in dtype.fields.items()}
    return {"bytes": dtype.itemsize, "fields": fields}


def laid_out(told: Any) -> np.dtype:
    """Return the dtype that a description is of.

    Raises:
        ValueError: it is none.
    """
    try:
        if isinstance(told, str):
            return np.dtype(told)
        if "of" in told:
            return np.dtype((laid_out(told["of"]), tuple(told["shape"])))
        names = list(told["fields"])
        return np.dtype(
            {
                "names": names,
                "formats": [laid_out(told["fields"][name][0]) for name in names],
                "offsets": [told["fields"][name][1] for name in names],
                "itemsize": told["bytes"],
            }
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a layout: {error}") from None


def bits() -> dict[str, dict[str, int]]:
    """Return what the bits of words are called."""
    return {name: {bit.name: int(bit) for bit in kind} for name, (kind, _) in BITS.items()}


def converted(kind: str, rows: np.ndarray, wanted: np.dtype, version: int, told: Mapping[str, Any]) -> np.ndarray:
    """Return rows as we lay them out.

    Args:
        kind: what they are: ``entries``, ``zones``, ...
        rows: as the file has them.
        wanted: our dtype.
        version: of the format that the file was written by.
        told: what its bits are called, as ``bits`` returns it.
    """
    names = {row.after: row.before for row in RENAMED if row.kind == kind and version <= row.version}
    out = rows
    if rows.dtype != wanted:
        out = np.zeros(rows.shape, wanted)
        _take(out, rows, names)
    for name, (known, fields) in BITS.items():
        theirs = told.get(name, {})
        if all(theirs.get(bit.name, int(bit)) == int(bit) for bit in known):
            continue
        for of, field in fields:
            if of == kind:
                out = out.copy() if out is rows else out
                out[field] = _renumbered(out[field], known, theirs)
    return out


def _take(out: np.ndarray, rows: np.ndarray, names: Mapping[str, str]) -> None:
    """Copy what has the same name."""
    for name in out.dtype.names or ():
        source = names.get(name, name)
        if source not in (rows.dtype.names or ()):
            continue
        to, from_ = out[name], rows[source]
        if to.ndim != from_.ndim or bool(to.dtype.names) != bool(from_.dtype.names):
            continue
        both = tuple(slice(0, min(sizes)) for sizes in zip(to.shape, from_.shape, strict=True))
        if to.dtype.names:
            _take(to[both], from_[both], {})
        else:
            to[both] = from_[both]


def _renumbered(words: np.ndarray, known: type[IntEnum], theirs: Mapping[str, int]) -> np.ndarray:
    """Return words with our bits for theirs of the same names."""
    made = np.zeros_like(words)
    for bit in known:
        if bit.name in theirs:
            made |= np.where(words & words.dtype.type(theirs[bit.name]), words.dtype.type(bit), words.dtype.type(0))
    return made
