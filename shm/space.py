"""How many bytes there are to be had: in /dev/shm, in the machine, in this process's control groups.

A table is charged three times: to the size of the file system that holds it, to the machine's memory, and to the
memory of the control group it is made in.  The first to run out says ENOSPC; the others kill.  So all three are asked
before the first page is taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .errors import NoSpace

SHARED_MEMORY = Path("/dev/shm")
"""Where glibc keeps what ``shm_open`` makes."""
_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


class Space(NamedTuple):
    """Bytes of one kind of memory; ``total`` 0 means that it has no limit of its own."""

    where: str
    total: int
    free: int


def shared_memory(descriptor: int | None = None) -> Space:
    """Return the space of /dev/shm, or of the file system that ``descriptor`` lies in."""
    status = os.fstatvfs(descriptor) if descriptor is not None else os.statvfs(SHARED_MEMORY)
    return Space("in /dev/shm", status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def huge_option() -> str:
    """Return the option ``huge=`` that /dev/shm is mounted with, ``never`` where it has none."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    options = next((fields[3] for fields in reversed(list(mounts)) if fields[1] == str(SHARED_MEMORY)), "")
    return next((word.removeprefix("huge=") for word in options.split(",") if word.startswith("huge=")), "never")


def machine() -> Space:
    """Return the memory of the machine, swap included."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    known = {words[0]: 1024 * int(words[1]) for words in lines if len(words) > 1}
    return Space("of memory", known["MemTotal:"] + known["SwapTotal:"], known["MemAvailable:"] + known["SwapFree:"])


def groups(membership: Path = _OWN, root: Path = _GROUPS) -> Iterator[Space]:
    """Yield the memory of this process's control group and of each above it that has a limit (version 2 only).

    Args:
        membership: the file that names the group.
        root: where the groups are mounted.

    Source:
        Linux, Documentation/admin-guide/cgroup-v2.rst, memory interface files.  Inactive file pages are given back
        before anybody is killed.
    """
    lines = membership.read_text().splitlines()
    own = next((line[4:] for line in lines if line.startswith("0::/")), None)
    if own is None:
        return
    for group in (root / own, *(root / own).parents):
        limit = _word(group / "memory.max")
        if limit.isdigit():
            used = int(_word(group / "memory.current"))
            pairs = (line.split() for line in _word(group / "memory.stat").splitlines())
            cached = next((int(value) for name, value in pairs if name == "inactive_file"), 0)
            yield Space(f"in control group {group}", int(limit), int(limit) - used + cached)
        if group == root:
            return


def _word(path: Path) -> str:
    """Return a control file's text, empty where there is no such file: the root group has none, nor has every kernel."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def demand(name: str, needed: int, *spaces: Space) -> None:
    """Raise NoSpace, naming the scarcest of ``spaces``, unless ``needed`` bytes are free in each."""
    limited = [space for space in spaces if space.total]
    scarcest = min(limited, key=lambda space: space.free, default=None)
    if scarcest is not None and scarcest.free < needed:
        raise NoSpace(name, needed, max(0, scarcest.free), scarcest.where)
