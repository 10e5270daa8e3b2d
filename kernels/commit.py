"""Commit: a packet that found nothing opens a connection, if it may and if it shall.

A record is taken from the own list, written whole under its lock in state NEW, where nobody sees it, and handed to
``index.insert``.  Whatever refuses it there, the record goes home and the packet stays what it was: new, uncommitted.
"""

from __future__ import annotations

from ..shm.layout import ENTRY, CtState, FrameFlag, Part, Setting, Status, Step, VerdictFlag, offset
from ..shm.reasons import Reason
from . import (
    actions,
    adaptive,
    awaited,
    bindings,
    calls,
    counters,
    delete_list,
    entries,
    eviction,
    half_open,
    helpers,
    index,
    intents,
    locks,
    memory,
    nat,
    perf,
    shrink,
    stages,
    timeouts,
    track,
    tuples,
    zones,
)
from .jit import inlined, kernel
from .stages import key_of, parsed_of
from .verdicts import no_record, refuse, verdict_at
from .words import EIGHT, LOW_32, ONE, THIRTY_TWO, ZERO, u64

_TRACK, _NAT = u64(Part.TRACK), u64(Part.NAT)
_CREATED = offset(ENTRY, "created_ms")
_NONE = u64(Reason.NONE)
_COMMIT = u64(FrameFlag.COMMIT)
STRANGERS_MAX = u64(4)
"""Packets of other zones behind which nobody looks for more of his own."""
FORESEEN = u64(4)
"""Packets before its turn at which memory is fetched for a tuple that has yet to be chosen."""
_NEW = u64(CtState.NEW) | u64(CtState.TRK)
_HELPERS, _EARLY_DROP = u64(Setting.HELPERS), u64(Setting.EARLY_DROP)
_ADAPTIVE, _HALF_OPEN = u64(Setting.ADAPTIVE), u64(Setting.HALF_OPEN)
_FULL, _ZONE_FULL, _HALF_OPEN_FULL = u64(Reason.FULL), u64(Reason.ZONE_FULL), u64(Reason.HALF_OPEN_FULL)
_CLASH = u64(Reason.CLASH)


@kernel
def wanted_in(views, i, count, zone):
    """Return how many packets of the burst, from ``i`` on, found nothing in the same zone: the credit to ask for.

    Those behind ``STRANGERS_MAX`` packets of other zones are not seen: where zones are many, each packet would look at all.
    """
    wanted = ONE
    strangers = ZERO
    for j in range(i + ONE, count):
        other = parsed_of(views, u64(j))
        if u64(other.zone) != zone:
            strangers += ONE
            if strangers == STRANGERS_MAX:
                break
            continue
        found_none = u64(other.candidate) == ZERO or u64(other.candidate) == index.ABSENT
        if u64(other.reason) == _NONE and found_none:
            wanted += ONE
    return wanted


@inlined
def _foresee(views, frames, i):
    frame, parsed = stages.frame_of(frames, i), parsed_of(views, i)
    if u64(frame.action) == ZERO or u64(parsed.candidate) != index.ABSENT or u64(frame.flags) & _COMMIT == ZERO:
        return
    if u64(parsed.reason) == _NONE and u64(parsed.kind) != stages.ERROR and nat.wanted(frame) & nat.BINDS != ZERO:
        bindings.foresee(views, parsed, key_of(views, i, stages.ERROR), nat.action_at(u64(frame.action)))


@kernel
def foresee(views, frames, i, count):
    """Have memory fetched for the connections that packets a little behind packet ``i`` will probably open."""
    memory.apart()
    if i == ZERO:
        for j in range(min(count, FORESEEN)):
            _foresee(views, frames, u64(j))
    if i + FORESEEN < count:
        _foresee(views, frames, i + FORESEEN)


