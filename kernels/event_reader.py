"""The reader's side of the rings of events: what has been taken and written, and copies of what is whole (shm/events).

Ordering
    A1  acquire load of the count, then of `open`
    A2  acquire load of an event's number, the copy, fence_acquire, the number again
    A3  acquire load of `open`, then of `written`
"""

from __future__ import annotations

from ..shm.layout import (
    CONNECTION,
    EVENT,
    EVENT_BYTES,
    EVENT_RING,
    EVENT_RING_BYTES,
    EVENT_ROW,
    EVENT_ROW_BYTES,
    EVENTS_MAX,
    KEY_WORDS,
    ROSTER_MAX,
    offset,
)
from . import entries, memory, shown
from .events import event_at
from .jit import kernel
from .words import EIGHT, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

row_at = memory.record_at(EVENT_ROW)

_RING_HEAD = u64(EVENT_RING_BYTES)
_SIZE, _ROW = u64(EVENT_BYTES), u64(EVENT_ROW_BYTES)
_MAX, _MASK = u64(EVENTS_MAX), u64(EVENTS_MAX - 1)
_OPEN, _WRITTEN = offset(EVENT_RING, "open"), offset(EVENT_RING, "written")
_NUMBER, _ENTRY = offset(EVENT, "number"), offset(EVENT, "entry")
_REPLY_KEY, _LABEL = offset(EVENT, "reply_key"), offset(EVENT, "label")
_REPLY_KEY_LAST = _REPLY_KEY + u64(8 * (KEY_WORDS - 1))
_CONNECTION = offset(EVENT_ROW, "id")
_ROW_LABEL = _CONNECTION + offset(CONNECTION, "label")


@kernel
def survey(count, heads, seen):
    """Look at all rings.

    Args:
        count: u64, address of the count.
        heads: u64, address of EVENT_RING[ROSTER_MAX].
        seen: u64, address of u64[ROSTER_MAX, 2], out: `open` and `written` of each.

    Returns:
        u64, the count: what has a number up to it is in a ring that is not open, in one that is, or lost.
    """
    taken = memory.acquire64(count)  # A1
    for i in range(ROSTER_MAX):
        head = heads + u64(i) * _RING_HEAD
        at = seen + u64(16 * i)
        memory.set_le64(at, memory.acquire64(head + _OPEN))  # A3
        memory.set_le64(at + EIGHT, memory.acquire64(head + _WRITTEN))
    return taken


@kernel
def _show(event, wall_offset_ms, out):
    """Write the EVENT_ROW of a private copy of an EVENT."""
    e, row = event_at(event), row_at(out)
    row.sequence = e.sequence
    row.time_ms = u64(e.time_ms) + wall_offset_ms
    row.changes = e.changes
    row.kind = e.kind
    row.end = e.end
    row.reserved0 = ZERO
    entry = event + _ENTRY
    second = event + _REPLY_KEY if memory.le64(event + _REPLY_KEY_LAST) != ZERO else ZERO
    life = memory.le64(entry + entries.LIFE)
    shown.connection(u64(e.record), entry, second, life, u64(e.time_ms), wall_offset_ms, out + _CONNECTION)
    row.helper = e.helper
    memory.copy(out + _ROW_LABEL, event + _LABEL, SIXTEEN)


@kernel
def gather(slots, first, end, wall_offset_ms, scratch, out, out_max):
    """Copy events of a ring out, as they are shown.

    Args:
        slots: u64, address of EVENT[EVENTS_MAX].
        first, end: u64, numbers of the events in their ring.
        wall_offset_ms: u64, wall clock minus the moments in events.
        scratch: u64, address of an EVENT of ours.
        out: u64, address of EVENT_ROW[out_max]; those that were written over meanwhile are left out.
        out_max: u64.

    Returns:
        u64, next event to be copied << 32 | rows written, both counted from ``first``.

    Concurrency:
        Beside the ring's writer.
    """
    n = ZERO
    done = ZERO
    if end - first > _MAX:
        done = end - first - _MAX
    for _ in range(min(end - first, _MAX)):
        if n == out_max:
            break
        number = first + done
        at = slots + (number & _MASK) * _SIZE
        done += ONE
        if memory.acquire64(at + _NUMBER) != number + number + ONE + ONE:  # A2
            continue
        memory.copy(scratch, at, _SIZE)
        memory.fence_acquire()
        if memory.acquire64(at + _NUMBER) != number + number + ONE + ONE:  # A2
            continue
        _show(scratch, wall_offset_ms, out + n * _ROW)
        n += ONE
    return (done << THIRTY_TWO) | n
