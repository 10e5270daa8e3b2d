"""The one way for packets into the tracker: a burst of frames in, a verdict for each out.

Four stages over the burst, so that memory is fetched for many packets while few are worked on:

    parse     every frame, and hash its key
    locate    its lines in the index, and fetch them
    glance    look for the tag in those lines, fetch the record that it points to; or see that there is none
    track     each packet in order: find and lock, judge, update, unlock; or make a record

A later packet of a burst sees what an earlier one did: only ``track`` decides, the stages before it give hints.  That
there is no record is more than a hint, a miss confirmed as ``index.find`` does it, and stands until this burst makes one.
The middle ones are short loops of their own: a prefetch whose page is not in the TLB holds up what follows it until the
page walk is done, and only in a loop of a few instructions are enough walks under way at once.  ``glance`` fetches only a
record's first line, into the second level; all three are fetched into the first a few packets before their turn, for a
core has some sixteen line fill buffers, and three lines for each of 32 packets at once would wait for them.

Concurrency: beside any number of other bursts, sweeps and flushes, in this process or another.  Between packets nothing
is held; within one, one record's lock, or the segments of an insert.
"""

from __future__ import annotations

from ..shm.layout import (
    ENTRY,
    FRAME,
    FRAME_BYTES,
    LINE_BYTES,
    NO_RECORD,
    PARSED,
    PARSED_BYTES,
    VERDICT,
    VERDICT_BYTES,
    CtState,
    FrameFlag,
    PacketKind,
    Setting,
    Status,
    Step,
    VerdictFlag,
    Way,
    offset,
)
from ..shm.reasons import Reason
from . import (
    counters,
    delete_list,
    entries,
    index,
    intents,
    locks,
    memory,
    outcome,
    packet,
    timeouts,
    track,
    tuples,
    zones,
)
from .jit import inlined, kernel
from .outcome import Outcome
from .words import EIGHT, LOW_32, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

frame_at = memory.record_at(FRAME)
parsed_at = memory.record_at(PARSED)
verdict_at = memory.record_at(VERDICT)

AHEAD = u64(6)
"""Packets before its turn at which the rest of a packet's record is fetched."""
MAKE_ROUNDS_MAX = 4
"""Times that a packet may lose the race to insert, find the winner gone again, and begin anew."""

_FRAME_SIZE = u64(FRAME_BYTES)
_PARSED_SIZE = u64(PARSED_BYTES)
_VERDICT_SIZE = u64(VERDICT_BYTES)
_LINE = u64(LINE_BYTES)
_TWO_LINES = u64(2 * LINE_BYTES)
_CREATED = offset(ENTRY, "created_ms")
_FLAGS_SHIFT = u64(8) * offset(VERDICT, "flags")
_PROTOCOL_SHIFT = u64(8) * offset(VERDICT, "protocol")
assert [int(offset(VERDICT, field)) for field in ("ct_state", "reason", "zone", "record", "mark")] == [0, 1, 4, 8, 16]
_NONE = u64(Reason.NONE)
_ERROR = u64(PacketKind.ICMP_ERROR)


@inlined
def _parsed(views, i):
    return parsed_at(views.parsed + i * _PARSED_SIZE)


@inlined
def _key(views, i, kind):
    """Return the address of the key that a packet is looked up by."""
    at = views.parsed + i * _PARSED_SIZE
    return at + (tuples.PARSED_INNER_KEY if kind == _ERROR else tuples.PARSED_KEY)


# ------------------------------------------------------------------------------------------------ stages one and two
@inlined
def _parse(views, frames, i):
    """Parse frame ``i`` and hash its key."""
    parsed = _parsed(views, i)
    frame = frame_at(frames + i * _FRAME_SIZE)
    zone = u64(frame.zone)
    settings = zones.settings_of(views, zone)
    packet.parse(frame, zone, settings & u64(Setting.CHECKSUM), parsed)
    parsed.zone = zone
    parsed.candidate = ZERO
    parsed.line = ZERO
    if u64(parsed.reason) != _NONE:
        return
    parsed.hash = tuples.hash_key(views, _key(views, i, u64(parsed.kind)))


