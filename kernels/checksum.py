"""Internet checksums: the sum of a header or a whole segment, and whether it is right.

The ones' complement sum of 16-bit words is a sum modulo 65535 (RFC 1071 1): words of 32 or 64 bits may be added
instead, for 2**16, 2**32 and 2**64 are all 1 there, and the carries are dealt with once, by the remainder at the end.  So
`sum_bytes` adds 32-bit words into 64 bits, which do not overflow below 16 GiB.

The sum is taken in the order of this machine, little-endian, and everything that joins it must be in that order too
(RFC 1071 2 (B)).  A number in host order joins as ``number << 8``: exchanging the bytes of a 16-bit word is a rotation by
8, which modulo 65535 is a multiplication by 256.
"""

from __future__ import annotations

from . import memory
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_16, LOW_32, ONE, SIXTEEN, SIXTY_FOUR, SIXTY_THREE, THIRTY_TWO, TWO, ZERO, u64

_SIX = u64(6)
_TWENTY_FOUR = u64(24)
_INVERSE, _QUOTIENT_MAX = u64(pow(0xFFFF, -1, 1 << 64)), u64(((1 << 64) - 1) // 0xFFFF)


@inlined
def halves(word):
    """Return the sum of the two halves of a 64-bit word."""
    return (word & LOW_32) + (word >> THIRTY_TWO)


@kernel
def _blocks(address, words):
    """Return the sum of ``words`` 32-bit words; LLVM makes vectors of it."""
    memory.apart()
    total = ZERO
    for i in range(words):
        total += memory.le32_from(address, u64(i) << TWO)
    return total


@inlined
def sum_bytes(address, size):
    """Return the sum of ``size`` bytes, not yet folded.

    Args:
        address: u64, readable for ``size`` bytes; an odd last byte counts as if a zero followed.
        size: u64, bytes, below 2**32.

    Returns:
        u64, below 2**62, to be added to other sums and given to `is_good`.

    Source:
        RFC 1071.  Of what is left after blocks of 64 bytes each power of two is read at most once, without a loop: 20
        bytes cost a nanosecond or two (measured 2026-11 on a 2.3 GHz Xeon, where 1,460 bytes took 28).
    """
    total = ZERO
    at = address
    if size >= SIXTY_FOUR:
        total = _blocks(at, (size >> _SIX) << FOUR)
        at += size & ~SIXTY_THREE
    if size & THIRTY_TWO:
        total += halves(memory.le64(at)) + halves(memory.le64(at + EIGHT))
        total += halves(memory.le64(at + SIXTEEN)) + halves(memory.le64(at + _TWENTY_FOUR))
        at += THIRTY_TWO
    if size & SIXTEEN:
        total += halves(memory.le64(at)) + halves(memory.le64(at + EIGHT))
        at += SIXTEEN
    if size & EIGHT:
        total += halves(memory.le64(at))
        at += EIGHT
    if size & FOUR:
        total += memory.le32(at)
        at += FOUR
    if size & TWO:
        total += memory.le16(at)
        at += TWO
    if size & ONE:
        total += memory.byte(at)
    return total


@inlined
def pseudo_header(addresses, protocol, length):
    """Return the sum of a pseudo header, IPv4's (RFC 9293 3.1) or IPv6's (RFC 8200 8.1).

    Args:
        addresses: u64, sum of the bytes of both addresses.
        protocol: u64, the transport protocol's number, not that of an extension header.
        length: u64, of transport header and payload in bytes.
    """
    return addresses + ((protocol + length) << EIGHT)


@inlined
def is_good(total):
    """Return whether a sum that includes the checksum itself is right: all ones, and not nothing but zeros."""
    return total % LOW_16 == ZERO and total != ZERO


@inlined
def is_zero(total):
    """Return whether a sum is nothing modulo 65535: half as long as taking the remainder.

    Source:
        Warren, "Hacker's Delight", 10-17: multiples of an odd number, and no others, become small when multiplied by its
        inverse modulo 2**64.
    """
    return total * _INVERSE <= _QUOTIENT_MAX


@inlined
def complement(total):
    """Return the checksum that belongs to a sum of numbers as they are read, high byte first: what makes it right.

    Args:
        total: u64, sum of 32-bit words, fewer than 2**30 of them, without the checksum.

    Source:
        RFC 1071 1: the ones' complement of the folded sum.
    """
    total = (total & LOW_32) + (total >> THIRTY_TWO)
    total = (total & LOW_16) + (total >> SIXTEEN)
    total = (total & LOW_16) + (total >> SIXTEEN)
    return ~total & LOW_16
