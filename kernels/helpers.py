"""Helpers: which connection has one, and what becomes of what it has read.

A rule says that connections of a zone to a port get a helper.  It is given when a connection is made, stands in its
extension, and sees each packet of it from then on, the first one too.  Connections without one never come here.

    assign   in state NEW, under the record's lock: what a new connection takes over from its expectation, and its helper
    follow   after a packet was judged: its helper reads it under the record's lock; what it foretells is made after that

A helper's room has a kernel ``read``: it gets the readable bytes of the payload and nothing beyond, remembers what it
must in the extension, and says what it found in one word (kernels/foretold).

Where a packet goes on translated, what its message says is too.  What was foretold is made first, at ports that are free;
then the helper's ``write`` says them (kernels/messages); then the sequence offsets are written under the record's lock
(kernels/sequences).  A message for which one of these cannot be done makes its packet invalid.
"""

from __future__ import annotations

import numpy as np

from ..shm.layout import (
    ENTRY,
    EXPECTATION,
    EXPECTATION_BYTES,
    EXPECTATION_TABLE,
    EXTENSION,
    RULE_HELPER_SHIFT,
    RULE_IN_USE,
    RULE_PROTOCOL_SHIFT,
    RULE_ZONE_SHIFT,
    CtState,
    ExpectationFlag,
    Foretold,
    Helper,
    Life,
    PacketKind,
    Setting,
    Status,
    Step,
    offset,
)
from ..shm.reasons import Reason
from . import (
    counters,
    entries,
    expectations,
    expecting,
    foretold,
    helper_ftp,
    helper_ftp_ovs,
    helper_irc,
    helper_pptp,
    helper_sip,
    helper_tftp,
    intents,
    locks,
    memory,
    messages,
    nat,
    samples,
    sequences,
    tuples,
)
from .endpoints import TCP
from .jit import inlined, kernel
from .verdicts import verdict_at
from .words import EIGHT, FOUR, LOW_8, LOW_16, ONE, SIXTEEN, THIRTY_TWO, TWO, ZERO, u64

OVS_MOST = u64(64)
"""Expectations of a connection in the `ovs` profile, where Open vSwitch has no limit."""

_HELPERS = max(Helper) + 1
MOST = np.zeros((_HELPERS, max(Foretold) + 1), np.uint64)
"""u64[Helper, Foretold]: the most expectations of a kind that a connection may have, as Linux's helpers have it."""
EXPIRY_MS = np.zeros(_HELPERS, np.uint64)
"""u64[Helper]: how long an expectation waits for its connection in the `netfilter` profile."""
MOST[Helper.FTP, Foretold.DATA], EXPIRY_MS[Helper.FTP] = 1, 300_000
MOST[Helper.TFTP, Foretold.DATA], EXPIRY_MS[Helper.TFTP] = 1, 300_000
MOST[Helper.SIP, Foretold.DATA], EXPIRY_MS[Helper.SIP] = 1, 180_000
MOST[Helper.SIP, Foretold.AUDIO] = MOST[Helper.SIP, Foretold.VIDEO] = 4
MOST[Helper.SIP, Foretold.IMAGE] = 2
MOST[Helper.IRC, Foretold.DATA], EXPIRY_MS[Helper.IRC] = 8, 300_000
MOST[Helper.PPTP, Foretold.DATA], EXPIRY_MS[Helper.PPTP] = 2, 300_000
MOST.setflags(write=False)
EXPIRY_MS.setflags(write=False)

_RULES = offset(EXPECTATION_TABLE, "rules")
_STATE = offset(EXTENSION, "helper_state")
_LABEL = offset(EXTENSION, "label")
_PARENT = offset(ENTRY, "parent")
_EXPECTED_LABEL = offset(EXPECTATION, "label")
_SIZE = u64(EXPECTATION_BYTES)
_RULE_IN_USE = u64(RULE_IN_USE)
_HELPER_SHIFT, _PROTOCOL_SHIFT, _ZONE_SHIFT = u64(RULE_HELPER_SHIFT), u64(RULE_PROTOCOL_SHIFT), u64(RULE_ZONE_SHIFT)
_NO_HELPER = ~(LOW_8 << _HELPER_SHIFT)
_STATUS_HELPER = u64(Status.HELPER)
_FIXED_TIMEOUT = u64(Status.FIXED_TIMEOUT)
_STATUS_RELATED, _STATUS_OVS = u64(Status.RELATED), u64(Status.OVS)
_SETTING_HELPERS, _SETTING_OVS = u64(Setting.HELPERS), u64(Setting.OVS)
_TCP_KIND = u64(PacketKind.TCP)
_UDP_BYTES = u64(8)
_FTP, _TFTP = u64(Helper.FTP), u64(Helper.TFTP)
_SIP, _IRC, _PPTP = u64(Helper.SIP), u64(Helper.IRC), u64(Helper.PPTP)
_PERMANENT, _NAT_DESTINATION = u64(ExpectationFlag.PERMANENT), u64(ExpectationFlag.NAT_DESTINATION)
_DATA = u64(Foretold.DATA)
PORTS_TRIED_MAX = 128
"""Ports tried for an expectation where others have the one that its parent names."""
_PORT_MIN, _PORT_MAX = u64(1024), LOW_16
_INVALID = u64(CtState.INV) | u64(CtState.TRK)


