"""The estate of a service: what its processes share without a name, and how the next keeper comes by it.

When a keeper dies its children go on.  What they inherited from it has no names: memory with cursors and rules, the socket
that listens, the ends of a pipe.  The estate holds a list of all that, and stands in every process of the service, where
its link in /proc says what it is; so whoever starts next finds the processes, and takes their descriptors over.

    ESTATE | list, twice, as JSON | lines, one for each worker

Who may                   while                                   sees
    found, keep           the first keeper, before it forks       -
    take_over, take_up, tell   who holds the claim on the instance     the list that was told last
    occupy                a child, once, at its beginning         a place that nobody else is in
    members, holder       anyone of the same user                 -

A descriptor of the list has the same number in every process that has it: a child inherits it, and a keeper that takes over
puts it there again.

Who is in a place is said by a lock on the file (shm/file_locks), as with the claim on an instance: it begins where the place
does and is as long as the pid.  So a place has one process, and death gives it up.

Invariants
    E1  The half of the list that `word` names is whole: it is written before, and the other one is written next.
    E2  `pid` and `start_ticks` name the keeper, alive or dead; 0 where it left its children to the next.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import re
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from . import file_locks
from .errors import EstateError
from .layout import PAGE_BYTES
from .roster import start_ticks

ESTATE = np.dtype(
    [
        ("word", "u8"),  # bytes of the list << 1 | its half
        ("pid", "u4"),  # of the keeper
        ("reserved", "u4"),
        ("start_ticks", "u8"),  # of the keeper, as proc_pid_stat(5) has it
    ],
    align=True,
)
LIST_BYTES_MAX = 1 << 17
"""A name and a number for each descriptor: 1,024 queues of a card are some 40 KB."""
LINES = 2 * LIST_BYTES_MAX + PAGE_BYTES
"""Where the lines begin."""
NUMBER_MIN = 256
"""Descriptors of the list have numbers from here on, which nothing else has got yet when a keeper takes them over."""
CONTROL = 1 << 16
"""The place of control; those of workers are their numbers."""
ITSELF = "estate"
"""What an estate is called among its descriptors, where others keep them."""
_SYS_PIDFD_GETFD = 438  # on every architecture, since Linux 5.6
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)
_LINK = re.compile(r"/memfd:zonetrack\.([^.]+)\.estate \(deleted\)")
"""How the memory of an estate shows in /proc: see ``link_of``."""
_libc = ctypes.CDLL(None, use_errno=True)


class Member(NamedTuple):
    """A process that has the estate, and the number of its descriptor there."""

    pid: int
    descriptor: int


class Estate:
    """The estate of a service, in one of its processes."""

    def __init__(self, instance: str, descriptor: int) -> None:
        """Map it.

        Args:
            instance: name of the service's instance.
            descriptor: of its memory; it belongs to this object from now on.
        """
        self.instance, self.descriptor = instance, descriptor
        weakref.finalize(self, os.close, descriptor)
        self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        self._bytes = np.frombuffer(self._memory, "u1")
        self._head = self._bytes[: ESTATE.itemsize].view(ESTATE)[0]
        self._held: list[int] = []

    @classmethod
    def found(cls, instance: str, lines_bytes: int) -> Self:
        """Make an empty estate, whose keeper is this process."""
        descriptor = os.memfd_create(link_of(instance), os.MFD_CLOEXEC)
        size = LINES + lines_bytes
        os.ftruncate(descriptor, size)
        os.posix_fallocate(descriptor, 0, size)
        made = cls(instance, descriptor)
        made.tell({"descriptors": {}})
        made.keep_on()
        return made

    def lines(self, dtype: np.dtype) -> np.ndarray:
        """Return the lines, as records of ``dtype``; writes go to all."""
        rest = self._bytes[LINES:]
        return rest[: len(rest) // dtype.itemsize * dtype.itemsize].view(dtype)

    # -------------------------------------------------------------------------------------------- the list
    @property
    def told(self) -> dict[str, Any]:
        """What was told last."""
        word = int(self._head["word"])
        first = PAGE_BYTES + (word & 1) * LIST_BYTES_MAX
        return json.loads(self._bytes[first : first + (word >> 1)].tobytes())

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Let the list say this from now on.

        Raises:
            EstateError: it is too long; nothing was changed.
        """
        text = json.dumps(facts).encode()
        if len(text) > LIST_BYTES_MAX:
            raise EstateError(self.instance, f"a list of at most {LIST_BYTES_MAX} bytes", f"{len(text)}")
        half = 1 - (int(self._head["word"]) & 1)
        first = PAGE_BYTES + half * LIST_BYTES_MAX
        self._bytes[first : first + len(text)] = np.frombuffer(text, "u1")
        self._head["word"] = len(text) << 1 | half  # E1

    def add(self, **facts: Any) -> None:
        """Let the list say this too."""
        self.tell(self.told | facts)

    def keep(self, name: str, descriptor: int) -> int:
        """Put a descriptor on the list, under another number; the one that is given is closed.

        Returns:
            The number that it has from now on, in all processes that are forked later.

        Raises:
            OSError: there may be no more descriptors.
        """
        number = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, NUMBER_MIN)
        os.close(descriptor)
        self.add(descriptors=self.told["descriptors"] | {name: [number, *_identity(number)]})
        return number

    def number(self, name: str) -> int | None:
        """Return the number of a descriptor of the list; None where this process has none of that name."""
        number, *identity = self.told["descriptors"].get(name, (-1, None))
        return number if _identity(number) == identity else None

    def descriptors(self) -> dict[str, int]:
        """Return the numbers of the descriptors of the list that this process has, by name, and of the estate itself."""
        numbers = {name: self.number(name) for name in self.told["descriptors"]}
        return {ITSELF: self.descriptor} | {name: number for name, number in numbers.items() if number is not None}

    def drop(self, name: str) -> None:
        """Close a descriptor of the list in this process alone."""
        number = self.number(name)
        if number is not None:
            os.close(number)

    # -------------------------------------------------------------------------------------------- the keeper
    @property
    def keeper(self) -> int:
        """The pid of the keeper, 0 when it is dead, or has left."""
        pid, ticks = int(self._head["pid"]), int(self._head["start_ticks"])
        return pid if pid and start_ticks(pid) == ticks else 0

    def keep_on(self) -> None:
        """Be the keeper."""
        self._head["pid"] = 0  # E2: never a pid beside another's moment
        self._head["start_ticks"] = start_ticks(os.getpid())
        self._head["pid"] = os.getpid()

    def leave(self) -> None:
        """Be the keeper no more, and leave the others to the next."""
        self._head["pid"] = 0

    # -------------------------------------------------------------------------------------------- places
    def occupy(self, place: int) -> None:
        """Take a place for this process, until its end; wait while another has it."""
        own = file_locks.reopen(self.descriptor)
        self._held.append(own)
        file_locks.wait_for(own, place << 32, os.getpid())

    def holder(self, place: int) -> int:
        """Return the pid of who is in a place, 0 for nobody."""
        return file_locks.held(self.descriptor, place << 32, 1)


