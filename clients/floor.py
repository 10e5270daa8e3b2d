"""The floor: what reading so many adjacent cache lines at random costs, with nothing done to them.

Nobody who looks up records at random in as many bytes can be faster, so figures are held against it: their ratio
means the same on a fast machine and on a slow one, on an idle one and on a busy one.
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np

from ..kernels import draws, memory
from ..kernels.jit import kernel
from ..kernels.words import THREE, ZERO, u64
from ..shm import mapping
from ..shm.layout import LINE_BYTES, PAGE_BYTES

LINES = (1, 2, 4)
"""Adjacent lines of an access: index line, home pair, and the lines of a hit."""
BURST = 32
ACCESSES = 32_768 * BURST
"""In a measurement: 10 to 100 ms."""
REPEATS = 5

_LINE = u64(LINE_BYTES)


@kernel
def walk(base, groups, lines, state, scratch, bursts):
    """Read groups of adjacent cache lines at random, fetching a burst of them before reading it.

    Args:
        base: u64, address of the first line; there are groups x lines of them.
        groups: u64, what to draw from.
        lines: u64, adjacent lines in a group.
        state: u64, not 0, seed of the draws.
        scratch: u64, address of u64[BURST], private.
        bursts: how many bursts to read.

    Returns:
        The sum of the first words of all lines that were read.
    """
    total = ZERO
    for _ in range(bursts):
        for i in range(BURST):
            state = draws.after(state)
            group = base + draws.below(state, groups) * lines * _LINE
            memory.set_le64(scratch + (u64(i) << THREE), group)
            for line in range(lines):
                memory.prefetch(group + u64(line) * _LINE)
        for i in range(BURST):
            group = memory.le64(scratch + (u64(i) << THREE))
            for line in range(lines):
                total += memory.le64(group + u64(line) * _LINE)
    return total


def region(size: int) -> np.ndarray:
    """Return ``size`` bytes, rounded up to pages, made as the regions of a table are."""
    size = -(-max(size, PAGE_BYTES) // PAGE_BYTES) * PAGE_BYTES
    descriptor = os.memfd_create("zonetrack.floor")
    try:
        os.ftruncate(descriptor, size)
        made = mapping.shared(descriptor, size, reserve=True)
    finally:
        os.close(descriptor)
    made.view("u8")[:: LINE_BYTES // 8] = 1  # zeros might be one page, mapped everywhere
    return made


def measure(over: np.ndarray, seed: int, accesses: int = ACCESSES) -> list[float]:
    """Return nanoseconds per access, for each number of adjacent lines in LINES.

    Args:
        over: bytes from ``region``, entered into this process's page table.
        seed: of the draws; each process another.
        accesses: in each of the measurements, whose median it is.
    """
    scratch = np.zeros(BURST, "u8")
    bursts = u64(max(accesses // BURST, 1))
    figures = []
    for lines in LINES:
        groups = u64(over.nbytes // (lines * LINE_BYTES))
        times = []
        for repeat in range(REPEATS):
            state = u64(seed * REPEATS + repeat + 1)
            begun = time.perf_counter_ns()
            walk(u64(over.ctypes.data), groups, u64(lines), state, u64(scratch.ctypes.data), bursts)
            times.append((time.perf_counter_ns() - begun) / (int(bursts) * BURST))
        figures.append(statistics.median(times))
    return figures
