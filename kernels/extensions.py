"""The chain of IPv6 extension headers: where it ends, and what on the way matters to a tracker.

As Linux walks it (ipv6_skip_exthdr): hop-by-hop, routing, destination options, authentication and fragment headers are
passed over in any order; everything else ends the chain and is the transport protocol, ESP among it.  No next header
(59) is a broken chain there, and in the `netfilter` profile; a protocol like others in `ovs`.  Unlike there, the chain is
bounded.

The outcome is one word, since that is what a kernel returns for nothing:

    protocol 8 | reason 8 | fragment 16 | offset of the transport header 24 | bytes of an atomic fragment's header 8

*fragment* is offset and M flag of the fragment header as on the wire (RFC 8200 4.5), 0 without one or in an atomic
fragment.
"""

from __future__ import annotations

from ..shm.layout import Setting
from ..shm.reasons import Reason
from . import memory
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_8, LOW_16, ONE, SIXTEEN, SIXTY_FOUR, THIRTY_TWO, THREE, TWO, ZERO, u64

HEADERS_MAX = 16
"""Longest chain; RFC 8200 4.1 has use for 7.  16 of the largest size are 32 KiB, so offsets fit 16 bits."""

HOP_BY_HOP = u64(0)
_FRAGMENT = u64(44)
_AUTHENTICATION = u64(51)
_NO_NEXT_HEADER = u64(59)
_EXTENSIONS = u64(sum(1 << number for number in (0, 43, 44, 51, 60)))
"""A bit for each extension header that may be passed over; all of them are below 64."""

_SIX = u64(6)
IPV6_BYTES = u64(40)
_FRAGMENT_AND_MORE = u64(0xFFF9)
FRAGMENT_OFFSET = u64(0xFFF8)

_PAD1 = u64(0)
_JUMBO_AND_LENGTH = u64(0xC204)  # RFC 2675 2
_OPTIONS_MAX = 2048
"""Bytes of the largest hop-by-hop header, and so the most options."""

_OVS = u64(Setting.OVS)

_REASON_SHIFT = EIGHT
_FRAGMENT_SHIFT = SIXTEEN
_OFFSET_SHIFT = THIRTY_TWO
_ATOMIC_SHIFT = u64(56)
_LOW_24 = u64((1 << 24) - 1)


@inlined
def is_passed_over(protocol):
    """Return whether a next header is an extension header, behind which there is another."""
    return protocol < SIXTY_FOUR and ((_EXTENSIONS >> protocol) & ONE) == ONE


@inlined
def is_extension(protocol):
    """Return whether a next header is none of transport: one to be passed over, or none at all."""
    return is_passed_over(protocol) or protocol == _NO_NEXT_HEADER


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
    return (word >> _OFFSET_SHIFT) & _LOW_24


@inlined
def atomic_bytes(word):
    """Return the bytes of the fragment header of a datagram that is whole all the same (RFC 6946), else 0."""
    return word >> _ATOMIC_SHIFT


@inlined
def size_of(number, length):
    """Return the bytes of an extension header, from its number and its length field."""
    if number == _FRAGMENT:
        return EIGHT
    if number == _AUTHENTICATION:
        return (length + TWO) << TWO
    return (length + ONE) << THREE


@inlined
def _refused(why):
    return u64(why) << _REASON_SHIFT


@kernel
def walk(address, ip_bytes, captured, settings):
    """Find the transport header behind an IPv6 header.

    Args:
        address: u64, of the IPv6 header.
        ip_bytes: u64, size of the packet; 40 or more.
        captured: u64, readable bytes; 40 or more.
        settings: u64, how the zone is set.

    Returns:
        The word that this room's beginning describes.  A reason other than NONE stands alone: EXTENSION_HEADERS where the
        chain is broken, endless or longer than the packet, TRUNCATED where the capture ends before the chain does.  What
        is not captured of the last header's body does not matter, but for a fragment's, whose id names its datagram.

    Source:
        RFC 8200 4; RFC 4302 2.2 for the authentication header's length in units of 4.
    """
    memory.apart()
    next_header = memory.byte(address + _SIX)
    at = IPV6_BYTES
    fragment_word = ZERO
    atomic = ZERO
    for _ in range(HEADERS_MAX):
        if not is_passed_over(next_header):
            break
        if ip_bytes < at + EIGHT:
            return _refused(Reason.EXTENSION_HEADERS)
        if captured < at + FOUR:
            return _refused(Reason.TRUNCATED)
        header = address + at
        size = size_of(next_header, memory.byte(header + ONE))
        if next_header == _FRAGMENT:
            fragment_word = memory.be16(header + TWO) & _FRAGMENT_AND_MORE
            atomic = size if fragment_word == ZERO else ZERO
            if fragment_word != ZERO and captured < at + EIGHT:
                return _refused(Reason.TRUNCATED)
            if fragment_word & FRAGMENT_OFFSET:
                next_header = memory.byte(header)
                at += size
                break  # what follows is not a header but the middle of something
        next_header = memory.byte(header)
        at += size
    if ip_bytes < at:
        return _refused(Reason.EXTENSION_HEADERS)
    if not fragment_word & FRAGMENT_OFFSET and (
        is_passed_over(next_header) or (next_header == _NO_NEXT_HEADER and settings & _OVS == ZERO)
    ):
        return _refused(Reason.EXTENSION_HEADERS)
    return next_header | (fragment_word << _FRAGMENT_SHIFT) | (at << _OFFSET_SHIFT) | (atomic << _ATOMIC_SHIFT)


@kernel
def unannounced_bytes(address, captured, wire):
    """Return the payload length of a packet whose header says 0 before a hop-by-hop header; 0 if it cannot be.

    A jumbo option there names it (RFC 2675).  Without one Linux takes what came.

    Args:
        address: u64, of the IPv6 header.
        captured: u64, readable bytes; 40 or more.
        wire: u64, bytes there were on the wire; 40 or more.
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
    return wire - IPV6_BYTES
