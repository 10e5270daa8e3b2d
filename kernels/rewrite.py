"""A packet given another tuple: addresses and ports changed where they stand, checksums changed by what that makes of them.

    packet       IP addresses, ports (an ICMP query: its identifier), IPv4 header checksum, transport checksum
    ICMP error   the same in the packet that it quotes, as far as it is quoted; then the error goes to who sent that packet

A checksum is never computed anew: what was wrong before is wrong after, for whom it concerns to see (RFC 3022 4.2).  It is
changed by the difference of what it covers; what a checksum does not cover, or a packet that has none, is left alone.

Nothing here is shared: the frame is the caller's.  Read and written are only bytes that ``packet.parse`` has found in it.
"""

from __future__ import annotations

from ..shm.layout import FrameFlag
from . import checksum, crc32c, extensions, gre, icmp_types, links, memory
from .endpoints import DCCP, GRE, ICMP, ICMPV6, SCTP, TCP, UDP, UDP_LITE, has_ports
from .icmp_types import Role
from .internet import IPV4_DESTINATION, IPV4_SOURCE, IPV6_DESTINATION, IPV6_SOURCE
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, THREE, TWO, ZERO, u64

_SIX = u64(6)
_NINE = u64(9)
_TEN = u64(10)
_FIFTEEN = u64(15)
_FORTY_EIGHT = u64(48)
_ROUTING = u64(43)
_LAST = u64(32)
_TWENTY = u64(20)
"""A transport header's bytes that may change, checksum included."""
_MULTIPLE = LOW_16 << THIRTY_TWO
"""Of 65,535, and larger than any sum of a tuple: what is taken off a sum stays positive."""


# ------------------------------------------------------------------------------------------------ checksums
@inlined
def difference(before, after):
    """Return what a sum modulo 65,535 changes by."""
    return (after + _MULTIPLE - before) % LOW_16


@inlined
def mend(address, change):
    """Change the checksum at ``address`` by what its bytes changed by (RFC 1624, equation 3)."""
    total = ((memory.be16(address) ^ LOW_16) + change) % LOW_16
    if total == ZERO:
        total = LOW_16  # the sum of bytes that are not all zero is never +0
    memory.set_be16(address, total ^ LOW_16)


@inlined
def mend_partial(address, change):
    """Change the sum of a pseudo header, which a device will complete: it stands there as it is, not inverted."""
    memory.set_be16(address, (memory.be16(address) + change) % LOW_16)


# ------------------------------------------------------------------------------------------------ tuples
@inlined
def _address(key, high):
    """Return where the address of an endpoint of a key stands: two words."""
    return key + (SIXTEEN if high else ZERO)


@inlined
def _port(key, high):
    """Return the port of an endpoint of a key."""
    word = memory.read64(key + _LAST)
    return (word >> (THIRTY_TWO if high else _FORTY_EIGHT)) & LOW_16


@inlined
def _sum_ipv6(at):
    return checksum.halves(memory.be64(at)) + checksum.halves(memory.be64(at + EIGHT))


@inlined
def _set_address(at, family, address):
    """Write an address of a key into an IP header; returns the sums of the old and the new one."""
    if family == FOUR:
        before = memory.be32(at)
        after = memory.read64(address + EIGHT) & LOW_32
        memory.set_be32(at, after)
        return before, after
    before = _sum_ipv6(at)
    memory.set_be64(at, memory.read64(address))
    memory.set_be64(at + EIGHT, memory.read64(address + EIGHT))
    return before, _sum_ipv6(at)


@inlined
def _checksum_offset(protocol):
    """Return where a transport header has its Internet checksum, 0: nowhere."""
    if protocol == TCP:
        return SIXTEEN
    if protocol in (UDP, UDP_LITE, DCCP):
        return _SIX
    if protocol in (ICMP, ICMPV6):
        return TWO
    return ZERO