@inlined
def _locate(views, i):
    """Fetch the lines where the key of packet ``i`` would stand."""
    parsed = _parsed(views, i)
    if u64(parsed.reason) != _NONE:
        return
    hash_ = u64(parsed.hash)
    word = zones.load_word(views, u64(parsed.zone))
    parsed.zone_word = word
    if zones.directory_of(word) == ZERO:
        return
    segment = index.segment_of(views, word, hash_)
    if segment != ZERO:
        line = index.home_line(views, segment - ONE, hash_)
        memory.prefetch(line)
        memory.prefetch(line ^ _LINE)
        parsed.line = line
        parsed.segment = segment


@inlined
def _glance(views, i):
    """Fetch the record whose tag stands in the lines of packet ``i``; or the lock under which it would be made."""
    parsed = _parsed(views, i)
    line = u64(parsed.line)
    if line == ZERO:
        return
    tag = index.tag_of(u64(parsed.hash))
    candidate = index.glance(views, u64(parsed.zone), u64(parsed.zone_word), line, tag)
    parsed.candidate = candidate
    if candidate == index.ABSENT:
        memory.prefetch(index.lock_address(views, u64(parsed.segment) - ONE))
    elif candidate != ZERO:
        memory.prefetch_far(entries.address(views, candidate - ONE))


@inlined
def _fetch(views, i):
    """Fetch the rest of the record that packet ``i`` will probably find."""
    candidate = u64(_parsed(views, i).candidate)
    if candidate != ZERO and candidate != index.ABSENT:
        entry = entries.address(views, candidate - ONE)
        memory.prefetch(entry)
        memory.prefetch(entry + _LINE)
        memory.prefetch(entry + _TWO_LINES)


# ------------------------------------------------------------------------------------------------ verdicts
@inlined
def _no_record(verdict_address, parsed, ct_state, reason, flags):
    """Write the verdict of a packet that has no connection: three words, not eleven fields."""
    about = ct_state | (reason << EIGHT) | (flags << _FLAGS_SHIFT)
    about |= (u64(parsed.zone) << THIRTY_TWO) | (u64(parsed.protocol) << _PROTOCOL_SHIFT)
    memory.set_le64(verdict_address, about)
    memory.set_le64(verdict_address + EIGHT, u64(NO_RECORD))
    memory.set_le64(verdict_address + SIXTEEN, ZERO)


@kernel
def _refuse(views, parsed, verdict_address, reason):
    """The verdict of a packet that is not tracked: not IP, never tracked, or invalid."""
    if reason == u64(Reason.NOIP):
        _no_record(verdict_address, parsed, ZERO, reason, u64(VerdictFlag.NOIP))
    elif reason == u64(Reason.NOT_TRACKED):
        _no_record(verdict_address, parsed, ZERO, reason, u64(VerdictFlag.UNTRACKED))
        counters.count(views, Reason.UNTRACKED)
    else:
        _no_record(verdict_address, parsed, u64(CtState.INV) | u64(CtState.TRK), reason, ZERO)
        counters.count(views, Reason.INVALID)
    counters.count(views, reason)


@inlined
def _describe(entry, record, parsed, now_ms, verdict_address):
    """Write what a verdict says of its connection; the record's lock is held."""
    verdict_at(verdict_address).zone = parsed.zone
    incarnation = entries.incarnation_of(memory.read64(entry + entries.LIFE))
    expiry_ms = memory.read64(entry + entries.EXPIRY)
    remaining_ms = min(expiry_ms - now_ms, LOW_32) if expiry_ms > now_ms else ZERO
    memory.set_le64(verdict_address + EIGHT, record | (incarnation << THIRTY_TWO))
    memory.set_le64(verdict_address + SIXTEEN, u64(entries.entry_at(entry).mark) | (remaining_ms << THIRTY_TWO))


