"""Sleeping on a word of shared memory, and waking who sleeps there, from inside a kernel (futex(2), futex2(2)).

Processes that map the word at different addresses may meet here, so none of it is private to one.  A sleep may end for no
reason: a signal, another value, the moment; who sleeps looks again.  Moments are of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import ctypes
import platform

import numpy as np
from numba import types

from ..shm.layout import TIMESPEC
from . import memory
from .jit import JIT, inlined
from .words import u64

SYS_FUTEX = 202 if platform.machine() in ("x86_64", "AMD64") else 98  # 98 is that of all newer architectures
SYS_FUTEX_WAITV = 449
FUTEX_WAKE = 1
FUTEX_WAIT_BITSET = 9  # like FUTEX_WAIT, but for a moment, not a length
ANYONE = 0xFFFFFFFF
CLOCK_MONOTONIC = 1

timespec_at = memory.record_at(TIMESPEC)
_SECOND_MS = u64(1_000)
_MILLISECOND_NS = u64(1_000_000)

i64 = np.int64

if JIT:
    _syscall = types.ExternalFunction("syscall", types.int64(*(types.int64,) * 7))
else:
    _libc = ctypes.CDLL(None)
    _libc.syscall.restype = ctypes.c_long

    def _syscall(*words):
        return _libc.syscall(*(ctypes.c_long(int(word)) for word in words))


@inlined
def until(timeout, moment_ms):
    """Write a moment into the TIMESPEC at address ``timeout``."""
    spec = timespec_at(timeout)
    spec.seconds = i64(moment_ms // _SECOND_MS)
    spec.nanoseconds = i64(moment_ms % _SECOND_MS * _MILLISECOND_NS)


@inlined
def wait(word, value, timeout):
    """Sleep while the 32-bit word at address ``word`` is ``value``, until the moment at address ``timeout``."""
    _syscall(i64(SYS_FUTEX), i64(word), i64(FUTEX_WAIT_BITSET), i64(value), i64(timeout), i64(0), i64(ANYONE))


@inlined
def wait_for_any(waits, count, timeout):
    """Sleep while all of some words have their values.

    Args:
        waits: address of WAIT[count].
        count: words, at most WAITS_MAX.
        timeout: address of a TIMESPEC, the moment until when.
    """
    _syscall(i64(SYS_FUTEX_WAITV), i64(waits), i64(count), i64(0), i64(timeout), i64(CLOCK_MONOTONIC), i64(0))


@inlined
def wake(word):
    """Wake one who sleeps on the word at address ``word``."""
    _syscall(i64(SYS_FUTEX), i64(word), i64(FUTEX_WAKE), i64(1), i64(0), i64(0), i64(0))
