"""Ports that are capture files: packets come out of one as fast as they are taken, and go into another.

    rx_burst   describe the next packets of the file that is read, in place
    put        write a record into a buffer
    tx_burst   append the buffer to the file that is written, whole records by one call

The file that is read is mapped so that what is written there stays in this process.  Several workers append to one file:
each has a buffer of its own, and the system lets one append at a time.
"""

from __future__ import annotations

from ..shm.layout import (
    FRAME,
    FRAME_BYTES,
    PLACES,
    POLL_BURST_PACKETS,
    QUEUE,
    Link,
    offset,
)
from ..shm.reasons import Reason
from . import memory, moments, sizes, sockets
from .jit import inlined, kernel
from .words import EIGHT, FOUR, ONE, SIXTEEN, ZERO, u64

queue_at = memory.record_at(QUEUE)
frame_at = memory.record_at(FRAME)
places_at = memory.record_at(PLACES)

RX, TX = offset(QUEUE, "rx"), offset(QUEUE, "tx")
"""Both PLACES: of the file that is read, `places` are FRAME[count], and `cursor` is how many were taken."""
_SPARE = TX + offset(PLACES, "reserved")
_BURST = u64(POLL_BURST_PACKETS)
_FRAME = u64(FRAME_BYTES)
_ETHERNET = u64(Link.ETHERNET)
_RECORD_BYTES, _TWELVE = SIXTEEN, u64(12)
_SECOND_NS = u64(1_000_000_000)


@inlined
def is_ready(address):
    """Return whether the file that is read by the QUEUE at ``address`` has more."""
    walk = places_at(address + RX)
    return walk.cursor < walk.count


@kernel
def rx_burst(loop, address):
    """Take a burst out of the file; returns how many packets there are now in `loop.frames`."""
    memory.apart()
    walk = places_at(address + RX)
    if walk.cursor >= walk.count:
        return ZERO
    count = min(_BURST, walk.count - walk.cursor)
    memory.copy(loop.frames, walk.places + walk.cursor * _FRAME, count * _FRAME)
    walk.cursor = walk.cursor + count
    queue = queue_at(address)
    bytes_ = ZERO
    for i in range(count):
        frame = frame_at(loop.frames + u64(i) * _FRAME)
        if u64(frame.captured_bytes) < u64(frame.wire_bytes):
            queue.rx_truncated = queue.rx_truncated + ONE
        bytes_ += u64(frame.wire_bytes)
    sizes.received(queue, count, bytes_)
    return count


@kernel
def put(address, frame):
    """Write a frame as a record of a pcap file; returns the Reason why it did not go, NONE when it did."""
    memory.apart()
    queue = queue_at(address)
    places = places_at(address + TX)
    captured = u64(frame.captured_bytes)
    if places.places == ZERO:
        queue.tx_full = queue.tx_full + ONE  # nothing is written
        return u64(Reason.OUTPUT_FULL)
    if u64(frame.link) != _ETHERNET or captured + _RECORD_BYTES > places.place_bytes:
        queue.tx_too_long = queue.tx_too_long + ONE
        return u64(Reason.OUTPUT_TOO_LONG)
    if places.cursor + captured + _RECORD_BYTES > places.place_bytes:
        tx_burst(address)
    now_ns = moments.wall_ns(address + _SPARE)
    at = places.places + places.cursor
    memory.set_le32(at, now_ns // _SECOND_NS)
    memory.set_le32(at + FOUR, now_ns % _SECOND_NS)
    memory.set_le32(at + EIGHT, captured)
    memory.set_le32(at + _TWELVE, u64(frame.wire_bytes))
    memory.copy(at + _RECORD_BYTES, u64(frame.address), captured)
    places.cursor = places.cursor + captured + _RECORD_BYTES
    queue.pending = u64(queue.pending) + ONE
    queue.tx_bytes = queue.tx_bytes + captured
    return u64(Reason.NONE)


@kernel
def tx_burst(address):
    """Append the buffer to the file; where the system will not, its packets are lost, and that is counted."""
    memory.apart()
    queue = queue_at(address)
    places = places_at(address + TX)
    if places.cursor != ZERO:
        if not sockets.write(u64(queue.tx_descriptor), u64(places.places), u64(places.cursor)):
            queue.tx_failed = queue.tx_failed + ONE
        places.cursor = ZERO
