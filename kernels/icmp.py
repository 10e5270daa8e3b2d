"""What ICMP asks and answers: which messages open a flow, and what an error about a connection is called.

A request opens a flow of (addresses, identifier, type); the parser gives an answer the key of its request, so an answer
finds it or nothing.  An error is about the connection of the packet it quotes: *related*, in the direction in which it
travels itself, which is against the quoted packet.  It changes nothing, for anybody may send one (RFC 5927).
"""

from __future__ import annotations

from ..shm.layout import ENTRY, CtState, Status, VerdictFlag, Way
from ..shm.reasons import Reason
from . import icmp_types, memory
from .icmp_types import Role
from .jit import inlined, kernel
from .verdicts import say
from .words import LOW_8, ONE, ZERO, u64

_TYPE_SHIFT = u64(24)
_REQUEST = u64(Role.REQUEST)
_NONE = u64(Reason.NONE)
_UNMATCHED = u64(Reason.ICMP_UNMATCHED)
_ASSURED = u64(Status.ASSURED)
_RELATED = u64(CtState.TRK) | u64(CtState.REL)
_RELATED_REPLY = _RELATED | u64(CtState.RPL)
_COMMITTED, _VERDICT_ASSURED = u64(VerdictFlag.COMMITTED), u64(VerdictFlag.ASSURED)
_ORIG = u64(Way.ORIG)

entry_at = memory.record_at(ENTRY)


@inlined
def opens(parsed):
    """Return why a query may not open a flow, Reason.NONE if it may: an answer to no request does not."""
    # the parser has refused what its profile does not know, so any that knows all will do
    found = icmp_types.find(u64(parsed.family), (u64(parsed.icmp_word) >> _TYPE_SHIFT) & LOW_8, ZERO)
    return _NONE if icmp_types.role(found) == _REQUEST else _UNMATCHED


@kernel
def related(entry, inner_way, parsed, verdict_address):
    """Describe an error about a connection.

    Args:
        entry: u64, address of the ENTRY of the quoted packet.
        inner_way: u64, Way of the quoted packet.
        parsed: PARSED of the error.
        verdict_address: out, VERDICT: the first word.

    Concurrency:
        The record's lock is held.
    """
    memory.seldom()
    record = entry_at(entry)
    ct_state = _RELATED_REPLY if inner_way == _ORIG else _RELATED
    flags = _COMMITTED | _VERDICT_ASSURED if u64(record.status) & _ASSURED != ZERO else _COMMITTED
    say(verdict_address, parsed, ct_state, _NONE, ONE - inner_way, flags, u64(record.state))
