"""System calls on descriptors from inside a kernel: sleeping until one of several can be read, reading, writing, sending.

By the names of the C library, so that compiled kernels can be kept on disk and hold on any machine.  None of them blocks but
``wait``, and that ends with its time or a signal.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numba import types

from ..shm.layout import POLLED
from . import memory
from .jit import JIT, inlined, kernel
from .words import ONE, ZERO, u64

MSG_DONTWAIT = 0x40
POLLIN = 1
polled_at = memory.record_at(POLLED)
i32, i64 = np.int32, np.int64

if JIT:
    _poll = types.ExternalFunction("poll", types.int32(types.intp, types.uint64, types.int32))
    _read = types.ExternalFunction("read", types.int64(types.int32, types.intp, types.uint64))
    _write = types.ExternalFunction("write", types.int64(types.int32, types.intp, types.uint64))
    _recvmmsg = types.ExternalFunction(
        "recvmmsg", types.int32(types.int32, types.intp, types.uint32, types.int32, types.intp)
    )
    _sendto = types.ExternalFunction(
        "sendto", types.int64(types.int32, types.intp, types.uint64, types.int32, types.intp, types.uint32)
    )
else:
    _libc = ctypes.CDLL(None)
    _libc.sendto.restype = _libc.read.restype = _libc.write.restype = ctypes.c_ssize_t

    def _read(descriptor, address, size):
        return _libc.read(int(descriptor), ctypes.c_void_p(int(address)), ctypes.c_size_t(int(size)))

    def _write(descriptor, address, size):
        return _libc.write(int(descriptor), ctypes.c_void_p(int(address)), ctypes.c_size_t(int(size)))

    def _recvmmsg(descriptor, headers, count, flags, timeout):
        return _libc.recvmmsg(int(descriptor), ctypes.c_void_p(int(headers)), int(count), int(flags), None)

    def _poll(polled, count, timeout_ms):
        return _libc.poll(ctypes.c_void_p(int(polled)), ctypes.c_ulong(int(count)), int(timeout_ms))

    def _sendto(descriptor, address, size, flags, to, to_size):
        return _libc.sendto(int(descriptor), None, ctypes.c_size_t(int(size)), int(flags), None, int(to_size))


@inlined
def wait(polled, count, timeout_ms):
    """Sleep until one of some descriptors has something, or an error.

    Args:
        polled: address of POLLED[count].
        count: u64.
        timeout_ms: u64, the longest sleep.
    """
    _poll(i64(polled), u64(count), i32(timeout_ms))


@kernel
def can_be_read(descriptor, polled):
    """Return whether a descriptor has something now, by way of the POLLED at address ``polled``."""
    memory.apart()
    at = polled_at(polled)
    at.descriptor = i32(descriptor)
    at.events = POLLIN
    _poll(i64(polled), ONE, i32(0))
    return u64(at.came) & u64(POLLIN) != ZERO


@kernel
def read(descriptor, address, size):
    """Read from a descriptor that does not block; returns how many bytes came, 0 where there is nothing or an error."""
    memory.apart()
    came = _read(i32(descriptor), i64(address), u64(size))
    return u64(came) if came > i64(0) else ZERO


@kernel
def receive_many(descriptor, headers, count):
    """Receive up to ``count`` messages, each by a struct mmsghdr at ``headers``; returns how many came."""
    memory.apart()
    came = _recvmmsg(i32(descriptor), i64(headers), np.uint32(count), i32(MSG_DONTWAIT), i64(0))
    return u64(came) if came > i32(0) else ZERO


@kernel
def write(descriptor, address, size):
    """Write to a descriptor; returns whether all of it went."""
    memory.apart()
    return _write(i32(descriptor), i64(address), u64(size)) == i64(size)


@kernel
def send_ring(descriptor):
    """Have a packet socket send what stands in its ring to be sent; returns whether the system took it."""
    memory.apart()
    return _sendto(i32(descriptor), i64(0), ZERO, i32(MSG_DONTWAIT), i64(0), types.uint32(0)) >= i64(0)
