"""What a helper has read in a packet: the expectations that are to be made of it, and whether the packet was right.

A helper's ``read`` returns one word: how many expectations it has written to ``views.foretold``, or-ed with REFUSED when
the message cannot be right, and with the kinds of those before that are to be gone.  It writes what only it can know;
helpers.follow adds what all have in common.
"""

from __future__ import annotations

from ..shm.layout import EXPECTATION, EXPECTATION_BYTES, FORETOLD_MAX, Status
from . import entries, expectations, memory, tuples
from .jit import inlined, kernel
from .words import LOW_8, LOW_16, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

NOTHING = ZERO
REFUSED = u64(1 << 8)
_FORGOTTEN_SHIFT = u64(16)
EVERY_KIND = LOW_8
ONE_FORETOLD = ONE
MAX = u64(FORETOLD_MAX)

_SIZE = u64(EXPECTATION_BYTES)
_LOW_PORT_SHIFT = u64(48)
_ORIG_IS_HIGH = u64(Status.ORIG_IS_HIGH)
assert _ORIG_IS_HIGH == ONE

expectation_at = memory.record_at(EXPECTATION)


@inlined
def address(views, i):
    """Return the address of the ``i``-th expectation that is to be made."""
    return views.foretold + i * _SIZE


@inlined
def _is_high(entry, way):
    """Return 1 if packets that go ``way`` come from the second endpoint of the key."""
    return (u64(entries.entry_at(entry).status) & _ORIG_IS_HIGH) ^ way


@inlined
def sender(entry, way):
    """Return where in an entry the address (two words) stands that packets of a Way come from."""
    return entry + tuples.ENTRY_KEY + _is_high(entry, way) * SIXTEEN


@inlined
def sender_port(entry, way):
    """Return the port that packets of a Way come from."""
    return (
        memory.read64(entry + tuples.ENTRY_KEY + tuples.LAST) >> (_LOW_PORT_SHIFT - _is_high(entry, way) * SIXTEEN)
    ) & LOW_16


@inlined
def ports(parsed):
    """Return the source and the destination port of a packet."""
    both = u64(parsed.key[4]) >> THIRTY_TWO
    low, high = both >> SIXTEEN, both & LOW_16
    if u64(parsed.high_is_source) != ZERO:
        return high, low
    return low, high


@inlined
def forgetting(kinds):
    """Return a result by which what was foretold before is gone; ``kinds`` has a bit for each Foretold."""
    return kinds << _FORGOTTEN_SHIFT


@inlined
def forgotten(result):
    """Return the kinds that are to be gone before the new ones are made."""
    return (result >> _FORGOTTEN_SHIFT) & LOW_8


@inlined
def count_of(result):
    """Return how many expectations are to be made."""
    return result & LOW_8


@kernel
def to_sender(views, i, entry, way, protocol, port, kind):
    """Write the ``i``-th: connections of the other end to a port of the sender of a message that went ``way``.

    Args:
        i: less than MAX.
        entry: address of the ENTRY of the control connection.
        protocol: of the connections.
        port: that they go to.
        kind: Foretold.
    """
    memory.apart()
    at = address(views, i)
    memory.set_bytes(at, ZERO, _SIZE)
    listener, other = sender(entry, way), sender(entry, way ^ ONE)
    for word in range(2):
        step = u64(8 * word)
        memory.set_le64(at + expectations.DESTINATION + step, memory.read64(listener + step))
        memory.set_le64(at + expectations.SOURCE + step, memory.read64(other + step))
    memory.set_le64(at + expectations.LAST, expectations.last_word(ZERO, port, ZERO, protocol, ZERO))
    expectation_at(at).kind = kind
