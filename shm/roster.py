"""Who is attached: places on the roster, and which of them belong to the dead.

A place is a row of PARTICIPANT; owner id = index + 1.  The id stands in locks and life words, so it is the place that
owns things, not the process: who joins a place goes on with its free lists and its delete list.

Who may                 while                            sees
    join, lay_to_rest   anyone, holding the roster lock  all the while: there is one repairer, and it may die
    leave               the participant, likewise        -
    present             anyone, without the lock         a place that may be on its way in or out

The roster lock is an flock on the CONTROL file, through a description opened for this one time: the kernel takes it
from a holder that dies, and threads and forked children exclude each other too.

Invariants
    P1  A place is EMPTY or DYING, or its pid and start time name who has it.
    P2  An EMPTY place is at rest: no step, no credit.
    P3  JOINING, seen under the roster lock, is a place whose joiner died.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from .errors import NotAtRest, RosterError, RosterFull
from .file_locks import reopen
from .layout import HOLDER, PARTICIPANT, ROSTER_MAX, STEP_BITS, USED, Attendance, Kind, Region, Step
from .transitions import Transition, after
from .views import Table


class Act(IntEnum):
    """What may happen to a place."""

    JOIN = 0
    ENTER = 1
    LEAVE = 2
    DIE = 3
    BURY = 4


# fmt: off
TRANSITIONS = (  #  from         act        to                   why
    Transition(Attendance.EMPTY,   Act.JOIN,  Attendance.JOINING, "who it is gets written"),
    Transition(Attendance.JOINING, Act.ENTER, Attendance.PRESENT, "it is written"),
    Transition(Attendance.PRESENT, Act.LEAVE, Attendance.EMPTY,   "at rest, of its own accord"),
    Transition(Attendance.PRESENT, Act.DIE,   Attendance.DYING,   "repair begins"),
    Transition(Attendance.JOINING, Act.DIE,   Attendance.DYING,   "died between the two stores"),
    Transition(Attendance.DYING,   Act.DIE,   Attendance.DYING,   "its repairer died too"),
    Transition(Attendance.DYING,   Act.BURY,  Attendance.EMPTY,   "repair has ended, or there was nothing to repair"),
)
# fmt: on
AFTER = after(TRANSITIONS)

REPAIR_ROUNDS_MAX = 3
"""Calls for one of the dead: the first of each frees what others of them wait for."""

_alone = threading.Lock()
"""The roster lock of tables that have no file."""


@dataclass(frozen=True)
class Place:
    """A place that is not empty."""

    owner: int
    pid: int
    start_ticks: int
    kind: Kind
    attendance: Attendance
    step: Step
    alive: bool


def start_ticks(pid: int) -> int:
    """Return when process ``pid`` started, in clock ticks since boot; 0 when it is dead, waited for or not.

    Source:
        proc_pid_stat(5), field 22; field 3 is Z for a process that only its parent still knows.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        # the command in field 2 may hold spaces and parentheses
        fields = stat[stat.rindex(b")") + 2 :].split()
        if fields[0] in (b"X", b"x") or (fields[0] == b"Z" and len(os.listdir(f"/proc/{pid}/task")) < 2):
            return 0
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[19])


def participants(table: Table) -> np.ndarray:
    """Return all places, PARTICIPANT[ROSTER_MAX]; writes go to the table."""
    return table.array(Region.CONTROL, "participants", PARTICIPANT)


@contextmanager
def locked(table: Table) -> Iterator[np.ndarray]:
    """Hold the roster lock; yields all places."""
    if table.control_file is None:
        with _alone:
            yield participants(table)
        return
    own = reopen(table.control_file)
    try:
        fcntl.flock(own, fcntl.LOCK_EX)
        yield participants(table)
        fcntl.flock(own, fcntl.LOCK_UN)
    finally:
        os.close(own)


def join(table: Table, kind: Kind) -> int:
    """Take a place for the calling process.

    Args:
        table: where.
        kind: what the participant is.

    Returns:
        The owner id.  Each thread that runs kernels needs one of its own.

    Raises:
        RosterFull: no place is EMPTY.
    """
    pid = os.getpid()
    with locked(table) as places:
        empty = np.flatnonzero(places["attendance"] == Attendance.EMPTY)
        index = next((int(index) for index in empty if _at_rest(places[index])), None)
        if index is None:
            gone = sum(not _alive(place) for place in places)
            raise RosterFull(f"all {ROSTER_MAX} places are taken, {gone} of them by the dead")
        place = places[index]
        _move(place, Act.JOIN)
        place["pid"], place["start_ticks"], place["kind"] = pid, start_ticks(pid), kind
        _move(place, Act.ENTER)
        return index + 1