# ------------------------------------------------------------------------------------------------ who has one
@kernel
def rule_for(views, zone, protocol, port):
    """Return the Helper of new connections of a zone to a port, NONE (0) where no rule says one."""
    wanted = _RULE_IN_USE | (protocol << _PROTOCOL_SHIFT) | (zone << _ZONE_SHIFT) | port
    for i in range(memory.acquire32(views.expectation_table + _RULES)):
        rule = memory.acquire64(views.helper_rules + u64(8 * i))
        if rule & _NO_HELPER == wanted:
            return (rule >> _HELPER_SHIFT) & LOW_8
    return ZERO


@kernel
def _helper_of(views, parsed, settings):
    """Return the Helper of the connection that a packet opens.

    In the `ovs` profile FTP is known by either port, for whoever is heard first is the opener there.
    """
    source, destination = foretold.ports(parsed)
    zone, protocol = u64(parsed.zone), u64(parsed.protocol)
    helper = rule_for(views, zone, protocol, destination)
    if settings & _SETTING_OVS == ZERO:
        return helper
    if helper == ZERO and protocol == TCP:
        helper = rule_for(views, zone, protocol, source)
    return helper if helper == _FTP or helper == _TFTP else ZERO


@kernel
def assign(views, record, entry, parsed, settings, expected, helper):
    """Write what a new connection takes over from its expectation, and give it its helper.

    Args:
        record, entry: a NEW record, its lock held; the intent names it (ALLOC).
        settings: how its zone is set.
        expected: address of the EXPECTATION that foretold it, 0 for none.
        helper: Helper that it shall have whatever the zone's rules say, 0 for none.

    A helper without an extension left for it is none; that is counted.
    """
    memory.seldom()
    fields = entries.entry_at(entry)
    has_label = False
    if expected != ZERO:
        fields.status = u64(fields.status) | _STATUS_RELATED
        memory.set_le64(entry + _PARENT, memory.le64(expected + expectations.PARENT))
        fields.mark = u64(expectations.expectation_at(expected).mark)
        has_label = (memory.le64(expected + _EXPECTED_LABEL) | memory.le64(expected + _EXPECTED_LABEL + EIGHT)) != ZERO
        if helper == ZERO:
            helper = u64(expectations.expectation_at(expected).child_helper)
    if helper == ZERO and settings & _SETTING_HELPERS != ZERO:
        helper = _helper_of(views, parsed, settings)
    if helper == ZERO and not has_label:
        return
    if not entries.with_extension(views, record):
        counters.count(views, Reason.EXTENSION_FULL)
        return
    extension = entries.extension_of(views, entry)
    if has_label:
        memory.copy(extension + _LABEL, expected + _EXPECTED_LABEL, SIXTEEN)
    if helper != ZERO:
        entries.extension_at(extension).helper = helper
        fields.status = u64(fields.status) | _STATUS_HELPER


# ------------------------------------------------------------------------------------------------ what it reads
@inlined
def _payload(frame, parsed):
    """Return the addresses of a payload's first byte, of what is behind it, and of what is behind its captured part."""
    header = u64(parsed.l4_bytes) - u64(parsed.payload_bytes) if u64(parsed.kind) == _TCP_KIND else _UDP_BYTES
    begin = u64(parsed.l4) + header
    whole_end = begin + u64(parsed.payload_bytes)
    return begin, whole_end, min(whole_end, u64(frame.address) + u64(frame.captured_bytes))


