"""What stands for the ports of GRE: PPTP's call identifier, by which calls between the same two hosts are told apart.

GRE proper (version 0, RFC 2784) has none; its optional key is not looked at.  PPTP's (version 1, RFC 2637 4.1) names the
call of whom it is sent to, so it stands for the destination's port, as in Linux (gre_pkt_to_tuple).  The caller's own
identifier is not in the packet: two directions of a call are two connections unless a helper knows better.
"""

from __future__ import annotations

from . import memory
from .jit import inlined
from .words import EIGHT, FOUR, ONE, SEVEN, TWO, ZERO, u64

PPTP_BYTES = EIGHT
"""Up to the call identifier and with it."""

_SIX = u64(6)
_HEADER_BYTES = FOUR
_PPP = u64(0x880B)


@inlined
def _is_pptp(l4, size):
    """Return whether a header is of version 1."""
    return size >= _HEADER_BYTES and memory.byte(l4 + ONE) & SEVEN == ONE


@inlined
def is_known(l4, size):
    """Return whether a header can be: version 1 carries nothing but PPP.

    Args:
        l4: u64, address of the header, readable for ``size`` bytes or PPTP_BYTES, whichever is less.
        size: u64, bytes of header and payload.
    """
    return size < PPTP_BYTES or not _is_pptp(l4, size) or memory.be16(l4 + TWO) == _PPP


@inlined
def call_id(l4, size):
    """Return the call identifier of a header that is known, 0 when it has none; arguments as of `is_known`."""
    if size < PPTP_BYTES or not _is_pptp(l4, size):
        return ZERO
    return memory.be16(l4 + _SIX)
