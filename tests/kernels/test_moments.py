"""The moment as a kernel reads it is the moment as Python does."""

import time

import numpy as np
from zonetrack.kernels import moments
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import TIMESPEC


@kernel
def now_ns(spec):
    """Read the clock."""
    return moments.now_ns(spec)


def test_a_kernel_reads_the_clock():
    spec = np.zeros(1, TIMESPEC)
    before = time.monotonic_ns()
    between = int(now_ns(u64(spec.ctypes.data)))
    assert before <= between <= time.monotonic_ns()