@kernel
def _read(views, record, entry, frame, parsed, way, translates, now_ms):
    """Let the helper of a connection, whose lock is held, read a packet; returns what foretold describes."""
    state = entries.extension_of(views, entry) + _STATE
    helper = u64(entries.extension_at(state - _STATE).helper)
    begin, whole_end, end = _payload(frame, parsed)
    if end <= begin:
        return foretold.NOTHING
    if helper == _TFTP:
        return helper_tftp.read(views, entry, begin, end)
    if helper == _FTP and u64(entries.entry_at(entry).status) & _STATUS_OVS != ZERO:
        return helper_ftp_ovs.read(views, entry, way, u64(parsed.family), begin, end)
    if helper == _FTP and end == whole_end:
        return helper_ftp.read(views, entry, state, parsed, way, translates, begin, end)
    if helper == _SIP:
        if u64(entries.entry_at(entry).status) & _FIXED_TIMEOUT == ZERO:
            entries.set_expiry(views, record, entry, now_ms + helper_sip.KEPT_MS)
        return helper_sip.read(views, entry, state, way, u64(parsed.family), begin, end, now_ms)
    if helper == _IRC:
        return helper_irc.read(views, entry, way, u64(parsed.family), begin, end)
    if helper == _PPTP:
        return helper_pptp.read(views, entry, state, way, translates, begin, end)
    return foretold.NOTHING


@kernel
def _complete(views, record, incarnation, entry, helper, count, now_ms):
    """Write into each of the expectations to be made what all of one parent have in common; its lock is held."""
    fields = entries.entry_at(entry)
    extension = entries.extension_of(views, entry)
    last = memory.read64(entry + tuples.ENTRY_KEY + tuples.LAST)
    zone_and_family = (last & (LOW_16 << SIXTEEN)) | (last & LOW_8)
    is_ovs = u64(fields.status) & _STATUS_OVS != ZERO
    for i in range(count):
        at = foretold.address(views, u64(i))
        e = expectations.expectation_at(at)
        memory.set_le64(at + expectations.LAST, memory.le64(at + expectations.LAST) | zone_and_family)
        memory.set_le64(at + expectations.PARENT, (incarnation << THIRTY_TWO) | record)
        e.mark = fields.mark
        e.helper = helper
        if is_ovs:
            e.flags = u64(e.flags) | _PERMANENT
            e.expiry_ms = expectations.NEVER
            memory.copy(at + _EXPECTED_LABEL, extension + _LABEL, SIXTEEN)
        elif u64(e.expiry_ms) == ZERO:
            e.expiry_ms = now_ms + EXPIRY_MS[helper]


@inlined
def _expectation(views, i):
    return expectations.expectation_at(foretold.address(views, i))


@kernel
def _add(views, i, size, may_move, most, now_ms):
    """Make ``size`` expectations from the ``i``-th on, which go to ports one after the other; returns a Reason.

    Where another parent's are in the way they go to the next ports that are free, if the message can say so.
    """
    reason = u64(Reason.CLASH)
    for _ in range(PORTS_TRIED_MAX):
        reason = expecting.add(views, foretold.address(views, i), most, now_ms)
        if reason == u64(Reason.NONE) and size == TWO:
            reason = expecting.add(views, foretold.address(views, i + ONE), most, now_ms)
            if reason == u64(Reason.CLASH):
                expecting.withdraw(views, foretold.address(views, i))
        if reason != u64(Reason.CLASH) or not may_move:
            break
        port = foretold.port_of(views, i) + size
        port = port if port + size <= _PORT_MAX + ONE else _PORT_MIN
        for k in range(size):
            foretold.move(views, i + u64(k), port + u64(k))
    return reason


@kernel
def _make(views, count, is_ovs, translates, now_ms):
    """Make the expectations that were read; returns why one could not be, NONE when all could.

    In the `ovs` profile a packet is as good without: what had no room is only counted.
    """
    i = ZERO
    for _ in range(count):
        if i >= count:
            break
        e = _expectation(views, i)
        helper, kind = u64(e.helper), u64(e.kind)
        is_named = helper == _FTP or helper == _IRC or (helper == _SIP and kind != _DATA)
        may_move = translates and not is_ovs and is_named and u64(e.flags) & _NAT_DESTINATION != ZERO
        size = TWO if may_move and helper == _SIP else ONE
        reason = _add(views, i, size, may_move, OVS_MOST if is_ovs else MOST[helper, kind], now_ms)
        i += size
        if is_ovs:
            if reason == u64(Reason.EXPECTATIONS_FULL):
                counters.count(views, reason)
        elif reason != u64(Reason.NONE):
            if reason != u64(Reason.CLASH):
                return reason
            if helper != _SIP or may_move:  # of a call, several connections may tell the same
                return u64(Reason.HELPER_REFUSED)
    return u64(Reason.NONE)


