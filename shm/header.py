"""What the header of a segment says, and what it must say before anybody uses the segment.

All is read through the file, not through a mapping, so a truncated segment is an error and not a SIGBUS.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Set
from enum import IntEnum
from pathlib import Path

import numpy as np

from .errors import (
    SegmentError,
    WrongBoot,
    WrongDigest,
    WrongMagic,
    WrongRegion,
    WrongSize,
    WrongState,
    WrongVersion,
)
from .layout import FORMAT_VERSION, HEADER, HEADER_BYTES, MAGIC, Region, SegmentState, digest, offset
from .sizing import Geometry
from .views import Table


def boot_id() -> bytes:
    """Return the 16 bytes that tell this boot of the machine from every other."""
    return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))


def new_generation() -> int:
    """Return a number that no other creation has."""
    return secrets.randbits(63) + 1


def blank(region: int, generation: int, size: int) -> np.ndarray:
    """Return the header of a segment of ``size`` bytes in state NEW, HEADER[1], that says nothing of a table."""
    made = np.zeros(1, HEADER)
    made["magic"] = MAGIC
    made["version"] = FORMAT_VERSION
    made["region"] = region
    made["digest"] = digest()
    made["generation"] = generation
    made["boot_id"] = np.frombuffer(boot_id(), "u1")
    made["size"] = size
    made["state"] = SegmentState.NEW
    made["created_s"] = int(time.time())
    return made


def new(geometry: Geometry, region: Region, generation: int) -> np.ndarray:
    """Return the header of a region in state NEW, HEADER[1]."""
    made = blank(region, generation, geometry.region_bytes(region))
    made["capacity"] = geometry.connections
    made["zones_in_use_max"] = geometry.zones_in_use
    made["extension_share"] = geometry.extension_share
    return made


def mapped(table: Table, region: Region) -> np.ndarray:
    """Return the header of a region of a table, HEADER[1]; writes go to the table."""
    return np.frombuffer(table.regions[region], HEADER, 1)


def write(descriptor: int, header: np.ndarray) -> None:
    """Write a header and the rest of its page, in one piece."""
    os.pwrite(descriptor, header.tobytes().ljust(HEADER_BYTES, b"\0"), 0)


def write_state(descriptor: int, state: SegmentState) -> None:
    """Write the state of a segment that is not mapped."""
    os.pwrite(descriptor, int(state).to_bytes(4, sys.byteorder), int(offset(HEADER, "state")))


def read(descriptor: int) -> np.void:
    """Return the header of a segment as it is, HEADER; bytes that are not there are 0."""
    return np.frombuffer(os.pread(descriptor, HEADER.itemsize, 0).ljust(HEADER.itemsize, b"\0"), HEADER)[0]


def is_ours(header: np.void) -> bool:
    """Whether a header's fields mean what this program thinks that they mean."""
    return (header["magic"], header["version"], header["digest"]) == (MAGIC, FORMAT_VERSION, digest())


def check(name: str, descriptor: int, region: int, allowed: Set[SegmentState]) -> np.void:
    """Return the header of a segment, once it is known to be one that this program can use."""
    size = os.fstat(descriptor).st_size
    header = read(descriptor)
    if header["magic"] == 0:  # S1: nothing is written yet
        raise WrongState(name, names(allowed), SegmentState.NEW.name)
    if size < HEADER_BYTES:
        raise WrongSize(name, f"at least {HEADER_BYTES}", size)
    for kind, expected, found in (
        (WrongMagic, f"{MAGIC:#018x}", f"{header['magic']:#018x}"),
        (WrongVersion, FORMAT_VERSION, int(header["version"])),
        (WrongDigest, f"{digest():#018x}", f"{header['digest']:#018x}"),
        (WrongRegion, name_of(Region, region), name_of(Region, header["region"])),
        (WrongBoot, boot_id().hex(), header["boot_id"].tobytes().hex()),
    ):
        if expected != found:
            raise kind(name, expected, found)
    if header["state"] not in allowed:
        raise WrongState(name, names(allowed), name_of(SegmentState, header["state"]))
    if header["size"] != size:
        raise WrongSize(name, int(header["size"]), size)
    return header


def geometry(name: str, header: np.void) -> Geometry:
    """Return the sizes that a header names."""
    try:
        return Geometry(*(int(header[field]) for field in ("capacity", "zones_in_use_max", "extension_share")))
    except ValueError as error:
        raise SegmentError(name, "a possible capacity", str(error)) from None


def names(states: Set[SegmentState]) -> str:
    """Return the names of some states, as in ``READY or SEALED``."""
    return " or ".join(state.name for state in sorted(states))


def name_of(enum: type[IntEnum], value: int) -> str:
    """Return the name of a member, or the number where there is no such member."""
    return enum(value).name if value in set(enum) else str(value)
