"""What a table says of its own layout, for programs that lay theirs out in another way.

It stands behind CONTROL's header, in the header's page: of each array of which ``zonetrack save`` keeps something, where it
is and how its records are laid out, and what numbers and bits in them are called.  It is written once, before the table is
READY, and never changed.

    offset 1024   bytes of the text 4 | CRC-32 of it 4 | the text: JSON, compressed (RFC 1950)

That place, and HEADER up to `state`, are the same in every version: they are how versions know each other.
"""

from __future__ import annotations

import json
import struct
import zlib
from enum import IntEnum
from typing import Any

import numpy as np

from .layout import (
    ENTRY,
    EXPECTATION,
    EXTENSION,
    FORMAT_VERSION,
    GLOBAL,
    HEADER_BYTES,
    OVS_PEERS,
    POLICY,
    QUOTA,
    SCTP_ASSOCIATION,
    TCP_PEERS,
    ZONE,
    ExpectationFlag,
    Life,
    Region,
    Setting,
    Status,
)
from .sizing import Geometry
from .views import Table

OFFSET = 1024
_HEAD = struct.Struct("<II")
TEXT_BYTES_MAX = HEADER_BYTES - OFFSET - _HEAD.size
ARRAYS: dict[str, tuple[Region, np.dtype]] = {
    "entries": (Region.ENTRIES, ENTRY),
    "extensions": (Region.EXTENSIONS, EXTENSION),
    "expectations": (Region.CONTROL, EXPECTATION),
    "globals": (Region.CONTROL, GLOBAL),
    "zones": (Region.CONTROL, ZONE),
    "quotas": (Region.CONTROL, QUOTA),
    "policies": (Region.CONTROL, POLICY),
    "helper_rules": (Region.CONTROL, np.dtype("u8")),
}
"""Arrays of which something is saved."""
PROTOCOLS = {"TCP_PEERS": TCP_PEERS, "OVS_PEERS": OVS_PEERS, "SCTP_ASSOCIATION": SCTP_ASSOCIATION}
"""Records that ENTRY.protocol may be."""
NUMBERS: tuple[type[IntEnum], ...] = (Status, Setting, Life, ExpectationFlag)


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
            made = np.dtype(told)
            if made.kind not in "ui":
                raise ValueError(f"not a layout: {told} is no whole number")
        elif "of" in told:
            made = np.dtype((laid_out(told["of"]), tuple(told["shape"])))
        else:
            names = list(told["fields"])
            made = np.dtype(
                {
                    "names": names,
                    "formats": [laid_out(told["fields"][name][0]) for name in names],
                    "offsets": [told["fields"][name][1] for name in names],
                    "itemsize": told["bytes"],
                }
            )
    except (TypeError, KeyError, IndexError, AttributeError, OverflowError, SyntaxError, MemoryError) as error:
        raise ValueError(f"not a layout: {error}") from None
    return made


def rows() -> dict[str, Any]:
    """Return how what is saved is laid out, by array."""
    return {name: described(dtype) for name, (_, dtype) in ARRAYS.items()}


def protocols() -> dict[str, Any]:
    """Return how what protocols remember is laid out, by record."""
    return {name: described(dtype) for name, dtype in PROTOCOLS.items()}


def numbers() -> dict[str, dict[str, int]]:
    """Return what numbers and bits are called, by enum."""
    return {kind.__name__: {one.name: int(one) for one in kind} for kind in NUMBERS}


def of(geometry: Geometry) -> dict[str, Any]:
    """Return the description of a table of some size."""
    places = {}
    for name, (region, _) in ARRAYS.items():
        count, _ = geometry.arrays(region)[name]
        places[name] = [region.name.lower(), geometry.offsets(region)[name], count]
    return {
        "format": FORMAT_VERSION,
        "geometry": [geometry.connections, geometry.zones_in_use, geometry.extension_share],
        "places": places,
        "rows": rows(),
        "protocols": protocols(),
        "numbers": numbers(),
    }


def packed(told: dict[str, Any]) -> bytes:
    """Return a description as it stands in the page."""
    text = zlib.compress(json.dumps(told, separators=(",", ":")).encode(), 9)
    assert len(text) <= TEXT_BYTES_MAX, "what is saved cannot be described in so few bytes"
    return _HEAD.pack(len(text), zlib.crc32(text)) + text


def write(table: Table) -> None:
    """Write a table's description; it is in state NEW."""
    whole = np.frombuffer(packed(of(table.geometry)), "u1")
    np.frombuffer(table.regions[Region.CONTROL], "u1", len(whole), OFFSET)[:] = whole


def read(page: bytes) -> dict[str, Any] | None:
    """Return what the first page of a CONTROL segment describes; None where there is nothing, or not all of it.

    Args:
        page: HEADER_BYTES, or fewer where the segment is shorter.
    """
    if len(page) < HEADER_BYTES:
        return None
    size, check = _HEAD.unpack_from(page, OFFSET)
    text = page[OFFSET + _HEAD.size :][:size]
    if not 0 < size <= TEXT_BYTES_MAX or zlib.crc32(text) != check:
        return None
    return json.loads(zlib.decompress(text))
