"""Ports that are network interfaces whose driver hands frames to us before the system sees them: four rings (af_xdp.rst).

    rx_burst   describe the next frames that came: they stay where they are
    release    let the places of those be received in again
    put        copy a frame to a place that is free, and into the ring of those that are to go
    tx_burst   have the system send them

    ring    producer      consumer      entries
    fill    we            the system    places that may be received in
    rx      the system    we            frames that came
    tx      we            the system    frames that are to go
    sent    the system    we            places whose frames have gone

Cursors are words of 32 bits that run on.  At rest two equations hold, by which who takes over from a dead worker knows how
far it had come (service/ports/xdp_rings); the first is of who receives, the second of who sends, which may be two:

    fill.producer = rx.consumer + rx_count      each frame that was taken gave one place back
    tx.producer = sent.consumer + fresh         each that was sent took a fresh place, or one whose frame had gone

Ordering
    A1  acquire load of rx.producer, sent.producer    pairs with the system's store after its entries
    R1  release store of fill.producer                after its entries, and after the last access to the frames
    R2  release store of rx.consumer                  after R1: the first equation is wrong between them, one way only
    R3  release store of tx.producer                  after frame and entry
    R4  release store of sent.consumer, or `fresh`    after R3: likewise the second
"""

from __future__ import annotations

from ..shm.layout import (
    DIVERTED,
    FRAME,
    FRAME_BYTES,
    INJECTED,
    POLL_BURST_PACKETS,
    QUEUE,
    XSK,
    FrameFlag,
    Link,
    offset,
)
from ..shm.reasons import Reason
from . import memory, sizes, sockets, tags
from .jit import inlined, kernel
from .words import EIGHT, FOUR, ONE, THREE, ZERO, u32_add, u32_sub, u64

queue_at = memory.record_at(QUEUE)
frame_at = memory.record_at(FRAME)
diverted_at = memory.record_at(DIVERTED)
injected_at = memory.record_at(INJECTED)
xsk_at = memory.record_at(XSK)

RX, TX = offset(QUEUE, "rx"), offset(QUEUE, "tx")
_POLLED = RX + offset(DIVERTED, "polled")
_BURST = u64(POLL_BURST_PACKETS)
_FRAME = u64(FRAME_BYTES)
_IN_PLACE = u64(FrameFlag.IN_PLACE)
_ETHERNET = u64(Link.ETHERNET)
_NEEDS_WAKEUP = ONE
KICKS_MAX = 8
"""Of a batch: the system sends 32 frames of it at most at a time."""


# ------------------------------------------------------------------------------------------------ in
@inlined
def is_ready(address):
    """Return whether there is something to take from the QUEUE at ``address``."""
    own = diverted_at(address + RX)
    return memory.acquire32(xsk_at(own.rings).rx_producer) != own.position  # A1


@kernel
def rx_burst(loop, address):
    """Take a burst; returns how many packets there are now in `loop.frames`: their bytes stay until `release`."""
    memory.apart()
    own = diverted_at(address + RX)
    xsk = xsk_at(own.rings)
    first = u64(own.position)
    count = min(_BURST, u32_sub(memory.acquire32(xsk.rx_producer), first))  # A1
    if count == ZERO:
        return ZERO
    queue = queue_at(address)
    flags = u64(queue.frame_flags) | _IN_PLACE
    bytes_ = ZERO
    for i in range(count):
        entry = xsk.rx_entries + (((first + u64(i)) & (xsk.rx_count - ONE)) << FOUR)
        length = memory.le32(entry + EIGHT)
        frame = frame_at(loop.frames + u64(i) * _FRAME)
        frame.address = xsk.frames + memory.le64(entry)
        frame.captured_bytes = length
        frame.wire_bytes = length
        frame.zone = queue.zone
        frame.link = _ETHERNET
        frame.flags = flags
        bytes_ += length
    own.position = u32_add(first, count)
    sizes.received(queue, count, bytes_)
    return count


