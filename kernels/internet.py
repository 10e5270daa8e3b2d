"""IPv4 and IPv6 headers: how long the packet is, where its transport header begins, and whether that may be believed.

Lengths come from here, never from the frame: what follows the packet is padding.  What there is decides the word:

    the capture ends inside the header                  TRUNCATED
    version or lengths contradict themselves            L3_HEADER
    the frame as it was on the wire is shorter          L3_HEADER: the length lies
    the capture ends behind the header                  nothing: a snapped packet

The order is Linux's (ip_rcv_core, ip6_rcv_core), but that fragments, which it reassembles first, are refused.
"""

from __future__ import annotations

from ..shm.layout import Setting
from ..shm.reasons import Reason
from . import checksum, extensions, memory
from .jit import inlined, kernel
from .words import EIGHT, FOUR, SIXTEEN, TWO, ZERO, u64

_SIX = u64(6)
_NINE = u64(9)
_TWELVE = u64(12)
_FIFTEEN = u64(15)
_TWENTY_FOUR = u64(24)
_IPV4_BYTES = u64(20)
_IPV6_BYTES = extensions.IPV6_BYTES
_OFFSET_AND_MORE = u64(0x3FFF)
_NONE = u64(Reason.NONE)
_OVS = u64(Setting.OVS)

IPV4_SOURCE = _TWELVE
IPV4_DESTINATION = SIXTEEN
IPV6_SOURCE = EIGHT
IPV6_DESTINATION = _TWENTY_FOUR


@inlined
def read_ipv4(start, captured, wire, check):
    """Read an IPv4 header.

    Args:
        start: u64, address of the header.
        captured: u64, readable bytes.
        wire: u64, bytes there were on the wire; not less than ``captured``.
        check: bool, whether a wrong header checksum is refused.

    Returns:
        Reason, header bytes, IP bytes, protocol, the sum of the addresses for the pseudo header, and bytes that accounting
        leaves out: 0; all u64.

    Source:
        RFC 791 3.1.  A total length of 0, as captures of offloaded sends have it, is impossible.  A source route is not
        followed, as in Linux: the destination is that of the header.
    """
    if captured < _IPV4_BYTES:
        return u64(Reason.TRUNCATED), ZERO, ZERO, ZERO, ZERO, ZERO
    first = memory.byte(start)
    header = (first & _FIFTEEN) << TWO
    ip_bytes = memory.be16(start + TWO)
    protocol = memory.byte(start + _NINE)
    addresses = checksum.halves(memory.le64(start + IPV4_SOURCE))
    reason = _NONE
    if first >> FOUR != FOUR or header < _IPV4_BYTES or ip_bytes < header or wire < ip_bytes:
        reason = u64(Reason.L3_HEADER)
    elif captured < header:
        reason = u64(Reason.TRUNCATED)
    else:
        if check:
            total = addresses + checksum.halves(memory.le64(start)) + memory.le32(start + EIGHT)
            if header != _IPV4_BYTES:
                total += checksum.sum_bytes(start + _IPV4_BYTES, header - _IPV4_BYTES)
            if not checksum.is_good(total):
                reason = u64(Reason.L3CSUM_ERR)
        if reason == _NONE and memory.be16(start + _SIX) & _OFFSET_AND_MORE:
            reason = u64(Reason.FRAGMENT)
    return reason, header, ip_bytes, protocol, addresses, ZERO


@kernel
def _extended(start, ip_bytes, captured, addresses, settings):
    """Read the extension headers behind an IPv6 header that is whole; returns as `read_ipv6`."""
    memory.apart()
    chain = extensions.walk(start, ip_bytes, captured, settings)
    reason = extensions.reason(chain)
    protocol = extensions.protocol(chain)
    if reason == _NONE and extensions.fragment(chain):
        reason = u64(Reason.FRAGMENT)
    if reason != _NONE:
        return reason, ZERO, ip_bytes, protocol, ZERO, ZERO
    uncounted = extensions.atomic_bytes(chain)
    return _NONE, extensions.header_bytes(chain), ip_bytes, protocol, addresses, uncounted


@inlined
def read_ipv6(start, captured, wire, settings):
    """Read an IPv6 header and its extensions.

    Args:
        start, captured, wire: as for `read_ipv4`.
        settings: u64, how the zone is set.

    Returns:
        Reason, header bytes with extensions, IP bytes, protocol behind the extensions, the sum of the addresses for the
        pseudo header, and bytes that accounting leaves out: Linux takes the header off a lone fragment; all u64.

    Source:
        RFC 8200 3; RFC 2675 for packets beyond 64 KiB, which Open vSwitch does not know.  The destination is that of the
        header, as in Linux and Open vSwitch, though a routing header may name a later one (RFC 8200 8.1), and the source
        even if an option holds a home address (RFC 6275 6.3): in a packet on such a way they find the checksum wrong.
    """
    if captured < _IPV6_BYTES:
        return u64(Reason.TRUNCATED), ZERO, ZERO, ZERO, ZERO, ZERO
    payload = memory.be16(start + FOUR)
    protocol = memory.byte(start + _SIX)
    unannounced = payload == ZERO and protocol == extensions.HOP_BY_HOP
    if unannounced and settings & _OVS == ZERO:
        payload = extensions.unannounced_bytes(start, captured, wire)
    ip_bytes = payload + _IPV6_BYTES
    if memory.byte(start) >> FOUR != _SIX or wire < ip_bytes or (unannounced and payload == ZERO):
        return u64(Reason.L3_HEADER), ZERO, ip_bytes, protocol, ZERO, ZERO
    source = start + IPV6_SOURCE
    addresses = checksum.halves(memory.le64(source)) + checksum.halves(memory.le64(source + EIGHT))
    destination = start + IPV6_DESTINATION
    addresses += checksum.halves(memory.le64(destination)) + checksum.halves(memory.le64(destination + EIGHT))
    if extensions.is_extension(protocol):
        return _extended(start, ip_bytes, captured, addresses, settings)
    return _NONE, _IPV6_BYTES, ip_bytes, protocol, addresses, ZERO
