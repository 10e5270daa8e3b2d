"""Which connections a filter means: for walks, and for events where they are made."""

from __future__ import annotations

from ..shm.layout import FILTER, Status
from . import entries, memory, shown, tuples
from .endpoints import ICMP, ICMPV6
from .jit import inlined, kernel
from .words import EIGHT, FOUR, ONE, ZERO, u64

filter_at = memory.record_at(FILTER)

_OVS = u64(Status.OVS)
_STATE_MAX = u64(15)


@inlined
def _is_icmp(entry):
    protocol = tuples.protocol_of(entry + tuples.ENTRY_KEY)
    return protocol == ICMP or protocol == ICMPV6


@inlined
def _differs(wanted, i, address):
    """Return 0 if the address (two words) is what the filter wants as its ``i``-th."""
    high = (memory.read64(address) & wanted.address_mask[i]) ^ wanted.address[i]
    low = (memory.read64(address + EIGHT) & wanted.address_mask[i + 1]) ^ wanted.address[i + 1]
    return high | low


@inlined
def _is_in_state(wanted, e):
    """Return whether a connection is in one of the states that a filter wants."""
    state = u64(e.state)
    if u64(e.status) & _OVS == ZERO:
        return (u64(wanted.states) >> min(state, _STATE_MAX)) & ONE != ZERO
    return (u64(wanted.ovs_states) >> max(state & _STATE_MAX, state >> FOUR)) & ONE != ZERO


@kernel
def fits(views, wanted, entry):
    """Return whether a connection is one of those that a filter means.

    Args:
        wanted: FILTER.
        entry: u64, address of the ENTRY, whose lock is held, or which nobody else can find.
    """
    if (memory.read64(entry + shown.KEY_LAST) & u64(wanted.last_mask)) != u64(wanted.last):
        return False
    e = entries.entry_at(entry)
    if (u64(e.mark) & u64(wanted.mark_mask)) != u64(wanted.mark):
        return False
    if (u64(e.status) & u64(wanted.status_mask)) != u64(wanted.status):
        return False
    if u64(wanted.states) | u64(wanted.ovs_states) != ZERO and not _is_in_state(wanted, e):
        return False
    key, opener_is_high = entry + tuples.ENTRY_KEY, shown.opener_is_high(entry)
    if (shown.ports(key, opener_is_high) & u64(wanted.ports_mask)) != u64(wanted.ports):
        return False
    if u64(wanted.ports_mask) != ZERO and _is_icmp(entry):  # what stands there is no port
        return False
    src, dst = shown.addresses(key, opener_is_high)
    reply_key, replier_is_high = shown.replies(views, entry)
    reply_src, reply_dst = shown.addresses(reply_key, replier_is_high)
    differences = _differs(wanted, 0, src) | _differs(wanted, 2, dst)
    differences |= _differs(wanted, 4, reply_src) | _differs(wanted, 6, reply_dst)
    return differences == ZERO
