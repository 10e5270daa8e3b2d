"""TCP addresses on which a service may be read with HTTP: how they are written, and how the keeper opens them.

Off unless the configuration names one.  The keeper binds them before there are children, so that an address that is taken is
an error at the start, and control, whenever it is started again, finds them as they were.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, NamedTuple

from ..clients.errors import ZonetrackError

LOOPBACK = "127.0.0.1"
PORT_MAX = 65_535
BACKLOG = 128
FORM = "PORT, ADDRESS:PORT or [ADDRESS]:PORT"


class ListenError(ZonetrackError):
    """An address cannot be listened on; says why, and what to do."""


class Address(NamedTuple):
    """Where to listen; port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can come there."""
        return ipaddress.ip_address(self.host).is_loopback


def address(value: Any) -> Address:
    """Read an address; a port alone is one of the loopback address.

    Raises:
        ValueError: it is none; says what was expected.
    """
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(f"expected {FORM}, found {value!r}")
    try:
        return Address(str(ipaddress.ip_address(host)), int(port))
    except ValueError:
        raise ValueError(f"expected {FORM}, with an address in numbers, found {value!r}") from None


def loopback(value: Any) -> Address:
    """Read an address of this machine alone.

    Raises:
        ValueError: it is none, or others could come there.
    """
    found = address(value)
    if not found.is_loopback:
        raise ValueError(f"expected an address of the loopback interface such as {LOOPBACK}:8080, found {value!r}")
    return found


def listen(wanted: Address, key: str) -> socket.socket:
    """Return a socket that listens on an address.

    Args:
        wanted: where.
        key: of the configuration that says so.

    Raises:
        ListenError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(wanted)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(f"{key}: {wanted} cannot be listened on: {error.strerror}; name another, or none") from error
    return listener
