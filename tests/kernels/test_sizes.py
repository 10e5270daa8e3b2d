"""Bursts are counted by the power of two that they reach."""

import numpy as np
import pytest
from zonetrack.kernels import memory, sizes
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import QUEUE

queue_at = memory.record_at(QUEUE)


@kernel
def count(address, n):
    """Count a burst of a QUEUE."""
    sizes.count(queue_at(address).rx_sizes, n)


@pytest.mark.parametrize(
    ("n", "place"), [(1, 0), (2, 1), (3, 1), (4, 2), (7, 2), (8, 3), (15, 3), (16, 4), (31, 4), (32, 5), (200, 5)]
)
def test_a_burst_is_counted_where_it_belongs(n, place):
    queue = np.zeros(1, QUEUE)
    count(u64(queue.ctypes.data), u64(n))
    assert queue["rx_sizes"][0].tolist() == [int(i == place) for i in range(6)]
