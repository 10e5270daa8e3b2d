"""The memory of an instance: made, found again, put away, taken away.

An instance is six segments ``/zonetrack.<instance>.<region>``, each with a header.  CONTROL is made first and removed
last, and its state word is the state of the instance, so every change of it is one store.

Who may                    while                         sees
    create, attach(claim)  one process at a time         its claim (shm/claim), which its death gives up
    seal, unlink           who holds the claim           -
    attach                 anyone                        a READY table, whether its owner lives or not
    anonymous              anyone                        a table of its own, and of the processes it forks

Ordering
    S1  CONTROL's header is written in one piece, in state NEW, before the file is longer than the header; READY is the last
        store of a creation.  So whoever reads READY may read all the rest, and a segment without a header is being made.
    S2  NEW is stored before the first segment is unlinked, so what an interrupted unlink leaves is worth as little, and is
        treated the same, as what an interrupted creation leaves.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import weakref
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np
import posix_ipc  # pyright: ignore[reportMissingImports] - an extension module without stubs

from . import fresh, header, mapping, roster, space
from .claim import Claim
from .errors import (
    Exists,
    Forbidden,
    InstanceName,
    InUse,
    Missing,
    NoSpace,
    NotOurs,
    WrongGeneration,
    WrongSize,
    WrongState,
)
from .file_locks import reopen
from .layout import Region, SegmentState
from .sizing import Geometry
from .transitions import Transition, after
from .views import Table

INSTANCE_DEFAULT = "default"
_INSTANCE = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""No dot, which parts the name of a segment; short enough for the path of a socket."""
MODE = 0o600


class Act(IntEnum):
    """What may happen to an instance."""

    PUBLISH = 0
    CLAIM = 1
    SEAL = 2
    DISCARD = 3


# fmt: off
TRANSITIONS = (  #  from             act          to                   why
    Transition(SegmentState.NEW,    Act.PUBLISH, SegmentState.READY,  "filled"),
    Transition(SegmentState.READY,  Act.CLAIM,   SegmentState.READY,  "its owner died: the next goes on, after repair"),
    Transition(SegmentState.SEALED, Act.CLAIM,   SegmentState.READY,  "the next start after a clean stop"),
    Transition(SegmentState.READY,  Act.SEAL,    SegmentState.SEALED, "a clean stop: the roster is empty"),
    Transition(SegmentState.NEW,    Act.DISCARD, SegmentState.NEW,    "whoever was making or unmaking it died"),
    Transition(SegmentState.READY,  Act.DISCARD, SegmentState.NEW,    "being unmade: nobody may begin to use it"),
    Transition(SegmentState.SEALED, Act.DISCARD, SegmentState.NEW,    "the same"),
)
# fmt: on
AFTER = after(TRANSITIONS)


def segment_name(instance: str, region: Region) -> str:
    """Return the name of a region's segment.

    Raises:
        InstanceName: no instance can be called so.
    """
    return named(instance, region.name.lower())


def named(instance: str, part: str) -> str:
    """Return the name of an instance's segment; ``part`` has no dot.

    Raises:
        InstanceName: no instance can be called so.
    """
    if not _INSTANCE.fullmatch(instance):
        raise InstanceName(repr(instance), "1 to 48 of A-Z a-z 0-9 _ -", repr(instance))
    return f"/zonetrack.{instance}.{part}"


# ------------------------------------------------------------------------------------------------ an instance
@dataclass
class Instance:
    """A table with a name, attached; ``claim`` is None for those who do not own it."""

    name: str
    table: Table
    claim: Claim | None

    @property
    def geometry(self) -> Geometry:
        """Sizes of the table."""
        return self.table.geometry

    @property
    def state(self) -> SegmentState:
        """State of the instance at this moment."""
        return SegmentState(self.table.header[0]["state"])

    def seal(self) -> None:
        """Put the table away after a clean stop: the next start need not repair it.

        Raises:
            WrongState: somebody is on the roster still, or it is not READY.
        """
        self._owned()
        places = roster.present(self.table)
        if places:
            here = ", ".join(f"{place.kind.name.lower()} {place.pid}" for place in places)
            raise WrongState(self.name, "an empty roster", here)
        _move(self.name, self.table.header, Act.SEAL)

    def unlink(self) -> None:
        """Remove the segments; who has them mapped goes on using them, alone."""
        self._owned()
        assert self.table.control_file is not None
        if is_linked(self.table.control_file):
            _move(self.name, self.table.header, Act.DISCARD)  # S2
            _remove(self.name)

    def close(self) -> None:
        """Give up the claim.  The memory stays mapped as long as the table, or a view of it, is in use."""
        if self.claim is not None:
            self.claim.drop()
            self.claim = None

    def _owned(self) -> None:
        if self.claim is None or not self.claim.held:
            raise InUse(self.name, "the claim on the instance", "attached without it")

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()


