"""The one way for packets into the tracker: a burst of frames in, a verdict for each out.

Four stages over the burst, so that memory is fetched for many packets while few are worked on:

    parse     every frame, and hash its key
    locate    its lines in the index, and fetch the first
    glance    look for the tag in those lines, fetch the record that it points to; or see that there is none
    track     each packet in order: find and lock, judge, update, unlock; or make a record

In its turn a packet whose effect is known in advance goes a short way (kernels/predicted, kernels/openings), any other the
whole one.

A fragment waits for the rest of its datagram (kernels/reassembly), and the one that makes it whole is tracked in its stead.

A later packet of a burst sees what an earlier one did: only ``track`` decides, the stages before it (kernels/stages) give
hints.  That there is no record is more than a hint, and stands until this burst makes one, or finds one that appeared.

Concurrency: beside any number of other bursts, sweeps and flushes, in this process or another.  Between packets nothing
is held; within one, one record's lock, or the segments of an insert.
"""

from __future__ import annotations

from ..shm.layout import FRAME_BYTES, VERDICT_BYTES, CtState, End, EventKind, FrameFlag, Part, Setting, Status, Way
from ..shm.reasons import Reason
from . import (
    actions,
    adaptive,
    commit,
    counters,
    delete_list,
    doubles,
    entries,
    events,
    helpers,
    incidents,
    index,
    intents,
    locks,
    memory,
    nat,
    openings,
    outcome,
    perf,
    predicted,
    reassembly,
    samples,
    sequences,
    stages,
    timeouts,
    track,
    tuples,
    zones,
)
from .jit import inlined, kernel
from .outcome import Outcome
from .stages import AHEAD, PARSED_SIZE, frame_of, key_of, parsed_at, parsed_of
from .verdicts import describe, refuse, verdict_at
from .words import LOW_8, ONE, ZERO, u64

MAKE_ROUNDS_MAX = 4
"""Times that a packet may lose the race to insert, find the winner gone again, and begin anew."""

FORESEEN, MISSED, APPEARED = ZERO, ONE, u64(2)
"""What became of a packet, seen from its glance."""

_HAS_MISSED, _NOTHING_MADE, _PATIENT, _IS_VALID = ONE, u64(2), u64(4), u64(8)
"""Bits of what a burst has come to."""
_VALID_SHIFT = u64(3)

_VERDICT_SIZE, _FRAME_SIZE = u64(VERDICT_BYTES), u64(FRAME_BYTES)
_TRANSLATED = u64(CtState.SNAT) | u64(CtState.DNAT)
_NONE = u64(Reason.NONE)
_COMMIT = u64(FrameFlag.COMMIT)
_OFFSETS = u64(Status.SEQUENCE_OFFSETS)
_UPDATE = u64(EventKind.UPDATE)
_EXPIRED, _REPLACED, _CLOSED = u64(End.EXPIRED), u64(End.REPLACED), u64(End.CLOSED)
_ADAPTIVE = u64(Setting.ADAPTIVE)
_PARSE_PART, _LOOKUP_PART = u64(Part.PARSE), u64(Part.LOOKUP)
_TRACK_PART, _NAT_PART = u64(Part.TRACK), u64(Part.NAT)
_BOUNDED = outcome.SHORTEN | outcome.SINCE_BEGUN


@inlined
def _find(views, parsed, i, nothing_made):
    """Find and lock the connection of packet ``i``: first where the glance pointed, then properly."""
    key = key_of(views, i, u64(parsed.kind))
    candidate = u64(parsed.candidate)
    if candidate == index.ABSENT:
        if nothing_made or stages.is_still_absent(views, parsed):
            return index.MISS
    elif candidate != ZERO and zones.load_word(views, u64(parsed.zone)) == u64(parsed.zone_word):
        found = index.confirm(views, candidate - ONE, key)
        if found != index.MISS:
            return found
    return index.find(views, key, u64(parsed.hash), u64(parsed.zone))


@inlined
def _is_expired(entry, settings, now_ms):
    return memory.read64(entry + entries.EXPIRY) <= now_ms and settings & u64(Setting.NO_EXPIRY) == ZERO


@kernel
def _way_to_itself(fields):
    """Return which way a packet goes where nothing tells: Linux finds the tuple of replies first, Open vSwitch has one."""
    memory.seldom()
    return u64(Way.ORIG) if u64(fields.status) & u64(Status.OVS) != ZERO else u64(Way.REPLY)


