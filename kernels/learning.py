"""Where Ethernet addresses were seen: what a switch remembers, shared by all workers.

A set of a few places by hash; an address takes the place it has, else a free or the oldest one.  Address and port are one
word, so no reader sees the port of another address.  The VLAN and the moment beside it may be torn from it when two workers
write one place at once: a packet then goes to all ports, or to where its address was seen in another VLAN, until the next
frame from there puts it right.
"""

from __future__ import annotations

from ..shm.layout import LEARNED_BYTES, LEARNED_MAX, LEARNED_WAYS
from . import memory
from .jit import inlined, kernel
from .words import EIGHT, GOLDEN, LOW_16, ONE, SIXTEEN, ZERO, u64

AGE_S = u64(300)
"""After which an address is forgotten (IEEE 802.1Q 8.8.3)."""
_LINE = u64(LEARNED_BYTES)
_SETS_MASK = u64(LEARNED_MAX // LEARNED_WAYS - 1)
_SET_BYTES = u64(LEARNED_BYTES * LEARNED_WAYS)
_GROUP_BIT = u64(1 << 40)
"""Of an address as a number: to a group (IEEE 802-2014 8.2)."""
NOWHERE = ZERO


@inlined
def _set_of(learned, address, vlan):
    return learned + (memory.mix(address ^ (vlan << u64(48)), GOLDEN) & _SETS_MASK) * _SET_BYTES


@inlined
def is_group(address):
    """Return whether a frame for an address is for more than one."""
    return address & _GROUP_BIT != ZERO


@inlined
def _is_fresh(seen, vlan, now_s):
    return seen & LOW_16 == vlan and now_s - (seen >> SIXTEEN) < AGE_S


@kernel
def learn(learned, address, vlan, port, now_s):
    """Remember that an address was seen at a port.

    Args:
        learned: u64, address of LEARNED[LEARNED_MAX].
        address: u64, an Ethernet address as a number; those of groups are nobody's.
        vlan: u64, number of a tag, 0 without.
        port: u64, from 1.
        now_s: u64, seconds of the clock that expiries are in.

    Concurrency:
        Beside any others; see this room's beginning.
    """
    memory.apart()
    if is_group(address) or address == ZERO:
        return
    first = _set_of(learned, address, vlan)
    where = (address << SIXTEEN) | port
    seen = (now_s << SIXTEEN) | vlan
    chosen = first
    oldest = ~ZERO
    for i in range(LEARNED_WAYS):
        line = first + u64(i) * _LINE
        here, then = memory.acquire64(line), memory.acquire64(line + EIGHT)
        if here >> SIXTEEN == address and then & LOW_16 == vlan:
            if here != where:
                memory.release64(line, where)
            if then != seen:
                memory.release64(line + EIGHT, seen)
            return
        age = ZERO if here == ZERO else (then >> SIXTEEN) + ONE
        if age < oldest:
            oldest = age
            chosen = line
    memory.release64(chosen, ZERO)
    memory.release64(chosen + EIGHT, seen)
    memory.release64(chosen, where)


@kernel
def where(learned, address, vlan, now_s):
    """Return the port at which an address was seen last, NOWHERE where it is for a group, was not seen, or long ago.

    Args:
        learned, address, vlan, now_s: as for `learn`.
    """
    memory.apart()
    if is_group(address):
        return NOWHERE
    first = _set_of(learned, address, vlan)
    for i in range(LEARNED_WAYS):
        line = first + u64(i) * _LINE
        here = memory.acquire64(line)
        if here >> SIXTEEN == address and here != ZERO and _is_fresh(memory.acquire64(line + EIGHT), vlan, now_s):
            return here & LOW_16
    return NOWHERE
