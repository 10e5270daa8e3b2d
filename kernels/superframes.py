"""Frames that were several: segments and datagrams that were joined on their way in, or were never cut.

A host leaves it to its device to cut a stream into segments (TSO), or what it sends at once into datagrams (USO), a device
joins those that come in (GRO, LRO); whoever takes frames in between sees 64 KiB at once.  To leave by an interface without
such help they are cut here: each part has the headers of the whole, its own lengths and checksums, and of TCP its own place
in the stream.  A stream may be cut anywhere, and is where its sender would have, or where a part is as long as may be;
datagrams only where their sender did, so of UDP nothing is cut unless that was told (kernels/frame_status).

    part        PSH, FIN        CWR         identification (IPv4)
    the first   if it is last   as it was   as it was
    another     if it is last   none        the next number
"""

from __future__ import annotations

from ..shm.layout import FRAME, FrameFlag
from . import checksum, links, memory
from .endpoints import TCP, UDP
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_8, LOW_16, LOW_32, TWO, ZERO, u64

frame_at = memory.record_at(FRAME)

_FLAGS = u64(FrameFlag.CHECKSUM_PARTIAL) | u64(FrameFlag.CHECKSUM_TRUSTED)
_SIX, _NINE, _TEN, _TWELVE, _THIRTEEN, _FIFTEEN, _SIXTEEN = (u64(n) for n in (6, 9, 10, 12, 13, 15, 16))
_IPV4_BYTES, _IPV6_BYTES, _TCP_BYTES, _UDP_BYTES = u64(20), u64(40), u64(20), u64(8)
_ADDRESSES_4, _ADDRESSES_6 = u64(8), u64(32)
_IS_FRAGMENT = u64(0x3FFF)
_NOT_LAST, _NOT_FIRST = u64(0xFF & ~0x09), u64(0xFF & ~0x80)
_OFFSET, _DATA_SHIFT, _END_SHIFT = u64(0xFFF), u64(24), u64(36)
_END, _IS_UDP = u64(0xFFFFFF), u64(1 << 60)


@inlined
def data_of(shape):
    """Return the offset of a frame's data."""
    return (shape >> _DATA_SHIFT) & _OFFSET


@inlined
def end_of(shape):
    """Return the offset of their end."""
    return (shape >> _END_SHIFT) & _END


@inlined
def part_bytes(shape, most, told):
    """Return the bytes of data of a part.

    Args:
        shape: u64, as `look` has told it, not 0.
        most: u64, bytes that a part may have, headers and all.
        told: u64, bytes of data of what the frame was, 0 where nobody has told.

    Returns:
        0 where it cannot be cut so.
    """
    data = data_of(shape)
    if most <= data:
        return ZERO
    if shape & _IS_UDP != ZERO:
        return told if told <= most - data else ZERO
    return min(told, most - data) if told != ZERO else most - data


@kernel
def look(frame):
    """Find what of a frame every part begins with.

    Args:
        frame: FRAME.

    Returns:
        Its shape: the offsets of IP, TCP or UDP, the data and their end in one word; 0 where it cannot be cut: it is neither
        over IPv4 or IPv6 without extension headers, is a fragment, or not all of it is there.
    """
    memory.seldom()
    captured = u64(frame.captured_bytes)
    found = links.find(u64(frame.link), u64(frame.address), captured)
    family, at = found & LOW_8, found >> EIGHT
    start = u64(frame.address) + at
    if captured < u64(frame.wire_bytes) or (family != FOUR and family != _SIX) or captured < at + _IPV6_BYTES:
        return ZERO
    if family == FOUR:
        transport = at + ((memory.byte(start) & _FIFTEEN) << TWO)
        end = at + memory.be16(start + TWO)
        protocol = u64(memory.byte(start + _NINE))
        if memory.be16(start + _SIX) & _IS_FRAGMENT != ZERO or transport < at + _IPV4_BYTES:
            return ZERO
    else:
        transport = at + _IPV6_BYTES
        end = transport + memory.be16(start + FOUR)
        protocol = u64(memory.byte(start + _SIX))
    if protocol == UDP and end <= captured and end > transport + _UDP_BYTES and transport <= _OFFSET - _UDP_BYTES:
        return _IS_UDP | at | (transport << _TWELVE) | ((transport + _UDP_BYTES) << _DATA_SHIFT) | (end << _END_SHIFT)
    if protocol != TCP or end > captured or end < transport + _TCP_BYTES:
        return ZERO
    data = transport + ((memory.byte(u64(frame.address) + transport + _TWELVE) >> FOUR) << TWO)
    if data < transport + _TCP_BYTES or data > end or data > _OFFSET:
        return ZERO
    return at | (transport << _TWELVE) | (data << _DATA_SHIFT) | (end << _END_SHIFT)


@kernel
def write(frame, part, number, first, size, shape):
    """Write a part of a frame.

    Args:
        frame: FRAME.
        part: FRAME, out; its address has room. Its checksum has yet to be filled in (CHECKSUM_PARTIAL).
        number: u64, of the part, from 0.
        first: u64, place of its data in that of the frame.
        size: u64, bytes of its data.
        shape: u64, as `look` has told it.
    """
    memory.seldom()
    at, transport = shape & _OFFSET, (shape >> _TWELVE) & _OFFSET
    data, end = data_of(shape), end_of(shape)
    source, to = u64(frame.address), u64(part.address)
    memory.copy(to, source, data)
    memory.copy(to + data, source + data + first, size)
    part.captured_bytes = data + size
    part.wire_bytes = data + size
    part.link = frame.link
    part.zone = frame.zone
    part.flags = _FLAGS
    network, tcp, l4_bytes = to + at, to + transport, data - transport + size
    if memory.byte(network) >> FOUR == FOUR:
        memory.set_be16(network + TWO, transport - at + l4_bytes)
        memory.set_be16(network + FOUR, (memory.be16(network + FOUR) + number) & LOW_16)
        memory.set_le16(network + _TEN, ZERO)
        memory.set_le16(network + _TEN, LOW_16 - checksum.sum_bytes(network, transport - at) % LOW_16)
        addresses = checksum.sum_bytes(network + _TWELVE, _ADDRESSES_4)
    else:
        memory.set_be16(network + FOUR, l4_bytes)
        addresses = checksum.sum_bytes(network + EIGHT, _ADDRESSES_6)
    if shape & _IS_UDP != ZERO:
        memory.set_be16(tcp + FOUR, l4_bytes)
        memory.set_le16(tcp + _SIX, checksum.pseudo_header(addresses, UDP, l4_bytes) % LOW_16)
        return
    memory.set_be32(tcp + FOUR, (memory.be32(tcp + FOUR) + first) & LOW_32)
    flags = u64(memory.byte(tcp + _THIRTEEN))
    if data + first + size < end:
        flags &= _NOT_LAST
    if first != ZERO:
        flags &= _NOT_FIRST
    memory.set_byte(tcp + _THIRTEEN, flags)
    memory.set_le16(tcp + _SIXTEEN, checksum.pseudo_header(addresses, TCP, l4_bytes) % LOW_16)
