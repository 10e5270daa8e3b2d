"""A table in a file: all that is in it but fragments, with a checksum over it, and lifetimes as what is left of them.

    SAVED_MAGIC 8 | bytes of the description 4 | description, JSON | regions, whole, one after the other | BLAKE2b, 32 bytes

A table is saved and restored while nobody works on it.  A file that is cut or was altered, or that another layout has
written, is refused before anything is touched.  What is restored goes on as if no time had passed; since connections may
have seen traffic meanwhile, their TCP windows and SCTP tags are learned again from the first packets of either side.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..clients.errors import ZonetrackError
from ..shm import header, roster, segment
from ..shm.errors import NotAtRest
from ..shm.layout import ENTRY, EXPECTATION, HEADER, HEADER_BYTES, Life, Region, Status, digest
from ..shm.sizing import Geometry
from ..shm.views import Table
from . import burial

SAVED_MAGIC = b"ZTSAVED1"
VERSION = 1
REGIONS = tuple(region for region in Region if region is not Region.FRAGMENTS)
CHECKSUM_BYTES = 32
DESCRIPTION_BYTES_MAX = 1 << 16
_STEP_BYTES = 1 << 24
_DUE_UNIT_MS = 16
_LEARNED_AGAIN = (6, 132)
"""TCP and SCTP: protocols whose packets are judged by what the ones before have said."""


class SavedError(ZonetrackError):
    """A file is not a table that can be restored, or a table cannot be saved; says why."""


def save(instance: str, path: Path) -> dict[str, Any]:
    """Save the table of an instance that nobody works on.

    Returns:
        ``connections`` and ``bytes`` that were saved.

    Raises:
        SegmentError: there is none, or a service uses it.
        SavedError: it is not at rest, or the file cannot be written; what was there before is left.
    """
    with segment.attach(instance, claim=True) as held:
        try:
            burial.bury_dead(held.table)
            if roster.present(held.table):
                raise SavedError(f"{instance}: somebody is at work on the table; stop the service first")
            told = _write(held.table, path)
        except OSError as error:
            raise SavedError(f"{path}: cannot be written: {error.strerror}") from error
        finally:
            if not roster.present(held.table):
                held.seal()
    return told


def _write(table: Table, path: Path) -> dict[str, Any]:
    regions = {region: np.frombuffer(table.regions[region], "u1") for region in REGIONS}
    sizes = {region.name: table.geometry.region_bytes(region) for region in REGIONS}
    geometry = table.geometry
    description = {
        "version": VERSION,
        "format": f"{digest():016x}",
        "geometry": [geometry.connections, geometry.zones_in_use, geometry.extension_share],
        "now_ms": now_ms(),
        "saved_s": time.time(),
        "regions": sizes,
    }
    text = json.dumps(description).encode()
    check = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            for part in (SAVED_MAGIC, len(text).to_bytes(4, "little"), text):
                check.update(part)
                file.write(part)
            for region, memory in regions.items():
                for first in range(0, sizes[region.name], _STEP_BYTES):
                    part = memory[first : min(first + _STEP_BYTES, sizes[region.name])].data
                    check.update(part)
                    file.write(part)
            file.write(check.digest())
            size = file.tell()
            file.flush()
            os.fsync(file.fileno())
        os.rename(made, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
        raise
    return {"connections": int(_live(table).sum()), "bytes": size}


def restore(instance: str, path: Path, replace: bool = False) -> dict[str, Any]:
    """Make the table of an instance from a file; the next start goes on with it.

    Args:
        instance: its name.
        path: of the file.
        replace: whether to discard a table of that name which nobody uses.

    Returns:
        ``connections`` that were restored, and ``saved_s``, when they were saved.

    Raises:
        SavedError: the file cannot be restored; nothing was changed.
        SegmentError: there is a table of that name, or too little memory.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SavedError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        description, first = check(descriptor, path)
        geometry = Geometry(*description["geometry"])
        with segment.create(instance, geometry, replace=replace) as made:
            try:
                for region in REGIONS:
                    first = _fill(made.table, region, descriptor, first)
                _begin_anew(made.table, now_ms() - description["now_ms"])
                made.seal()
            except BaseException:
                made.unlink()
                raise
            return {"connections": int(_live(made.table).sum()), "saved_s": description["saved_s"]}
    finally:
        os.close(descriptor)


