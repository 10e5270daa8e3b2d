"""Orphans: processes of a service whose keeper is gone.  They go on; whoever keeps next adopts them, or ends them.

Adopted are those that are what the next keeper would make itself: the same layout, workers and ports.  Others end in
order, as if their keeper had asked them, and are waited for: two services must never have one table, or one queue.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..clients import address
from ..clients.errors import ZonetrackError
from ..shm import estate
from ..shm.estate import Estate, Member
from ..shm.layout import digest, digest_beside
from . import log
from .board import LINE
from .config import KEYS, Config, plain, value_of

GRACE_S = 5.0
"""What they have to end, beyond the time for draining, before they are killed."""
GOES_WITH = (
    *("instance", "socket", "workers", "ports", "ports_group", "max_connections", "zones_in_use_max"),
    *("extension_share", "control.group"),
)
"""Keys of the configuration in which a keeper must agree with whoever made the processes that it adopts."""
ASKED = ("control.", "metrics.")
"""Beginnings of keys by which control goes: another process takes its place where they have changed."""
RESTART, ORDERED = "restart", "ordered"
"""What the list of an estate may say of the next keeper: it goes on, whatever its flags say of a fresh table."""
_log = log.logger("keeper")


class StillRunningError(ZonetrackError):
    """Processes of an earlier service do not end."""


@dataclass
class Orphans:
    """Processes that a keeper has left, and their estate."""

    instance: str
    members: list[Member]
    estate: Estate

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [member.pid for member in self.members]


def of(instance: str) -> Orphans | None:
    """Return who is left of a service without a keeper; None where nobody is, or the keeper lives."""
    members = [member for member in estate.members(instance) if member.pid != os.getpid()]
    for member in members:
        found = estate.look(instance, member)
        if found is not None:
            return None if found.keeper else Orphans(instance, members, found)
    return None


def stored(instance: str, descriptors: dict[str, int]) -> Orphans | None:
    """Return the estate of a service of which nobody lives, from descriptors that were kept; None where there is none.

    The descriptor of the estate is taken out of them.
    """
    number = descriptors.pop(estate.ITSELF, None)
    if number is None:
        return None
    if os.readlink(f"/proc/self/fd/{number}") != f"/memfd:{estate.link_of(instance)} (deleted)":
        os.close(number)
        return None
    return Orphans(instance, [], Estate(instance, number))


def behind(path: str) -> Orphans | None:
    """Return who is left of the service whose control socket stood at a path; None where nobody is, or its keeper lives."""
    for instance in estate.instances():
        left = of(instance)
        if left is not None and left.estate.told.get("path") == path:
            return left
    return None


@cache
def program() -> str:
    """Return what tells this program from any other version of it."""
    made = blake2b(digest_size=8)
    for path in sorted(Path(__file__).parents[1].glob("*/*.py")):
        made.update(path.name.encode() + b"\0" + path.read_bytes())
    return made.hexdigest()


def about(config: Config) -> dict[str, Any]:
    """Return what a keeper writes down of a service for the next one."""
    return {
        "format": f"{digest():016x}",
        "beside": f"{digest_beside():016x} {LINE.descr}",
        "program": program(),
        "path": address.path(config.socket, config.instance),
        "shape": {path: plain(value_of(config, path)) for path in GOES_WITH},
        "live": {path: plain(value_of(config, path)) for path, key in KEYS.items() if key.live},
        "control": {path: plain(value_of(config, path)) for path in KEYS if path.startswith(ASKED)},
    }


def differences(orphans: Orphans, config: Config) -> list[str]:
    """Return in what orphans differ from what is wanted, so that they cannot be adopted; nothing where they can."""
    told, wanted = orphans.estate.told, about(config)
    if told.get("format") != wanted["format"]:
        return ["the layout of the table"]
    if told.get("beside") != wanted["beside"]:
        return ["the layout of what its processes share beside the table"]
    return [path for path, value in wanted["shape"].items() if told["shape"].get(path) != value]


def end(orphans: Orphans, drain_s: float) -> None:
    """Have them end as their keeper would: queues are emptied first, and who is late is killed.

    Raises:
        StillRunningError: one survives that.
    """
    _log.warning("processes of an earlier service are ended", extra=log.facts(children=orphans.pids))
    with contextlib.ExitStack() as stack:
        left = {}
        for pid in orphans.pids:
            with contextlib.suppress(ProcessLookupError):
                left[pid] = os.pidfd_open(pid)
                stack.callback(os.close, left[pid])
        # the members again, now that their numbers cannot become another's
        still = {member.pid for member in estate.members(orphans.instance)}
        left = {pid: pidfd for pid, pidfd in left.items() if pid in still}
        for number, patience_s in ((signal.SIGTERM, drain_s), (signal.SIGUSR1, GRACE_S), (signal.SIGKILL, GRACE_S)):
            for pidfd in left.values():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, number)
            left = _left_after(left, patience_s)
            if not left:
                return
        raise StillRunningError(f"processes {', '.join(map(str, left))} of an earlier service do not end")


def _left_after(processes: dict[int, int], patience_s: float) -> dict[int, int]:
    """Wait for the ends of processes; return those that are left."""
    until_s = time.monotonic() + patience_s
    while processes:
        poller = select.poll()
        for pidfd in processes.values():
            poller.register(pidfd, select.POLLIN)
        ended = {pidfd for pidfd, _ in poller.poll(max(0.0, until_s - time.monotonic()) * 1_000)}
        if not ended:
            break
        processes = {pid: pidfd for pid, pidfd in processes.items() if pidfd not in ended}
    return processes
