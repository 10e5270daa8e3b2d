"""Filling in a checksum that a sender left to its device: before a frame goes out of a port that has no such device.

Where a host leaves the checksum to its network card, the sum of the pseudo header stands in its place (CHECKSUM_PARTIAL),
and whoever takes the frame before the card does sees that.  What is left is the sum over the transport header and its data.
"""

from __future__ import annotations

from ..shm.layout import FrameFlag
from . import checksum, extensions, links, memory
from .endpoints import TCP, UDP
from .jit import kernel
from .words import EIGHT, FOUR, LOW_8, LOW_16, SIXTEEN, TWO, ZERO, u64

_PARTIAL = u64(FrameFlag.CHECKSUM_PARTIAL)
_TRUSTED = u64(FrameFlag.CHECKSUM_TRUSTED)
_SIX, _NINE, _FIFTEEN = u64(6), u64(9), u64(15)
_IPV4_BYTES, _IPV6_BYTES = u64(20), u64(40)


@kernel
def complete(frame):
    """Fill in the checksum of a frame that is CHECKSUM_PARTIAL, and say so in its flags.

    Args:
        frame: FRAME, all of it captured; its bytes and flags are written.

    Returns:
        Whether it could be: a frame that ends too early, or is neither TCP nor UDP, stays as it is.

    Source:
        RFC 9293 3.1; RFC 768: a checksum that comes out as zero is sent as all ones, which is the same to TCP.
    """
    memory.seldom()
    captured = u64(frame.captured_bytes)
    found = links.find(u64(frame.link), u64(frame.address), captured)
    family, skipped = found & LOW_8, found >> EIGHT
    if family == ZERO:
        return False
    start = u64(frame.address) + skipped
    captured -= skipped
    if family == FOUR:
        if captured < _IPV4_BYTES:
            return False
        ip_bytes = memory.be16(start + TWO)
        protocol = u64(memory.byte(start + _NINE))
        header = (memory.byte(start) & _FIFTEEN) << TWO
    else:
        if captured < _IPV6_BYTES:
            return False
        ip_bytes = memory.be16(start + FOUR) + _IPV6_BYTES
        chain = extensions.walk(start, ip_bytes, captured, ZERO)
        if extensions.reason(chain) != ZERO:
            return False
        protocol = u64(extensions.protocol(chain))
        header = u64(extensions.header_bytes(chain))
    place = header
    if protocol == TCP:
        place += SIXTEEN
    elif protocol == UDP:
        place += _SIX
    else:
        return False
    if ip_bytes > captured or place + TWO > ip_bytes:
        return False
    # 1 to 65535: nothing comes out as zero
    memory.set_le16(start + place, LOW_16 - checksum.sum_bytes(start + header, ip_bytes - header) % LOW_16)
    frame.flags = (u64(frame.flags) & ~_PARTIAL) | _TRUSTED
    return True
