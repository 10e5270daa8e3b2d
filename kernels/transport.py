"""Transport headers: ports or what stands for them, lengths, checksums.

A header that the packet has no room for is L4_HEADER; one that the capture cut off before what is read of it is TRUNCATED.
A checksum is verified when all that it covers was captured.  Refused is what Linux refuses (nf_conntrack_proto_*.c), with
these differences:

    UDP        its own length is what the checksum covers (RFC 768), not the packet's
    UDP        no checksum is an error in IPv6 (RFC 8200 8.1)
    UDP-Lite   the pseudo header has its own protocol number (RFC 3828 3.1), not UDP's
    DCCP       has ports, as Linux had it until 6.16; its checksum is not looked at

In the `ovs` profile what Open vSwitch refuses (lib/conntrack.c, extract_l4): port 0, and ICMP that it does not know; for it
UDP-Lite, DCCP and GRE are protocols like any other, of which nothing but the addresses is read, and UDP's checksum covers
the packet's length.

Each reader writes what it found into PARSED and returns one word: Reason << 32 | source port << 16 | destination port.
"""

from __future__ import annotations

from ..shm.layout import PacketKind, Setting
from ..shm.reasons import Reason
from . import checksum, crc32c, gre, icmp_types, memory, quotes, sctp_chunks
from .endpoints import DCCP, GRE, ICMP, ICMPV6, SCTP, TCP, UDP, UDP_LITE
from .icmp_types import Role
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_16, ONE, SIXTEEN, THIRTY_TWO, TWO, ZERO, u64

_SIX = u64(6)
_TWELVE = u64(12)
_THIRTEEN = u64(13)
_FOURTEEN = u64(14)

_TCP_BYTES = u64(20)
_UDP_BYTES = u64(8)
_ICMP_BYTES = u64(8)
_ICMP_READ_BYTES = u64(6)  # up to the identifier
_PORTS_BYTES = u64(4)
_ICMP_TYPE_SHIFT = u64(24)
_OVS = u64(Setting.OVS)
_NONE = u64(Reason.NONE)
_CHECKSUM = u64(Setting.CHECKSUM)


@inlined
def reason(word):
    """Return the Reason in what a reader returned."""
    return word >> THIRTY_TWO


@inlined
def src_port(word):
    """Return what stands for the source port."""
    return (word >> SIXTEEN) & LOW_16


@inlined
def dst_port(word):
    """Return what stands for the destination port."""
    return word & LOW_16


@inlined
def _refused(why):
    return u64(why) << THIRTY_TWO


@inlined
def _too_short(l4_bytes, wanted):
    return _refused(Reason.L4_HEADER) if l4_bytes < wanted else _refused(Reason.TRUNCATED)


@inlined
def _ports(l4, settings):
    """Return the ports of a packet; to Open vSwitch there is no port 0."""
    ports = memory.be32(l4)
    if settings & _OVS != ZERO and (ports & LOW_16 == ZERO or ports >> SIXTEEN == ZERO):
        return _refused(Reason.PORT_ZERO)
    return ports


@inlined
def read_tcp(l4, l4_bytes, captured, addresses, settings, check, parsed):
    """Read a TCP header (RFC 9293 3.1).

    Args:
        l4: u64, address of the header.
        l4_bytes: u64, header and payload, from the IP header.
        captured: u64, how many of them are readable.
        addresses: u64, sum of the addresses.
        settings: u64, how the zone is set.
        check: bool, whether a wrong checksum is refused.
        parsed: out, PARSED: kind, seq, ack, win, tcp_flags, options_bytes, payload_bytes.

    Returns:
        Reason and ports in one word.
    """
    parsed.kind = u64(PacketKind.TCP)
    if captured < _TCP_BYTES:
        return _too_short(l4_bytes, _TCP_BYTES)
    header = (memory.byte(l4 + _TWELVE) >> FOUR) << TWO
    if header < _TCP_BYTES or l4_bytes < header:
        return _refused(Reason.L4_HEADER)
    if check and captured == l4_bytes:
        total = checksum.pseudo_header(addresses, TCP, l4_bytes) + checksum.sum_bytes(l4, l4_bytes)
        if not checksum.is_good(total):
            return _refused(Reason.L4CSUM_ERR)
    parsed.seq = memory.be32(l4 + FOUR)
    parsed.ack = memory.be32(l4 + EIGHT)
    parsed.tcp_flags = memory.byte(l4 + _THIRTEEN)
    parsed.win = memory.be16(l4 + _FOURTEEN)
    parsed.options_bytes = min(header, captured) - _TCP_BYTES
    parsed.payload_bytes = l4_bytes - header
    return _ports(l4, settings)


