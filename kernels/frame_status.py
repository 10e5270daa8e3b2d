"""What the system tells beside a frame of a packet socket: a word of bits, the VLAN tag that it took out, how to cut it.

TPACKET_V2 and TPACKET_V3 say the same by the same bits; only the places differ where it stands in their headers.  Between
those and the frame stands a struct virtio_net_hdr, where the socket has been asked for it (packet(7), PACKET_VNET_HDR):

    flags 1, kind of segments 1, length of headers 2, data of a segment 2, two offsets
"""

from __future__ import annotations

from ..shm.layout import FrameFlag
from . import memory, tags
from .jit import inlined, kernel
from .words import FOUR, ONE, ZERO, u64

# TP_STATUS_... of include/uapi/linux/if_packet.h
TO_USER = ONE
"""The frame, or block of frames, is ours."""
CHECKSUM_NOT_READY, TAGGED, KIND_VALID, CHECKSUM_VALID = u64(0x08), u64(0x10), u64(0x40), u64(0x80)

_TOLD_BYTES, _KIND_AT, _SIZE_AT = u64(10), u64(9), u64(6)
"""The struct, and how far before a frame its fields begin."""
_TRUSTED = u64(FrameFlag.CHECKSUM_TRUSTED)
_PARTIAL = u64(FrameFlag.CHECKSUM_PARTIAL)


@inlined
def checksum_flags(status):
    """Return what a status says of the checksum, as FrameFlags: whether it was verified, or has yet to be filled in."""
    flags = ZERO
    if status & (CHECKSUM_VALID | CHECKSUM_NOT_READY) != ZERO:
        flags |= _TRUSTED
        if status & CHECKSUM_NOT_READY != ZERO:
            flags |= _PARTIAL
    return flags


@inlined
def has_tag(status):
    """Return whether a tag was taken out of the frame."""
    return status & TAGGED != ZERO


@kernel
def put_tag_back(header, status_at, lengths_at, start_at, kind, control):
    """Put the tag of a frame back where it was, and say in the header that it stands there: who comes after reads it again.

    Args:
        header: address of the frame's header; the bytes before the frame are its own.
        status_at: u64, where in the header its status stands.
        lengths_at: u64, where its bytes, captured and on the wire, in either order.
        start_at: u64, where the offset of its first byte.
        kind, control: u64, of the tag, as the header tells them; a system older than 3.14 tells no kind.
    """
    memory.seldom()
    status, start = memory.le32(header + status_at), memory.le16(header + start_at)
    told = header + start - _TOLD_BYTES
    memory.set_le64(told - FOUR, memory.le64(told))
    tags.insert(header + start, kind if status & KIND_VALID != ZERO else tags.VLAN, control)
    memory.set_le16(header + start_at, start - tags.TAG_BYTES)
    for length_at in (header + lengths_at, header + lengths_at + FOUR):
        memory.set_le32(length_at, memory.le32(length_at) + tags.TAG_BYTES)
    memory.set_le32(header + status_at, status & ~TAGGED)


@kernel
def segment_bytes(start):
    """Return the bytes of data of each segment that the frame at address ``start`` is to be cut into, 0: it is one."""
    memory.seldom()
    return memory.le16(start - _SIZE_AT) if memory.byte(start - _KIND_AT) != ZERO else ZERO
