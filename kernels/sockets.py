"""System calls on descriptors from inside a kernel: sleeping until one of several can be read, sending what a ring holds.

By the names of the C library, so that compiled kernels can be kept on disk and hold on any machine.  None of them blocks but
``wait``, and that ends with its time or a signal.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numba import types

from . import memory
from .jit import JIT, inlined, kernel
from .words import ZERO, u64

MSG_DONTWAIT = 0x40
i32, i64 = np.int32, np.int64

if JIT:
    _poll = types.ExternalFunction("poll", types.int32(types.intp, types.uint64, types.int32))
    _sendto = types.ExternalFunction(
        "sendto", types.int64(types.int32, types.intp, types.uint64, types.int32, types.intp, types.uint32)
    )
else:
    _libc = ctypes.CDLL(None)
    _libc.sendto.restype = ctypes.c_ssize_t

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
def send_ring(descriptor):
    """Have a packet socket send what stands in its ring to be sent; returns whether the system took it."""
    memory.apart()
    return _sendto(i32(descriptor), i64(0), ZERO, i32(MSG_DONTWAIT), i64(0), types.uint32(0)) >= i64(0)
