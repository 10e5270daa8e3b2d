"""CRC32c, the checksum of SCTP: eight bytes a step by eight tables.

A CRC is linear, so the remainder of eight bytes is the exclusive or of what each would leave alone, and TABLES holds that:
``TABLES[i][byte]`` is what ``byte`` leaves when ``i`` more bytes follow it ("slicing by 8").

Source: RFC 9260 appendix A, with the bits of each byte and of the result reflected, as the wire wants it; F. L. Berry and
M. E. Kounavis, "Novel Table Lookup-Based Algorithms for High-Performance CRC Generation", IEEE ToC 57(11), 2008.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import memory
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_8, LOW_32, SEVEN, SIXTEEN, THREE, ZERO, u64

_POLYNOMIAL = 0x82F63B78
"""1EDC6F41 with its bits reflected."""
SLICES = 8

_TWELVE = u64(12)
_TWENTY_FOUR = u64(24)
_CHECKSUM_AT = EIGHT


def compile_tables() -> NDArray[np.uint32]:
    """Return TABLES[slice, byte]."""
    tables = np.zeros((SLICES, 256), np.uint32)
    for byte in range(256):
        rest = byte
        for _ in range(8):
            rest = rest >> 1 ^ (_POLYNOMIAL if rest & 1 else 0)
        tables[0, byte] = rest
    for i in range(1, SLICES):
        before = tables[i - 1]
        tables[i] = before >> 8 ^ tables[0][before & 0xFF]
    tables.setflags(write=False)
    return tables


TABLES = compile_tables()


@inlined
def _byte(rest, value):
    """Return the remainder after one more byte."""
    return u64(TABLES[0, (rest ^ value) & LOW_8]) ^ (rest >> EIGHT)


@kernel
def _extend(rest, address, size):
    """Return the remainder after ``size`` more bytes."""
    memory.apart()
    at = address
    for _ in range(size >> THREE):
        low = memory.le32(at) ^ rest
        high = memory.le32(at + FOUR)
        rest = (
            u64(TABLES[7, low & LOW_8])
            ^ u64(TABLES[6, (low >> EIGHT) & LOW_8])
            ^ u64(TABLES[5, (low >> SIXTEEN) & LOW_8])
            ^ u64(TABLES[4, low >> _TWENTY_FOUR])
            ^ u64(TABLES[3, high & LOW_8])
            ^ u64(TABLES[2, (high >> EIGHT) & LOW_8])
            ^ u64(TABLES[1, (high >> SIXTEEN) & LOW_8])
            ^ u64(TABLES[0, high >> _TWENTY_FOUR])
        )
        at += EIGHT
    for i in range(size & SEVEN):
        rest = _byte(rest, memory.byte(at + u64(i)))
    return rest


@kernel
def of_sctp(address, size):
    """Return the checksum that an SCTP packet should have, as it would be read in little-endian order.

    Args:
        address: u64, of the common header, readable for ``size`` bytes.
        size: u64, of the packet, 12 or more; the checksum in it counts as zeros.
    """
    memory.apart()
    rest = _extend(LOW_32, address, _CHECKSUM_AT)
    for _ in range(FOUR):
        rest = _byte(rest, ZERO)
    return _extend(rest, address + _TWELVE, size - _TWELVE) ^ LOW_32


@inlined
def is_good(address, size):
    """Return whether the checksum in an SCTP packet is right; arguments as of `of_sctp`."""
    return memory.le32(address + _CHECKSUM_AT) == of_sctp(address, size)