@inlined
def way_of(fields, high_is_source, can_reply):
    """Return which way a packet goes, from who opened the connection."""
    if can_reply == ZERO:
        return _way_to_itself(fields)
    opened_by_high = u64(fields.status) & u64(Status.ORIG_IS_HIGH)  # bit 0
    return opened_by_high ^ high_is_source


@kernel
def _bounded(views, entry, result, settings, now_ms, expiry_ms):
    """Return an expiry that may not be later than the record's own, or than a cap since the connection began.

    In a zone with adaptive timeouts it may also be earlier.
    """
    memory.seldom()
    fields = entries.entry_at(entry)
    if settings & _ADAPTIVE != ZERO:
        zone = tuples.zone_of(entry + tuples.ENTRY_KEY)
        expiry_ms = now_ms + adaptive.shorten(views, zone, expiry_ms - now_ms)
    if result & _BOUNDED == ZERO:
        return expiry_ms
    if result & outcome.SHORTEN != ZERO:
        return min(expiry_ms, memory.read64(entry + entries.EXPIRY))
    cap_ms = timeouts.length_ms(views, u64(fields.policy), outcome.cap_of(outcome.term_of(result)))
    return expiry_ms if cap_ms == ZERO else min(expiry_ms, u64(fields.created_ms) + cap_ms)


@inlined
def _refresh(views, record, entry, result, settings, now_ms):
    """Put a record's expiry off, or bring it forward, as the outcome says; its lock is held."""
    term = outcome.term_of(result)
    if term == outcome.NO_TERM:
        return
    expiry_ms = now_ms + timeouts.term_ms(views, u64(entries.entry_at(entry).policy), term)
    if (result & _BOUNDED) | (settings & _ADAPTIVE) != ZERO:
        expiry_ms = _bounded(views, entry, result, settings, now_ms, expiry_ms)
    entries.set_expiry(views, record, entry, expiry_ms)


@inlined
def _account(fields, way, parsed):
    """Count a packet and its IP bytes."""
    fields.packets[way] += ONE
    fields.bytes[way] += u64(parsed.ip_bytes)


@inlined
def _track_found(views, frame, parsed, key, record, settings, now_ms, verdict_address):
    """Judge a packet of a connection whose lock is held, and update the connection.

    Returns:
        True when the verdict stands; False when the record was deleted and the packet is to be looked at as if it had found
        nothing.  The lock is dropped either way.
    """
    entry = entries.address(views, record)
    fields = entries.entry_at(entry)
    if _is_expired(entry, settings, now_ms):
        delete_list.end(views, record, _EXPIRED)
        locks.drop(entry + entries.LOCK)
        counters.count(views, Reason.EXPIRED_ON_LOOKUP)
        return False
    translated = u64(fields.status) & nat.TRANSLATED
    seen = offsets = ZERO
    if translated != ZERO:
        seen = nat.see(views, entry, key, u64(parsed.high_is_source) != ZERO)
        if not nat.is_sent(seen) and nat.is_fresh(frame):
            record = doubles.other(views, parsed, key, record, seen, settings, now_ms)
            if record == index.MISS or record == index.BUSY:
                return False
            entry = entries.address(views, record)
            fields = entries.entry_at(entry)
            translated = u64(fields.status) & nat.TRANSLATED
            seen = nat.see(views, entry, key, u64(parsed.high_is_source) != ZERO)
        way = nat.way_of(seen)
        offsets = u64(fields.status) & _OFFSETS
        if offsets != ZERO:
            sequences.hear(views, parsed, entry, way, nat.is_sent(seen))
    else:
        way = way_of(fields, u64(parsed.high_is_source), u64(parsed.can_reply))
    verdict = verdict_at(verdict_address)
    before = entries.outline(entry)
    result = track.update(entry, way, parsed, settings, now_ms, verdict_address)
    if offsets != ZERO:
        sequences.forget(views, parsed)
    kind = outcome.kind_of(result)
    if kind == u64(Outcome.RESTART):
        delete_list.end(views, record, _REPLACED)
        locks.drop(entry + entries.LOCK)
        return False
    _refresh(views, record, entry, result, settings, now_ms)
    if outcome.is_counted(result):
        _account(fields, way, parsed)
    describe(entry, record, now_ms, verdict_address)
    if u64(verdict.reason) != _NONE:
        samples.remember(views, entry, record)
    if translated != ZERO and kind != u64(Outcome.INVALID):
        perf.part_is_over(views.perf, _TRACK_PART)
        verdict.ct_state = u64(verdict.ct_state) | nat.send_on(views, frame, parsed, entry, seen)
        perf.part_is_over(views.perf, _NAT_PART)
    if kind == u64(Outcome.DELETE):
        delete_list.end(views, record, _CLOSED)
    elif entries.outline(entry) != before and events.are_wanted(views, _UPDATE):
        events.compare(views, record, before)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    counters.count(views, Reason.HIT)
    if result & outcome.HELPED != ZERO:
        helpers.follow(views, frame, parsed, seen, now_ms, verdict_address)
    return True


