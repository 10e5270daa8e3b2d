"""What a process may do beyond its files: given up where it has no use for it, before it listens to anybody.

Ports are opened by the keeper.  Then control, which hears clients, needs no capability at all; a worker, which reads what
comes from a network, keeps those by which it goes on using its ports.  Neither can gain any by running a program.

Source:
    capabilities(7), capset(2), prctl(2) PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Collection
from pathlib import Path

CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK = 12, 13, 14
OF_WORKERS = (CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK)
OF_CONTROL = ()
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_VERSION_3 = 0x20080522
_WORD = 32


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def held() -> set[int]:
    """Return the capabilities that this process has in effect, by number."""
    lines = Path("/proc/self/status").read_text().splitlines()
    bits = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return {number for number in range(bits.bit_length()) if bits >> number & 1}


def keep_only(wanted: Collection[int]) -> None:
    """Give up all capabilities but some, for good.

    Args:
        wanted: what is kept, of what this process has.

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    bits = sum(1 << number for number in held() & set(wanted))
    sets = (_Sets * 2)(*(_Sets(word, word, 0) for word in (bits & (1 << _WORD) - 1, bits >> _WORD)))
    for done in (
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
        libc.capset(ctypes.byref(_Header(_VERSION_3, 0)), sets),
    ):
        if done:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def allow_descriptors(count: int) -> int:
    """Allow this process so many open files, as far as it may raise that itself; return how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
