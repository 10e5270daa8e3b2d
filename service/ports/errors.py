"""What can be wrong with a port: one line that names it, and says what was expected."""

from __future__ import annotations

import errno
import os

from ...clients.errors import ZonetrackError

WORDS = {
    errno.EPERM: "the right to do that is missing: run as root, or give the program CAP_NET_RAW and CAP_NET_ADMIN",
    errno.EACCES: "the right to do that is missing: run as root, or give the program CAP_NET_RAW and CAP_NET_ADMIN",
    errno.ENODEV: "there is no such interface",
    errno.ENOMEM: "there is not enough memory",
    errno.ENOBUFS: "there is not enough memory",
    errno.EAFNOSUPPORT: "this kernel does not have such sockets",
    errno.ENETDOWN: "the interface is down",
}


class PortError(ZonetrackError):
    """A port cannot be opened."""


def because(port: str, doing: str, error: OSError) -> PortError:
    """Return what to raise when the system refuses something.

    Args:
        port: as in SPEC.
        doing: what was tried.
        error: what the system said.
    """
    code = error.errno or 0
    return PortError(f"port {port}: {doing}: {WORDS.get(code) or os.strerror(code)}")