@kernel
def _track_error(views, frame, parsed, i, nothing_made, settings, now_ms, verdict_address):
    """An ICMP error: related to the connection of the packet that it quotes, and never more than that."""
    record = _find(views, parsed, i, nothing_made)
    if record == index.MISS or record == index.BUSY:
        reason = u64(Reason.ICMP_UNMATCHED) if record == index.MISS else u64(Reason.BUSY)
        refuse(parsed, verdict_address, reason)
        return
    entry = entries.address(views, record)
    fields = entries.entry_at(entry)
    if _is_expired(entry, settings, now_ms):
        delete_list.end(views, record, _EXPIRED)
        locks.drop(entry + entries.LOCK)
        refuse(parsed, verdict_address, u64(Reason.ICMP_UNMATCHED))
        return
    verdict = verdict_at(verdict_address)
    if u64(fields.status) & nat.TRANSLATED != ZERO:
        inner_key = key_of(views, i, stages.ERROR)
        seen = nat.see(views, entry, inner_key, u64(parsed.inner_high_is_source) != ZERO)
        track.related(entry, nat.way_of(seen), parsed, verdict_address)
        verdict.ct_state = u64(verdict.ct_state) | nat.send_error_on(views, frame, parsed, entry, seen)
    else:
        inner_way = way_of(fields, u64(parsed.inner_high_is_source), u64(parsed.can_reply))
        track.related(entry, inner_way, parsed, verdict_address)
    describe(entry, record, now_ms, verdict_address)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
    counters.count(views, Reason.HIT)


# ------------------------------------------------------------------------------------------------ stage three
@inlined
def _action_of(frames, i):
    """Return the address of the ACTION of packet ``i``, or 0: nothing is asked, or it shall not be committed."""
    frame = frame_of(frames, i)
    action = u64(frame.action)
    return action if action == ZERO or u64(frame.flags) & _COMMIT != ZERO else ZERO


@inlined
def _track(views, frames, i, count, nothing_made, now_ms, verdict_address):
    """Track packet ``i``: the only stage that decides.

    Returns:
        MISSED: it may have made a record.  APPEARED: it found one that the glance had not seen.  Else FORESEEN.
    """
    parsed = parsed_of(views, i)
    frame_address = frames + i * _FRAME_SIZE
    if u64(parsed.reason) != _NONE:
        if not reassembly.admit(views, frames, i, now_ms, verdict_address):
            return FORESEEN
        frame_address = reassembly.whole_frame(views)
    frame = stages.frame_at(frame_address)
    settings = zones.settings_of(views, u64(parsed.zone))
    if u64(parsed.kind) == stages.ERROR:
        _track_error(views, frame, parsed, i, nothing_made, settings, now_ms, verdict_address)
        return FORESEEN
    key = key_of(views, i, ZERO)
    seen = u64(parsed.candidate) != ZERO and u64(parsed.candidate) != index.ABSENT
    for _ in range(MAKE_ROUNDS_MAX):
        record = _find(views, parsed, i, nothing_made)
        if record == index.BUSY:
            break
        if record != index.MISS and _track_found(views, frame, parsed, key, record, settings, now_ms, verdict_address):
            return FORESEEN if seen else APPEARED
        if commit.open_(views, frame, parsed, i, count, settings, now_ms, verdict_address):
            return MISSED
        nothing_made = False
        seen = False
    refuse(parsed, verdict_address, u64(Reason.BUSY))
    return FORESEEN


