"""VLAN tags of Ethernet frames: their kinds, the room that they are allowed, and putting one in (IEEE 802.1Q).

addresses 12 | kind of tag 2, control 2 | type 2 ...
"""

from __future__ import annotations

from . import memory
from .jit import inlined, kernel
from .words import FOUR, SIXTEEN, TWO, u64

VLAN, VLAN_SERVICE = u64(0x8100), u64(0x88A8)
TAG_BYTES = FOUR
_ADDRESSES_BYTES = u64(12)


@inlined
def is_tag(ethertype):
    """Return whether what follows the addresses is a tag."""
    return ethertype == VLAN or ethertype == VLAN_SERVICE


@inlined
def longest(frame, length_max, room_bytes):
    """Return the most bytes that a frame may have to go out.

    Args:
        frame: FRAME, of Ethernet.
        length_max: u64, of a frame without a tag, by the MTU: a tag does not count.
        room_bytes: u64, of a place to send from.
    """
    most = u64(length_max)
    if u64(frame.captured_bytes) >= SIXTEEN and is_tag(memory.be16(u64(frame.address) + _ADDRESSES_BYTES)):
        most += TAG_BYTES
    return min(most, room_bytes)


@kernel
def insert(start, kind, control):
    """Put a tag into a frame, which begins four bytes earlier from then on.

    Args:
        start: address of the frame as it is; the four bytes before are its own.
        kind: u64, VLAN or another.
        control: u64, priority and number.
    """
    memory.apart()
    to = start - TAG_BYTES
    # four bytes at a time and upwards, for the two ranges overlap
    for i in range(0, 12, 4):
        memory.set_le32(to + u64(i), memory.le32(start + u64(i)))
    memory.set_be16(to + _ADDRESSES_BYTES, kind)
    memory.set_be16(to + _ADDRESSES_BYTES + TWO, control)