def link_of(instance: str) -> str:
    """Return the name of an estate's memory, as it shows in /proc."""
    return f"zonetrack.{instance}.estate"


def may_be_taken_over() -> None:
    """Let whoever runs as the same user take descriptors of this process over.

    Where the Yama module restricts that to ancestors, a new keeper would be refused: it is none.  Who runs as this user
    can write the table anyway.

    Source:
        PR_SET_PTRACER(2const); refused where the module is not there, and not needed.
    """
    _libc.prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)


def members(instance: str) -> list[Member]:
    """Return the processes that have the estate of an instance, as far as this one may see."""
    found: dict[int, Member] = {}
    for member, name in _all_members():
        if name == instance:
            found.setdefault(member.pid, member)
    return sorted(found.values())


def instances() -> list[str]:
    """Return the instances of which processes have an estate, as far as this one may see."""
    return sorted({name for _, name in _all_members()})


def _all_members() -> Iterator[tuple[Member, str]]:
    """Yield each descriptor of an estate that a process has, and the name of the instance."""
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # another user's, or gone
            for link in (process / "fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if (found := _LINK.fullmatch(os.readlink(link))) and _has_mapped(process, found[0]):
                        yield Member(int(process.name), int(link.name)), found[1]


def _has_mapped(process: Path, link: str) -> bool:
    """Return whether a process works with the memory, and does not just keep the descriptor, as a service manager does."""
    return any(line.rstrip().endswith(link) for line in (process / "maps").read_text().splitlines())


def look(instance: str, member: Member) -> Estate | None:
    """Return the estate of a process, without its descriptors; None when it has gone meanwhile."""
    try:
        return Estate(instance, os.open(f"/proc/{member.pid}/fd/{member.descriptor}", os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return None


def take_over(estate: Estate, pids: list[int]) -> None:
    """Take the descriptors of an estate over from processes that have them, and be its keeper.

    A descriptor that none of them has is missing afterwards: see ``Estate.number``.

    Raises:
        EstateError: the kernel refuses, or a number is taken here.
    """
    with _watched(pids) as watched:
        for name, (number, *identity) in estate.told["descriptors"].items():
            refused = 0
            for pidfd in watched:
                taken = _libc.syscall(
                    ctypes.c_long(_SYS_PIDFD_GETFD), ctypes.c_int(pidfd), ctypes.c_int(number), ctypes.c_uint(0)
                )
                code = ctypes.get_errno()
                if taken >= 0 and _give_number(estate, name, taken, number, identity):
                    break
                if taken < 0 and code not in (errno.EBADF, errno.ESRCH):
                    refused = code
            else:
                if refused:  # by all who have it: they may do more than this process
                    raise EstateError(estate.instance, f"descriptor {name} of another process", os.strerror(refused))
    estate.keep_on()


def take_up(estate: Estate, stored: Mapping[str, int]) -> None:
    """Take the descriptors of an estate over from who has kept them while no process lived, and be its keeper.

    Args:
        estate: that of a service of which nobody lives.
        stored: number of each descriptor in this process, by name; all are closed, or have the number of the list.

    Raises:
        EstateError: a number is taken here.
    """
    listed = estate.told["descriptors"]
    for name, taken in stored.items():
        if name in listed:
            number, *identity = listed[name]
            _give_number(estate, name, taken, number, identity)
        else:
            os.close(taken)
    estate.keep_on()


def _give_number(estate: Estate, name: str, taken: int, number: int, identity: list[int]) -> bool:
    """Give a descriptor its number; False when it is not what it should be, and was closed."""
    if _identity(taken) != identity:
        os.close(taken)
        return False
    got = fcntl.fcntl(taken, fcntl.F_DUPFD_CLOEXEC, number)
    os.close(taken)
    if got != number:
        os.close(got)
        raise EstateError(estate.instance, f"number {number} for descriptor {name}", "one that is in use")
    return True


@contextlib.contextmanager
def _watched(pids: list[int]) -> Iterator[list[int]]:
    """Yield a pidfd of each process that lives."""
    with contextlib.ExitStack() as stack:
        opened = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                opened.append(os.pidfd_open(pid))
                stack.callback(os.close, opened[-1])
        yield opened


def _identity(number: int) -> list[int]:
    """Return what tells the file of a descriptor from any other; nothing where there is no such descriptor."""
    try:
        found = os.fstat(number)
    except OSError:
        return []
    return [found.st_dev, found.st_ino]