def check(descriptor: int, path: Path) -> tuple[dict[str, Any], int]:
    """Return what a file says of itself, and where its regions begin, once all of it is known to be whole.

    Raises:
        SavedError: it is not.
    """
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, len(SAVED_MAGIC) + 4, 0)
    if len(head) < len(SAVED_MAGIC) + 4 or head[: len(SAVED_MAGIC)] != SAVED_MAGIC:
        raise SavedError(f"{path}: not a saved table")
    length, first = int.from_bytes(head[len(SAVED_MAGIC) :], "little"), len(head)
    made = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    end = size - CHECKSUM_BYTES
    for at in range(0, max(0, end), _STEP_BYTES):
        made.update(os.pread(descriptor, min(_STEP_BYTES, end - at), at))
    if end < first + length or os.pread(descriptor, CHECKSUM_BYTES, max(0, end)) != made.digest():
        raise SavedError(f"{path}: cut short, or altered since it was saved")
    description = json.loads(os.pread(descriptor, min(length, DESCRIPTION_BYTES_MAX), first))
    if description["version"] != VERSION or description["format"] != f"{digest():016x}":
        raise SavedError(
            f"{path}: saved by another version, whose table is laid out in another way "
            f"(format {description['format']}, this is {digest():016x})"
        )
    return description, first + length


def _fill(table: Table, region: Region, descriptor: int, first: int) -> int:
    """Fill a region but for its header; returns where the next begins in the file."""
    memory = np.frombuffer(table.regions[region], "u1")
    size = table.geometry.region_bytes(region)
    if region is Region.CONTROL:  # the key of the hash that all places in the index go by
        saved = np.frombuffer(os.pread(descriptor, HEADER.itemsize, first), HEADER)
        header.mapped(table, region)["secret"] = saved["secret"]
    for at in range(HEADER_BYTES, size, _STEP_BYTES):
        part = os.pread(descriptor, min(_STEP_BYTES, size - at), first + at)
        memory[at : at + len(part)] = np.frombuffer(part, "u1")
    return first + size


def _begin_anew(table: Table, later_ms: int) -> None:
    """Let all go on at this moment, which is so much later than when it was saved, or earlier by another clock.

    Raises:
        NotAtRest: somebody was at work when it was saved.
    """
    if roster.present(table):
        raise NotAtRest("the table that was saved was being worked on")
    live = _live(table)
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    for name in ("expiry_ms", "created_ms"):
        entries[name][live] = _later(entries[name][live], later_ms)
    units = np.clip(entries["expiry_ms"][live] // _DUE_UNIT_MS, 1, (1 << 32) - 1).astype("u4")
    entries["hint"][live] = units
    table.array(Region.DUE, "due", "u4")[live] = units
    protocols = entries["key"][:, 4] >> np.uint64(8) & np.uint64(0xFF)
    entries["status"][live & np.isin(protocols, _LEARNED_AGAIN)] |= np.uint16(Status.TORN)
    foretold = table.array(Region.CONTROL, "expectations", EXPECTATION)
    foretold["expiry_ms"] = _later(foretold["expiry_ms"], later_ms)


def _later(moments: np.ndarray, by_ms: int) -> np.ndarray:
    """Return moments by this clock; what was before it began was when it began."""
    return np.maximum(moments.astype("i8") + by_ms, 1).astype("u8")


def _live(table: Table) -> np.ndarray:
    return (table.array(Region.ENTRIES, "entries", ENTRY)["life"] & np.uint64(0xFF)) == Life.LIVE


def now_ms() -> int:
    """Return the moment, as the whole table counts it."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
