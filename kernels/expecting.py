"""What is foretold: made an expectation where nothing is in its way and there is room for it, and taken back.

Of two parents only one may expect a connection, so who would expect what another does is told that it clashes.  A parent has
so many of a kind; its oldest makes room.  In a full table what is stale does.
"""

from __future__ import annotations

from ..shm.layout import EXPECTATIONS_MAX, ExpectationFlag
from ..shm.reasons import Reason
from . import counters, expectations, memory
from .expectations import (
    DESTINATION,
    FLAGS,
    HINT,
    KEY_WORD,
    LAST,
    MAX,
    NEVER,
    NEXT,
    NEXT_OF_PARENT,
    ORDER,
    PARENT,
    SOURCE,
    SOURCE_PORT_SHIFT,
)
from .jit import inlined, kernel
from .words import EIGHT, ONE, ZERO, u64

_SOURCE_ANY, _CALL = u64(ExpectationFlag.SOURCE_ANY), u64(ExpectationFlag.CALL)


@inlined
def _is_same(expectation, other):
    """Return whether two expectations are for the same connections: same ends, ports and zone."""
    differences = ZERO
    for i in range(5):
        step = u64(8 * i)
        differences |= memory.read64(expectation + step) ^ memory.le64(other + step)
    flags = memory.read64(expectation + FLAGS) ^ memory.le64(other + FLAGS)
    return differences == ZERO and flags & (_SOURCE_ANY | _CALL) == ZERO


@inlined
def _overlaps(expectation, other):
    """Return whether there are connections that both expectations are for; they have one destination."""
    differences = memory.read64(expectation + DESTINATION) ^ memory.le64(other + DESTINATION)
    differences |= memory.read64(expectation + DESTINATION + EIGHT) ^ memory.le64(other + DESTINATION + EIGHT)
    differences |= (memory.read64(expectation + LAST) ^ memory.le64(other + LAST)) & KEY_WORD
    flags, other_flags = memory.read64(expectation + FLAGS), memory.le64(other + FLAGS)
    if differences != ZERO or (flags ^ other_flags) & _CALL != ZERO:
        return False
    port = memory.read64(expectation + LAST) >> SOURCE_PORT_SHIFT
    other_port = memory.le64(other + LAST) >> SOURCE_PORT_SHIFT
    if port != other_port and port != ZERO and other_port != ZERO:
        return False
    if (flags | other_flags) & _SOURCE_ANY != ZERO:
        return True
    differences = memory.read64(expectation + SOURCE) ^ memory.le64(other + SOURCE)
    return (differences | (memory.read64(expectation + SOURCE + EIGHT) ^ memory.le64(other + SOURCE + EIGHT))) == ZERO


@kernel
def _is_over(views, index, expectation, now_ms):
    """Remove an expectation that is stale, and count it; return whether it was."""
    if not expectations.is_stale(views, expectation, now_ms):
        return False
    expectations.remove(views, index)
    counters.count(views, Reason.EXPECTATION_EXPIRED)
    return True


@kernel
def _clear_the_way(views, foretold, now_ms):
    """Remove what is stale, or says the same for the same parent, on the chain that a new expectation will be on.

    Returns:
        False when another parent's expectation is for some of the same connections.
    """
    high, low = memory.le64(foretold + DESTINATION), memory.le64(foretold + DESTINATION + EIGHT)
    named = memory.read32(expectations.chain_of_destination(views, high, low, memory.le64(foretold + LAST)))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO:
            break
        index = named - ONE
        expectation = expectations.address(views, index)
        named = memory.read32(expectation + NEXT)
        if _is_over(views, index, expectation, now_ms):
            continue
        if _overlaps(expectation, foretold):
            same = memory.read64(expectation + PARENT) == memory.le64(foretold + PARENT)
            if not same or not _is_same(expectation, foretold):
                return False
            expectations.remove(views, index)
    return True