@inlined
def _read_udp(l4, l4_bytes, captured, addresses, family, settings, check, parsed):
    """Read a UDP header (RFC 768)."""
    if captured < _UDP_BYTES:
        return _too_short(l4_bytes, _UDP_BYTES)
    length = memory.be16(l4 + FOUR)
    if length < _UDP_BYTES or length > l4_bytes:
        return _refused(Reason.L4_HEADER)
    covered = length if settings & _OVS == ZERO else l4_bytes
    if check and covered <= captured:
        if memory.be16(l4 + _SIX) == ZERO:
            if family != FOUR:
                return _refused(Reason.L4CSUM_ERR)
        else:
            total = checksum.pseudo_header(addresses, UDP, covered) + checksum.sum_bytes(l4, covered)
            if not checksum.is_good(total):
                return _refused(Reason.L4CSUM_ERR)
    parsed.payload_bytes = length - _UDP_BYTES
    return _ports(l4, settings)


@inlined
def _read_udp_lite(l4, l4_bytes, captured, addresses, check, parsed):
    """Read a UDP-Lite header (RFC 3828 3.1): without a checksum it is an error, but that may cover only the beginning."""
    if captured < _UDP_BYTES:
        return _too_short(l4_bytes, _UDP_BYTES)
    coverage = memory.be16(l4 + FOUR)
    if coverage == ZERO:
        coverage = l4_bytes
    if coverage < _UDP_BYTES or coverage > l4_bytes:
        return _refused(Reason.L4_HEADER)
    if memory.be16(l4 + _SIX) == ZERO:
        return _refused(Reason.L4CSUM_ERR)
    if check and coverage <= captured:
        total = checksum.pseudo_header(addresses, UDP_LITE, l4_bytes) + checksum.sum_bytes(l4, coverage)
        if not checksum.is_good(total):
            return _refused(Reason.L4CSUM_ERR)
    parsed.payload_bytes = l4_bytes - _UDP_BYTES
    return memory.be32(l4)


@inlined
def _read_gre(l4, l4_bytes, captured):
    """Read what stands for the ports of GRE."""
    if captured < min(l4_bytes, gre.PPTP_BYTES):
        return _refused(Reason.TRUNCATED)
    if not gre.is_known(l4, l4_bytes):
        return _refused(Reason.L4_HEADER)
    return gre.call_id(l4, l4_bytes)


@inlined
def _read_dccp(l4, l4_bytes, captured, parsed):
    """Read the ports of DCCP (RFC 4340 5.1)."""
    if captured < _PORTS_BYTES:
        return _too_short(l4_bytes, _PORTS_BYTES)
    parsed.payload_bytes = l4_bytes - _PORTS_BYTES
    return memory.be32(l4)


@inlined
def _read_sctp(l4, l4_bytes, captured, settings, check, parsed):
    """Read the common header of SCTP (RFC 9260 3.1), and see that its chunks stand as they must."""
    parsed.kind = u64(PacketKind.SCTP)
    if captured < sctp_chunks.HEADER_BYTES:
        return _too_short(l4_bytes, sctp_chunks.HEADER_BYTES)
    if check and captured == l4_bytes and not crc32c.is_good(l4, l4_bytes):
        return _refused(Reason.L4CSUM_ERR)
    parsed.seq = memory.be32(l4 + FOUR)
    parsed.options_bytes = captured - sctp_chunks.HEADER_BYTES
    parsed.payload_bytes = l4_bytes - sctp_chunks.HEADER_BYTES
    why = sctp_chunks.read(l4, l4_bytes, captured, settings, parsed)
    if why != _NONE:
        return why << THIRTY_TWO
    return _ports(l4, settings)


