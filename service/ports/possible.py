"""Which kinds of ports could be opened here and now, and what stands in the way of the others: tried, and undone at once."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

from . import nfqueue, redirect, tap, xdp
from .errors import WORDS


def _afpacket() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()


def _xdp() -> None:
    socket.socket(xdp.AF_XDP, socket.SOCK_RAW, 0).close()
    os.close(redirect.make_map(1))


def _tap() -> None:
    os.close(os.open(tap.DEVICE, os.O_RDWR | os.O_CLOEXEC))


def _nfqueue() -> None:
    with contextlib.closing(nfqueue.connect()) as asked:
        nfqueue.ask(asked, 0, nfqueue.attribute(nfqueue.CFG_CMD, nfqueue.NO_CHANGE))


KINDS: dict[str, tuple[Callable[[], None], str]] = {
    "afpacket": (_afpacket, "CAP_NET_RAW"),
    "xdp": (_xdp, "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"),
    "tap": (_tap, "CAP_NET_ADMIN"),
    "nfqueue": (_nfqueue, "CAP_NET_ADMIN"),
}
"""Of each kind: what needs no interface to be tried with, and the rights that it takes."""


def missing() -> dict[str, str]:
    """Return what stands in the way of each kind of port, "" where nothing does; those in memory and files need nothing."""
    found = {"shm": "", "pcap": ""}
    for kind, (attempt, rights) in KINDS.items():
        try:
            attempt()
            found[kind] = ""
        except PermissionError:
            found[kind] = f"takes {rights}"
        except OSError as error:
            found[kind] = WORDS.get(error.errno or 0) or (error.strerror or str(error)).lower()
    return found
