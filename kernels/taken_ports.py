"""Ports that were found taken, a bit each, so that a search through a range that is nearly full looks at few of them.

Towards one server a translated address has one set of ports.  A *map* is what a participant knows of one such set: from
the tuple of the replies without the port that is chosen (its *identity*, a hash) to 65,536 bits.

    a bit      who           when
    0 -> 1     bindings      a look at the tuple found it taken or kept from others, or it was chosen
    1 -> 0     let_go        this participant ends the connection that had the port
    all -> 0   forget        a look showed that the map is out of date; or another set has its place now

A map is private and a hint: what others have taken in the meantime is found by the look that each choice begins with, and
in the end by ``index.insert``.  What others have freed is passed over while there is a port whose bit is 0; when there is
none any more, bindings looks at ports as if there were no map, and forgets it if one of them is free.

Concurrency: private to a participant, so nobody waits, nothing is shared and nothing is to be repaired.
"""

from __future__ import annotations

from ..shm.layout import PORT_MAP_BYTES, PORT_MAP_WORDS, PORT_MAPS, PORT_MAPS_HEADER_BYTES, Status
from . import memory, tuples
from .jit import inlined, kernel
from .words import ONE, SIXTY_THREE, THIRTY_TWO, THREE, ZERO, u64

PORTS_SHIFT = u64(6)
"""Ports of a word, as a power of two."""
_MAPS_MASK = u64(PORT_MAPS - 1)
_MAP, _HEADER = u64(PORT_MAP_BYTES), u64(PORT_MAPS_HEADER_BYTES)
_ALL = ~ZERO
_FORTY_EIGHT = u64(48)
_PORT_HIGH, _PORT_LOW = u64(0xFFFF << 48), u64(0xFFFF << 32)


@inlined
def _identity_at(views, identity):
    return views.port_maps + ((identity & _MAPS_MASK) << THREE)


@inlined
def _place(views, identity):
    return views.port_maps + _HEADER + (identity & _MAPS_MASK) * _MAP


@inlined
def _word_at(ports, port):
    return ports + ((port >> PORTS_SHIFT) << THREE)


@kernel
def forget(ports):
    """Forget all that a map says."""
    for i in range(PORT_MAP_WORDS):
        memory.set_le64(ports + (u64(i) << THREE), ZERO)


@kernel
def of(views, identity):
    """Return the address of the map of a set of ports; what another set had at its place is forgotten."""
    header, ports = _identity_at(views, identity), _place(views, identity)
    before = memory.le64(header)
    if before != identity:
        if before != ZERO:
            forget(ports)
        memory.set_le64(header, identity)
    return ports


@inlined
def take(ports, port):
    """Note that a port is taken."""
    at = _word_at(ports, port)
    memory.set_le64(at, memory.le64(at) | (ONE << (port & SIXTY_THREE)))


@inlined
def free_in(ports, word, first, last):
    """Return the ports of a map's word, a bit each, from ``first`` to ``last``, that are not known to be taken."""
    free = ~memory.le64(ports + (word << THREE))
    if word == first >> PORTS_SHIFT:
        free &= _ALL << (first & SIXTY_THREE)
    if word == last >> PORTS_SHIFT:
        free &= _ALL >> (SIXTY_THREE - (last & SIXTY_THREE))
    return free


@kernel
def let_go(views, second, status):
    """Note that the port is free that a connection had which this participant ends.

    Args:
        second: u64, address of the key of its replies.
        status: u64, its Status bits.
    """
    if status & u64(Status.SOURCE_NAT) == ZERO:
        return
    last = memory.read64(second + tuples.LAST)
    if status & u64(Status.REPLIER_IS_HIGH) != ZERO:
        port, last = last >> _FORTY_EIGHT, last & ~_PORT_HIGH
    else:
        port, last = (last & _PORT_LOW) >> THIRTY_TWO, last & ~_PORT_LOW
    identity = tuples.hash_with(views, second, last)
    if memory.le64(_identity_at(views, identity)) == identity:
        at = _word_at(_place(views, identity), port)
        memory.set_le64(at, memory.le64(at) & ~(ONE << (port & SIXTY_THREE)))
