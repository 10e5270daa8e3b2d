"""The moment, where a kernel cannot be given it: frames wait for some microseconds, and records of a capture have a time.

Everything else goes by the `now` of its call.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numba import types

from . import futex
from .jit import JIT, inlined
from .words import u64

CLOCK_REALTIME = 0
_SECOND_NS = u64(1_000_000_000)
i32, i64 = np.int32, np.int64

if JIT:
    _clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
else:
    _libc = ctypes.CDLL(None)

    def _clock_gettime(clock, address):
        return _libc.clock_gettime(int(clock), ctypes.c_void_p(int(address)))


@inlined
def _read(clock, spec):
    _clock_gettime(i32(clock), i64(spec))
    at = futex.timespec_at(spec)
    return u64(at.seconds) * _SECOND_NS + u64(at.nanoseconds)


@inlined
def now_ns(spec):
    """Return nanoseconds of CLOCK_MONOTONIC, by way of the TIMESPEC at address ``spec``: some 30 ns."""
    return _read(futex.CLOCK_MONOTONIC, spec)


@inlined
def wall_ns(spec):
    """Return nanoseconds since 1970, likewise."""
    return _read(CLOCK_REALTIME, spec)