def create(
    instance: str,
    geometry: Geometry,
    *,
    policies: np.ndarray | None = None,
    secret: bytes | None = None,
    replace: bool = False,
) -> Instance:
    """Make a new instance, and own it.

    Args:
        instance: its name.
        geometry: sizes of the table.
        policies: see ``fresh.initialise``.
        secret: see ``fresh.initialise``.
        replace: whether to discard a table of that name which nobody owns.  One that was never finished always is.

    Raises:
        NoSpace: /dev/shm, the machine or the control group has too little memory; nothing is left behind.
        Exists: there is a table of that name.
        InUse: and somebody owns it.
    """
    control, claim = _take_name(instance, replace=replace)
    files = {Region.CONTROL: control}
    generation = header.new_generation()
    try:
        _remove(instance, but=Region.CONTROL)
        space.demand(instance, geometry.total_bytes, space.shared_memory(control), space.machine(), *space.groups())
        header.write(control, header.new(geometry, Region.CONTROL, generation))  # S1
        for region in Region:
            if region is not Region.CONTROL:
                files[region] = _make(segment_name(instance, region))
            os.ftruncate(files[region], geometry.region_bytes(region))
        table = _map_all(instance, geometry, files, reserve=True)
        fresh.initialise(table, generation=generation, policies=policies, secret=secret)
        fresh.publish(table)
    except BaseException:
        with claim, contextlib.suppress(Forbidden):
            _remove(instance)
        raise
    finally:
        for descriptor in files.values():
            os.close(descriptor)
    return Instance(instance, table, claim)


def attach(instance: str, *, claim: bool = False, sealed: bool = False) -> Instance:
    """Attach to an instance that is there.

    Args:
        instance: its name.
        claim: whether to own it, as a new start does; a SEALED one is READY then.  Look at the roster for the dead.
        sealed: whether a table that was put away will do too, to be looked at.

    Raises:
        Missing: there is none.
        InUse: ``claim``, and another process owns it.
        SegmentError: another child, for each way in which it does not fit this program.
    """
    name = segment_name(instance, Region.CONTROL)
    files = {Region.CONTROL: open_segment(name)}
    own = None
    try:
        if claim:
            demand_own(name, files[Region.CONTROL])
            own = Claim(instance, files[Region.CONTROL])
            if not is_linked(files[Region.CONTROL]):
                raise Missing(name, "a segment", "one that was unlinked just now")
        allowed = {SegmentState.READY} | ({SegmentState.SEALED} if claim or sealed else set())
        control = header.check(name, files[Region.CONTROL], Region.CONTROL, allowed)
        geometry = header.geometry(name, control)
        for region in Region:
            if region is not Region.CONTROL:
                name = segment_name(instance, region)
                files[region] = open_segment(name)
                if claim:
                    demand_own(name, files[region])
                part = header.check(name, files[region], region, {SegmentState.READY})
                if part["generation"] != control["generation"]:
                    raise WrongGeneration(name, f"{control['generation']:#x}", f"{part['generation']:#x}")
            size = os.fstat(files[region]).st_size
            if size != geometry.region_bytes(region):
                raise WrongSize(name, geometry.region_bytes(region), size)
        table = _map_all(instance, geometry, files, reserve=False)
        if claim:
            _move(instance, table.header, Act.CLAIM)
    except BaseException:
        if own is not None:
            own.drop()
        raise
    finally:
        for descriptor in files.values():
            os.close(descriptor)
    return Instance(instance, table, own)


def discard(instance: str) -> None:
    """Remove the segments of an instance that nobody owns, whatever state, version or size they have.

    Raises:
        Missing: there is none.
        InUse: somebody owns it.
    """
    if not any(_exists(segment_name(instance, region)) for region in Region):
        raise Missing(instance, "an instance", "none")
    control, claim = _take_name(instance, replace=True)
    try:
        with claim:
            _remove(instance)
    finally:
        os.close(control)


def anonymous(geometry: Geometry, *, policies: np.ndarray | None = None, secret: bytes | None = None) -> Table:
    """Make a table without a name: for this process and those that it forks.

    Args:
        geometry: sizes of the table.
        policies: see ``fresh.initialise``.
        secret: see ``fresh.initialise``.

    Raises:
        NoSpace: the machine or the control group has too little memory.
    """
    space.demand("anonymous table", geometry.total_bytes, space.machine(), *space.groups())
    files = {}
    try:
        for region in Region:
            files[region] = os.memfd_create(f"zonetrack.{region.name.lower()}")
            os.ftruncate(files[region], geometry.region_bytes(region))
        table = _map_all("anonymous table", geometry, files, reserve=True)
    finally:
        for descriptor in files.values():
            os.close(descriptor)
    fresh.initialise(table, policies=policies, secret=secret)
    fresh.publish(table)
    return table