# ------------------------------------------------------------------------------------------------ a record that exists
@inlined
def _find(views, parsed, i, nothing_made):
    """Find and lock the connection of packet ``i``: first where the glance pointed, then properly."""
    key = _key(views, i, u64(parsed.kind))
    candidate = u64(parsed.candidate)
    if candidate == index.ABSENT:
        if nothing_made:
            return index.MISS
    elif candidate != ZERO and zones.load_word(views, u64(parsed.zone)) == u64(parsed.zone_word):
        found = index.confirm(views, candidate - ONE, key)
        if found != index.MISS:
            return found
    return index.find(views, key, u64(parsed.hash), u64(parsed.zone))


@inlined
def _is_expired(views, entry, settings, now_ms):
    return memory.read64(entry + entries.EXPIRY) <= now_ms and settings & u64(Setting.NO_EXPIRY) == ZERO


@inlined
def _way(fields, high_is_source, can_reply):
    """Return which way a packet goes, from who opened the connection."""
    if can_reply == ZERO:
        return u64(Way.ORIG)
    opened_by_high = u64(fields.status) & u64(Status.ORIG_IS_HIGH)  # bit 0
    return opened_by_high ^ high_is_source


@inlined
def _refresh(views, record, entry, result, now_ms):
    """Put a record's expiry off, or bring it forward, as the outcome says; its lock is held."""
    term = outcome.term_of(result)
    if term == outcome.NO_TERM:
        return
    expiry_ms = now_ms + timeouts.term_ms(views, u64(entries.entry_at(entry).policy), term)
    if result & outcome.SHORTEN != ZERO:
        expiry_ms = min(expiry_ms, memory.read64(entry + entries.EXPIRY))
    entries.set_expiry(views, record, entry, expiry_ms)


@inlined
def _account(fields, way, parsed):
    """Count a packet and its IP bytes."""
    fields.packets[way] += ONE
    fields.bytes[way] += u64(parsed.ip_bytes)


@inlined
def _track_found(views, parsed, record, settings, now_ms, verdict_address):
    """Judge a packet of a connection whose lock is held, and update the connection.

    Returns:
        True when the verdict stands; False when the record was deleted and the packet is to be looked at as if it had found
        nothing.  The lock is dropped either way.
    """
    entry = entries.address(views, record)
    fields = entries.entry_at(entry)
    if _is_expired(views, entry, settings, now_ms):
        delete_list.mark(views, record)
        locks.drop(entry + entries.LOCK)
        counters.count(views, Reason.EXPIRED_ON_LOOKUP)
        return False
    way = _way(fields, u64(parsed.high_is_source), u64(parsed.can_reply))
    verdict = verdict_at(verdict_address)
    result = track.update(entry, way, parsed, settings, now_ms, verdict)
    kind = outcome.kind_of(result)
    if kind == u64(Outcome.RESTART):
        delete_list.mark(views, record)
        locks.drop(entry + entries.LOCK)
        return False
    _refresh(views, record, entry, result, now_ms)
    if outcome.is_counted(result):
        _account(fields, way, parsed)
    _describe(entry, record, parsed, now_ms, verdict_address)
    if kind == u64(Outcome.DELETE):
        delete_list.mark(views, record)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    counters.count(views, Reason.HIT)
    if u64(verdict.reason) != _NONE:
        if kind == u64(Outcome.INVALID):
            counters.count(views, Reason.INVALID)
        counters.count(views, u64(verdict.reason))
    return True