@kernel
def _turn(views, frames, i, count, so_far, now_ms, verdict_address):
    """The turn of packet ``i``: make room for what it may delete, track it, do what was asked, note what was wrong.

    Args:
        views, frames, count, now_ms: as for `track_burst`.
        i: u64, its place in the burst.
        so_far: u64, what the turns before it came to: _NOTHING_MADE, _PATIENT.
        verdict_address: u64, out, VERDICT.

    Returns:
        u64, ``so_far`` as it is now, with _HAS_MISSED and _IS_VALID of this packet.
    """
    memory.apart()
    at = verdict_address
    nothing_made = so_far & _NOTHING_MADE != ZERO
    missed = ZERO
    has_room = True
    if delete_list.is_crowded(views):
        if so_far & _PATIENT != ZERO:
            delete_list.run(views)
            if delete_list.is_crowded(views):
                so_far &= ~_PATIENT  # its lines wait for a lock: once in a burst is enough
        has_room = delete_list.has_room(views)
    if not has_room:
        refuse(parsed_of(views, i), at, u64(Reason.BUSY))
    else:
        action = _action_of(frames, i)
        if action != ZERO:
            commit.foresee(views, frames, i, count)
            actions.force(views, action, i)
        how = _track(views, frames, i, count, nothing_made, now_ms, at)
        if action != ZERO:
            actions.apply(views, action, at)
        if how == MISSED:
            missed = _HAS_MISSED
            nothing_made = nothing_made and u64(verdict_at(at).flags) == ZERO
        elif how == APPEARED:
            nothing_made = False  # what a glance did not see may be there now: this burst has seen it
    said = memory.le16(at)  # ct_state and reason
    if said & _TRANSLATED != ZERO and reassembly.has_whole(views):
        reassembly.send_on(views, frames, i, at)
        said = memory.le16(at)
    if said > LOW_8:
        incidents.note(views, frame_of(frames, i), i, now_ms, at)
    valid = _IS_VALID if said & u64(CtState.INV) == ZERO else ZERO
    made = _NOTHING_MADE if nothing_made else ZERO
    return (so_far & _PATIENT) | made | missed | valid


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
    memory.views_stay()
    events.tick(views, now_ms)
    first = views.parsed
    for i in range(count):
        stages.parse(views, frames + u64(i) * _FRAME_SIZE, first + u64(i) * PARSED_SIZE)
    perf.part_is_over(views.perf, _PARSE_PART)
    for i in range(count):
        stages.locate(views, first + u64(i) * PARSED_SIZE)
    for i in range(count):
        stages.glance(views, first + u64(i) * PARSED_SIZE)
    perf.part_is_over(views.perf, _LOOKUP_PART)
    valid = ZERO
    missed = ZERO
    turns = ZERO
    turned_away = ZERO
    opened = ZERO
    bytes_ = ZERO
    so_far = _NOTHING_MADE | _PATIENT
    for i in range(count):
        at = first + u64(i) * PARSED_SIZE
        verdict = verdicts + u64(i) * _VERDICT_SIZE
        if u64(i) + AHEAD < count:
            stages.fetch(views, at + AHEAD * PARSED_SIZE)
        if predicted.follow(views, at, now_ms, verdict):
            pass  # most are, so they are counted as what is left
        elif so_far & _NOTHING_MADE != ZERO and predicted.turn_away(views, at, verdict):
            turned_away += ONE
        elif openings.may_step(at) and openings.step_on(views, at, now_ms, verdict):
            pass
        elif openings.may_open(at) and openings.open_(
            views, frames, u64(i), count, so_far & _NOTHING_MADE != ZERO, now_ms, verdict
        ):
            opened += ONE
            so_far &= ~_NOTHING_MADE
        else:
            turns += ONE
            so_far = _turn(views, frames, u64(i), count, so_far, now_ms, verdict)
            missed += so_far & _HAS_MISSED
            valid += (so_far >> _VALID_SHIFT) & ONE
        bytes_ += u64(parsed_at(at).ip_bytes)
    zones.return_credit(views)
    intents.done(views)  # a record that was looked at in vain is still named by the last step
    if reassembly.has_whole(views):
        reassembly.decide(views, verdicts)
    counters.add(views, Reason.PACKETS, count)
    predicted_ = count - turns - turned_away - opened
    counters.add(views, Reason.HIT, predicted_)
    counters.add(views, Reason.MISS, missed + turned_away + opened)
    counters.add(views, Reason.BYTES, bytes_)
    perf.part_is_over(views.perf, _TRACK_PART)
    return valid + predicted_ + turned_away + opened
