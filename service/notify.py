"""Word to the service manager: sd_notify's protocol, one datagram for each thing that a unit of Type=notify waits for.

Source:
    sd_notify(3): assignments, one a line, to the socket that NOTIFY_SOCKET names; a leading @ is an abstract one.
"""

from __future__ import annotations

import os
import socket
import time


def ready(status: str) -> None:
    """Say that packets can flow."""
    _send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")


def reloading() -> None:
    """Say that the configuration is being read again; ``ready`` says that it has been."""
    _send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")


def stopping(status: str) -> None:
    """Say that the end has begun."""
    _send(f"STOPPING=1\nSTATUS={status}")


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
