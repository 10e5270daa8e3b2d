"""Where a fragment goes in its datagram, and whether it may: by the rules of the zone's profile.

    netfilter    what contradicts the ends known so far, or has data of a fragment beside others of its own, ends the whole
                 datagram (RFC 5722); what has no data but such as is there is left out, and the datagram goes on
    ovs          what begins or ends within another fragment is refused, and the datagram goes on; one that encloses another
                 is not recognised, and the datagram can never be whole

    outcome      what becomes of the fragment      and of the datagram
    KEEP         goes behind fragment ``after``    goes on, or is whole
    LEAVE_OUT    is refused                        goes on
    END          is refused                        is refused

In IPv6 ``netfilter`` is milder where IPv4 ends the datagram: a last fragment that contradicts is left out.

Source:
    Linux: ip_frag_queue (net/ipv4/ip_fragment.c), nf_ct_frag6_queue (net/ipv6/netfilter/nf_conntrack_reasm.c),
    inet_frag_queue_insert (net/ipv4/inet_fragment.c), whose runs of fragments that were appended in order are told here by
    ``follows``.  Open vSwitch: ipf_is_frag_duped, ipf_list_complete (lib/ipf.c).
"""

from __future__ import annotations

from enum import IntEnum

from ..shm.layout import DATAGRAM_BYTES_MAX, FRAGMENTS_MAX
from ..shm.reasons import Reason
from . import fragments, memory
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_8, LOW_32, ONE, SEVEN, SIXTEEN, THIRTY_TWO, ZERO, u64


class Fit(IntEnum):
    """What becomes of a fragment."""

    KEEP = 0
    LEAVE_OUT = 1
    END = 2


_LONGEST = u64(DATAGRAM_BYTES_MAX)
_FOLLOWS = ONE << SIXTEEN


# outcome word: Fit 8 | Reason 8 | follows 16 | the fragment + 1 behind which it goes, 0: in front
@inlined
def fit_of(outcome):
    """Return the Fit in an outcome."""
    return outcome & LOW_8


@inlined
def reason_of(outcome):
    """Return the Reason in an outcome."""
    return (outcome >> EIGHT) & LOW_8


@inlined
def follows_of(outcome):
    """Return whether the fragment was appended right behind another."""
    return (outcome >> SIXTEEN) & ONE


@inlined
def after_of(outcome):
    """Return the fragment + 1 behind which it goes."""
    return outcome >> THIRTY_TWO


@inlined
def _no(fit, reason):
    return u64(fit) | (u64(reason) << EIGHT)


@inlined
def _overlaps(fit):
    return _no(fit, Reason.FRAGMENT_OVERLAP)


@kernel
def _netfilter_ends(fields, offset, size, more, family):
    """Hold the end of a fragment against what is known of its datagram's, and note it.

    Returns:
        NONE's outcome, 0, or one that refuses.
    """
    end = offset + size
    known = u64(fields.total)
    mild = Fit.END if family == FOUR else Fit.LEAVE_OUT
    if family != FOUR and end > _LONGEST:
        return _no(Fit.LEAVE_OUT, Reason.FRAGMENT_TOO_LARGE)
    if more == ZERO:
        if end < u64(fields.end) or (known != ZERO and end != known - ONE):
            return _overlaps(mild)
        fields.total = end + ONE
        fields.end = end
    elif end & SEVEN != ZERO and family != FOUR:
        return _no(Fit.END, Reason.FRAGMENT)
    elif end > u64(fields.end):
        if known != ZERO:
            return _overlaps(mild)
        fields.end = end
    return _no(mild, Reason.FRAGMENT_TOO_SMALL) if size == ZERO else ZERO


