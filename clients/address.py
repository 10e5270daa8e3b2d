"""Where an instance's control socket is: one path, worked out the same way by the service and by its clients.

--socket, or ZONETRACK_SOCKET        that path
root                                 /run/zonetrack/<instance>.sock
anyone else                          $XDG_RUNTIME_DIR/zonetrack/<instance>.sock
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import ZonetrackError

INSTANCE_DEFAULT = "default"
SOCKET_VARIABLE, INSTANCE_VARIABLE = "ZONETRACK_SOCKET", "ZONETRACK_INSTANCE"
PATH_BYTES_MAX = 107
"""A sockaddr_un has 108 bytes for the path, the last of which is 0 (unix(7))."""


class AddressError(ZonetrackError):
    """There is no usable path for the socket."""


def instance(given: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of the instance: the given one, the environment's, or the default."""
    return given or environment.get(INSTANCE_VARIABLE) or INSTANCE_DEFAULT


def path(
    given: str | None = None,
    instance_given: str | None = None,
    environment: Mapping[str, str] = os.environ,
    uid: int | None = None,
) -> str:
    """Return the path of the control socket.

    Args:
        given: what the command line or the configuration says, None when nothing.
        instance_given: likewise, the name of the instance.
        environment: where to look next.
        uid: of whom; None: of this process.

    Raises:
        AddressError: it would be longer than a socket's path can be, or nothing says where it is.
    """
    found = given or environment.get(SOCKET_VARIABLE)
    if not found:
        name = f"zonetrack/{instance(instance_given, environment)}.sock"
        if (os.geteuid() if uid is None else uid) == 0:
            found = f"/run/{name}"
        elif directory := environment.get("XDG_RUNTIME_DIR"):
            found = f"{directory}/{name}"
        else:
            raise AddressError("XDG_RUNTIME_DIR is not set: say where the control socket is, with --socket")
    length = len(os.fsencode(found))
    if length > PATH_BYTES_MAX:
        raise AddressError(f"{found}: the path of a socket has {PATH_BYTES_MAX} bytes at most, this one {length}")
    return found
