"""Verdicts, written by the word: what a packet is told, whether or not it has a connection."""

from __future__ import annotations

from ..shm.layout import NO_RECORD, VERDICT, CtState, VerdictFlag, offset
from ..shm.reasons import Reason
from . import entries, memory
from .jit import inlined, kernel
from .words import EIGHT, LOW_32, SIXTEEN, THIRTY_TWO, ZERO, u64

verdict_at = memory.record_at(VERDICT)

_WAY_SHIFT = EIGHT * offset(VERDICT, "direction")
_FLAGS_SHIFT = EIGHT * offset(VERDICT, "flags")
_PROTOCOL_SHIFT = EIGHT * offset(VERDICT, "protocol")
_STATE_SHIFT = EIGHT * offset(VERDICT, "state")
assert [int(offset(VERDICT, field)) for field in ("ct_state", "reason", "zone", "record", "mark")] == [0, 1, 4, 8, 16]


@inlined
def say(verdict_address, parsed, ct_state, reason, way, flags, state):
    """Write what a verdict says of the packet itself: its first word.

    In one store, for it is read again soon, and a load of bytes that came by several stores has to wait for all of them.
    """
    about = ct_state | (reason << EIGHT) | (way << _WAY_SHIFT) | (flags << _FLAGS_SHIFT) | (state << _STATE_SHIFT)
    about |= (u64(parsed.zone) << THIRTY_TWO) | (u64(parsed.protocol) << _PROTOCOL_SHIFT)
    memory.set_le64(verdict_address, about)


@inlined
def no_record(verdict_address, parsed, ct_state, reason, flags):
    """Write the verdict of a packet that has no connection."""
    say(verdict_address, parsed, ct_state, reason, ZERO, flags, ZERO)
    memory.set_le64(verdict_address + EIGHT, u64(NO_RECORD))
    memory.set_le64(verdict_address + SIXTEEN, ZERO)


@kernel
def refuse(parsed, verdict_address, reason):
    """The verdict of a packet that is not tracked: not IP, never tracked, or invalid."""
    if reason == u64(Reason.NOIP):
        no_record(verdict_address, parsed, ZERO, reason, u64(VerdictFlag.NOIP))
    elif reason == u64(Reason.NOT_TRACKED):
        no_record(verdict_address, parsed, ZERO, reason, u64(VerdictFlag.UNTRACKED))
    else:
        no_record(verdict_address, parsed, u64(CtState.INV) | u64(CtState.TRK), reason, ZERO)


@inlined
def describe(entry, record, now_ms, verdict_address):
    """Write what a verdict says of its connection: its other two words.  The record's lock is held."""
    incarnation = entries.incarnation_of(memory.read64(entry + entries.LIFE))
    expiry_ms = memory.read64(entry + entries.EXPIRY)
    remaining_ms = min(expiry_ms - now_ms, LOW_32) if expiry_ms > now_ms else ZERO
    memory.set_le64(verdict_address + EIGHT, record | (incarnation << THIRTY_TWO))
    memory.set_le64(verdict_address + SIXTEEN, u64(entries.entry_at(entry).mark) | (remaining_ms << THIRTY_TWO))