# ------------------------------------------------------------------------------------------------ what it says
@kernel
def _correct(views, record, incarnation, way, seq, longer):
    """Write down by how much a segment's payload became longer; returns BUSY when that was not possible, else NONE."""
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    if not locks.take(entry + entries.LOCK, views.me):
        intents.done(views)
        return u64(Reason.BUSY)
    if memory.acquire64(entry + entries.LIFE) == entries.life(Life.LIVE, ZERO, incarnation):
        sequences.correct(views, entry, way, seq, longer)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    return u64(Reason.NONE)


@kernel
def _say(views, frame, parsed, helper, way, result, record, incarnation):
    """Have a message say what is right where it goes; returns a Reason."""
    begin, whole_end, end = _payload(frame, parsed)
    count = foretold.count_of(result)
    family = u64(parsed.family)
    if end <= begin:
        return u64(Reason.NONE)
    if helper == _SIP:
        helper_sip.write(views, family, count, begin, end)
    elif count != ZERO and u64(_expectation(views, ZERO).flags) & _NAT_DESTINATION != ZERO:
        if helper == _FTP:
            helper_ftp.write(views, family, way, begin, end)
        elif helper == _IRC:
            helper_irc.write(views, begin, end)
    size = end - begin
    length = messages.length(views)
    if length == ZERO or messages.says_the_same(views, size):
        return u64(Reason.NONE)
    reason = messages.replace(views, frame, parsed, end if end == whole_end else ZERO)
    if reason != u64(Reason.NONE):
        return reason
    counters.count(views, Reason.HELPER_REWRITTEN)
    if length == size or u64(parsed.kind) != _TCP_KIND:
        return reason
    return _correct(views, record, incarnation, way, u64(parsed.seq), length - size)


@kernel
def follow(views, frame, parsed, seen, now_ms, verdict_address):
    """Let the helper of a packet's connection read it, after it was judged, and make what it foretells.

    Args:
        frame: FRAME record; its bytes and lengths are written where the packet goes on translated.
        parsed: PARSED of it.
        seen: how it was found (kernels/nat); what is translated already is not read.
        verdict_address: of its VERDICT, which names the connection.  A message that cannot be right makes it invalid:
            in the `netfilter` profile that alone, as Linux drops such a packet; in the `ovs` profile beside what it was.

    Concurrency:
        Nothing is held.  Takes the record's lock, and after that the expectations'.
    """
    memory.seldom()
    record, incarnation = memory.le32(verdict_address + EIGHT), memory.le32(verdict_address + EIGHT + FOUR)
    if record == entries.NONE or not nat.is_sent(seen):
        return
    entry = entries.address(views, record)
    fields = entries.entry_at(entry)
    if u64(fields.status) & _STATUS_HELPER == ZERO:  # it never gets one later
        return
    intents.set_record(views, record, Step.UPDATE)
    if not locks.take(entry + entries.LOCK, views.me):
        intents.done(views)
        return
    result, helper, way = foretold.NOTHING, ZERO, u64(verdict_at(verdict_address).direction)
    translates = nat.was_translated(verdict_at(verdict_address))
    is_alive = memory.acquire64(entry + entries.LIFE) == entries.life(Life.LIVE, ZERO, incarnation)
    is_ovs = u64(fields.status) & _STATUS_OVS != ZERO
    if is_alive and u64(fields.status) & _STATUS_HELPER != ZERO:
        if translates:
            messages.describe(views, entry, way)
        result = _read(views, record, entry, frame, parsed, way, translates, now_ms)
        helper = u64(entries.extension_at(entries.extension_of(views, entry)).helper)
        _complete(views, record, incarnation, entry, helper, foretold.count_of(result), now_ms)
        if result & foretold.REFUSED != ZERO:
            samples.remember(views, entry, record)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    if result == foretold.NOTHING and not translates:
        return
    if foretold.forgotten(result) != ZERO:
        expecting.remove_of(views, (incarnation << THIRTY_TWO) | record, foretold.forgotten(result))
    reason = u64(Reason.HELPER_SPLIT) if result & foretold.SPLIT == foretold.SPLIT else u64(Reason.HELPER_REFUSED)
    if result & foretold.REFUSED == ZERO:
        reason = _make(views, foretold.count_of(result), is_ovs, translates, now_ms)
        if reason == u64(Reason.NONE) and translates and helper != ZERO:
            reason = _say(views, frame, parsed, helper, way, result, record, incarnation)
    if reason != u64(Reason.NONE):
        verdict = verdict_at(verdict_address)
        verdict.ct_state = (u64(verdict.ct_state) if is_ovs else ZERO) | _INVALID
        verdict.reason = reason
