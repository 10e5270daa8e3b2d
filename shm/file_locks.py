"""Locks on parts of a file that belong to a description of it, and go with its last descriptor: with its holder's death.

Who asks for a lock hears where another begins and how long it is.  So a lock can say who holds it, and be had and named in
one step: it is as long as the holder's pid (shm/claim, shm/estate).

Source:
    fcntl(2), open file description locks.
"""

from __future__ import annotations

import fcntl
import os
import struct

_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid


def reopen(descriptor: int) -> int:
    """Return a descriptor of the same file with a description, and so with locks, of its own.

    A descriptor that is inherited over fork() shares its description, and so would not exclude the parent.
    """
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)


def _lock(kind: int, start: int, length: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def take(own: int, start: int, length: int) -> bool:
    """Lock some bytes of a file, unless another description has one of them locked; return whether that was done."""
    try:
        fcntl.fcntl(own, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK, start, length))
    except BlockingIOError:
        return False
    return True


def wait_for(own: int, start: int, length: int) -> None:
    """Lock some bytes of a file as soon as no other description has one of them locked."""
    fcntl.fcntl(own, fcntl.F_OFD_SETLKW, _lock(fcntl.F_WRLCK, start, length))


def held(descriptor: int, start: int, length: int) -> int:
    """Return the length of the first lock that anybody has on some bytes of a file, 0 when there is none.

    Args:
        descriptor: of the file.
        start: the first byte.
        length: how many; 0: up to the end of any file.
    """
    own = reopen(descriptor)
    try:
        found = fcntl.fcntl(own, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK, start, length))
    finally:
        os.close(own)
    kind, _, _, length, _ = _FLOCK.unpack(found)
    return 0 if kind == fcntl.F_UNLCK else length
