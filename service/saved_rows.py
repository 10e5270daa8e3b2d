"""Rows of a file whose layout is not ours: read by the names of their fields.

A file says how its rows are laid out, and what the bits of its words are called (shm/descriptions).  A field that is called
the same is taken over, whatever its place or width; one that we do not know is left out, one that it does not have is 0.
What was given another name stands in RENAMED, a row each.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from ..shm import descriptions
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
_TCP, _SCTP = 6, 132


def converted(
    kind: str,
    rows: np.ndarray,
    wanted: np.dtype,
    version: int,
    told: Mapping[str, Any],
    protocols: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Return rows as we lay them out.

    Args:
        kind: what they are: ``entries``, ``zones``, ...
        rows: as the file has them.
        wanted: our dtype.
        version: of the format that the file was written by.
        told: what its bits are called, as ``descriptions.numbers`` returns it.
        protocols: how it lays out what protocols remember, as ``descriptions.protocols`` returns it; None: as we do.

    Raises:
        ValueError: that is no layout.
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
    if kind == "entries":
        for name, theirs in (protocols or {}).items():
            ours = descriptions.PROTOCOLS.get(name)
            if ours is not None and theirs != descriptions.described(ours):
                out = out.copy() if out is rows else out
                _remember(out, rows["protocol"], name, descriptions.laid_out(theirs))
    return out


def _remember(out: np.ndarray, theirs: np.ndarray, name: str, laid_out: np.dtype) -> None:
    """Lay out anew what a protocol remembers, in the rows of connections that are followed by it."""
    protocol, is_ovs = out["key"][:, 4] >> np.uint64(8) & np.uint64(0xFF), out["status"] & Status.OVS != 0
    meant = {
        "TCP_PEERS": (protocol == _TCP) & ~is_ovs,
        "OVS_PEERS": (protocol == _TCP) & is_ovs,
        "SCTP_ASSOCIATION": (protocol == _SCTP) & ~is_ovs,
    }[name]
    if laid_out.itemsize > theirs.shape[1]:
        raise ValueError(f"not a layout: {name} is longer than its place")
    rows = np.ascontiguousarray(theirs[meant][:, : laid_out.itemsize]).view(laid_out)[:, 0]
    made = np.zeros(len(rows), descriptions.PROTOCOLS[name])
    _take(made, rows, {})
    out["protocol"][meant] = made.view("u1").reshape(len(made), made.itemsize)


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
