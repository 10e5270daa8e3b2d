"""What rules can ask of a frame: addresses, ports, tags; read once, before anything else is known of the packet.

Here nothing is refused: a header that is not there, or not all there, leaves its fields 0, and whether the packet is fit
to be tracked is for ``packet.parse`` to say.  As in Open vSwitch, type and code of ICMP stand where the ports would, and a
later fragment has neither.
"""

from __future__ import annotations

from ..shm.layout import FIELDS, FIELDS_WORDS, FRAG_ANY, FRAG_LATER, VLAN_PRESENT, Link
from . import extensions, internet, links, memory, tags
from .endpoints import ICMP, ICMPV6, TCP, has_ports
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_8, ONE, SIXTEEN, THREE, TWO, ZERO, u64

fields_at = memory.record_at(FIELDS)

IPV4, IPV6 = u64(0x0800), u64(0x86DD)
_VLAN_PRESENT, _VLAN_BITS = u64(VLAN_PRESENT), u64(0xFFF)
_ETHERNET_BYTES, _TAGGED_BYTES = u64(14), u64(18)
_SIX, _NINE, _TWELVE = u64(6), u64(9), u64(12)
_IPV4_BYTES, _IPV6_BYTES = u64(20), u64(40)
_FRAGMENT_OFFSET, _MORE_FRAGMENTS = u64(0x1FFF), u64(0x2000)
_TCP_FLAGS = u64(0xFFF)
_FRAG_ANY, _FRAG_LATER = u64(FRAG_ANY), u64(FRAG_LATER)
_FOURTEEN = u64(14)


@inlined
def _transport(l4, captured, protocol, fields):
    """Read what stands for ports, and the flags of TCP."""
    if has_ports(protocol):
        if captured >= FOUR:
            fields.sport = memory.be16(l4)
            fields.dport = memory.be16(l4 + TWO)
        if protocol == TCP and captured >= _FOURTEEN:
            fields.tcp_flags = memory.be16(l4 + _TWELVE) & _TCP_FLAGS
    elif (protocol == ICMP or protocol == ICMPV6) and captured >= TWO:
        fields.sport = memory.byte(l4)
        fields.dport = memory.byte(l4 + ONE)


@inlined
def _ipv4(start, captured, fields):
    if captured < _IPV4_BYTES:
        return
    protocol = memory.byte(start + _NINE)
    fields.protocol = protocol
    fields.src[1] = memory.be32(start + internet.IPV4_SOURCE)
    fields.dst[1] = memory.be32(start + internet.IPV4_DESTINATION)
    fragment = memory.be16(start + _SIX)
    header = (memory.byte(start) & u64(0xF)) << TWO
    if fragment & (_FRAGMENT_OFFSET | _MORE_FRAGMENTS) != ZERO:
        fields.frag = _FRAG_ANY
        if fragment & _FRAGMENT_OFFSET != ZERO:
            fields.frag = _FRAG_ANY | _FRAG_LATER
            return
    if header >= _IPV4_BYTES and captured > header:
        _transport(start + header, captured - header, protocol, fields)


@kernel
def _ipv6(start, captured, fields):
    memory.apart()
    if captured < _IPV6_BYTES:
        return
    source, destination = start + internet.IPV6_SOURCE, start + internet.IPV6_DESTINATION
    fields.src[0] = memory.be64(source)
    fields.src[1] = memory.be64(source + EIGHT)
    fields.dst[0] = memory.be64(destination)
    fields.dst[1] = memory.be64(destination + EIGHT)
    protocol = memory.byte(start + _SIX)
    header = _IPV6_BYTES
    if extensions.is_extension(protocol):
        chain = extensions.walk(start, captured, captured, ZERO)
        if extensions.reason(chain) != ZERO:
            fields.protocol = protocol
            return
        protocol = extensions.protocol(chain)
        header = extensions.header_bytes(chain)
        fragment = extensions.fragment(chain)
        if fragment != ZERO:
            fields.frag = _FRAG_ANY
            if fragment & extensions.FRAGMENT_OFFSET != ZERO:
                fields.protocol = protocol
                fields.frag = _FRAG_ANY | _FRAG_LATER
                return
    fields.protocol = protocol
    if captured > header:
        _transport(start + header, captured - header, protocol, fields)


@kernel
def read(frame, in_port, address):
    """Read what rules can ask of a frame.

    Args:
        frame: FRAME; only its ``captured_bytes`` are read.
        in_port: u64, number of the port that it came from.
        address: of FIELDS, out: all of it; what only a tracked packet has is 0.

    Concurrency:
        Touches nothing shared.
    """
    memory.apart()
    for i in range(FIELDS_WORDS):
        memory.set_le64(address + (u64(i) << THREE), ZERO)
    fields = fields_at(address)
    fields.in_port = in_port
    start = u64(frame.address)
    captured = u64(frame.captured_bytes)
    link = u64(frame.link)
    if link == u64(Link.ETHERNET) and captured >= _ETHERNET_BYTES:
        eth_type = memory.be16(start + _TWELVE)
        if tags.is_tag(eth_type) and captured >= _TAGGED_BYTES:
            fields.vlan = _VLAN_PRESENT | (memory.be16(start + _FOURTEEN) & _VLAN_BITS)
            eth_type = memory.be16(start + SIXTEEN)
        fields.eth_type = eth_type
    found = links.find(link, start, captured)
    family = found & LOW_8
    if family == ZERO:
        return
    skipped = found >> EIGHT
    if family == FOUR:
        fields.eth_type = IPV4
        _ipv4(start + skipped, captured - skipped, fields)
    else:
        fields.eth_type = IPV6
        _ipv6(start + skipped, captured - skipped, fields)