def leave(table: Table, me: int) -> None:
    """Give the own place back; its lists wait for whoever joins there, its blocks for whoever adopts them.

    Args:
        table: where.
        me: owner id from ``join``.

    Raises:
        NotAtRest: an operation of its own is still under way.
        RosterError: the place is somebody else's.
    """
    with locked(table) as places:
        place = places[me - 1]
        pid = os.getpid()
        if place["attendance"] != Attendance.PRESENT or place["pid"] != pid:
            raise RosterError(f"place {me} is not of process {pid}: {Attendance(place['attendance']).name}")
        _empty(table, me, place, Act.LEAVE)


def present(table: Table) -> list[Place]:
    """Return who is on the roster, the dead too, in order of owner id; anyone may look, without the lock."""
    return taken(participants(table))


def taken(places: np.ndarray) -> list[Place]:
    """Return the places of PARTICIPANT[n] that are not empty."""
    return [_read(int(index) + 1, places[index]) for index in np.flatnonzero(places["attendance"])]


def lay_to_rest(table: Table, repair: Callable[[int], bool]) -> tuple[dict[int, Step], list[int]]:
    """Repair and bury all whose process is gone.

    Args:
        table: where.
        repair: brings the place of an owner id to rest; False when it is to be called again, for another has a lock.

    Returns:
        The steps in which those who were buried had died, by owner id; and who could not be repaired, still DYING.

    Raises:
        NotAtRest: one is within an operation still, though its repair says otherwise.

    Concurrency:
        Who wants to join waits.  A repairer that is killed loses the lock to the next, which begins again.
    """
    buried: dict[int, Step] = {}
    with locked(table) as places:
        left = _gone(places)
        for owner in left:
            _move(places[owner - 1], Act.DIE)
        steps = {owner: _step(places[owner - 1]) for owner in left}
        for _ in range(REPAIR_ROUNDS_MAX):
            for owner in list(left):
                if repair(owner):
                    _empty(table, owner, places[owner - 1], Act.BURY)
                    buried[owner] = steps[owner]
                    left.remove(owner)
            if not left:
                break
    return buried, left


def _gone(places: np.ndarray) -> list[int]:
    """Return the owner ids whose process is gone."""
    return [int(index) + 1 for index in np.flatnonzero(places["attendance"]) if not _alive(places[index])]


def _empty(table: Table, owner: int, place: np.void, act: Act) -> None:
    if not _at_rest(place):
        raise NotAtRest(f"place {owner} is in step {_step(place).name}, with {place['intent']['credit']} in credit")
    held = int(table.array(Region.FRAGMENTS, "holders", HOLDER)[owner - 1]["held"])
    if held:
        raise NotAtRest(f"place {owner} holds {held} fragments")
    blocks = table.array(Region.CONTROL, "blocks", "u4")
    blocks[blocks == owner] = USED  # orphans: connections in them must expire, whether the place is joined or not
    _move(place, act)


def _move(place: np.void, act: Act) -> None:
    """Carry out a row of TRANSITIONS, in one store."""
    place["attendance"] = AFTER[Attendance(place["attendance"]), act]


def _step(place: np.void) -> Step:
    return Step(int(place["intent"]["step"]) & (1 << STEP_BITS) - 1)


def _at_rest(place: np.void) -> bool:
    return _step(place) is Step.NONE and place["intent"]["credit"] == 0


def _alive(place: np.void) -> bool:
    """Whether the process of a place runs; by P3 a JOINING place has none."""
    if place["attendance"] != Attendance.PRESENT:
        return False
    ticks = start_ticks(int(place["pid"]))
    return ticks != 0 and ticks == int(place["start_ticks"])


def _read(owner: int, place: np.void) -> Place:
    kind = int(place["kind"])
    return Place(
        owner,
        int(place["pid"]),
        int(place["start_ticks"]),
        Kind(kind or Kind.TOOL),
        Attendance(place["attendance"]),
        _step(place),
        _alive(place),
    )