@kernel
def _make_room_of_parent(views, foretold, most, now_ms):
    """Remove what is stale of the parent, and its oldest of the same kind when there are ``most`` of that kind."""
    parent = memory.le64(foretold + PARENT)
    kind = u64(expectations.expectation_at(foretold).kind)
    call = memory.le64(foretold + FLAGS) & _CALL
    named = memory.read32(expectations.chain_of_parent(views, parent))
    count = ZERO
    oldest, oldest_order = ZERO, NEVER
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO:
            break
        index = named - ONE
        expectation = expectations.address(views, index)
        named = memory.read32(expectation + NEXT_OF_PARENT)
        if _is_over(views, index, expectation, now_ms):
            continue
        same_kind = expectations.kind_of(expectation) == kind and memory.read64(expectation + FLAGS) & _CALL == call
        if memory.read64(expectation + PARENT) == parent and same_kind:
            count += ONE
            order = memory.read64(expectation + ORDER)
            if order < oldest_order:
                oldest, oldest_order = index, order
    if count >= most:
        expectations.remove(views, oldest)
        counters.count(views, Reason.HELPER_DROPPED)


@kernel
def _free_record(views, now_ms):
    """Return a record that is not in use, where all are after what is stale was removed; MAX where all are still."""
    for _ in range(2):
        if expectations.count_of(views) < MAX:
            begin = memory.read32(views.expectation_table + HINT)
            for i in range(EXPECTATIONS_MAX):
                index = (begin + u64(i)) % MAX
                if not expectations.is_in_use(expectations.address(views, index)):
                    memory.release32(views.expectation_table + HINT, index + ONE)
                    return index
        for i in range(EXPECTATIONS_MAX):
            expectation = expectations.address(views, u64(i))
            if expectations.is_in_use(expectation):
                _is_over(views, u64(i), expectation, now_ms)
    return MAX


@kernel
def add(views, foretold, most, now_ms):
    """Make what stands at ``foretold`` an expectation.

    One that says the same for the same parent is replaced.  Where the parent has ``most`` of its kind, the oldest makes
    room.

    Returns:
        NONE: it is one.  CLASH: another parent's is for the same connections.  EXPECTATIONS_FULL, BUSY.

    Concurrency:
        Nothing is held; takes the table's lock.
    """
    memory.seldom()
    if not expectations.lock(views):
        return u64(Reason.BUSY)
    reason = u64(Reason.NONE)
    if not _clear_the_way(views, foretold, now_ms):
        reason = u64(Reason.CLASH)
    else:
        _make_room_of_parent(views, foretold, most, now_ms)
        index = _free_record(views, now_ms)
        if index == MAX:
            reason = u64(Reason.EXPECTATIONS_FULL)
        else:
            expectations.put(views, index, foretold)
            counters.count(views, Reason.EXPECTED)
    expectations.unlock(views)
    return reason


@kernel
def withdraw(views, foretold):
    """Remove the expectation that was made of what stands at ``foretold``, if the lock is to be had."""
    memory.seldom()
    if not expectations.lock(views):
        return
    parent = memory.le64(foretold + PARENT)
    named = memory.read32(expectations.chain_of_parent(views, parent))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO:
            break
        index = named - ONE
        expectation = expectations.address(views, index)
        if memory.read64(expectation + PARENT) == parent and _is_same(expectation, foretold):
            expectations.remove(views, index)
            break
        named = memory.read32(expectation + NEXT_OF_PARENT)
    expectations.unlock(views)


@kernel
def remove_of(views, parent, kinds):
    """Remove the expectations of a parent, given by its public id, that are of some kinds (a bit for each Foretold).

    Returns:
        False when the lock was not had in time.
    """
    memory.seldom()
    if not expectations.lock(views):
        return False
    named = memory.read32(expectations.chain_of_parent(views, parent))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO:
            break
        index = named - ONE
        expectation = expectations.address(views, index)
        named = memory.read32(expectation + NEXT_OF_PARENT)
        if memory.read64(expectation + PARENT) == parent and kinds >> expectations.kind_of(expectation) & ONE != ZERO:
            expectations.remove(views, index)
    expectations.unlock(views)
    return True
