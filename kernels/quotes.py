"""The packet that an ICMP error quotes, as a key: which connection is the error about?

A router quotes the IP header and at least 8 bytes of what follows (RFC 792); hosts may quote more (RFC 1812 4.3.2.3,
RFC 4443 2.4).  Ports and ICMP identifiers lie within those 8.  The quote is seldom whole, may have been changed on the
way, and its checksums are nobody's business; but it must be the family of the error and, since errors go to who sent
the packet, its source must be the error's destination.
"""

from __future__ import annotations

from ..shm.layout import Setting
from . import extensions, gre, icmp_types, memory
from .endpoints import GRE, ICMP, ICMPV6, SCTP, TCP, UDP, has_ports, write_key
from .icmp_types import Role
from .internet import IPV4_DESTINATION, IPV4_SOURCE, IPV6_DESTINATION, IPV6_SOURCE
from .jit import inlined, kernel
from .words import EIGHT, FOUR, ONE, TWO, ZERO, u64

_SIX = u64(6)
_NINE = u64(9)
_FIFTEEN = u64(15)
_IPV4_BYTES = u64(20)
_TWELVE = u64(12)
_TWENTY = u64(20)
_FRAGMENT_OFFSET = u64(0x1FFF)
_OFFSET_AND_MORE = u64(0x3FFF)
_OVS = u64(Setting.OVS)


@inlined
def _whole(protocol):
    """Return the bytes of a transport header with ports."""
    return _TWENTY if protocol == TCP else _TWELVE if protocol == SCTP else EIGHT


@kernel
def read(start, size, family, destination, zone, settings, parsed):
    """Write key and direction of the quoted packet into ``parsed``.

    Args:
        start: u64, address of the quoted IP header.
        size: u64, readable bytes of the quote.
        family: u64, 4 or 6, of the error.
        destination: u64, address of the destination address of the error.
        zone: u64.
        settings: u64, how the zone is set.
        parsed: out, PARSED: inner_key, inner_high_is_source.

    Returns:
        Whether it could be read: False is reason ICMP_INNER.

    Source:
        nf_conntrack_inet_error: what may be quoted and what must match.  A quoted fragment is read if it is the first.
        Open vSwitch reads no fragment, wants 8 bytes of a transport header in an IPv4 quote and all of it in an IPv6
        quote, and holds ports and ICMP codes against what it holds those of packets (extract_l4 in lib/conntrack.c).
    """
    memory.apart()
    ovs = settings & _OVS != ZERO
    if family == FOUR:
        if size < _IPV4_BYTES:
            return False
        first = memory.byte(start)
        header = (first & _FIFTEEN) << TWO
        fragment = _OFFSET_AND_MORE if ovs else _FRAGMENT_OFFSET
        if first >> FOUR != FOUR or header < _IPV4_BYTES or memory.be16(start + _SIX) & fragment:
            return False
        protocol = memory.byte(start + _NINE)
        src_high = ZERO
        src_low = memory.be32(start + IPV4_SOURCE)
        dst_high = ZERO
        dst_low = memory.be32(start + IPV4_DESTINATION)
        to_high = ZERO
        to_low = memory.be32(destination)
    else:
        if size < extensions.IPV6_BYTES or memory.byte(start) >> FOUR != _SIX:
            return False
        chain = extensions.walk(start, size, size, settings)
        fragment = extensions.fragment(chain)
        if extensions.reason(chain) or fragment & extensions.FRAGMENT_OFFSET or (ovs and fragment):
            return False
        header = extensions.header_bytes(chain)
        protocol = extensions.protocol(chain)
        src_high = memory.be64(start + IPV6_SOURCE)
        src_low = memory.be64(start + IPV6_SOURCE + EIGHT)
        dst_high = memory.be64(start + IPV6_DESTINATION)
        dst_low = memory.be64(start + IPV6_DESTINATION + EIGHT)
        to_high = memory.be64(destination)
        to_low = memory.be64(destination + EIGHT)
    if size < header or src_high != to_high or src_low != to_low:
        return False
    l4 = start + header
    left = size - header
    src_port = ZERO
    dst_port = ZERO
    if (protocol == ICMP and family == FOUR) or (protocol == ICMPV6 and family != FOUR):
        if left < EIGHT:
            return False
        code = memory.byte(l4 + ONE)
        found = icmp_types.find(family, memory.byte(l4), settings)
        role = icmp_types.role(found)
        if (role != u64(Role.REQUEST) and role != u64(Role.ANSWER)) or (ovs and code != ZERO):
            return False  # nobody answers an error with an error
        src_port, dst_port = icmp_types.ports(found, code, memory.be16(l4 + FOUR))
    elif ovs:
        if protocol == TCP or protocol == UDP or protocol == SCTP:
            if left < (EIGHT if family == FOUR else _whole(protocol)):
                return False
            src_port = memory.be16(l4)
            dst_port = memory.be16(l4 + TWO)
            if src_port == ZERO or dst_port == ZERO:
                return False
    elif has_ports(protocol):
        if left < FOUR:
            return False
        src_port = memory.be16(l4)
        dst_port = memory.be16(l4 + TWO)
    elif protocol == GRE:
        if not gre.is_known(l4, left):
            return False
        dst_port = gre.call_id(l4, left)
    elif protocol == ICMP or protocol == ICMPV6:
        return False
    order = write_key(
        src_high, src_low, src_port, dst_high, dst_low, dst_port, zone, protocol, family, parsed.inner_key
    )
    parsed.inner_high_is_source = order & ONE
    return True