@kernel
def _set_ports(l4, captured, family, protocol, key, high_is_source):
    """Write ports, or an ICMP identifier, into a transport header of which ``captured`` bytes are there.

    Returns:
        The sums of the old and the new ones.
    """
    source = _port(key, high_is_source)
    destination = _port(key, not high_is_source)
    if has_ports(protocol) and captured >= FOUR:
        before = memory.be16(l4) + memory.be16(l4 + TWO)
        memory.set_be16(l4, source)
        memory.set_be16(l4 + TWO, destination)
        return before, source + destination
    if protocol in (ICMP, ICMPV6) and captured >= EIGHT:
        found = icmp_types.find(family, memory.byte(l4), ZERO)
        role = icmp_types.role(found)
        if role == u64(Role.REQUEST) or role == u64(Role.ANSWER):
            identifier = source if role == u64(Role.REQUEST) else destination
            before = memory.be16(l4 + FOUR)
            memory.set_be16(l4 + FOUR, identifier)
            return before, identifier
    if protocol == GRE and captured >= gre.PPTP_BYTES and gre.call_id(l4, captured) != ZERO:
        memory.set_be16(l4 + _SIX, destination)  # its receiver's; there is no checksum
    return ZERO, ZERO


@kernel
def _set_sctp_ports(l4, captured, whole, key, high_is_source):
    """Write ports into an SCTP packet, and its CRC32c anew if it was right (RFC 9260 6.8): a CRC has no difference."""
    was_good = whole and crc32c.is_good(l4, captured)
    _set_ports(l4, captured, FOUR, SCTP, key, high_is_source)
    if was_good:
        memory.set_le32(l4 + EIGHT, crc32c.of_sctp(l4, captured))


@kernel
def _set_tuple(start, l4, captured, whole, family, protocol, covers_destination, partial, key, high_is_source):
    """Write a tuple into the packet at ``start``.

    Args:
        start: u64, address of the IP header.
        l4: u64, address of the transport header.
        captured: u64, how many bytes are there from ``l4`` on.
        whole: bool, whether that is all of the packet.
        family, protocol: u64.
        covers_destination: bool, whether the destination in the header is the one that the transport checksum covers.
        partial: bool, whether the transport checksum is yet to be completed by a device.
        key: u64, address of the key that the packet shall have.
        high_is_source: bool, whether its second endpoint is the source.
    """
    at_source = start + (IPV4_SOURCE if family == FOUR else IPV6_SOURCE)
    at_destination = start + (IPV4_DESTINATION if family == FOUR else IPV6_DESTINATION)
    before, after = _set_address(at_source, family, _address(key, high_is_source))
    before_dst, after_dst = _set_address(at_destination, family, _address(key, not high_is_source))
    if family == FOUR:
        mend(start + _TEN, difference(before + before_dst, after + after_dst))
    if covers_destination:
        before += before_dst
        after += after_dst
    if protocol == ICMP:
        before = ZERO  # has no pseudo header
        after = ZERO
    if protocol == SCTP:
        _set_sctp_ports(l4, captured, whole, key, high_is_source)
        return
    before_ports, after_ports = _set_ports(l4, captured, family, protocol, key, high_is_source)
    offset = _checksum_offset(protocol)
    if offset == ZERO or captured < offset + TWO:
        return
    if protocol == UDP and memory.be16(l4 + offset) == ZERO:
        return  # RFC 768: none
    if partial and protocol != ICMP:
        mend_partial(l4 + offset, difference(before, after))
        return
    mend(l4 + offset, difference(before + before_ports, after + after_ports))
    if protocol == UDP and memory.be16(l4 + offset) == ZERO:
        memory.set_be16(l4 + offset, LOW_16)


@kernel
def _covers_destination(start, l4, family, protocol):
    """Return whether the IP header's destination is the one of the pseudo header: not on the way to a further one.

    Source:
        RFC 8200 8.1: of a packet with segments left, it is the last address of its routing header.
    """
    if family == FOUR or memory.byte(start + _SIX) == protocol:
        return True
    header = memory.byte(start + _SIX)
    at = start + extensions.IPV6_BYTES
    for _ in range(extensions.HEADERS_MAX):
        if at + EIGHT > l4 or not extensions.is_passed_over(header):
            break
        if header == _ROUTING and memory.byte(at + THREE) != ZERO:
            return False
        size = extensions.size_of(header, memory.byte(at + ONE))
        header = memory.byte(at)
        at += size
    return True


