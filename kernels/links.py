"""From the first byte of a frame to its IP header, through whatever link layers stand between.

    Link                  begins with                       then
    ETHERNET              two addresses, type               tags, labels, LLC, PPPoE: below
    COOKED, COOKED2       16 or 20 bytes of Linux           the same, from its protocol field
    CISCO_HDLC            address, control, type            the same
    PPP                   [ff 03] protocol                  IP, or MPLS (RFC 3032 4.1)
    PPP_WITH_DIRECTION    one byte, then PPP
    PPPOE                 6 bytes, then PPP (RFC 2516)
    NULL, LOOP            an address family, or a type      IP
    NFLOG                 4 bytes, then options             IP in one of them
    RAW_IP                                                  IP, by its version

The outcome is one word: offset of the IP header << 8 | family (4 or 6); or Reason << 8 | 0.  Nothing is read that was not
captured: a frame that ends inside one of these headers is TRUNCATED, one that leads to something else is NOIP.  What
the frame says is not held against the IP header here: kernels/packet does that.
"""

from __future__ import annotations

from ..shm.layout import Link
from ..shm.reasons import Reason
from . import memory
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_8, LOW_16, ONE, SIXTEEN, THREE, TWO, ZERO, u64

TAGS_MAX = 8
"""Tags of a frame at most: VLAN tags, and SNAP headers."""
LABELS_MAX = 16
"""MPLS labels of a stack at most."""
OPTIONS_MAX = 32
"""NFLOG options before the packet at most; the kernel writes about 20 kinds, each once."""

_FAMILY_4 = u64(4)
_FAMILY_6 = u64(6)
_SIX = u64(6)
_LOW_24 = u64(0xFFFFFF)
_ETHERNET_BYTES = u64(14)
_TWELVE = u64(12)
_TWENTY = u64(20)
_ETHERNET_IPV4 = (_ETHERNET_BYTES << EIGHT) | _FAMILY_4

# EtherTypes, https://www.iana.org/assignments/ieee-802-numbers
_IPV4 = u64(0x0800)
_IPV6 = u64(0x86DD)
_VLAN = u64(0x8100)
_VLAN_SERVICE = u64(0x88A8)
_VLAN_9100 = u64(0x9100)  # QinQ before 802.1ad
_VLAN_9200 = u64(0x9200)
_VLAN_9300 = u64(0x9300)
_MPLS = u64(0x8847)
_MPLS_MULTICAST = u64(0x8848)
_PPPOE_SESSION = u64(0x8864)
_LENGTH_MAX = u64(1500)
"""Up to here an EtherType is the length of an 802.3 frame, which LLC follows."""

_LLC_SNAP = u64(0xAAAA)
_LLC_IP = u64(0x0606)
_UNNUMBERED = u64(0x03)
_SNAP_BRIDGED = u64(0x0000F8)  # RFC 1042's OUI is 0; 802.1H tunnels EtherTypes under this one

# PPP protocols, https://www.iana.org/assignments/ppp-numbers
_PPP_IPV4 = u64(0x0021)
_PPP_IPV6 = u64(0x0057)
_PPP_MPLS = u64(0x0281)
_PPP_MPLS_MULTICAST = u64(0x0283)
_PPP_ADDRESS_CONTROL = u64(0xFF03)
_PPPOE_VERSION_DATA = u64(0x1100)  # version 1, type 1, code 0
_HDLC_UNICAST = u64(0x0F)
_HDLC_MULTICAST = u64(0x8F)

_AF_INET = u64(2)
_AF_INET6_LINUX = u64(10)
_AF_INET6_BSD = u64(24)  # NetBSD, OpenBSD, BSD/OS
_AF_INET6_FREEBSD = u64(28)
_AF_INET6_DARWIN = u64(30)

_NFLOG_PAYLOAD = u64(9)


@inlined
def _at(offset, family):
    return (offset << EIGHT) | family


@inlined
def _refused(why):
    return u64(why) << EIGHT


