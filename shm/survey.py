"""What instances lie in /dev/shm, whose they are, and whether anybody is alive in them.

Only looks: nothing is mapped, locked or changed, and what cannot be read is listed all the same.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from . import claim, descriptions, header, roster, space
from .layout import HEADER_BYTES, MAGIC, PARTICIPANT, ROSTER_MAX, Region, SegmentState
from .sizing import Geometry

_PREFIX = "zonetrack."


@dataclass
class Found:
    """An instance in /dev/shm."""

    instance: str
    user: str = "?"
    """Whose CONTROL segment it is."""
    total_bytes: int = 0
    """Memory that its segments take."""
    segments: dict[str, int] = field(default_factory=dict)
    """Bytes of each, by the last part of its name."""
    state: str = "UNREADABLE"
    """SegmentState, or why there is none to tell."""
    connections: int = 0
    zones_in_use: int = 0
    extension_share: int = 0
    created_s: int = 0
    convertible: bool = False
    """Whether it is of another layout and says of which: the next start converts it."""
    owner: int = 0
    """Process that claims it, 0 when nobody does."""
    alive: list[str] = field(default_factory=list)
    """Participants whose process runs, as in ``worker 123``."""
    dead: list[str] = field(default_factory=list)

    @property
    def leftover(self) -> bool:
        """Whether nobody is left who uses it."""
        return not self.owner and not self.alive

    def summary(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self) | {"leftover": self.leftover}


def instances() -> list[Found]:
    """Return every instance of which a segment is there, by name."""
    found: dict[str, Found] = {}
    for path in sorted(space.SHARED_MEMORY.glob(f"{_PREFIX}*.*")):
        instance, _, region = path.name.removeprefix(_PREFIX).rpartition(".")
        status = path.stat()
        one = found.setdefault(instance, Found(instance))
        one.segments[region] = 512 * status.st_blocks
        one.total_bytes += 512 * status.st_blocks
        if region == Region.CONTROL.name.lower() or one.user == "?":
            one.user = _user(status.st_uid)
    for one in found.values():
        _look(one)
    return list(found.values())


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _look(one: Found) -> None:
    """Read what the CONTROL segment says, as far as it says anything to this program."""
    path = space.SHARED_MEMORY / f"{_PREFIX}{one.instance}.{Region.CONTROL.name.lower()}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        one.state = "NO CONTROL SEGMENT"
        return
    except OSError as error:
        one.state = str(error.strerror).upper()
        return
    try:
        one.owner = claim.holder(descriptor)
        size = os.fstat(descriptor).st_size
        found = header.read(descriptor)
        if size == 0:
            one.state = SegmentState.NEW.name
        elif found["magic"] != MAGIC:
            one.state = "NOT ZONETRACK'S"
        elif not header.is_ours(found):
            one.state = "ANOTHER VERSION"
            told = descriptions.read(os.pread(descriptor, HEADER_BYTES, 0))
            if told is not None:
                one.convertible = True
                one.connections, one.zones_in_use, one.extension_share = told["geometry"]
        else:
            one.connections, one.created_s = int(found["capacity"]), int(found["created_s"])
            one.zones_in_use, one.extension_share = int(found["zones_in_use_max"]), int(found["extension_share"])
            try:
                one.state = SegmentState(found["state"]).name
                _call_roll(one, descriptor)
            except ValueError:  # a word that is no member of its enum
                one.state = "CORRUPT"
    finally:
        os.close(descriptor)


def _call_roll(one: Found, descriptor: int) -> None:
    """Read the roster, which lies at the same place in tables of every size."""
    place = Geometry(1).offsets(Region.CONTROL)["participants"]
    rows = os.pread(descriptor, ROSTER_MAX * PARTICIPANT.itemsize, place)
    whole = len(rows) // PARTICIPANT.itemsize * PARTICIPANT.itemsize  # it may be truncated
    for participant in roster.taken(np.frombuffer(rows[:whole], PARTICIPANT)):
        name = f"{participant.kind.name.lower()} {participant.pid}"
        (one.alive if participant.alive else one.dead).append(name)