@kernel
def release(address):
    """Let the places of all frames that were taken be received in again; nobody looks at their bytes any more."""
    memory.apart()
    own = diverted_at(address + RX)
    xsk = xsk_at(own.rings)
    first = memory.le32(xsk.rx_consumer)
    count = u32_sub(u64(own.position), first)
    mask = xsk.rx_count - ONE
    produced = memory.le32(xsk.fill_producer)
    for i in range(count):
        at = memory.le64(xsk.rx_entries + (((first + u64(i)) & mask) << FOUR))
        memory.set_le64(xsk.fill_entries + (((produced + u64(i)) & mask) << THREE), at & ~(xsk.place_bytes - ONE))
    memory.release32(xsk.fill_producer, u32_add(produced, count))  # R1
    memory.release32(xsk.rx_consumer, u32_add(first, count))  # R2
    if memory.acquire32(xsk.fill_flags) & _NEEDS_WAKEUP != ZERO:
        sockets.can_be_read(u64(queue_at(address).rx_descriptor), address + _POLLED)


# ------------------------------------------------------------------------------------------------ out
@inlined
def longest(frame, own):
    """Return the most bytes that a frame may have to go out."""
    return tags.longest(frame, own.length_max, xsk_at(own.rings).place_bytes)


@inlined
def _is_free(own, xsk):
    """Return whether there is a place to send from."""
    return own.fresh < xsk.tx_count or memory.acquire32(xsk.sent_producer) != memory.le32(xsk.sent_consumer)  # A1


@kernel
def put(address, frame):
    """Copy a frame to a place that is free, and into the ring of those that are to go.

    Args:
        address: of the QUEUE.
        frame: FRAME.

    Returns:
        The Reason why it did not go, NONE when it did.
    """
    memory.apart()
    queue = queue_at(address)
    own = injected_at(address + TX)
    xsk = xsk_at(own.rings)
    captured = u64(frame.captured_bytes)
    if captured < u64(frame.wire_bytes) or u64(frame.link) != _ETHERNET or captured > longest(frame, own):
        queue.tx_too_long = queue.tx_too_long + ONE
        return u64(Reason.OUTPUT_TOO_LONG)
    if not _is_free(own, xsk):
        sockets.send_ring(u64(queue.tx_descriptor))  # it may have refused before
        if not _is_free(own, xsk):
            queue.tx_full = queue.tx_full + ONE
            return u64(Reason.OUTPUT_FULL)
    mask = xsk.tx_count - ONE
    gone = memory.le32(xsk.sent_consumer)
    is_fresh = own.fresh < xsk.tx_count
    if is_fresh:
        at = (xsk.rx_count + own.fresh) * xsk.place_bytes
    else:
        at = memory.le64(xsk.sent_entries + ((gone & mask) << THREE)) & ~(xsk.place_bytes - ONE)
    memory.copy(xsk.frames + at, u64(frame.address), captured)
    produced = memory.le32(xsk.tx_producer)
    entry = xsk.tx_entries + ((produced & mask) << FOUR)
    memory.set_le64(entry, at)
    memory.set_le64(entry + EIGHT, captured)
    memory.release32(xsk.tx_producer, u32_add(produced, ONE))  # R3
    if is_fresh:
        own.fresh = own.fresh + ONE
    else:
        memory.release32(xsk.sent_consumer, u32_add(gone, ONE))  # R4
    queue.pending = u64(queue.pending) + ONE
    queue.tx_bytes = queue.tx_bytes + captured
    return u64(Reason.NONE)


@kernel
def tx_burst(address):
    """Have the system send what was put; returns whether it took all: what it would not take now stays in the ring."""
    memory.apart()
    queue = queue_at(address)
    xsk = xsk_at(injected_at(address + TX).rings)
    produced = memory.le32(xsk.tx_producer)
    for _ in range(KICKS_MAX):
        consumed = memory.acquire32(xsk.tx_consumer)
        if consumed == produced or memory.acquire32(xsk.tx_flags) & _NEEDS_WAKEUP == ZERO:
            return True
        if not sockets.send_ring(u64(queue.tx_descriptor)) and memory.acquire32(xsk.tx_consumer) == consumed:
            queue.tx_failed = queue.tx_failed + ONE
            break
    return memory.acquire32(xsk.tx_consumer) == produced
