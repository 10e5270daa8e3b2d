"""What a rule asks of the connection of a packet that it commits: that its sender be the opener, mark, label, policy.

    force   before the packet is tracked: a connection that it answers is deleted, so that it opens another
    begin   while its record is made, by who makes it: mark, label, timeout policy
    apply   after it was tracked: mark and label of the connection that it is part of

A mark or a label is changed under a mask, and stays what it is elsewhere.  Without COMMIT nothing of it is done, and for
a packet that is invalid neither.  A helper is given by kernels/helpers, to what is made.

A label needs an extension, which a connection gets when it is made, or here.  The step CHANGE tells repair to take the
link to one back that was not taken off the free list yet; whoever is killed over a mark leaves no window torn.
"""

from __future__ import annotations

from ..shm.layout import (
    ACTION,
    EXTENSION,
    NO_RECORD,
    ActionFlag,
    Change,
    CtState,
    End,
    EventKind,
    Life,
    PacketKind,
    Status,
    Step,
    Way,
    offset,
)
from ..shm.reasons import Reason
from . import delete_list, entries, events, index, intents, locks, memory, nat
from .jit import inlined, kernel
from .stages import key_of, parsed_of
from .verdicts import verdict_at
from .words import EIGHT, LOW_8, LOW_32, ONE, ZERO, u64

action_at = memory.record_at(ACTION)

_FORCE = u64(ActionFlag.FORCE)
_ERROR = u64(PacketKind.ICMP_ERROR)
_INV = u64(CtState.INV)
_NO_RECORD = u64(NO_RECORD)
_REPLY = u64(Way.REPLY)
_REPLACED = u64(End.REPLACED)
_LABEL, _LABEL_MASK = offset(ACTION, "label"), offset(ACTION, "label_mask")
_ORIG_IS_HIGH = u64(Status.ORIG_IS_HIGH)
_LABEL_OF_EXTENSION = offset(EXTENSION, "label")
assert Status.ORIG_IS_HIGH == 1


@inlined
def _changed(before, value, mask):
    return (before & ~mask) | (value & mask)


@inlined
def _has_label(action):
    return memory.le64(action + _LABEL_MASK) | memory.le64(action + _LABEL_MASK + EIGHT) != ZERO


@kernel
def _write_label(extension, action):
    """Change the label of an extension; returns whether it is another then."""
    changed = ZERO
    label = extension + _LABEL_OF_EXTENSION
    for i in range(2):
        word = u64(8 * i)
        before = memory.read64(label + word)
        value, mask = memory.le64(action + _LABEL + word), memory.le64(action + _LABEL_MASK + word)
        memory.write64(label + word, _changed(before, value, mask))
        changed |= before ^ _changed(before, value, mask)
    return changed != ZERO


# ------------------------------------------------------------------------------------------------ a new connection
@inlined
def begin(views, action, record):
    """Write what an action asks into a record that is being made.

    Args:
        views: record of shm.views.
        action: u64, address of the ACTION.
        record: u64, a NEW record of ours, whose lock is held; the intent names it (ALLOC).

    Returns:
        Reason.NONE, or EXTENSION_FULL: there is no room for its label.
    """
    asked = action_at(action)
    if u64(asked.mark_mask) | u64(asked.policy) == ZERO and not _has_label(action):
        return u64(Reason.NONE)
    return _begin(views, action, record)


@kernel
def _begin(views, action, record):
    memory.seldom()
    asked = action_at(action)
    entry = entries.address(views, record)
    fields = entries.entry_at(entry)
    if _has_label(action):
        if not entries.with_extension(views, record):
            return u64(Reason.EXTENSION_FULL)
        _write_label(entries.extension_of(views, entry), action)
    fields.mark = _changed(u64(fields.mark), u64(asked.mark), u64(asked.mark_mask))
    if u64(asked.policy) != ZERO:
        fields.policy = (u64(asked.policy) - ONE) & LOW_8
    return u64(Reason.NONE)


# ------------------------------------------------------------------------------------------------ one that there is
@inlined
def force(views, action, i):
    """Delete the connection that packet ``i`` of the burst answers, if the action says so.

    Concurrency:
        Nothing is held when called; the delete list has room.
    """
    if u64(action_at(action).flags) & _FORCE != ZERO:
        _force(views, i)


@kernel
def _force(views, i):
    memory.seldom()
    parsed = parsed_of(views, i)
    kind = u64(parsed.kind)
    if u64(parsed.reason) != ZERO or kind == _ERROR:
        return
    if u64(parsed.can_reply) == ZERO:
        return
    key = key_of(views, i, kind)
    record = index.find(views, key, u64(parsed.hash), u64(parsed.zone))
    if record == index.MISS or record == index.BUSY:
        return
    entry = entries.address(views, record)
    status, high_is_source = u64(entries.entry_at(entry).status), u64(parsed.high_is_source)
    way = (status & _ORIG_IS_HIGH) ^ high_is_source
    if status & nat.TRANSLATED != ZERO:
        way = nat.way_of(nat.see(views, entry, key, high_is_source != ZERO))
    if way == _REPLY:
        delete_list.end(views, record, _REPLACED)
    locks.drop(entry + entries.LOCK)
    intents.done(views)


@inlined
def apply(views, action, verdict_address):
    """Change mark and label of the connection that a packet was found to be part of.

    Args:
        views: record of shm.views.
        action: u64, address of the ACTION.
        verdict_address: u64, address of the packet's VERDICT; it gets the mark, and EXTENSION_FULL as its reason where
            there is no room for a label.

    Concurrency:
        Nothing is held when called, nor after it.
    """
    if u64(action_at(action).mark_mask) != ZERO or _has_label(action):
        _apply(views, action, verdict_address)


@kernel
def _apply(views, action, verdict_address):
    memory.seldom()
    asked = action_at(action)
    verdict = verdict_at(verdict_address)
    record = u64(verdict.record)
    mark_mask, has_label = u64(asked.mark_mask), _has_label(action)
    if record == _NO_RECORD or u64(verdict.ct_state) & _INV != ZERO:
        return
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.CHANGE)
    if not locks.take(entry + entries.LOCK, views.me):
        intents.done(views)
        verdict.reason = u64(Reason.BUSY)
        return
    life = memory.acquire64(entry + entries.LIFE)
    if entries.state_of(life) == u64(Life.LIVE) and entries.incarnation_of(life) == u64(verdict.incarnation):
        fields = entries.entry_at(entry)
        before, changes = u64(fields.mark), ZERO
        fields.mark = _changed(before, u64(asked.mark), mark_mask) & LOW_32
        verdict.mark = fields.mark
        if u64(fields.mark) != before:
            changes = u64(Change.MARK)
        if has_label:
            if entries.with_extension(views, record):
                if _write_label(entries.extension_of(views, entry), action):
                    changes |= u64(Change.LABEL)
            else:
                verdict.reason = u64(Reason.EXTENSION_FULL)
        if changes != ZERO and events.are_wanted(views, EventKind.UPDATE):
            events.updated(views, record, changes)
    locks.drop(entry + entries.LOCK)
    intents.done(views)
