"""Ports that are TAP interfaces: a frame a call, for the system takes and gives them no other way (tun.rst of Linux).

    rx_burst   read frames, each to a place of its own, until there are none
    put        write a frame
    tx_burst   nothing is left to do

All queues of an interface may be written by anybody at any time: a write is one frame, whole.  So workers that have no queue
of it write to another's.
"""

from __future__ import annotations

from ..shm.layout import (
    FRAME,
    FRAME_BYTES,
    FRAME_SLOT_BYTES,
    POLL_BURST_PACKETS,
    QUEUE,
    FrameFlag,
    Link,
    offset,
)
from ..shm.reasons import Reason
from . import memory, port_shm, sizes, sockets
from .jit import kernel
from .words import ONE, ZERO, u64

queue_at = memory.record_at(QUEUE)
frame_at = memory.record_at(FRAME)

RX = offset(QUEUE, "rx")
"""Here stands the POLLED of a look at the descriptor."""
_FRAME, _SLOT = u64(FRAME_BYTES), u64(FRAME_SLOT_BYTES)
_ETHERNET = u64(Link.ETHERNET)
_COMMIT = u64(FrameFlag.COMMIT)


@kernel
def is_ready(address):
    """Return whether there is something to take from the QUEUE at ``address``: a system call."""
    memory.apart()
    return sockets.can_be_read(u64(queue_at(address).rx_descriptor), address + RX)


@kernel
def rx_burst(loop, address):
    """Read a burst; returns how many packets there are now in `loop.frames`.

    A frame that fills its place was cut short: nothing says by how much, so it is told as one byte longer.
    """
    memory.apart()
    queue = queue_at(address)
    descriptor = u64(queue.rx_descriptor)
    count, bytes_ = ZERO, ZERO
    for i in range(POLL_BURST_PACKETS):
        to = loop.bytes + u64(i) * _SLOT
        size = sockets.read(descriptor, to, _SLOT)
        if size == ZERO:
            break
        wire = size
        if size == _SLOT:
            wire = size + ONE
            queue.rx_truncated = queue.rx_truncated + ONE
        port_shm.describe(queue, frame_at(loop.frames + u64(i) * _FRAME), to, size, wire, _ETHERNET, _COMMIT)
        count += ONE
        bytes_ += wire
    if count != ZERO:
        sizes.received(queue, count, bytes_)
    return count


@kernel
def put(address, frame):
    """Write a frame; returns the Reason why it did not go, NONE when it did."""
    memory.apart()
    queue = queue_at(address)
    captured = u64(frame.captured_bytes)
    if captured < u64(frame.wire_bytes) or u64(frame.link) != _ETHERNET:
        queue.tx_too_long = queue.tx_too_long + ONE
        return u64(Reason.OUTPUT_TOO_LONG)
    if not sockets.write(u64(queue.tx_descriptor), u64(frame.address), captured):
        queue.tx_failed = queue.tx_failed + ONE
        return u64(Reason.OUTPUT_FULL)
    queue.pending = u64(queue.pending) + ONE
    queue.tx_bytes = queue.tx_bytes + captured
    return u64(Reason.NONE)