@kernel
def _raw(start, captured, at):
    """Look at the version of what should be IP at offset ``at``."""
    memory.apart()
    if captured <= at:
        return _refused(Reason.TRUNCATED)
    version = memory.byte(start + at) >> FOUR
    if version in (_FAMILY_4, _FAMILY_6):
        return _at(at, version)
    return _refused(Reason.NOIP)


@kernel
def _labels(start, captured, at):
    """Pass over a stack of MPLS labels; below it is IP or, told by its first 4 bits, something else (RFC 4928 3)."""
    memory.apart()
    for _ in range(LABELS_MAX):
        if captured < at + FOUR:
            return _refused(Reason.TRUNCATED)
        bottom = memory.byte(start + at + TWO) & ONE
        at += FOUR
        if bottom:
            return _raw(start, captured, at)
    return _refused(Reason.NOIP)


@kernel
def _ppp(start, captured, at):
    """Pass over a PPP header, whose address, control and upper protocol byte may have been left out (RFC 1661 6.5)."""
    memory.apart()
    if captured < at + TWO:
        return _refused(Reason.TRUNCATED)
    if memory.be16(start + at) == _PPP_ADDRESS_CONTROL:
        at += TWO
        if captured < at + TWO:
            return _refused(Reason.TRUNCATED)
    protocol = memory.byte(start + at)
    if protocol & ONE:
        at += ONE
    else:
        protocol = memory.be16(start + at)
        at += TWO
    if protocol == _PPP_IPV4:
        return _at(at, _FAMILY_4)
    if protocol == _PPP_IPV6:
        return _at(at, _FAMILY_6)
    if protocol in (_PPP_MPLS, _PPP_MPLS_MULTICAST):
        return _labels(start, captured, at)
    return _refused(Reason.NOIP)


@kernel
def _pppoe(start, captured, at):
    """Pass over the PPPoE header of a session's data."""
    memory.apart()
    if captured < at + _SIX:
        return _refused(Reason.TRUNCATED)
    if memory.be16(start + at) != _PPPOE_VERSION_DATA:
        return _refused(Reason.NOIP)
    return _ppp(start, captured, at + _SIX)


@kernel
def _typed(start, captured, at, ethertype):
    """Follow an EtherType: ``at`` is the offset of what it announces."""
    memory.apart()
    for _ in range(TAGS_MAX):
        if ethertype == _IPV4:
            return _at(at, _FAMILY_4)
        if ethertype == _IPV6:
            return _at(at, _FAMILY_6)
        if ethertype in (_VLAN, _VLAN_SERVICE, _VLAN_9100, _VLAN_9200, _VLAN_9300):
            if captured < at + FOUR:
                return _refused(Reason.TRUNCATED)
            ethertype = memory.be16(start + at + TWO)
            at += FOUR
        elif ethertype in (_MPLS, _MPLS_MULTICAST):
            return _labels(start, captured, at)
        elif ethertype == _PPPOE_SESSION:
            return _pppoe(start, captured, at)
        elif ethertype <= _LENGTH_MAX:
            if captured < at + THREE:
                return _refused(Reason.TRUNCATED)
            access_points = memory.be16(start + at)
            if memory.byte(start + at + TWO) != _UNNUMBERED:
                return _refused(Reason.NOIP)
            if access_points == _LLC_IP:
                return _at(at + THREE, _FAMILY_4)
            if access_points != _LLC_SNAP:
                return _refused(Reason.NOIP)
            if captured < at + EIGHT:
                return _refused(Reason.TRUNCATED)
            organisation = memory.be32(start + at + TWO) & _LOW_24
            if organisation != ZERO and organisation != _SNAP_BRIDGED:
                return _refused(Reason.NOIP)
            ethertype = memory.be16(start + at + _SIX)
            at += EIGHT
        else:
            return _refused(Reason.NOIP)
    return _refused(Reason.NOIP)


