"""The spine between table and protocols: may a packet open a connection, how does one begin, what does a packet do to it.

The rules below are those of the `netfilter` profile: states, windows and verdicts of Linux nf_conntrack.  A connection that
begins in a zone of the `ovs` profile has its own for all its life: kernels/ovs.

    new          the opener's packet, as long as no reply was seen
    est          a reply; and every packet of the opener after one
    rpl          travels against the opener
    rel          an ICMP error about the connection; what was foretold, until a reply was seen
    inv          not part of it
"""

from __future__ import annotations

from ..shm.layout import ENTRY, CtState, PacketKind, Setting, Status, VerdictFlag, Way
from ..shm.reasons import Reason
from . import flow_states, icmp, memory, outcome, ovs, sctp, tcp
from .jit import inlined, kernel
from .memory import record_at
from .outcome import Outcome
from .verdicts import say
from .words import ONE, ZERO, u64

_TCP, _ICMP_QUERY, _SCTP = u64(PacketKind.TCP), u64(PacketKind.ICMP_QUERY), u64(PacketKind.SCTP)
_NONE = u64(Reason.NONE)
_SEEN_REPLY, _STATUS_ASSURED = u64(Status.SEEN_REPLY), u64(Status.ASSURED)
_FIXED_TIMEOUT, _HELPER = u64(Status.FIXED_TIMEOUT), u64(Status.HELPER)
_RELATED = u64(Status.RELATED)
_UNUSUAL = _FIXED_TIMEOUT | _HELPER | _RELATED
_OVS, _OVS_ZONE = u64(Status.OVS), u64(Setting.OVS)
_RESTART, _INVALID = u64(Outcome.RESTART), u64(Outcome.INVALID)
_COMMITTED, _ASSURED = u64(VerdictFlag.COMMITTED), u64(VerdictFlag.ASSURED)

_CT_NEW = u64(CtState.TRK) | u64(CtState.NEW)
_NEW, _REL, _RPL = u64(CtState.NEW), u64(CtState.REL), u64(CtState.RPL)
assert CtState.EST == CtState.NEW + 1 and Way.REPLY == 1
_CT_INVALID = u64(CtState.TRK) | u64(CtState.INV)

entry_at = record_at(ENTRY)
related = icmp.related


@inlined
def opens(parsed, settings):
    """Return why a packet that belongs to no connection may not open one, Reason.NONE if it may.

    Args:
        parsed: PARSED with reason NONE, of kind FLOW, TCP, SCTP or ICMP_QUERY.
        settings: u64, Setting bits of the zone.
    """
    if settings & _OVS_ZONE != ZERO:
        return ovs.opens(parsed)
    kind = u64(parsed.kind)
    if kind == _TCP:
        return tcp.opens(parsed, settings)
    if kind == _ICMP_QUERY:
        return icmp.opens(parsed)
    if kind == _SCTP:
        return sctp.opens(parsed)
    return _NONE


@inlined
def begin(entry, parsed, settings):
    """Write what the protocol remembers into the record of a new connection.

    Args:
        entry: u64, address of an ENTRY that is NEW and the caller's own; key, status and times are the caller's.
        parsed: PARSED of the packet, for which ``opens`` returned NONE.
        settings: u64, Setting bits of the zone.

    Returns:
        u64, the term of its expiry (kernels/outcome).
    """
    if settings & _OVS_ZONE != ZERO:
        return ovs.begin(entry, parsed)
    if u64(parsed.kind) == _TCP:
        return tcp.begin(entry, parsed)
    if u64(parsed.kind) == _SCTP:
        return sctp.begin(entry, parsed)
    return flow_states.begin(entry, parsed)


@kernel
def _unusual(status, result):
    """Return the outcome of a packet of a connection that has a helper, or a timeout that stays."""
    memory.seldom()
    if status & _FIXED_TIMEOUT != ZERO:
        result |= outcome.KEEP_EXPIRY
    if status & _HELPER != ZERO:
        result |= outcome.HELPED
    return result


@kernel
def update(entry, way, parsed, settings, now_ms, verdict_address):
    """Follow one packet of a connection, and say what it is.

    Args:
        entry: u64, address of a LIVE ENTRY with the packet's key.
        way: u64, Way of the packet.
        parsed: PARSED with reason NONE, of kind FLOW, TCP, SCTP or ICMP_QUERY.
        settings: u64, Setting bits of the zone.
        now_ms: u64.
        verdict_address: out, VERDICT: the first word; untouched when the outcome is RESTART.

    Returns:
        u64, an outcome (kernels/outcome): what the caller does with expiry, counts and record.

    Concurrency:
        The record's lock is held.

    Source:
        Reference behaviour of Linux 6.18's nf_conntrack.
    """
    record = entry_at(entry)
    if u64(record.status) & _OVS != ZERO:
        return ovs.update(entry, way, parsed, settings, verdict_address)
    if u64(parsed.kind) == _TCP:
        result = tcp.update(entry, way, parsed, settings, now_ms)
    elif u64(parsed.kind) == _SCTP:
        result = sctp.update(entry, way, parsed)
    else:
        result = flow_states.update(entry, way, parsed, now_ms)
    kind = outcome.kind_of(result)
    if kind == _RESTART:
        return result

    status = u64(record.status)
    reason = outcome.reason_of(result)
    state = u64(record.state)
    if kind == _INVALID:
        say(verdict_address, parsed, _CT_INVALID, reason, way, ZERO, state)
        return result | outcome.KEEP_EXPIRY if status & _FIXED_TIMEOUT != ZERO else result
    # without branches, for the way is as good as random: NEW + 1 is EST, and a reply is both EST and RPL
    is_established = way | ((status // _SEEN_REPLY) & ONE)
    ct_state = _CT_NEW + is_established + way * _RPL
    record.status = status | (way * _SEEN_REPLY)
    flags = _COMMITTED | ((status // _STATUS_ASSURED) & ONE) * _ASSURED
    if status & _UNUSUAL != ZERO:
        result = _unusual(status, result)
        # what was foretold is related until a reply was seen
        if status & _RELATED != ZERO and ct_state & _NEW != ZERO:
            ct_state |= _REL
    say(verdict_address, parsed, ct_state, reason, way, flags, state)
    return result
