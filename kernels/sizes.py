"""What a queue counts of packets that came or went at once: their number, and the power of two that it reaches.

Nothing where it is unmeasured; what is lost is counted elsewhere, and always.
"""

from __future__ import annotations

from ..shm.layout import SIZES
from .jit import inlined
from .words import ONE, TWO, ZERO, u64

_LAST = u64(SIZES - 1)


@inlined
def count(sizes, n):
    """Count a burst or batch.

    Args:
        sizes: u8[SIZES] of a QUEUE.
        n: u64, its packets, not 0.
    """
    place = u64(0)
    reach = TWO
    for _ in range(SIZES - 1):
        if n < reach:
            break
        place += ONE
        reach += reach
    place = min(place, _LAST)
    sizes[place] = sizes[place] + ONE


@inlined
def received(queue, packets, bytes_):
    """Count a burst that was taken from a QUEUE: not 0 packets, and their bytes on the wire."""
    if u64(queue.unmeasured) != ZERO:
        return
    queue.rx_packets = queue.rx_packets + packets
    queue.rx_bytes = queue.rx_bytes + bytes_
    queue.bursts = queue.bursts + ONE
    count(queue.rx_sizes, packets)


@inlined
def handed_over(queue, packets):
    """Count a batch that was handed over to the other side of a QUEUE: not 0 packets; their bytes were counted before."""
    if u64(queue.unmeasured) != ZERO:
        return
    queue.tx_packets = queue.tx_packets + packets
    queue.batches = queue.batches + ONE
    count(queue.tx_sizes, packets)