# ------------------------------------------------------------------------------------------------ packets
@kernel
def translate(frame, parsed, key, high_is_source):
    """Give a packet another tuple.

    Args:
        frame: FRAME, whose bytes are written.
        parsed: PARSED of it as it is, with reason NONE and of any kind but ICMP_ERROR.
        key: u64, address of the key that it shall have; zone, protocol and family are the same.
        high_is_source: bool, whether the source is the key's second endpoint.

    Source:
        RFC 3022 4.1, RFC 1624.
    """
    memory.apart()
    captured = u64(frame.captured_bytes)
    start = u64(frame.address) + (links.find(u64(frame.link), u64(frame.address), captured) >> EIGHT)
    l4 = u64(parsed.l4)
    family = u64(parsed.family)
    protocol = u64(parsed.protocol)
    there = min(u64(parsed.l4_bytes), u64(frame.address) + captured - l4)
    covers = _covers_destination(start, l4, family, protocol)
    partial = u64(frame.flags) & u64(FrameFlag.CHECKSUM_PARTIAL) != ZERO
    _set_tuple(start, l4, there, there == u64(parsed.l4_bytes), family, protocol, covers, partial, key, high_is_source)


@kernel
def copy_addresses(start, whole, family):
    """Give a fragment, whose IP header stands at an address, those of its datagram, whose header stands at another."""
    if family == FOUR:
        at, from_ = start + IPV4_SOURCE, whole + IPV4_SOURCE
        before = memory.be32(at) + memory.be32(at + FOUR)
        memory.copy(at, from_, EIGHT)
        mend(start + _TEN, difference(before, memory.be32(at) + memory.be32(at + FOUR)))
    else:
        memory.copy(start + IPV6_SOURCE, whole + IPV6_SOURCE, THIRTY_TWO)


@inlined
def _same_address(a, b, family):
    if family == FOUR:
        return memory.be32(a) == memory.be32(b)
    return memory.be64(a) == memory.be64(b) and memory.be64(a + EIGHT) == memory.be64(b + EIGHT)


@inlined
def _quoted(start, size, family):
    """Return protocol and header length of a quoted packet, which ``quotes.read`` has read before."""
    if family == FOUR:
        return u64(memory.byte(start + _NINE)), (memory.byte(start) & _FIFTEEN) << TWO
    chain = extensions.walk(start, size, size, ZERO)
    return extensions.protocol(chain), extensions.header_bytes(chain)


@kernel
def translate_error(frame, parsed, key, high_is_source):
    """Give the packet that an ICMP error quotes another tuple, and send the error to its source.

    The error's own source changes when it is the quoted destination: then the host at the other end speaks, who is known
    here by another address.  A router on the way keeps its own (RFC 5508 REQ-4, REQ-5).

    Args:
        frame: FRAME, whose bytes are written.
        parsed: PARSED of it, of kind ICMP_ERROR.
        key: u64, address of the key that the quoted packet shall have.
        high_is_source: bool, whether the quoted packet's source is the key's second endpoint.
    """
    memory.apart()
    captured = u64(frame.captured_bytes)
    start = u64(frame.address) + (links.find(u64(frame.link), u64(frame.address), captured) >> EIGHT)
    family = u64(parsed.family)
    l4 = u64(parsed.l4)
    there = min(u64(parsed.l4_bytes), u64(frame.address) + captured - l4)
    inner = l4 + EIGHT
    size = there - EIGHT
    source = start + (IPV4_SOURCE if family == FOUR else IPV6_SOURCE)
    destination = start + (IPV4_DESTINATION if family == FOUR else IPV6_DESTINATION)
    inner_destination = inner + (IPV4_DESTINATION if family == FOUR else IPV6_DESTINATION)
    speaks_for_itself = _same_address(source, inner_destination, family)

    protocol, header = _quoted(inner, size, family)
    watched = min(size, header + _TWENTY) & ~ONE
    before = checksum.sum_bytes(inner, watched)
    covers = _covers_destination(inner, inner + header, family, protocol)
    _set_tuple(inner, inner + header, size - header, False, family, protocol, covers, False, key, high_is_source)
    after = checksum.sum_bytes(inner, watched)
    # a little-endian sum joins a number in host order as that number times 256 (kernels/checksum)
    change = (difference(before % LOW_16, after % LOW_16) << EIGHT) % LOW_16

    outer_before, outer_after = _set_address(destination, family, _address(key, high_is_source))
    if speaks_for_itself:
        source_before, source_after = _set_address(source, family, _address(key, not high_is_source))
        outer_before += source_before
        outer_after += source_after
    if family == FOUR:
        mend(start + _TEN, difference(outer_before, outer_after))
    else:
        change = (change + difference(outer_before, outer_after)) % LOW_16
    mend(l4 + TWO, change)
