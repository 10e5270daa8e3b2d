"""Shared bytes in this process's address space: reserved, on huge pages where there are any, and already there.

A named segment and an anonymous one differ only in the descriptor.  In this order, and why:

    reserve    address space, 2 MiB more than wanted, so that the mapping begins on a huge page's boundary: pages are
               huge only where address and offset agree modulo 2 MiB
    advise     MADV_HUGEPAGE, for what is faulted in later, and for khugepaged
    allocate   posix_fallocate: either it fails now, or no access ever fails later
    collapse   MADV_COLLAPSE makes the pages huge at once: without it /dev/shm, which is mounted with huge=never nearly
               everywhere, would never have one.  Linux 6.1, 3 s a GiB; only a wish
    populate   MADV_POPULATE_WRITE enters the pages into this process's page table.  fork() does not copy entries of
               shared mappings, so a child that minds page faults populates again

Random reads over 512 MiB took 14 ns on huge pages and 27 ns on small ones where they overlap, 210 and 325 ns where each
waits for the one before (busy 2-core virtual machine, Linux 6.18, best of 10).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re

import numpy as np

from .layout import PAGE_BYTES

HUGE_BYTES = 2 << 20
MADV_POPULATE_WRITE = 23  # Linux 5.14
MADV_COLLAPSE = 25  # Linux 6.1
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_NOT_HERE = (errno.EINVAL, errno.ENOMEM, errno.EAGAIN, errno.EBUSY, errno.ENOSYS, errno.EPERM)
"""What madvise says where a wish cannot be granted."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def shared(descriptor: int, size: int, *, reserve: bool) -> np.ndarray:
    """Map ``size`` bytes of a file of memory, shared, populated.

    Args:
        descriptor: of the file, at least ``size`` bytes long; may be closed afterwards.
        size: in bytes, whole pages.
        reserve: whether to make the pages, for nobody has yet.

    Returns:
        u1[size]; the mapping lives as long as the array or any other view of it.

    Raises:
        OSError: ENOSPC or ENOMEM when there is too little memory.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    # Python's mapping owns the address space, ours replaces a part of it: both go when the last view of it does.
    space = mmap.mmap(-1, size + HUGE_BYTES, flags=flags)
    base = ctypes.addressof(ctypes.c_char.from_buffer(space))
    first = -base % HUGE_BYTES
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    if _libc.mmap(base + first, size, protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0) != base + first:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    _wish(space, mmap.MADV_HUGEPAGE, first, size)
    if reserve:
        os.posix_fallocate(descriptor, 0, size)
        _wish(space, MADV_COLLAPSE, first, size)
    region = np.frombuffer(space, "u1", size, first)
    populate(region)
    return region


def populate(region: np.ndarray) -> None:
    """Enter all pages of ``region`` into the page table of this process; the content stays."""
    address, size = region.ctypes.data, region.nbytes
    if _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), MADV_POPULATE_WRITE) == 0:
        return
    if ctypes.get_errno() != errno.EFAULT:  # which says that some of it is gone: see service/ports/torn
        # An older kernel: a read is enough, for a page of a shared mapping is entered writable at once.
        region[::PAGE_BYTES].sum()


def _wish(space: mmap.mmap, advice: int, first: int, size: int) -> bool:
    """Ask the kernel for something that it may refuse; return whether it did not."""
    try:
        space.madvise(advice, first, size)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        return False
    return True


def gives_huge_pages() -> bool:
    """Whether a new mapping gets huge pages here and now: one is made to see."""
    descriptor = os.memfd_create("zonetrack.probe")
    try:
        os.ftruncate(descriptor, HUGE_BYTES)
        return huge_bytes(shared(descriptor, HUGE_BYTES, reserve=True)) == HUGE_BYTES
    finally:
        os.close(descriptor)


def huge_bytes(region: np.ndarray) -> int:
    """Return how many bytes of ``region`` this process sees through huge pages."""
    address = region.ctypes.data
    end, inside, total = address + region.nbytes, False, 0
    with open("/proc/self/smaps") as lines:
        for line in lines:
            if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                inside = address < int(span[2], 16) and int(span[1], 16) < end
            elif inside and line.startswith(("ShmemPmdMapped:", "FilePmdMapped:")):
                total += 1024 * int(line.split()[1])
    return total