@kernel
def _netfilter(views, fields, offset, size):
    """Find the place of a fragment among runs of those that came in order."""
    end = offset + size
    before = ZERO
    following = u64(fields.first)
    run_start = run_end = ZERO
    for _ in range(FRAGMENTS_MAX):
        if following == ZERO:
            break
        other = fragments.fragment_at(fragments.fragment(views, following - ONE))
        other_start = u64(other.offset)
        if u64(other.follows) == ZERO:
            if run_end > offset:
                break  # this run, which began before, is the one
            if other_start >= end:
                return before << THIRTY_TWO  # it goes between two runs
            run_start = other_start
        run_end = other_start + u64(other.bytes)
        before = following
        following = u64(other.next)
    if before == ZERO:
        return ZERO
    if offset >= run_end:
        return (before << THIRTY_TWO) | (_FOLLOWS if offset == run_end and following == ZERO else ZERO)
    inside = offset >= run_start and end <= run_end
    return _overlaps(Fit.LEAVE_OUT if inside else Fit.END)


@kernel
def _ovs(views, fields, offset, size):
    """Find the place of a fragment: behind those that begin before it."""
    last = offset + size - ONE
    before = ZERO
    following = u64(fields.first)
    for _ in range(FRAGMENTS_MAX):
        if following == ZERO:
            break
        other = fragments.fragment_at(fragments.fragment(views, following - ONE))
        other_first = u64(other.offset)
        other_last = other_first + u64(other.bytes) - ONE
        if (offset >= other_first and offset <= other_last) or (last >= other_first and last <= other_last):
            return _overlaps(Fit.LEAVE_OUT)
        if other_first <= offset:
            before = following
        following = u64(other.next)
    return before << THIRTY_TWO


@kernel
def fit(views, number, offset, size, more, family):
    """Say where a fragment goes in a datagram.

    Args:
        views: record of shm.views.
        number: u64, of the datagram; the store is locked.
        offset: u64, of the fragment's data in the datagram.
        size: u64, bytes of it.
        more: u64, whether there are more behind it.
        family: u64, 4 or 6.

    Returns:
        An outcome; of KEEP `after_of` and `follows_of` say where.
    """
    memory.apart()
    fields = fragments.datagram_at(fragments.datagram(views, number))
    if u64(fields.ovs) != ZERO:
        outcome = _ovs(views, fields, offset, size)
        if fit_of(outcome) == u64(Fit.KEEP):
            if more == ZERO:
                fields.total = offset + size + ONE
            fields.end = max(u64(fields.end), offset + size)
        return outcome
    outcome = _netfilter_ends(fields, offset, size, more, family)
    return outcome if outcome != ZERO else _netfilter(views, fields, offset, size)


@kernel
def insert(views, number, fragment_number, outcome):
    """Put a fragment, whose fields are filled, where an outcome says."""
    fields = fragments.datagram_at(fragments.datagram(views, number))
    at = fragments.fragment(views, fragment_number)
    after = after_of(outcome)
    link = fragments.datagram(views, number) + fragments.FIRST
    if after != ZERO:
        link = fragments.fragment(views, after - ONE) + fragments.NEXT
    fragments.fragment_at(at).follows = follows_of(outcome)
    memory.write32(at + fragments.NEXT, memory.read32(link))
    memory.release32(link, fragment_number + ONE)
    fields.bytes = (u64(fields.bytes) + u64(fragments.fragment_at(at).bytes)) & LOW_32


@kernel
def is_whole(views, number):
    """Return whether a datagram has its first and last fragment, and no gap."""
    fields = fragments.datagram_at(fragments.datagram(views, number))
    if u64(fields.total) == ZERO or u64(fields.bytes) != u64(fields.end):
        return False
    expected = ZERO
    following = u64(fields.first)
    for _ in range(FRAGMENTS_MAX):
        if following == ZERO:
            break
        other = fragments.fragment_at(fragments.fragment(views, following - ONE))
        if u64(other.offset) != expected:
            return False
        expected += u64(other.bytes)
        following = u64(other.next)
    return expected == u64(fields.end)