@kernel
def _track_error(views, parsed, i, nothing_made, settings, now_ms, verdict_address):
    """An ICMP error: related to the connection of the packet that it quotes, and never more than that."""
    record = _find(views, parsed, i, nothing_made)
    if record == index.MISS or record == index.BUSY:
        reason = u64(Reason.ICMP_UNMATCHED) if record == index.MISS else u64(Reason.BUSY)
        _refuse(views, parsed, verdict_address, reason)
        return
    entry = entries.address(views, record)
    fields = entries.entry_at(entry)
    if _is_expired(views, entry, settings, now_ms):
        delete_list.mark(views, record)
        locks.drop(entry + entries.LOCK)
        _refuse(views, parsed, verdict_address, u64(Reason.ICMP_UNMATCHED))
        return
    inner_way = _way(fields, u64(parsed.inner_high_is_source), u64(parsed.can_reply))
    track.related(entry, inner_way, parsed, verdict_at(verdict_address))
    _describe(entry, record, parsed, now_ms, verdict_address)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    counters.count(views, Reason.HIT)


# ------------------------------------------------------------------------------------------------ a record that is made
@kernel
def _wanted(views, i, count, zone):
    """Return how many packets of the burst, from ``i`` on, found nothing in the same zone: the credit to ask for."""
    wanted = ONE
    for j in range(i + ONE, count):
        other = _parsed(views, u64(j))
        found_none = u64(other.candidate) == ZERO or u64(other.candidate) == index.ABSENT
        if u64(other.reason) == _NONE and found_none and u64(other.zone) == zone:
            wanted += ONE
    return wanted


@kernel
def _make(views, parsed, i, count, settings, now_ms, verdict_address):
    """Make a record for a packet that found none.

    Returns:
        NONE: made.  ADOPTED: somebody else was first, find it.  Else the reason why not; the packet stays uncommitted.
    """
    zone = u64(parsed.zone)
    if zones.credit(views) != ZERO and zones.credit_zone(views) != zone and not zones.return_credit(views):
        return u64(Reason.BUSY)
    record = entries.take(views)
    if record == entries.NONE:
        intents.done(views)
        return u64(Reason.SLAB_FULL)
    entry = entries.address(views, record)
    fields = entries.entry_at(entry)
    if not locks.take(entry + entries.LOCK, views.me):  # a slow finder may hold it
        entries.release(views, record)
        intents.done(views)
        return u64(Reason.BUSY)
    tuples.copy_key(entry + tuples.ENTRY_KEY, _key(views, i, ZERO))
    fields.status = u64(Status.ORIG_IS_HIGH) if u64(parsed.high_is_source) != ZERO else ZERO
    fields.policy = zones.policy_of(views, zone)
    fields.packets[0] = ONE
    fields.packets[1] = ZERO
    fields.bytes[0] = parsed.ip_bytes
    fields.bytes[1] = ZERO
    memory.set_le64(entry + _CREATED, now_ms)
    fields.parent = ZERO
    fields.mark = ZERO
    term = track.begin(entry, parsed, settings)
    expiry_ms = now_ms + timeouts.term_ms(views, u64(fields.policy), term)
    memory.write64(entry + entries.EXPIRY, expiry_ms)
    entries.set_due(views, record, entry, entries.due_units(expiry_ms))
    state = u64(fields.state)
    incarnation = entries.incarnation_of(memory.read64(entry + entries.LIFE))
    locks.drop(entry + entries.LOCK)

    wanted = _wanted(views, i, count, zone) if zones.credit(views) == ZERO else ONE
    reason = index.insert(views, record, zone, wanted)
    if reason != _NONE:
        intents.set_record(views, record, Step.ALLOC)
        entries.release(views, record)
        intents.done(views)
        return reason
    verdict = verdict_at(verdict_address)
    verdict.flags = u64(VerdictFlag.COMMITTED)
    verdict.state = state
    memory.set_le64(verdict_address + EIGHT, record | (incarnation << THIRTY_TWO))
    verdict.timeout_ms = min(expiry_ms - now_ms, LOW_32)
    return reason


