"""A burst carried to a service and back: for a client what ``burst.track_burst`` is for a worker.

Frames go in parts of what a worker takes at once, so that it is at work while the rest is still being put in.
"""

from __future__ import annotations

from ..shm.layout import (
    BURST_PACKETS_MAX,
    CARRIER,
    DESCRIPTOR,
    DESCRIPTOR_BYTES,
    FRAME_BYTES,
    POLL_BURST_PACKETS,
    VERDICT_BYTES,
    offset,
)
from . import futex, memory, moments, ring
from .jit import kernel
from .words import ONE, ZERO, u64

IDLE_MAX = 16
"""Sleeps in vain over one burst at most: each lasts until the patience is over, but for a signal."""
TURNS_MAX = 4 * BURST_PACKETS_MAX + IDLE_MAX
"""Turns over one burst at most: each moves something, or sleeps."""
SPINS = u64(500)
_IDLE_MAX = u64(IDLE_MAX)

_OUTWARD, _INWARD = offset(CARRIER, "outward"), offset(CARRIER, "inward")
_TAG, _DESCRIPTORS, _TIMEOUT, _PATIENCE = (
    offset(CARRIER, name) for name in ("tag", "descriptors", "timeout", "patience_ms")
)
_VERDICT_AT = offset(DESCRIPTOR, "verdict")
_MILLISECOND_NS = u64(1_000_000)
_PART = u64(POLL_BURST_PACKETS)
_DESCRIPTOR, _FRAME, _VERDICT = u64(DESCRIPTOR_BYTES), u64(FRAME_BYTES), u64(VERDICT_BYTES)


@kernel
def _sort(descriptors, came, first, count, verdicts):
    """Put verdicts in the places of their packets; returns the packets settled, 0 where none of these was of this burst."""
    settled = ZERO
    for i in range(came):
        descriptor = descriptors + u64(i) * _DESCRIPTOR
        place = memory.le64(descriptor) - first
        if place < count:
            memory.copy(verdicts + place * _VERDICT, descriptor + _VERDICT_AT, _VERDICT)
            settled = place + ONE
    return settled


@kernel
def _give_up_at(carrier, timeout):
    """Write the moment when the patience is over, which begins now, into the TIMESPEC at address ``timeout``."""
    memory.seldom()
    futex.until(timeout, moments.now_ns(timeout) // _MILLISECOND_NS + memory.le64(carrier + _PATIENCE))


@kernel
def carry_burst(carrier, frames, count, verdicts):
    """Have a burst of frames tracked by the service at the other end of a queue.

    Args:
        carrier: address of a CARRIER; its addresses are the caller's.
        frames: address of FRAME[count].
        count: packets in the burst, no more than the ring has slots.
        verdicts: out, address of VERDICT[count]; of packets that did not come back they stay as they are.

    Returns:
        The number of packets settled: less than `count` when the rest has not come in `patience_ms`.

    Concurrency:
        The queue is the caller's alone.
    """
    outward, inward = ring.end_at(carrier + _OUTWARD), ring.end_at(carrier + _INWARD)
    descriptors, timeout = memory.le64(carrier + _DESCRIPTORS), memory.le64(carrier + _TIMEOUT)
    first = memory.le64(carrier + _TAG)
    memory.set_le64(carrier + _TAG, first + count)
    _give_up_at(carrier, timeout)
    sent = settled = idle = ZERO
    for _ in range(TURNS_MAX):
        went = ZERO
        if sent < count:
            went = ring.put(outward, frames + sent * _FRAME, min(_PART, count - sent), first + sent)
            sent += went
        came = ring.take(inward, descriptors, ZERO, _PART)
        if came != ZERO:
            settled = max(settled, _sort(descriptors, came, first, count, verdicts))
            if settled == count:
                break
        elif went == ZERO and ring.rest(inward, SPINS, timeout) == ZERO:
            idle += ONE
            if idle == _IDLE_MAX:
                break
    return settled
