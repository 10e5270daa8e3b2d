"""What the tracker would say of a packet, without anything becoming of it: for `trace`.

The packet is parsed and its connection found as in a burst; but what judges it works on a copy of the record, which is
thrown away.  So nothing is put off, counted or made.

Concurrency: beside any number of bursts and sweeps; one record's lock, for as long as it takes to copy it.
"""

from __future__ import annotations

from ..shm.layout import ENTRY_BYTES, EXTENSION, CtState, PacketKind, Setting, offset
from ..shm.reasons import Reason
from . import burst, entries, expectations, index, intents, locks, memory, outcome, stages, track, zones
from .jit import kernel
from .outcome import Outcome
from .stages import key_of, parsed_of
from .verdicts import describe, no_record, refuse, verdict_at
from .words import EIGHT, ONE, ZERO, u64

COPY_BYTES = ENTRY_BYTES + 16
"""Of a record, and of its label."""
_ENTRY = u64(ENTRY_BYTES)
_NONE = u64(Reason.NONE)
_ERROR = u64(PacketKind.ICMP_ERROR)
_NEW, _REL = u64(CtState.NEW) | u64(CtState.TRK), u64(CtState.REL)
_LABEL = offset(EXTENSION, "label")


@kernel
def _copied(views, parsed, now_ms, copy):
    """Copy the record of packet 0's connection.

    Returns:
        The record; MISS where there is none that is still alive, BUSY when its lock was not had.
    """
    memory.apart()
    record = index.find(views, key_of(views, ZERO, u64(parsed.kind)), u64(parsed.hash), u64(parsed.zone))
    if record == index.MISS or record == index.BUSY:
        return record
    entry = entries.address(views, record)
    memory.copy(copy, entry, _ENTRY)
    memory.set_le64(copy + _ENTRY, ZERO)
    memory.set_le64(copy + _ENTRY + EIGHT, ZERO)
    extension = u64(entries.entry_at(entry).extension)
    if extension != ZERO:
        memory.copy(copy + _ENTRY, entries.extension_address(views, extension - ONE) + _LABEL, u64(16))
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    settings = zones.settings_of(views, u64(parsed.zone))
    expired = memory.read64(copy + entries.EXPIRY) <= now_ms and settings & u64(Setting.NO_EXPIRY) == ZERO
    return index.MISS if expired else record


@kernel
def judge(views, frame, now_ms, copy, verdict_address):
    """Say what the tracker would say of a packet.

    Args:
        views: record of shm.views of a participant.
        frame: address of a FRAME.
        now_ms: u64.
        copy: out, address of COPY_BYTES: the record of its connection and its label, as the packet would leave them.
        verdict_address: out, address of its VERDICT; without a record where there would be a new one.
    """
    memory.apart()
    stages.parse(views, frame, ZERO)
    parsed = parsed_of(views, ZERO)
    memory.set_le64(copy + _ENTRY, ZERO)
    memory.set_le64(copy + _ENTRY + EIGHT, ZERO)
    if u64(parsed.reason) != _NONE:
        refuse(parsed, verdict_address, u64(parsed.reason))
        return
    is_error = u64(parsed.kind) == _ERROR
    settings = zones.settings_of(views, u64(parsed.zone))
    record = _copied(views, parsed, now_ms, copy)
    if record == index.BUSY:
        intents.done(views)
        refuse(parsed, verdict_address, u64(Reason.BUSY))
        return
    if record != index.MISS:
        verdict = verdict_at(verdict_address)
        fields = entries.entry_at(copy)
        if is_error:
            inner = burst.way_of(fields, u64(parsed.inner_high_is_source), u64(parsed.can_reply))
            track.related(copy, inner, parsed, verdict)
            describe(copy, record, parsed, now_ms, verdict_address)
            return
        way = burst.way_of(fields, u64(parsed.high_is_source), u64(parsed.can_reply))
        result = track.update(copy, way, parsed, settings, now_ms, verdict)
        if outcome.kind_of(result) != u64(Outcome.RESTART):
            describe(copy, record, parsed, now_ms, verdict_address)
            return
    intents.done(views)
    reason = u64(Reason.ICMP_UNMATCHED) if is_error else track.opens(parsed, settings)
    if reason != _NONE:
        refuse(parsed, verdict_address, reason)
        return
    foretold = ZERO
    if memory.acquire32(zones.expectations_address(views, u64(parsed.zone))) != ZERO:
        foretold = _REL if expectations.find(views, parsed, now_ms) == expectations.FOUND else ZERO
    no_record(verdict_address, parsed, _NEW | foretold, ZERO, ZERO)
