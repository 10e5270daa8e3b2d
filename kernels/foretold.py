"""What a helper has read in a packet: the expectations that are to be made of it, and whether the packet was right.

A helper's ``read`` returns one word: how many expectations it has written to ``views.foretold``, or-ed with REFUSED when
the message cannot be right, and with the kinds of those before that are to be gone.  It writes what only it can know;
helpers.follow adds what all have in common.

Of a connection that is translated each end is known at the other by another address.  What is foretold is what will arrive:
it goes to where the sender is known; and the connection gets the ends that its parent has, who sent the message the one
that he named, or the other end the address that he knows it by.
"""

from __future__ import annotations

from ..shm.layout import EXPECTATION, EXPECTATION_BYTES, ExpectationFlag, Status, offset
from . import entries, expectations, memory, shown, tuples
from .jit import inlined, kernel
from .words import EIGHT, LOW_8, LOW_16, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

NOTHING = ZERO
REFUSED = u64(1 << 8)
SPLIT = REFUSED | u64(1 << 9)
"""It is refused because the segment ends in the middle of what it says."""
_FORGOTTEN_SHIFT = u64(16)
EVERY_KIND = LOW_8
ONE_FORETOLD = ONE

_SIZE = u64(EXPECTATION_BYTES)
_LOW_PORT_SHIFT = u64(48)
_ORIG_IS_HIGH = u64(Status.ORIG_IS_HIGH)
_NAT_SOURCE, _NAT_DESTINATION = u64(ExpectationFlag.NAT_SOURCE), u64(ExpectationFlag.NAT_DESTINATION)
_NAT_ADDRESS = offset(EXPECTATION, "nat_address")
assert _ORIG_IS_HIGH == ONE

expectation_at = memory.record_at(EXPECTATION)


@inlined
def address(views, i):
    """Return the address of the ``i``-th expectation that is to be made."""
    return views.foretold + i * _SIZE


@kernel
def _end(views, entry, way, known):
    """Return the key, and whether it is its second endpoint, of who sends packets that go ``way``.

    Args:
        known: bool, as who receives them knows him; else as he is.
    """
    if known == (way != ZERO):
        is_high = (u64(entries.entry_at(entry).status) & _ORIG_IS_HIGH) ^ way
        return entry + tuples.ENTRY_KEY, is_high
    key, replier_is_high = shown.replies(views, entry)
    return key, u64(replier_is_high) ^ way ^ ONE


@kernel
def sender(views, entry, way):
    """Return where the address (two words) stands that packets of a Way come from."""
    key, is_high = _end(views, entry, way, False)
    return key + is_high * SIXTEEN


@kernel
def known(views, entry, way):
    """Return where the address (two words) stands that these packets have as their source where they go to."""
    key, is_high = _end(views, entry, way, True)
    return key + is_high * SIXTEEN


@kernel
def sender_port(views, entry, way):
    """Return the port that packets of a Way come from."""
    key, is_high = _end(views, entry, way, False)
    return (memory.read64(key + tuples.LAST) >> (_LOW_PORT_SHIFT - is_high * SIXTEEN)) & LOW_16


@kernel
def known_port(views, entry, way):
    """Return the port that these packets have as their source where they go to."""
    key, is_high = _end(views, entry, way, True)
    return (memory.read64(key + tuples.LAST) >> (_LOW_PORT_SHIFT - is_high * SIXTEEN)) & LOW_16


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


@inlined
def _copy_address(to, address):
    memory.set_le64(to, memory.read64(address))
    memory.set_le64(to + EIGHT, memory.read64(address + EIGHT))


@inlined
def _is_same(a, b):
    return memory.read64(a) == memory.read64(b) and memory.read64(a + EIGHT) == memory.read64(b + EIGHT)


@kernel
def to_sender(views, i, entry, way, protocol, port, kind):
    """Write the ``i``-th: connections of the other end to a port of the sender of a message that went ``way``.

    Args:
        i: less than layout.FORETOLD_MAX.
        entry: address of the ENTRY of the control connection.
        protocol: of the connections.
        port: that they go to.
        kind: Foretold.
    """
    memory.apart()
    at = address(views, i)
    memory.set_bytes(at, ZERO, _SIZE)
    listener, other = sender(views, entry, way), sender(views, entry, way ^ ONE)
    listener_known, other_known = known(views, entry, way), known(views, entry, way ^ ONE)
    _copy_address(at + expectations.DESTINATION, listener_known)
    _copy_address(at + expectations.SOURCE, other)
    memory.set_le64(at + expectations.LAST, expectations.last_word(ZERO, port, ZERO, protocol, ZERO))
    e = expectation_at(at)
    e.kind = kind
    if not _is_same(listener, listener_known):
        e.flags = _NAT_DESTINATION
        e.nat_port = port
        _copy_address(at + _NAT_ADDRESS, listener)
    elif not _is_same(other, other_known):
        e.flags = _NAT_SOURCE
        _copy_address(at + _NAT_ADDRESS, other_known)


@kernel
def port_of(views, i):
    """Return the port that the ``i``-th goes to."""
    return (memory.le64(address(views, i) + expectations.LAST) >> THIRTY_TWO) & LOW_16


@kernel
def move(views, i, port):
    """Have the ``i``-th go to another port than the sender's, and its connection be brought to the sender's."""
    at = address(views, i)
    e = expectation_at(at)
    last = memory.le64(at + expectations.LAST)
    if u64(e.flags) & (_NAT_DESTINATION | _NAT_SOURCE) == ZERO and port != port_of(views, i):
        e.flags = u64(e.flags) | _NAT_DESTINATION
        e.nat_port = port_of(views, i)
        _copy_address(at + _NAT_ADDRESS, at + expectations.DESTINATION)
    memory.set_le64(at + expectations.LAST, (last & ~(LOW_16 << THIRTY_TWO)) | (port << THIRTY_TWO))
