"""Calls of PPTP: packets of GRE name a call by the receiver's number; the sender's is filled in, so both ways have one key.

Only packets come here that found no connection, in zones in which something was foretold: that is enough, for without
the other number nothing is found.
"""

from __future__ import annotations

from ..shm.layout import KEY_WORDS
from . import awaited, memory, stages
from .endpoints import GRE
from .jit import kernel
from .words import LOW_16, ONE, THIRTY_TWO, ZERO, u64

_LOW_PORT_SHIFT = u64(48)
_LAST_WORD = u64(KEY_WORDS - 1)


@kernel
def complete(views, parsed, i):
    """Fill in the number that a packet of GRE lacks.

    Args:
        parsed: PARSED of packet ``i`` of the burst.

    Returns:
        True: its key and hash are others now, so it has to be looked for again.
    """
    memory.seldom()
    if u64(parsed.protocol) != GRE:
        return False
    last = u64(parsed.key[_LAST_WORD])
    shift = THIRTY_TWO if u64(parsed.high_is_source) != ZERO else _LOW_PORT_SHIFT
    receivers = (last >> (_LOW_PORT_SHIFT if shift == THIRTY_TWO else THIRTY_TWO)) & LOW_16
    if (last >> shift) & LOW_16 != ZERO or receivers == ZERO:
        return False
    call = awaited.call_of(views, parsed)
    if call == ZERO:
        return False
    parsed.key[_LAST_WORD] = last | (call << shift)
    _order(parsed)
    stages.rehash(views, views.parsed + i * stages.PARSED_SIZE)
    return True


@kernel
def _order(parsed):
    """Keep the key canonical: of equal addresses the lower number stands first."""
    same = u64(parsed.key[0]) == u64(parsed.key[2]) and u64(parsed.key[1]) == u64(parsed.key[3])
    last = u64(parsed.key[_LAST_WORD])
    low, high = last >> _LOW_PORT_SHIFT, (last >> THIRTY_TWO) & LOW_16
    if same and low > high:
        parsed.key[_LAST_WORD] = (high << _LOW_PORT_SHIFT) | (low << THIRTY_TWO) | (last & u64(0xFFFFFFFF))
        parsed.high_is_source = u64(parsed.high_is_source) ^ ONE
