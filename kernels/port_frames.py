"""Ports that are network interfaces, for packets that shall not wait for others: rings with a place for each (TPACKET_V2).

    rx_burst   describe the next frames of the ring: they stay where they are
    release    give their places back

A block of TPACKET_V3 (kernels/port_packet) is handed over when it is full or its time is up; a place of this ring once it
holds a frame.  So the system wakes its reader, and looks at his words, for each frame by itself: some 1.5 us instead of
0.03 us of a worker's time.  Frames go out as they do there.

Who takes a ring over gives back what its predecessor had taken, from `returned` to `position`; those frames are lost.  A
place is LEAVING while it is counted, which the system takes for one that was not given back, and nobody for a frame.  So it
is not given back twice, and emptied of a new frame, nor never, and taken again (service/ports/packet_rings).

Ordering
    A1  acquire load of a place's status    pairs with the system's store after the frame
    R1  release store of LEAVING            after the last access to the frame
    R2  release store of `returned`         after R1: before it the place is given back once more, which changes nothing
    R3  release store of AVAILABLE          after R2: before it the successor sees LEAVING, and does that
"""

from __future__ import annotations

from ..shm.layout import FRAME, FRAME_BYTES, FRAMES, LEAVING, POLL_BURST_PACKETS, QUEUE, FrameFlag, Link, offset
from . import frame_status, memory, sizes
from .jit import inlined, kernel
from .words import ONE, ZERO, u64

queue_at = memory.record_at(QUEUE)
frame_at = memory.record_at(FRAME)
frames_at = memory.record_at(FRAMES)

RX = offset(QUEUE, "rx")
_RETURNED = RX + offset(FRAMES, "returned")
_FRAME = u64(FRAME_BYTES)

# struct tpacket2_hdr
_STATUS, _LENGTH, _SNAPPED, _MAC, _TCI, _TPID = ZERO, u64(4), u64(8), u64(12), u64(24), u64(26)
_AVAILABLE, _TO_USER, _LEAVING = ZERO, frame_status.TO_USER, u64(LEAVING)

_IN_PLACE = u64(FrameFlag.IN_PLACE)
_ETHERNET = u64(Link.ETHERNET)


@inlined
def _place(ring, position):
    return ring.frames + (position & (ring.count - ONE)) * ring.frame_bytes


@inlined
def is_ready(address):
    """Return whether there is something to take from the QUEUE at ``address``."""
    ring = frames_at(address + RX)
    return memory.acquire32(_place(ring, ring.position)) & _TO_USER != ZERO  # A1


@kernel
def rx_burst(loop, address):
    """Take a burst; returns how many packets there are now in `loop.frames`: their bytes stay until `release`."""
    memory.apart()
    ring = frames_at(address + RX)
    queue = queue_at(address)
    count, bytes_ = ZERO, ZERO
    for i in range(POLL_BURST_PACKETS):
        at = _place(ring, ring.position + count)
        status = memory.acquire32(at)  # A1
        if status & _TO_USER == ZERO:
            break
        if frame_status.has_tag(status):
            frame_status.put_tag_back(at, _STATUS, _LENGTH, _MAC, memory.le16(at + _TPID), memory.le16(at + _TCI))
        captured, wire = memory.le32(at + _SNAPPED), memory.le32(at + _LENGTH)
        frame = frame_at(loop.frames + u64(i) * _FRAME)
        frame.address = at + memory.le16(at + _MAC)
        frame.captured_bytes = captured
        frame.wire_bytes = wire
        frame.zone = queue.zone
        frame.link = _ETHERNET
        frame.flags = u64(queue.frame_flags) | _IN_PLACE | frame_status.checksum_flags(status)
        if captured < wire:
            queue.rx_truncated = queue.rx_truncated + ONE
        count += ONE
        bytes_ += wire
    if count != ZERO:
        ring.position = ring.position + count
        sizes.received(queue, count, bytes_)
    return count


@kernel
def release(address):
    """Give the places of all frames that were taken back; nobody looks at their bytes any more."""
    memory.apart()
    ring = frames_at(address + RX)
    for _ in range(ring.position - ring.returned):
        at = _place(ring, ring.returned)
        memory.release32(at, _LEAVING)  # R1
        memory.release64(address + _RETURNED, ring.returned + ONE)  # R2
        memory.release32(at, _AVAILABLE)  # R3
