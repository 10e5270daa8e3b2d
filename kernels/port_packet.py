"""Ports that are network interfaces: rings that the kernel of the operating system shares with packet sockets (packet(7)).

    rx_burst   walk the block in hand of a ring of TPACKET_V3: frames stay where they are, and a block is never left half way
    release    give the block back when all of its packets were taken, and nobody needs their bytes any more
    put        copy a frame into a place of a ring of TPACKET_V2
    tx_burst   have the system send what was put: one call for all; what it has not taken is for another

A VLAN tag, which the system takes out of a frame and tells beside it, is put back where it was: the bytes before a frame are
its own.  A checksum that the sender left to its device is told by a flag.  A frame that was cut short on its way in, or is
longer than the interface may send, is not sent, and counted.

Who takes a ring over goes on where QUEUE says: `position` is one word, and a block is given back before it moves.  So after
a death the block that it names is either not begun, or has its `sequence`, or was given back (service/ports/packet_rings).

Ordering
    A1  acquire load of a block's status    pairs with the system's store after its packets
    R1  release store of a block's status   after the last access to its packets
    A2  acquire load of a place's status    pairs with the system's store after it has read the frame
    R2  release store of a place's status   after length and frame
"""

from __future__ import annotations

from ..shm.layout import (
    BLOCKS,
    FRAME,
    FRAME_BYTES,
    PLACE_HEAD_BYTES,
    PLACES,
    POLL_BURST_PACKETS,
    QUEUE,
    FrameFlag,
    Link,
    offset,
)
from ..shm.reasons import Reason
from . import frame_status, memory, sizes, sockets, tags
from .jit import inlined, kernel
from .words import EIGHT, LOW_32, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

queue_at = memory.record_at(QUEUE)
frame_at = memory.record_at(FRAME)
blocks_at = memory.record_at(BLOCKS)
places_at = memory.record_at(PLACES)

RX, TX = offset(QUEUE, "rx"), offset(QUEUE, "tx")
_BURST = u64(POLL_BURST_PACKETS)
_FRAME = u64(FRAME_BYTES)

# struct tpacket_block_desc
BLOCK_STATUS, _BLOCK_PACKETS, _BLOCK_FIRST, BLOCK_SEQUENCE = u64(8), u64(12), u64(16), u64(24)
# struct tpacket3_hdr
_SNAPPED, _LENGTH, _STATUS, _MAC, _TCI, _TPID = u64(12), u64(16), u64(20), u64(24), u64(32), u64(36)
_TO_USER = frame_status.TO_USER
# struct tpacket2_hdr; in a place, behind TPACKET2_HDRLEN less a sockaddr_ll, a struct virtio_net_hdr and then the frame
PLACE_LENGTH, _PLACE_TOLD, PLACE_FRAME = u64(4), u64(32), u64(PLACE_HEAD_BYTES)
_TOLD_BYTES = PLACE_FRAME - _PLACE_TOLD
_COPIED_MAX = u64(2048)
"""Bytes of a frame that the system copies; the rest it sends from the place.  Who keeps frames for others to receive, as
virtual interfaces do, copies all that was not copied, page by page: that costs 150 ns more (measured 2026-11)."""
_AVAILABLE, _SEND_REQUEST = ZERO, ONE

_IN_PLACE = u64(FrameFlag.IN_PLACE)
_ETHERNET = u64(Link.ETHERNET)


# ------------------------------------------------------------------------------------------------ in
@inlined
def _block(blocks):
    """Return the address of the block in hand."""
    return blocks.blocks + ((blocks.position >> THIRTY_TWO) & (blocks.count - ONE)) * blocks.block_bytes


@inlined
def is_ready(address):
    """Return whether there is something to take from the QUEUE at ``address``."""
    return memory.acquire32(_block(blocks_at(address + RX)) + BLOCK_STATUS) & _TO_USER != ZERO  # A1


@kernel
def _find(blocks, block):
    """Return the address of the next packet of the block in hand."""
    memory.seldom()
    at = block + memory.le32(block + _BLOCK_FIRST)
    for _ in range(blocks.position & LOW_32):
        at += memory.le32(at)
    return at


@inlined
def _read(queue, frame, at):
    """Describe the packet at address ``at``; returns its bytes on the wire."""
    status = memory.le32(at + _STATUS)
    if frame_status.has_tag(status):
        frame_status.put_tag_back(at, _STATUS, _SNAPPED, _MAC, memory.le16(at + _TPID), memory.le32(at + _TCI))
    captured, wire = memory.le32(at + _SNAPPED), memory.le32(at + _LENGTH)
    frame.address = at + memory.le16(at + _MAC)
    frame.captured_bytes = captured
    frame.wire_bytes = wire
    frame.zone = queue.zone
    frame.link = _ETHERNET
    frame.flags = u64(queue.frame_flags) | _IN_PLACE | frame_status.checksum_flags(status)
    if captured < wire:
        queue.rx_truncated = queue.rx_truncated + ONE
    return wire


