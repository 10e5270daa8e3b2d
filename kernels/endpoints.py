"""Two endpoints in canonical order: both directions of a connection write the same key.

An endpoint is an address and what stands for a port: the ports of TCP, UDP and their like, 0 for protocols without any;
for an ICMP query the identifier on the requester's side, type and code of the request on the responder's.
"""

from __future__ import annotations

from enum import IntEnum

from .jit import inlined
from .words import EIGHT, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

_FORTY_EIGHT = u64(48)

# protocol numbers, https://www.iana.org/assignments/protocol-numbers
ICMP = u64(1)
TCP = u64(6)
UDP = u64(17)
DCCP = u64(33)
GRE = u64(47)
ICMPV6 = u64(58)
SCTP = u64(132)
UDP_LITE = u64(136)


class Order(IntEnum):
    """Which endpoint of a packet became the first of its key."""

    SOURCE_FIRST = 0
    SOURCE_SECOND = 1
    EQUAL = 2  # nothing tells a packet from its answer


@inlined
def has_ports(protocol):
    """Return whether a transport header begins with source and destination port."""
    return (protocol == TCP) | (protocol == UDP) | (protocol == SCTP) | (protocol == UDP_LITE) | (protocol == DCCP)


@inlined
def port_bits(first, second):
    """Return the ports of a key's first and second endpoint as they stand in its last word."""
    return (first << _FORTY_EIGHT) | (second << THIRTY_TWO)


@inlined
def last_word(first_port, second_port, zone, protocol, family):
    """Return the last word of a key."""
    return port_bits(first_port, second_port) | (zone << SIXTEEN) | (protocol << EIGHT) | family


@inlined
def write_key(src_high, src_low, src_port, dst_high, dst_low, dst_port, zone, protocol, family, key):
    """Write the key of a packet, the smaller (address, port) first.

    Args:
        src_high, src_low, dst_high, dst_low: u64, halves of the addresses in host order; of IPv4 the high ones are 0.
        src_port, dst_port: u64, below 2**16.
        zone, protocol, family: u64.
        key: out, u64[KEY_WORDS].

    Returns:
        u64, an Order.
    """
    same_address = (src_high == dst_high) & (src_low == dst_low)
    second = (
        (src_high > dst_high) | ((src_high == dst_high) & (src_low > dst_low)) | (same_address & (src_port > dst_port))
    )
    # without branches: which side is the smaller is as good as random, and a wrong guess costs more than all of this
    swap = ZERO - u64(second)
    high = (src_high ^ dst_high) & swap
    low = (src_low ^ dst_low) & swap
    port = (src_port ^ dst_port) & swap
    key[0] = src_high ^ high
    key[1] = src_low ^ low
    key[2] = dst_high ^ high
    key[3] = dst_low ^ low
    key[4] = last_word(src_port ^ port, dst_port ^ port, zone, protocol, family)
    equal = same_address & (src_port == dst_port)
    return u64(second) | (u64(equal) << ONE)
