"""Word to the service manager: sd_notify's protocol, one datagram for each thing that a unit of Type=notify waits for.

Source:
    sd_notify(3): assignments, one a line, to the socket that NOTIFY_SOCKET names; a leading @ is an abstract one.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


def ready(status: str) -> None:
    """Say that packets can flow."""
    _send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")


def reloading() -> None:
    """Say that the configuration is being read again; ``ready`` says that it has been."""
    _send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")


def stopping(status: str) -> None:
    """Say that the end has begun."""
    _send(f"STOPPING=1\nSTATUS={status}")


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


def _send(message: str) -> None:
    """Send a message; where nobody listens that is no fault of the service."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        try:
            manager.sendto(message.encode(), address)
        except OSError:
            return