# ------------------------------------------------------------------------------------------------ names and files
def _take_name(instance: str, *, replace: bool) -> tuple[int, Claim]:
    """Make an empty CONTROL segment and claim it; returns its descriptor too."""
    name = segment_name(instance, Region.CONTROL)
    while True:
        try:
            control = _make(name)
        except Exists:
            with contextlib.suppress(Missing):  # it went just now
                _make_room(instance, name, replace)
            continue
        claim = None
        try:
            claim = Claim(instance, control)
            if is_linked(control):
                return control, claim
            claim.drop()
        except InUse:
            pass
        # Another start took it for what an interrupted creation left, before or after we claimed it.
        os.close(control)


def _make_room(instance: str, name: str, replace: bool) -> None:
    """Unlink the segments that stand under a name which we want, if they may be."""
    control = open_segment(name)
    try:
        with Claim(instance, control):
            if not is_linked(control):
                return
            found = header.read(control)
            ours = header.is_ours(found)
            unfinished = os.fstat(control).st_size == 0 or (ours and found["state"] == SegmentState.NEW)
            if not (unfinished or replace):
                state = header.name_of(SegmentState, found["state"]) if ours else "unreadable"
                raise Exists(instance, "no table of that name", f"one that nobody owns, {state}")
            if ours:
                header.write_state(control, SegmentState.NEW)  # S2
            _remove(instance)
    finally:
        os.close(control)


def _make(name: str) -> int:
    """Make an empty segment; returns its descriptor."""
    try:
        memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=MODE)
    except posix_ipc.ExistentialError:
        raise Exists(name, "no such segment", "one") from None
    except (posix_ipc.PermissionsError, OSError) as error:
        raise Forbidden(name, "to make it", str(error)) from error
    os.fchmod(memory.fd, MODE)  # whatever the umask
    return memory.fd


def open_segment(name: str) -> int:
    """Open a segment; returns its descriptor."""
    try:
        return posix_ipc.SharedMemory(name).fd
    except posix_ipc.ExistentialError:
        raise Missing(name, "a segment", "none") from None
    except (posix_ipc.PermissionsError, OSError) as error:
        raise Forbidden(name, "to read and write it", str(error)) from error


def demand_own(name: str, descriptor: int) -> None:
    """See that a segment is of this user, and that nobody else can write it.

    Raises:
        NotOurs: it is not so.
    """
    status = os.fstat(descriptor)
    mode = status.st_mode & 0o777
    if status.st_uid != os.geteuid() or mode & 0o077:
        raise NotOurs(name, f"user {os.geteuid()}, mode {MODE:o}", f"user {status.st_uid}, mode {mode:o}; discard it")


def _remove(instance: str, but: Region | None = None) -> None:
    """Unlink the segments, CONTROL last; whoever calls has the claim.

    Raises:
        Forbidden: one of them is another user's; the others are gone.
    """
    refused = None
    for region in reversed(Region):
        if region is not but:
            name = segment_name(instance, region)
            try:
                posix_ipc.unlink_shared_memory(name)
            except posix_ipc.ExistentialError:
                continue
            except (posix_ipc.PermissionsError, OSError) as error:
                refused = Forbidden(name, "to unlink it", str(error))
    if refused is not None:
        raise refused


def _exists(name: str) -> bool:
    return (space.SHARED_MEMORY / name[1:]).exists()


def is_linked(descriptor: int) -> bool:
    """Whether a segment still has its name; one that has lost it is nobody's instance, whoever has claimed it."""
    return os.fstat(descriptor).st_nlink > 0


def _map_all(name: str, geometry: Geometry, files: dict[Region, int], *, reserve: bool) -> Table:
    """Map every region; the table has a descriptor of CONTROL of its own."""
    try:
        regions = {
            region: mapping.shared(files[region], geometry.region_bytes(region), reserve=reserve) for region in Region
        }
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        free = space.shared_memory(files[Region.CONTROL])
        raise NoSpace(name, geometry.total_bytes, free.free, free.where) from error
    control = reopen(files[Region.CONTROL])
    table = Table(geometry, regions, control)
    weakref.finalize(table, os.close, control)
    return table


def _move(name: str, control: np.ndarray, act: Act) -> None:
    """Carry out a row of TRANSITIONS on CONTROL's header, in one store."""
    before = SegmentState(control["state"][0])
    if (before, act) not in AFTER:
        possible = {row.before for row in TRANSITIONS if row.event is act}
        raise WrongState(name, header.names(possible), before.name)
    control["state"] = AFTER[before, act]
