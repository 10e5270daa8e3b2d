"""What the tracker would say of a packet, without anything becoming of it: for `trace`.

The packet is parsed and its connection found as in a burst; but what judges it works on a copy of the record, which is
thrown away.  So nothing is put off, counted or made.  What a packet would do to its connection is seen by having it tracked
(``play``) in a table of its own that has a copy of it (service/rehearsal).

Concurrency: beside any number of bursts and sweeps; one record's lock, for as long as a packet of its own would hold it.
"""

from __future__ import annotations

from ..shm.layout import ENTRY_BYTES, EXTENSION, CtState, PacketKind, Setting, Status, offset
from ..shm.reasons import Reason
from . import (
    awaited,
    burst,
    entries,
    flow_fields,
    index,
    intents,
    locks,
    memory,
    nat,
    outcome,
    sequences,
    stages,
    track,
    zones,
)
from .jit import inlined, kernel
from .outcome import Outcome
from .stages import frame_at, key_of, parsed_of
from .verdicts import describe, no_record, refuse, verdict_at
from .words import EIGHT, ONE, ZERO, u64

COPY_BYTES = ENTRY_BYTES + 16
"""Of a record, and of its label."""
_ENTRY = u64(ENTRY_BYTES)
_NONE = u64(Reason.NONE)
_ERROR = u64(PacketKind.ICMP_ERROR)
_NEW, _REL = u64(CtState.NEW) | u64(CtState.TRK), u64(CtState.REL)
_LABEL = offset(EXTENSION, "label")
_OFFSETS = u64(Status.SEQUENCE_OFFSETS)
_TRANSLATED = u64(CtState.SNAT) | u64(CtState.DNAT)


@inlined
def _copied(views, entry, copy):
    """Copy a record whose lock is held, and its label."""
    memory.copy(copy, entry, _ENTRY)
    extension = u64(entries.entry_at(entry).extension)
    if extension != ZERO:
        memory.copy(copy + _ENTRY, entries.extension_address(views, extension - ONE) + _LABEL, u64(16))


@kernel
def _judge_found(views, frame, parsed, record, now_ms, copy, verdict_address):
    """Judge packet 0 by a copy of its connection, whose lock is held; returns whether it is of that connection."""
    memory.apart()
    entry = entries.address(views, record)
    _copied(views, entry, copy)
    settings = zones.settings_of(views, u64(parsed.zone))
    if memory.read64(copy + entries.EXPIRY) <= now_ms and settings & u64(Setting.NO_EXPIRY) == ZERO:
        return False
    is_error = u64(parsed.kind) == _ERROR
    fields = entries.entry_at(copy)
    high_is_source = u64(parsed.inner_high_is_source) if is_error else u64(parsed.high_is_source)
    translated = u64(fields.status) & nat.TRANSLATED != ZERO
    seen, has_offsets = ZERO, False
    if translated:
        seen = nat.see(views, entry, key_of(views, ZERO, u64(parsed.kind)), high_is_source != ZERO)
        way = nat.way_of(seen)
        has_offsets = u64(fields.status) & _OFFSETS != ZERO and not is_error
        if has_offsets:
            sequences.hear(views, parsed, entry, way, nat.is_sent(seen))
    else:
        way = burst.way_of(fields, high_is_source, u64(parsed.can_reply))
    verdict = verdict_at(verdict_address)
    bits = ZERO
    if is_error:
        track.related(copy, way, parsed, verdict_address)
        if translated:
            bits = nat.send_error_on(views, frame, parsed, entry, seen)
    else:
        kind = outcome.kind_of(track.update(copy, way, parsed, settings, now_ms, verdict_address))
        if has_offsets:
            sequences.forget(views, parsed)
        if kind == u64(Outcome.RESTART):
            return False
        if translated and kind != u64(Outcome.INVALID):
            bits = nat.send_on(views, frame, parsed, entry, seen)
    describe(copy, record, now_ms, verdict_address)
    verdict.ct_state = u64(verdict.ct_state) | bits
    return True


@kernel
def judge(views, frame_address, now_ms, copy, fields, verdict_address):
    """Say what the tracker would say of a packet.

    Args:
        views: record of shm.views of a participant.
        frame_address: of a FRAME, whose bytes are written where its connection, and its ACTION, have it translated.
        now_ms: u64.
        copy: out, address of COPY_BYTES: the record of its connection and its label, as the packet would leave them.
        fields: address of its FIELDS, read anew where it was translated.
        verdict_address: out, address of its VERDICT; without a record where there would be a new one.
    """
    memory.apart()
    stages.parse(views, frame_address, views.parsed)
    frame, parsed = frame_at(frame_address), parsed_of(views, ZERO)
    memory.set_le64(copy + _ENTRY, ZERO)
    memory.set_le64(copy + _ENTRY + EIGHT, ZERO)
    if u64(parsed.reason) != _NONE:
        refuse(parsed, verdict_address, u64(parsed.reason))
        return
    record = index.find(views, key_of(views, ZERO, u64(parsed.kind)), u64(parsed.hash), u64(parsed.zone))
    if record == index.BUSY:
        intents.done(views)
        refuse(parsed, verdict_address, u64(Reason.BUSY))
        return
    if record != index.MISS:
        found = _judge_found(views, frame, parsed, record, now_ms, copy, verdict_address)
        locks.drop(entries.address(views, record) + entries.LOCK)
        intents.done(views)
        if found:
            if u64(verdict_at(verdict_address).ct_state) & _TRANSLATED != ZERO:
                flow_fields.read(frame, u64(flow_fields.fields_at(fields).in_port), fields)
            return
        memory.set_le64(copy + _ENTRY, ZERO)
        memory.set_le64(copy + _ENTRY + EIGHT, ZERO)
    intents.done(views)
    reason = u64(Reason.ICMP_UNMATCHED)
    if u64(parsed.kind) != _ERROR:
        reason = track.opens(parsed, zones.settings_of(views, u64(parsed.zone)))
    if reason != _NONE:
        refuse(parsed, verdict_address, reason)
        return
    foretold = ZERO
    if memory.acquire32(zones.expectations_address(views, u64(parsed.zone))) != ZERO:
        foretold = _REL if awaited.find(views, parsed, now_ms) == awaited.FOUND else ZERO
    no_record(verdict_address, parsed, _NEW | foretold, ZERO, ZERO)


@kernel
def play(views, frame_address, now_ms, fields, verdict_address):
    """Track a packet, and read what rules can ask of it then.

    Args:
        views: record of shm.views of a participant.
        frame_address: of a FRAME, whose bytes are written where it goes on translated.
        now_ms: u64.
        fields: address of its FIELDS, read anew.
        verdict_address: out, address of its VERDICT.
    """
    burst.track_burst(views, frame_address, ONE, now_ms, verdict_address)
    flow_fields.read(frame_at(frame_address), u64(flow_fields.fields_at(fields).in_port), fields)
