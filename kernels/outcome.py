"""The word in which a protocol says what becomes of a packet and of its connection's record.

    bits    what
    0..7    Outcome
    8..15   Timeout by which the expiry is put off, with the bit of its profile; 255: it is not
    16..23  its cap: the shorter of the two lengths counts (kernels/timeouts, ``term_ms``)
    24      UNCOUNTED: the packet is let by, but not accounted
    25      SHORTEN: the expiry may only be brought forward
    26      NEW_AGAIN: the packet of a connection that is as good as new; only in the `ovs` profile
    27      SINCE_BEGUN: its cap, if not 0, counts from the connection's beginning
    28      HELPED: the connection has a helper, which reads the packet
    32..39  Reason

Bits 8..23 together are called the *term*.  The word is a value between kernels of one process, never stored.
"""

from __future__ import annotations

from enum import IntEnum

from .jit import inlined
from .words import EIGHT, LOW_8, LOW_16, THIRTY_TWO, ZERO, u64


class Outcome(IntEnum):
    """What becomes of the packet, and of the record."""

    PASS = 0  # part of the connection
    INVALID = 1  # not part of it; nothing was changed that another packet would notice
    DELETE = 2  # part of it, and the last one: the caller deletes the record
    RESTART = 3  # opens a new connection: the caller deletes the record and tracks the packet again


NO_TERM = u64(0xFFFF)
"""The expiry stays what it is."""
UNCOUNTED = u64(1 << 24)
SHORTEN = u64(1 << 25)
NEW_AGAIN = u64(1 << 26)
SINCE_BEGUN = u64(1 << 27)
HELPED = u64(1 << 28)
KEEP_EXPIRY = NO_TERM << EIGHT
"""NO_TERM in its place; or-ed onto an outcome it takes any term back."""

_PASS = u64(Outcome.PASS)
_INVALID = u64(Outcome.INVALID)


@inlined
def term(timeout, cap):
    """Return the term of a Timeout that is never longer than ``cap``; the same twice where there is no cap."""
    return timeout | (cap << EIGHT)


@inlined
def passed(term_):
    """Return the outcome of a packet that is part of the connection."""
    return _PASS | (term_ << EIGHT)


@inlined
def let_by(reason):
    """Return the outcome of a packet that passes without being followed, and why."""
    return _PASS | KEEP_EXPIRY | UNCOUNTED | (reason << THIRTY_TWO)


@inlined
def invalid(reason):
    """Return the outcome of a packet that is no part of the connection."""
    return _INVALID | KEEP_EXPIRY | UNCOUNTED | (reason << THIRTY_TWO)


@inlined
def because(outcome, reason):
    """Return an outcome that has no Reason, with one."""
    return outcome | (reason << THIRTY_TWO)


@inlined
def shortened(outcome, term_):
    """Return an outcome that leaves the expiry alone, changed to bring it forward to ``term_`` from now."""
    return (outcome & ~KEEP_EXPIRY) | (term_ << EIGHT) | SHORTEN


@inlined
def kind_of(outcome):
    """Return the Outcome."""
    return outcome & LOW_8


@inlined
def term_of(outcome):
    """Return the term, or NO_TERM."""
    return (outcome >> EIGHT) & LOW_16


@inlined
def reason_of(outcome):
    """Return the Reason."""
    return (outcome >> THIRTY_TWO) & LOW_8


@inlined
def is_counted(outcome):
    """Return whether the packet is accounted."""
    return outcome & UNCOUNTED == ZERO


@inlined
def timeout_of(term_):
    """Return the Timeout of a term."""
    return term_ & LOW_8


@inlined
def cap_of(term_):
    """Return the cap of a term."""
    return (term_ >> EIGHT) & LOW_8