@inlined
def _family(number, at):
    """Follow an address family, as some BSD or Linux numbers it."""
    if number == _AF_INET:
        return _at(at, _FAMILY_4)
    if number in (_AF_INET6_LINUX, _AF_INET6_BSD, _AF_INET6_FREEBSD, _AF_INET6_DARWIN):
        return _at(at, _FAMILY_6)
    return _refused(Reason.NOIP)


@kernel
def _nflog(start, captured):
    """Look for the packet among the options of an NFLOG record; they are in the byte order of who captured."""
    memory.apart()
    if captured < FOUR:
        return _refused(Reason.TRUNCATED)
    at = FOUR
    for _ in range(OPTIONS_MAX):
        if captured < at + FOUR:
            return _refused(Reason.TRUNCATED)
        size = memory.le16(start + at)
        kind = memory.le16(start + at + TWO)
        if size < FOUR or kind > LOW_8:  # no kind is beyond 255, so that one says the order, too
            size = memory.be16(start + at)
            kind = memory.be16(start + at + TWO)
        if size < FOUR:
            return _refused(Reason.NOIP)
        if kind == _NFLOG_PAYLOAD:
            return _raw(start, min(captured, at + size), at + FOUR)
        at += (size + THREE) & ~THREE
    return _refused(Reason.NOIP)


@kernel
def _other(link, start, captured):
    """Follow every link but plain Ethernet with IPv4 in it."""
    memory.apart()
    if link == u64(Link.ETHERNET):
        if captured < _ETHERNET_BYTES:
            return _refused(Reason.TRUNCATED)
        return _typed(start, captured, _ETHERNET_BYTES, memory.be16(start + _TWELVE))
    if link == u64(Link.RAW_IP):
        return _raw(start, captured, ZERO)
    if link == u64(Link.COOKED):
        if captured < SIXTEEN:
            return _refused(Reason.TRUNCATED)
        return _typed(start, captured, SIXTEEN, memory.be16(start + _ETHERNET_BYTES))
    if link == u64(Link.COOKED2):
        if captured < _TWENTY:
            return _refused(Reason.TRUNCATED)
        return _typed(start, captured, _TWENTY, memory.be16(start))
    if link == u64(Link.NULL) or link == u64(Link.LOOP):
        if captured < FOUR:
            return _refused(Reason.TRUNCATED)
        number = memory.be32(start)
        if link == u64(Link.NULL) and number > LOW_16:
            number = memory.le32(start)  # families are small: the other order
            ethertype = memory.be16(start + TWO)
            if number > LOW_16 and ethertype > _LENGTH_MAX:  # no family either way: some writers put an EtherType there
                return _typed(start, captured, FOUR, ethertype)
        return _family(number, FOUR)
    if link == u64(Link.PPP):
        if captured < FOUR:
            return _refused(Reason.TRUNCATED)
        first = memory.byte(start)
        if first in (_HDLC_UNICAST, _HDLC_MULTICAST):
            return _typed(start, captured, FOUR, memory.be16(start + TWO))  # PPP_HDLC may hold Cisco's frames
        return _ppp(start, captured, ZERO)
    if link == u64(Link.PPP_WITH_DIRECTION):
        return _ppp(start, captured, ONE)
    if link == u64(Link.PPPOE):
        return _pppoe(start, captured, ZERO)
    if link == u64(Link.CISCO_HDLC):
        if captured < FOUR:
            return _refused(Reason.TRUNCATED)
        return _typed(start, captured, FOUR, memory.be16(start + TWO))
    if link == u64(Link.NFLOG):
        return _nflog(start, captured)
    return _refused(Reason.NOIP)


@inlined
def find(link, start, captured):
    """Find the IP header of a frame.

    Args:
        link: u64, a Link.
        start: u64, address of the frame.
        captured: u64, readable bytes.

    Returns:
        Offset << 8 | family, or Reason << 8 when there is none.  The offset is at most ``captured``.
    """
    # the one shape that most frames have costs no call
    if link == u64(Link.ETHERNET) and captured >= _ETHERNET_BYTES and memory.be16(start + _TWELVE) == _IPV4:
        return _ETHERNET_IPV4
    return _other(link, start, captured)