@kernel
def _open(views, parsed, i, count, flags, settings, now_ms, verdict_address):
    """A packet that found nothing: may it open a connection, and if it shall be committed, make one.

    Returns:
        False when somebody else made the connection meanwhile, so it has to be found again.
    """
    reason = track.opens(parsed, settings)
    if reason != _NONE:
        _refuse(views, parsed, verdict_address, reason)
        return True
    _no_record(verdict_address, parsed, u64(CtState.NEW) | u64(CtState.TRK), ZERO, ZERO)
    if flags & u64(FrameFlag.COMMIT) == ZERO:
        return True
    reason = _make(views, parsed, i, count, settings, now_ms, verdict_address)
    if reason == u64(Reason.ADOPTED):
        counters.count(views, reason)
        return False
    if reason != _NONE:
        verdict_at(verdict_address).reason = reason
        counters.count(views, reason)
    return True


# ------------------------------------------------------------------------------------------------ stage three
@inlined
def _track(views, frames, i, count, nothing_made, now_ms, verdict_address):
    """Track packet ``i``: the only stage that decides.  Returns whether it missed, so may have made a record."""
    parsed = _parsed(views, i)
    if u64(parsed.reason) != _NONE:
        _refuse(views, parsed, verdict_address, u64(parsed.reason))
        return False
    settings = zones.settings_of(views, u64(parsed.zone))
    if u64(parsed.kind) == _ERROR:
        _track_error(views, parsed, i, nothing_made, settings, now_ms, verdict_address)
        return False
    for _ in range(MAKE_ROUNDS_MAX):
        record = _find(views, parsed, i, nothing_made)
        if record == index.BUSY:
            break
        if record != index.MISS and _track_found(views, parsed, record, settings, now_ms, verdict_address):
            return False
        flags = u64(frame_at(frames + i * _FRAME_SIZE).flags)
        if _open(views, parsed, i, count, flags, settings, now_ms, verdict_address):
            return True
        nothing_made = False
    _refuse(views, parsed, verdict_address, u64(Reason.BUSY))
    return False


@kernel
def track_burst(views, frames, count, now_ms, verdicts):
    """Track a burst of frames, and say of each what shall become of it.

    Args:
        views: record of shm.views of the participant in whose name this runs.
        frames: address of FRAME[count]; each names at least ``captured_bytes`` readable bytes.
        count: packets in the burst, at most BURST_PACKETS_MAX.
        now_ms: one instant for the whole burst, of the clock that expiries are in.
        verdicts: address of VERDICT[count], out.

    Returns:
        The number of packets that are not invalid.  Never raises: what is wrong with a packet is its reason.

    Concurrency:
        Safe beside any number of other callers, sweeps and flushes, in this process or another.

    Source:
        The stages: DPDK's rte_hash bulk lookup and VPP's vectors; states and windows in tcp_states and tcp_window.
    """
    for i in range(count):
        _parse(views, frames, u64(i))
    for i in range(count):
        _locate(views, u64(i))
    for i in range(count):
        _glance(views, u64(i))
    for i in range(min(count, AHEAD)):
        _fetch(views, u64(i))
    valid = ZERO
    missed = ZERO
    bytes_ = ZERO
    nothing_made = True
    patient = True
    for i in range(count):
        if u64(i) + AHEAD < count:
            _fetch(views, u64(i) + AHEAD)
        at = verdicts + u64(i) * _VERDICT_SIZE
        has_room = True
        if delete_list.is_crowded(views):
            if patient:
                delete_list.run(views)
                patient = not delete_list.is_crowded(views)  # else its lines wait for a lock: once in a burst is enough
            has_room = delete_list.has_room(views)
        if not has_room:
            _refuse(views, _parsed(views, u64(i)), at, u64(Reason.BUSY))
        elif _track(views, frames, u64(i), count, nothing_made, now_ms, at):
            missed += ONE
            nothing_made = nothing_made and u64(verdict_at(at).flags) == ZERO
        bytes_ += u64(_parsed(views, u64(i)).ip_bytes)
        if u64(verdict_at(at).ct_state) & u64(CtState.INV) == ZERO:
            valid += ONE
    zones.return_credit(views)
    counters.add(views, Reason.PACKETS, count)
    counters.add(views, Reason.MISS, missed)
    counters.add(views, Reason.BYTES, bytes_)
    return valid
