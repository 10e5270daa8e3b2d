"""The program in an interface's driver that hands frames to our sockets: five instructions, and a map of sockets (bpf(2)).

    r2 = frame.rx_queue_index; r1 = map; r3 = XDP_PASS
    return bpf_redirect_map(r1, r2, r3)

A frame of a queue that has no socket in the map goes on to the system.  The program is attached by a link: it is gone when
the last process that has the link's descriptor is.

Source:
    bpf(2); Documentation/bpf/map_xskmap.rst and standardization/instruction-set.rst of Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_SYS_BPF = 321
MAP_CREATE, MAP_UPDATE, MAP_DELETE, PROG_LOAD, LINK_CREATE = 0, 2, 3, 5, 28
TYPE_XSKMAP, TYPE_XDP, ATTACH_XDP = 17, 6, 37
SKB_MODE, DRIVER_MODE = 2, 4
"""XDP_FLAGS_...: in the system's common path, or in the driver itself."""
XDP_PASS = 2
REDIRECT_MAP = 51
PSEUDO_MAP_FD = 1
QUEUE_INDEX = 16
"""Offset of rx_queue_index in struct xdp_md."""
_LICENSE = b"GPL"
_ATTRIBUTES_BYTES = 128
_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attributes: bytes) -> int:
    block = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
    result = _libc.syscall(_SYS_BPF, ctypes.c_int(command), block, ctypes.c_uint(_ATTRIBUTES_BYTES))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _line(code: int, to: int = 0, of: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", code, of << 4 | to, offset, value)


def program(sockets: int) -> bytes:
    """Return the instructions, for a map of sockets."""
    return b"".join(
        (
            _line(0x61, to=2, of=1, offset=QUEUE_INDEX),
            _line(0x18, to=1, of=PSEUDO_MAP_FD, value=sockets),
            _line(0),  # the upper half of the map
            _line(0xB7, to=3, value=XDP_PASS),
            _line(0x85, value=REDIRECT_MAP),
            _line(0x95),
        )
    )


def make_map(size: int) -> int:
    """Return the descriptor of a map of sockets by queue.

    Raises:
        OSError: the system refuses.
    """
    return _bpf(MAP_CREATE, struct.pack("<IIIII", TYPE_XSKMAP, 4, 4, size, 0))


def attach(interface: int, sockets: int, mode: int) -> int:
    """Load the program and attach it to an interface; returns the descriptor of the link.

    Args:
        interface: index of it.
        sockets: descriptor of the map.
        mode: SKB_MODE or DRIVER_MODE.

    Raises:
        OSError: the system refuses.
    """
    code = program(sockets)
    lines, license = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(_LICENSE)
    asked = struct.pack("<IIQQ", TYPE_XDP, len(code) // 8, ctypes.addressof(lines), ctypes.addressof(license))
    loaded = _bpf(PROG_LOAD, asked)
    try:
        return _bpf(LINK_CREATE, struct.pack("<IIII", loaded, interface, ATTACH_XDP, mode))
    finally:
        os.close(loaded)


def lead(sockets: int, queue: int, socket: int) -> None:
    """Have frames of a queue handed to a socket.

    Raises:
        OSError: the system refuses.
    """
    key, value = ctypes.c_uint(queue), ctypes.c_uint(socket)
    _bpf(MAP_UPDATE, struct.pack("<I4xQQQ", sockets, ctypes.addressof(key), ctypes.addressof(value), 0))


def let_go(sockets: int, queue: int) -> None:
    """Have frames of a queue go on to the system.

    Raises:
        OSError: the system refuses.
    """
    key = ctypes.c_uint(queue)
    try:
        _bpf(MAP_DELETE, struct.pack("<I4xQ", sockets, ctypes.addressof(key)))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINVAL):  # there is none
            raise


def is_refused(error: OSError) -> bool:
    """Return whether it is a right that is missing."""
    return error.errno in (errno.EPERM, errno.EACCES)