@kernel
def make(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address):
    """Make a record for a packet that found none; ``expected`` is the address of the EXPECTATION that foretold it, or 0.

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
    tuples.copy_key(entry + tuples.ENTRY_KEY, key_of(views, i, ZERO))
    fields.status = u64(Status.ORIG_IS_HIGH) if u64(parsed.high_is_source) != ZERO else ZERO
    fields.policy = zones.policy_of(views, zone)
    fields.packets[0] = ONE
    fields.packets[1] = ZERO
    fields.bytes[0] = parsed.ip_bytes
    fields.bytes[1] = ZERO
    memory.set_le64(entry + _CREATED, now_ms)
    fields.parent = ZERO
    fields.mark = ZERO
    asked = u64(frame.action)
    helper = ZERO if asked == ZERO else u64(actions.action_at(asked).helper)
    if expected != ZERO or helper != ZERO or settings & _HELPERS != ZERO:
        helpers.assign(views, record, entry, parsed, settings, expected, helper)
    if asked != ZERO:
        reason = actions.begin(views, asked, record)
        if reason != _NONE:
            locks.drop(entry + entries.LOCK)
            entries.release(views, record)
            intents.done(views)
            return reason
    term = track.begin(entry, parsed, settings)
    length_ms = timeouts.term_ms(views, u64(fields.policy), term)
    if settings & _ADAPTIVE != ZERO:
        length_ms = adaptive.shorten(views, zone, length_ms)
    expiry_ms = now_ms + length_ms
    memory.write64(entry + entries.EXPIRY, expiry_ms)
    entries.set_due(views, record, entry, entries.due_units(expiry_ms))
    state = u64(fields.state)
    incarnation = entries.incarnation_of(memory.read64(entry + entries.LIFE))
    locks.drop(entry + entries.LOCK)

    if settings & _HALF_OPEN != ZERO and not half_open.sit_down(views, zone, record, incarnation):
        intents.set_record(views, record, Step.ALLOC)
        entries.release(views, record)
        intents.done(views)
        return _HALF_OPEN_FULL
    wanted = wanted_in(views, i, count, zone) if zones.credit(views) == ZERO else ONE
    may_split = delete_list.length(views) == ZERO
    bound = nat.binding(views, frame, expected)
    if bound == ZERO:
        reason = index.insert_hashed(views, record, zone, wanted, may_split, u64(parsed.hash), ZERO, ZERO)
        if reason == _CLASH:
            bound = nat.binding_of_any(views, frame)
    if bound != ZERO:
        perf.part_is_over(views.perf, _TRACK)
        salt = record | (incarnation << THIRTY_TWO)
        reply_key = key_of(views, i, stages.ERROR)
        action = nat.action_at(bound)
        if bound != asked:
            parsed.foreseen = ZERO  # for what the rule asks
        reason = bindings.bind(views, record, parsed, reply_key, action, salt, zone, wanted, may_split, now_ms)
        perf.part_is_over(views.perf, _NAT)
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
    if bound != ZERO:
        perf.part_is_over(views.perf, _TRACK)
        nat.send_first_on(views, frame, parsed, i, bound, verdict)
        perf.part_is_over(views.perf, _NAT)
    return reason


@inlined
def _is_over_a_limit(reason):
    return reason == _FULL or reason == _ZONE_FULL or reason == _HALF_OPEN_FULL


@kernel
def _make_instead(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address, reason):
    """Make a record over a limit, after others were driven out for it; returns as ``make``."""
    memory.seldom()
    for _ in range(eviction.VICTIMS_MAX):
        if not eviction.evict(views, u64(parsed.zone), reason, u64(parsed.hash), now_ms):
            break
        reason = make(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address)
        if not _is_over_a_limit(reason):
            break
    return reason


@kernel
def _make_in_room(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address):
    """Make a record where the index had no room: of what we have deleted ourselves, then of what lies half empty in it."""
    memory.seldom()
    reason = u64(Reason.INDEX_FULL)
    if delete_list.length(views) != ZERO:
        delete_list.run(views)
        reason = make(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address)
    if reason == u64(Reason.INDEX_FULL) and shrink.relieve(views, u64(parsed.zone), u64(parsed.hash)) != ZERO:
        reason = make(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address)
    return reason


@kernel
def _commit(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address):
    """Make a connection for a packet that may open one; returns as ``open_``."""
    memory.apart()
    reason = make(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address)
    if reason == u64(Reason.INDEX_FULL):
        reason = _make_in_room(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address)
    if settings & _EARLY_DROP != ZERO and _is_over_a_limit(reason):
        reason = _make_instead(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address, reason)
    if reason == u64(Reason.ADOPTED):
        counters.count(views, reason)
        return False
    if reason != _NONE:
        verdict_at(verdict_address).reason = reason
    elif expected != ZERO or u64(frame.action) != ZERO or settings & _HELPERS != ZERO:
        helpers.follow(views, frame, parsed, ZERO, now_ms, verdict_address)
    return True


@inlined
def _shall_commit(frame):
    return u64(frame.flags) & u64(FrameFlag.COMMIT) != ZERO


@kernel
def _open_foretold(views, frame, parsed, i, count, settings, now_ms, verdict_address):
    """As ``open_``, in a zone that has expectations: a connection that was foretold is related."""
    memory.seldom()
    if calls.complete(views, parsed, i):
        return False
    found = awaited.find(views, parsed, now_ms)
    if found == awaited.FOUND and _shall_commit(frame):
        found = awaited.claim(views, parsed, now_ms)
    if found == awaited.BUSY:
        refuse(parsed, verdict_address, u64(Reason.BUSY))
        return True
    expected = views.expected if found == awaited.FOUND else ZERO
    no_record(verdict_address, parsed, _NEW if expected == ZERO else _NEW | u64(CtState.REL), ZERO, ZERO)
    if not _shall_commit(frame):
        return True
    return _commit(views, frame, parsed, i, count, settings, expected, now_ms, verdict_address)


@kernel
def open_(views, frame, parsed, i, count, settings, now_ms, verdict_address):
    """A packet that found nothing: may it open a connection, and if it shall be committed, make one.

    What a packet pays that is not committed, where nothing was foretold, is here: two loads and no call.

    Returns:
        False when it has to be found again: somebody else made the connection meanwhile, or its key is another now.
    """
    reason = track.opens(parsed, settings)
    if reason != _NONE:
        refuse(parsed, verdict_address, reason)
        return True
    if memory.acquire32(zones.expectations_address(views, u64(parsed.zone))) != ZERO:
        return _open_foretold(views, frame, parsed, i, count, settings, now_ms, verdict_address)
    no_record(verdict_address, parsed, _NEW, ZERO, ZERO)
    if not _shall_commit(frame):
        return True
    return _commit(views, frame, parsed, i, count, settings, ZERO, now_ms, verdict_address)
