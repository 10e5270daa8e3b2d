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


@kernel
def come_and_go(address, packets, bytes_):
    """Count a burst that came, and that it left again."""
    sizes.received(queue_at(address), packets, bytes_)
    sizes.handed_over(queue_at(address), packets)


def test_a_burst_and_a_batch_are_counted_with_their_packets():
    queue = np.zeros(1, QUEUE)
    for packets in (3, 20):
        come_and_go(u64(queue.ctypes.data), u64(packets), u64(100 * packets))
    record = queue[0]
    assert (record["rx_packets"], record["rx_bytes"], record["bursts"]) == (23, 2300, 2)
    assert (record["tx_packets"], record["tx_bytes"], record["batches"]) == (23, 0, 2)
    assert record["rx_sizes"].tolist() == record["tx_sizes"].tolist() == [0, 1, 0, 0, 1, 0]