@inlined
def release(address):
    """Give the block in hand back if all of its packets were taken; nobody looks at their bytes any more."""
    blocks = blocks_at(address + RX)
    block = _block(blocks)
    if memory.acquire32(block + BLOCK_STATUS) & _TO_USER == ZERO:
        return
    if blocks.position & LOW_32 == memory.le32(block + _BLOCK_PACKETS):
        memory.release32(block + BLOCK_STATUS, ZERO)  # R1
        blocks.position = ((blocks.position >> THIRTY_TWO) + ONE) << THIRTY_TWO
        blocks.next = ZERO


@kernel
def rx_burst(loop, address):
    """Take a burst out of the block in hand.

    Args:
        loop: POLL; its frames are written.
        address: of the QUEUE.

    Returns:
        How many packets there are; their bytes stay until `release`.
    """
    memory.apart()
    blocks = blocks_at(address + RX)
    block = _block(blocks)
    if memory.acquire32(block + BLOCK_STATUS) & _TO_USER == ZERO:  # A1
        return ZERO
    queue = queue_at(address)
    taken = blocks.position & LOW_32
    if taken == ZERO:
        blocks.sequence = memory.le64(block + BLOCK_SEQUENCE)
        at = block + memory.le32(block + _BLOCK_FIRST)
    else:
        at = u64(blocks.next)
        if at == ZERO:
            at = _find(blocks, block)
    count = min(_BURST, memory.le32(block + _BLOCK_PACKETS) - taken)
    if count == ZERO:  # who took the last of them died before it gave the block back
        release(address)
        return ZERO
    bytes_ = ZERO
    for i in range(count):
        bytes_ += _read(queue, frame_at(loop.frames + u64(i) * _FRAME), at)
        at += memory.le32(at)
    blocks.next = at
    blocks.position = blocks.position + count
    sizes.received(queue, count, bytes_)
    return count


# ------------------------------------------------------------------------------------------------ out
@inlined
def longest(frame, places):
    """Return the most bytes that a frame may have to go out."""
    return tags.longest(frame, places.length_max, places.place_bytes - PLACE_FRAME)


@kernel
def put(address, frame):
    """Copy a frame into the next place of a queue's ring.

    Args:
        address: of the QUEUE.
        frame: FRAME.

    Returns:
        The Reason why it did not go, NONE when it did.
    """
    memory.apart()
    queue = queue_at(address)
    places = places_at(address + TX)
    captured = u64(frame.captured_bytes)
    if captured < u64(frame.wire_bytes) or u64(frame.link) != _ETHERNET or captured > longest(frame, places):
        queue.tx_too_long = queue.tx_too_long + ONE
        return u64(Reason.OUTPUT_TOO_LONG)
    at = places.places + (places.cursor & (places.count - ONE)) * places.place_bytes
    if memory.acquire32(at) != _AVAILABLE:  # A2
        sockets.send_ring(u64(queue.tx_descriptor))  # it may have refused before
        if memory.acquire32(at) != _AVAILABLE:
            queue.tx_full = queue.tx_full + ONE
            return u64(Reason.OUTPUT_FULL)
    memory.set_le64(at + _PLACE_TOLD, min(captured, _COPIED_MAX) << SIXTEEN)  # hdr_len; nothing else is told
    memory.set_le16(at + _PLACE_TOLD + EIGHT, ZERO)
    memory.copy(at + PLACE_FRAME, u64(frame.address), captured)
    memory.set_le32(at + PLACE_LENGTH, captured + _TOLD_BYTES)
    places.putting = places.cursor + ONE
    memory.release32(at, _SEND_REQUEST)  # R2
    places.cursor = places.cursor + ONE
    queue.pending = u64(queue.pending) + ONE
    queue.tx_bytes = queue.tx_bytes + captured
    return u64(Reason.NONE)


@inlined
def tx_burst(address):
    """Have the system send what was put; returns whether it took all: what it would not take now stays in the ring.

    It says so of none, but not of some: it goes through the places in order, so the last tells.
    """
    queue = queue_at(address)
    if not sockets.send_ring(u64(queue.tx_descriptor)):
        queue.tx_failed = queue.tx_failed + ONE
    places = places_at(address + TX)
    last = (places.cursor - ONE) & (places.count - ONE)
    return memory.acquire32(places.places + last * places.place_bytes) != _SEND_REQUEST
