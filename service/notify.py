"""Word to the service manager: sd_notify's protocol, and the descriptors that it keeps for whoever it starts after us.

Source:
    sd_notify(3): assignments, one a line, to the socket that NOTIFY_SOCKET names; a leading @ is an abstract one.
"""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import time
from collections.abc import Iterable, Mapping, MutableMapping

_FIRST = 3
"""Number of the first descriptor that a manager hands over."""
_APART = 1 << 14


def ready(status: str) -> None:
    """Say that packets can flow."""
    _send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")


def reloading() -> None:
    """Say that the configuration is being read again; ``ready`` says that it has been."""
    _send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")


def stopping(status: str) -> None:
    """Say that the end has begun."""
    _send(f"STOPPING=1\nSTATUS={status}")


def store(descriptors: Mapping[str, int]) -> None:
    """Give the manager descriptors to keep for whoever it starts after us, each under its name; those it has are no news.

    Source:
        sd_notify(3), FDSTORE, FDNAME, FDPOLL: they are kept whatever their other ends do.
    """
    for name, number in descriptors.items():
        _send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", number)


def forget(names: Iterable[str]) -> None:
    """Have the manager close descriptors that it keeps."""
    for name in names:
        _send(f"FDSTOREREMOVE=1\nFDNAME={name}")


def stored(environment: MutableMapping[str, str] = os.environ) -> dict[str, int]:
    """Return the descriptors that the manager has kept for us, by name; they are ours from now on, and told but once.

    Source:
        sd_listen_fds(3): from number 3 on, where LISTEN_PID is our process.
    """
    pid, count, names = (environment.pop(f"LISTEN_{what}", "") for what in ("PID", "FDS", "FDNAMES"))
    if pid != str(os.getpid()) or not count.isdecimal():
        return {}
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = {}
    for i, name in enumerate(names.split(":")[: int(count)]):
        # out of the way of numbers that they had before, and shall have again
        found[name] = fcntl.fcntl(_FIRST + i, fcntl.F_DUPFD_CLOEXEC, _APART if most > 2 * _APART else _FIRST)
        os.close(_FIRST + i)
    return found


class Watchdog:
    """Says again and again that we are at it, where the unit has a WatchdogSec; else it is silent.

    Source:
        sd_watchdog_enabled(3): WATCHDOG_USEC, of the process that WATCHDOG_PID names; half of that is the time between two.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        wanted, whose = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        is_ours = whose in ("", str(os.getpid())) and wanted.isdecimal()
        self._every_s = int(wanted) / 2e6 if is_ours else 0.0
        self.due_s = 0.0
        """When it wants to be called next; 0 is never."""

    def beat(self, now_s: float) -> None:
        """Say so, if it is time to."""
        if self._every_s and now_s >= self.due_s:
            _send("WATCHDOG=1")
            self.due_s = now_s + self._every_s


def _send(message: str, *descriptors: int) -> None:
    """Send a message; where nobody listens that is no fault of the service."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        try:
            manager.connect(address)
            socket.send_fds(manager, [message.encode()], list(descriptors))
        except OSError:
            return