@inlined
def _read_icmp(l4, l4_bytes, captured, addresses, family, protocol, zone, settings, check, destination, parsed):
    """Read an ICMP (RFC 792) or ICMPv6 (RFC 4443 2.1) message, and the packet that it quotes if it is an error."""
    parsed.kind = u64(PacketKind.ICMP_QUERY)
    if l4_bytes < _ICMP_BYTES or captured < _ICMP_READ_BYTES:
        return _too_short(l4_bytes, _ICMP_BYTES)
    ovs = settings & _OVS != ZERO
    if (check or (ovs and settings & _CHECKSUM != ZERO)) and captured == l4_bytes:  # no device does it for Open vSwitch
        total = checksum.sum_bytes(l4, l4_bytes)
        if protocol == ICMPV6:
            total = checksum.pseudo_header(addresses + total, protocol, l4_bytes)
        if not checksum.is_good(total):
            return _refused(Reason.L4CSUM_ERR)
    number = memory.byte(l4)
    code = memory.byte(l4 + ONE)
    identifier = memory.be16(l4 + FOUR)
    message = icmp_types.find(family, number, settings)
    role = icmp_types.role(message)
    if role == u64(Role.NONE):
        return _refused(Reason.ICMP_TYPE)
    if role == u64(Role.UNTRACKED):
        parsed.kind = u64(PacketKind.UNTRACKED)
        return _refused(Reason.NOT_TRACKED)
    parsed.icmp_word = (number << _ICMP_TYPE_SHIFT) | (code << SIXTEEN) | identifier
    parsed.payload_bytes = l4_bytes - _ICMP_BYTES
    if role == u64(Role.ERROR):
        parsed.kind = u64(PacketKind.ICMP_ERROR)
        left = captured - min(captured, _ICMP_BYTES)
        if not quotes.read(l4 + _ICMP_BYTES, left, family, destination, zone, settings, parsed):
            return _refused(Reason.ICMP_INNER)
        return ZERO
    if ovs and code != ZERO:
        return _refused(Reason.ICMP_TYPE)
    src, dst = icmp_types.ports(message, code, identifier)
    return (src << SIXTEEN) | dst


@kernel
def read_other(l4, l4_bytes, captured, addresses, family, protocol, zone, settings, check, destination, parsed):
    """Read the header of anything but TCP; what has no ports, or none that is known, has 0 for them.

    Args:
        l4, l4_bytes, captured, addresses, settings, check: as for `read_tcp`.
        family: u64, 4 or 6.
        protocol: u64.
        zone: u64, for the key of a quoted packet.
        destination: u64, address of the destination address, which must be a quoted packet's source.
        parsed: out, PARSED: kind, icmp_word, payload_bytes, inner_key, inner_high_is_source; those of TCP are zero
            but for what kernels/sctp_chunks writes there.

    Returns:
        Reason and ports in one word.
    """
    memory.apart()
    parsed.kind = u64(PacketKind.FLOW)
    parsed.icmp_word = ZERO
    parsed.seq = ZERO
    parsed.ack = ZERO
    parsed.win = ZERO
    parsed.tcp_flags = ZERO
    parsed.options_bytes = ZERO
    parsed.payload_bytes = l4_bytes
    if protocol == UDP:
        return _read_udp(l4, l4_bytes, captured, addresses, family, settings, check, parsed)
    if (protocol == ICMP and family == FOUR) or (protocol == ICMPV6 and family != FOUR):
        return _read_icmp(
            l4, l4_bytes, captured, addresses, family, protocol, zone, settings, check, destination, parsed
        )
    if protocol == SCTP:
        return _read_sctp(l4, l4_bytes, captured, settings, check, parsed)
    if settings & _OVS != ZERO:
        return ZERO
    if protocol == ICMP or protocol == ICMPV6:
        parsed.kind = u64(PacketKind.ICMP_QUERY)
        return _refused(Reason.ICMP_TYPE)  # the other family's: no host listens
    if protocol == DCCP:
        return _read_dccp(l4, l4_bytes, captured, parsed)
    if protocol == UDP_LITE:
        return _read_udp_lite(l4, l4_bytes, captured, addresses, check, parsed)
    if protocol == GRE:
        return _read_gre(l4, l4_bytes, captured)
    return ZERO
