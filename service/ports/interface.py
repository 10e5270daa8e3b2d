"""A network interface as the system knows it: its number, MTU, kind, and what it leaves to its device (netdevice(7)).

What an interface hands on is not always what was on the wire.  It may have joined segments into frames of up to 64 KiB (gro,
lro), or be given such frames by a neighbour that leaves cutting them to its device (tso, gso), with checksums yet to be
filled in (tx-checksumming).  A port takes all of that; who wants frames as they were switches it off.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import socket
import struct
from typing import NamedTuple

from .errors import PortError, because

NAME_BYTES_MAX = 15
SIOCGIFFLAGS, SIOCGIFMTU, SIOCGIFHWADDR, SIOCETHTOOL = 0x8913, 0x8921, 0x8927, 0x8946
IFF_UP = 1
ETHERNET, LOOPBACK = 1, 772
"""ARPHRD_ETHER, ARPHRD_LOOPBACK: interfaces whose frames begin as Ethernet's do."""
ETH_FLAG_LRO = 1 << 15
JOINS = ("gro", "lro")
"""Offloads that make frames longer than the MTU out of what comes in."""
OFFLOADS = {"rx-checksumming": 0x14, "tx-checksumming": 0x16, "tso": 0x1E, "gso": 0x23, "gro": 0x2B, "lro": 0x25}
"""ETHTOOL_G... of linux/ethtool.h; the S of each is one more."""


class Interface(NamedTuple):
    """An interface, at the moment of looking."""

    name: str
    index: int
    mtu: int
    hardware: int
    is_up: bool
    offloads: tuple[str, ...]
    """Those that are on."""


def _request(name: str, rest: bytes = b"") -> bytes:
    return struct.pack("16s24s", name.encode(), rest)


def _ask(control: socket.socket, request: int, name: str, form: str) -> int:
    return struct.unpack_from(form, fcntl.ioctl(control, request, _request(name)), 16)[0]


def _ethtool(control: socket.socket, name: str, command: int, value: int = 0) -> int:
    asked = ctypes.create_string_buffer(struct.pack("II", command, value))
    fcntl.ioctl(control, SIOCETHTOOL, _request(name, struct.pack("P", ctypes.addressof(asked))))
    return struct.unpack("II", asked.raw[:8])[1]


def _is_on(control: socket.socket, name: str, offload: str) -> bool:
    try:
        value = _ethtool(control, name, OFFLOADS[offload])
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EPERM):
            return False
        raise
    return bool(value & ETH_FLAG_LRO) if offload == "lro" else bool(value)


def names() -> list[str]:
    """Return the names of all interfaces here."""
    return sorted(name for _, name in socket.if_nameindex())


def look(port: str, name: str) -> Interface:
    """Return an interface.

    Args:
        port: whose it is to be, for what is said when there is none.
        name: of the interface.

    Raises:
        PortError: there is none.
    """
    try:
        index = socket.if_nametoindex(name)
    except OSError:
        there = ", ".join(names()) or "none"
        raise PortError(f"port {port}: there is no interface {name!r}; there are: {there}") from None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            return Interface(
                name,
                index,
                _ask(control, SIOCGIFMTU, name, "i"),
                _ask(control, SIOCGIFHWADDR, name, "H"),
                bool(_ask(control, SIOCGIFFLAGS, name, "H") & IFF_UP),
                tuple(offload for offload in OFFLOADS if _is_on(control, name, offload)),
            )
    except OSError as error:
        raise because(port, f"looking at {name}", error) from error


def mtu(name: str) -> int:
    """Return the MTU of an interface, 0 when it is gone."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            return _ask(control, SIOCGIFMTU, name, "i")
    except OSError:
        return 0


def set_offload(name: str, offload: str, on: bool) -> None:
    """Switch an offload of an interface on or off.

    Raises:
        OSError: it cannot be.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _ethtool(control, name, OFFLOADS[offload] + 1, int(on))
