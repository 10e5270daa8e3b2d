"""The `ovs` profile behind kernels/track: what Open vSwitch's userspace connection tracker says of a packet.

    new          nobody has answered yet: the first packet, and for most protocols all of its side before an answer; a SYN
                 again, from either side
    est          any other packet of the connection, so for TCP the opener's second segment already
    rpl          with est: travels against the opener
    rel          beside new or est, on every packet of a connection that was foretold
    inv          not part of it; also the segments that only the windows refuse

Of a zone's settings only ``seq_check`` and ``checksum`` mean something here: Open vSwitch has no others.
"""

from __future__ import annotations

from ..shm.layout import ENTRY, CtState, PacketKind, Status, VerdictFlag
from ..shm.reasons import Reason
from . import icmp, memory, outcome, ovs_flows, ovs_tcp
from .jit import kernel
from .outcome import Outcome
from .verdicts import say
from .words import ZERO, u64

_TCP, _ICMP_QUERY = u64(PacketKind.TCP), u64(PacketKind.ICMP_QUERY)
_NONE = u64(Reason.NONE)
_OVS, _SEEN_REPLY = u64(Status.OVS), u64(Status.SEEN_REPLY)
_FIXED_TIMEOUT, _FORETOLD, _HELPER = u64(Status.FIXED_TIMEOUT), u64(Status.RELATED), u64(Status.HELPER)
_RESTART, _INVALID = u64(Outcome.RESTART), u64(Outcome.INVALID)
_COMMITTED = u64(VerdictFlag.COMMITTED)
_CT_NEW = u64(CtState.TRK) | u64(CtState.NEW)
_CT_ESTABLISHED = u64(CtState.TRK) | u64(CtState.EST)
_CT_INVALID = u64(CtState.TRK) | u64(CtState.INV)
_REL, _RPL = u64(CtState.REL), u64(CtState.RPL)

entry_at = memory.record_at(ENTRY)


@kernel
def opens(parsed):
    """Return why a packet that belongs to no connection may not open one; as ``track.opens``."""
    memory.apart()
    kind = u64(parsed.kind)
    if kind == _TCP:
        return ovs_tcp.opens(parsed)
    if kind == _ICMP_QUERY:
        return icmp.opens(parsed)
    return _NONE


@kernel
def begin(entry, parsed):
    """Write what the protocol remembers into the record of a new connection; as ``track.begin``."""
    memory.apart()
    record = entry_at(entry)
    record.status = u64(record.status) | _OVS
    if u64(parsed.kind) == _TCP:
        return ovs_tcp.begin(entry, parsed)
    return ovs_flows.begin(entry, parsed)


@kernel
def update(entry, way, parsed, settings, verdict_address):
    """Follow one packet of a connection that has Status.OVS, and say what it is; as ``track.update``."""
    memory.apart()
    record = entry_at(entry)
    if u64(parsed.kind) == _TCP:
        result = ovs_tcp.update(entry, way, parsed, settings)
    else:
        result = ovs_flows.update(entry, way, parsed)
    kind = outcome.kind_of(result)
    if kind == _RESTART:
        return result

    status = u64(record.status)
    if status & _FIXED_TIMEOUT != ZERO:
        result |= outcome.KEEP_EXPIRY
    reason = outcome.reason_of(result)
    if kind == _INVALID:
        say(verdict_address, parsed, _CT_INVALID, reason, way, ZERO, u64(record.state))
        return result
    if result & outcome.NEW_AGAIN != ZERO:
        ct_state = _CT_NEW
    else:
        ct_state = _CT_ESTABLISHED + way * _RPL
    if status & _FORETOLD != ZERO:
        ct_state |= _REL
    say(verdict_address, parsed, ct_state, reason, way, _COMMITTED, u64(record.state))
    record.status = status | (way * _SEEN_REPLY)
    if status & _HELPER != ZERO:
        result |= outcome.HELPED
    return result
