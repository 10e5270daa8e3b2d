"""The chain of IPv6 extension headers: where it ends, and what on the way matters to a tracker.

As Linux walks it (ipv6_skip_exthdr): hop-by-hop, routing, destination options, authentication and fragment headers are
passed over in any order; everything else ends the chain and is the transport protocol, ESP among it.  No next header
(59) is a broken chain there, and here.  Unlike there, the chain is bounded.

The outcome is one word, since that is what a kernel returns for nothing:

    protocol 8 | reason 8 | fragment 16 | offset of the transport header 16 | offset of the final destination 16

*fragment* is offset and M flag of the fragment header as on the wire (RFC 8200 4.5), 0 without one or in an atomic
fragment.  *Final destination* is 0 when it stands in the IPv6 header itself, UNKNOWN where the routing header hides it.
"""

from __future__ import annotations

from ..shm.reasons import Reason
from . import memory
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_8, LOW_16, ONE, SIXTEEN, SIXTY_FOUR, THIRTY_TWO, THREE, TWO, ZERO, u64

HEADERS_MAX = 16
"""Longest chain; RFC 8200 4.1 has use for 7.  16 of the largest size are 32 KiB, so offsets fit 16 bits."""

HOP_BY_HOP = u64(0)
_ROUTING = u64(43)
_FRAGMENT = u64(44)
_AUTHENTICATION = u64(51)
_NO_NEXT_HEADER = u64(59)
_EXTENSIONS = u64(sum(1 << number for number in (0, 43, 44, 51, 59, 60)))
"""A bit for each extension header; all of them are below 64."""

_SIX = u64(6)
IPV6_BYTES = u64(40)
_FRAGMENT_AND_MORE = u64(0xFFF9)
FRAGMENT_OFFSET = u64(0xFFF8)

_SOURCE_ROUTE = u64(0)  # RFC 2460 4.4
_HOME_ADDRESS = u64(2)  # RFC 6275 6.4
_SEGMENT_ROUTING = u64(4)  # RFC 8754 2
UNKNOWN = LOW_16

_PAD1 = u64(0)
_JUMBO_AND_LENGTH = u64(0xC204)  # RFC 2675 2
_OPTIONS_MAX = 2048
"""Bytes of the largest hop-by-hop header, and so the most options."""

_REASON_SHIFT = EIGHT
_FRAGMENT_SHIFT = SIXTEEN
_OFFSET_SHIFT = THIRTY_TWO
_FINAL_SHIFT = u64(48)


@inlined
def is_extension(protocol):
    """Return whether a next header is an extension header."""
    return protocol < SIXTY_FOUR and ((_EXTENSIONS >> protocol) & ONE) == ONE


@inlined
def protocol(word):
    """Return the transport protocol in the outcome of `walk`."""
    return word & LOW_8


@inlined
def reason(word):
    """Return the Reason in the outcome of `walk`."""
    return (word >> _REASON_SHIFT) & LOW_8


@inlined
def fragment(word):
    """Return offset and M flag of the fragment header, 0 for a whole datagram."""
    return (word >> _FRAGMENT_SHIFT) & LOW_16


@inlined
def header_bytes(word):
    """Return the bytes of the IPv6 header and its extensions."""
    return (word >> _OFFSET_SHIFT) & LOW_16


@inlined
def final_destination(word):
    """Return the offset of the final destination, 0 for that of the IPv6 header, or UNKNOWN."""
    return word >> _FINAL_SHIFT


@inlined
def _refused(why):
    return u64(why) << _REASON_SHIFT


@inlined
def _destination_in(header, at, length):
    """Return the offset of the final destination that a routing header at offset ``at`` holds, 0 or UNKNOWN."""
    kind = memory.byte(header + TWO)
    segments_left = memory.byte(header + THREE)
    addresses = length >> ONE
    if segments_left == ZERO:
        return ZERO
    if addresses == ZERO or segments_left > addresses:
        return UNKNOWN
    if kind in (_SOURCE_ROUTE, _HOME_ADDRESS):
        return at + EIGHT + ((addresses - ONE) << FOUR)
    if kind == _SEGMENT_ROUTING:
        return at + EIGHT
    return UNKNOWN


@kernel
def walk(address, ip_bytes, captured):
    """Find the transport header behind an IPv6 header.

    Args:
        address: u64, of the IPv6 header.
        ip_bytes: u64, size of the packet; 40 or more.
        captured: u64, readable bytes; 40 or more.

    Returns:
        The word that this room's beginning describes.  A reason other than NONE stands alone: EXTENSION_HEADERS where the
        chain is broken, endless or longer than the packet, TRUNCATED where the capture ends inside it.

    Source:
        RFC 8200 4; RFC 4302 2.2 for the authentication header's length in units of 4.
    """
    memory.apart()
    next_header = memory.byte(address + _SIX)
    at = IPV6_BYTES
    fragment_word = ZERO
    final = ZERO
    for _ in range(HEADERS_MAX):
        if not is_extension(next_header):
            break
        if next_header == _NO_NEXT_HEADER or ip_bytes < at + EIGHT:
            return _refused(Reason.EXTENSION_HEADERS)
        if captured < at + EIGHT:
            return _refused(Reason.TRUNCATED)
        header = address + at
        length = memory.byte(header + ONE)
        size = (length + ONE) << THREE
        if next_header == _FRAGMENT:
            fragment_word = memory.be16(header + TWO) & _FRAGMENT_AND_MORE
            size = EIGHT
            if fragment_word & FRAGMENT_OFFSET:
                next_header = memory.byte(header)
                at += size
                break  # what follows is not a header but the middle of something
        elif next_header == _AUTHENTICATION:
            size = (length + TWO) << TWO
        elif next_header == _ROUTING:
            final = _destination_in(header, at, length)
        next_header = memory.byte(header)
        at += size
    if ip_bytes < at or (is_extension(next_header) and not fragment_word & FRAGMENT_OFFSET):
        return _refused(Reason.EXTENSION_HEADERS)
    if captured < at:
        return _refused(Reason.TRUNCATED)
    return next_header | (fragment_word << _FRAGMENT_SHIFT) | (at << _OFFSET_SHIFT) | (final << _FINAL_SHIFT)


@kernel
def jumbo_bytes(address, captured):
    """Return the payload length that the jumbo option of a hop-by-hop header names, 0 without one (RFC 2675).

    Args:
        address: u64, of an IPv6 header with payload length 0 that a hop-by-hop header follows.
        captured: u64, readable bytes; 40 or more.
    """
    memory.apart()
    if captured < IPV6_BYTES + EIGHT:
        return ZERO
    end = IPV6_BYTES + ((memory.byte(address + IPV6_BYTES + ONE) + ONE) << THREE)
    end = min(end, captured)
    at = IPV6_BYTES + TWO
    for _ in range(_OPTIONS_MAX):
        if at + _SIX > end:
            break
        if memory.byte(address + at) == _PAD1:
            at += ONE
        elif memory.be16(address + at) == _JUMBO_AND_LENGTH:
            length = memory.be32(address + at + TWO)
            return length if length > LOW_16 else ZERO
        else:
            at += TWO + memory.byte(address + at + ONE)
    return ZERO
