"""Whether a packet was awaited: what it finds in the table of expectations, and takes for its own.

    find      before a connection is made: a copy of one expectation, whole, or that there is none
    claim     by who makes the connection: one that is not PERMANENT is his alone then, and gone
    call_of   a packet of PPTP's GRE, which names its call by one number: the other

Nothing of this takes the table's lock, but ``claim``, and who was in the way of others again and again.

Ordering
    A4  acquire version, read, fence, version again: the same and even, so what was read is of one moment.  Pairs with E2
        of kernels/expectations
"""

from __future__ import annotations

from ..shm.layout import EXPECTATIONS_MAX, ExpectationFlag
from ..shm.reasons import Reason
from . import counters, expectations, memory
from .expectations import (
    DESTINATION,
    FLAGS,
    KEY_WORD,
    LAST,
    MAX,
    NEXT,
    SOURCE,
    SOURCE_PORT_SHIFT,
    VERSION,
    WORDS,
)
from .jit import inlined, kernel
from .words import EIGHT, LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, TWO, ZERO, u64

NONE, FOUND, BUSY = ZERO, ONE, TWO
"""What ``find`` and ``claim`` say."""
READ_ROUNDS_MAX = 16
"""Looks without the lock while others change the table."""
_IN_USE, _SOURCE_ANY = u64(ExpectationFlag.IN_USE), u64(ExpectationFlag.SOURCE_ANY)
_PERMANENT, _CALL = u64(ExpectationFlag.PERMANENT), u64(ExpectationFlag.CALL)


@inlined
def _is_from(expectation, flags, source_high, source_low, source_port):
    """Return whether an expectation allows for a source."""
    port = memory.read64(expectation + LAST) >> SOURCE_PORT_SHIFT
    if port != ZERO and port != source_port:
        return False
    if flags & _SOURCE_ANY != ZERO:
        return True
    differences = memory.read64(expectation + SOURCE) ^ source_high
    return (differences | (memory.read64(expectation + SOURCE + EIGHT) ^ source_low)) == ZERO


@inlined
def _ends(parsed):
    """Return a packet's source (two words), destination (two words), and last word."""
    last = u64(parsed.key[4])
    ports = last >> THIRTY_TWO
    low, high = ports >> SIXTEEN, ports & LOW_16
    rest = last & LOW_32
    if u64(parsed.high_is_source) != ZERO:
        word = (high << SOURCE_PORT_SHIFT) | (low << THIRTY_TWO) | rest
        return u64(parsed.key[2]), u64(parsed.key[3]), u64(parsed.key[0]), u64(parsed.key[1]), word
    word = (low << SOURCE_PORT_SHIFT) | (high << THIRTY_TWO) | rest
    return u64(parsed.key[0]), u64(parsed.key[1]), u64(parsed.key[2]), u64(parsed.key[3]), word


@kernel
def _scan(views, parsed, now_ms):
    """Return the index + 1 of the expectation that a packet fits, 0 for none; the caller sees to it that nothing moves."""
    source_high, source_low, high, low, last = _ends(parsed)
    named = memory.read32(expectations.chain_of_destination(views, high, low, last))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO or named > MAX:
            break
        expectation = expectations.address(views, named - ONE)
        flags = memory.read64(expectation + FLAGS)
        differences = memory.read64(expectation + DESTINATION) ^ high
        differences |= memory.read64(expectation + DESTINATION + EIGHT) ^ low
        differences |= (memory.read64(expectation + LAST) ^ last) & KEY_WORD
        if (
            differences == ZERO
            and flags & (_IN_USE | _CALL) == _IN_USE
            and _is_from(expectation, flags, source_high, source_low, last >> SOURCE_PORT_SHIFT)
            and not expectations.is_stale(views, expectation, now_ms)
        ):
            return named
        named = memory.read32(expectation + NEXT)
    return ZERO


@kernel
def _copy(destination, source):
    for i in range(WORDS):
        step = u64(8 * i)
        if step != NEXT:
            memory.set_le64(destination + step, memory.read64(source + step))


@kernel
def find(views, parsed, now_ms):
    """Look whether a packet that has no connection was foretold; nothing is changed.

    Args:
        parsed: PARSED with reason NONE.
        now_ms: the moment to judge staleness by.

    Returns:
        FOUND: a copy stands at ``views.expected``.  NONE.  BUSY: the table was being changed each time.

    Concurrency:
        Takes no lock, but when others were in the way READ_ROUNDS_MAX times.
    """
    memory.seldom()
    for _ in range(READ_ROUNDS_MAX):
        version = memory.acquire32(views.expectation_table + VERSION)  # A4
        if version & ONE == ZERO:
            named = _scan(views, parsed, now_ms)
            if named != ZERO:
                _copy(views.expected, expectations.address(views, named - ONE))
            memory.fence_acquire()
            if memory.acquire32(views.expectation_table + VERSION) == version:
                return FOUND if named != ZERO else NONE
        memory.relax()
    if not expectations.lock(views):
        return BUSY
    named = _scan(views, parsed, now_ms)
    if named != ZERO:
        _copy(views.expected, expectations.address(views, named - ONE))
    expectations.unlock(views)
    return FOUND if named != ZERO else NONE


@kernel
def claim(views, parsed, now_ms):
    """Take the expectation that ``find`` found for a connection about to be made.

    Returns:
        FOUND: it is ours, a copy at ``views.expected``; NONE: somebody else had it first; BUSY.

    Concurrency:
        Nothing is held; takes the table's lock for what is not PERMANENT.
    """
    memory.seldom()
    if memory.le64(views.expected + FLAGS) & _PERMANENT != ZERO:
        counters.count(views, Reason.EXPECTATION_MATCHED)
        return FOUND
    if not expectations.lock(views):
        return BUSY
    named = _scan(views, parsed, now_ms)
    if named != ZERO:
        _copy(views.expected, expectations.address(views, named - ONE))
        if memory.le64(views.expected + FLAGS) & _PERMANENT == ZERO:
            expectations.remove(views, named - ONE)
        counters.count(views, Reason.EXPECTATION_MATCHED)
    expectations.unlock(views)
    return FOUND if named != ZERO else NONE


# ------------------------------------------------------------------------------------------------ calls
@kernel
def _scan_calls(views, parsed):
    source_high, source_low, high, low, last = _ends(parsed)
    named = memory.read32(expectations.chain_of_destination(views, high, low, last))
    for _ in range(EXPECTATIONS_MAX):
        if named == ZERO or named > MAX:
            break
        expectation = expectations.address(views, named - ONE)
        differences = memory.read64(expectation + DESTINATION) ^ high
        differences |= memory.read64(expectation + DESTINATION + EIGHT) ^ low
        differences |= memory.read64(expectation + SOURCE) ^ source_high
        differences |= memory.read64(expectation + SOURCE + EIGHT) ^ source_low
        differences |= (memory.read64(expectation + LAST) ^ last) & KEY_WORD
        is_call = memory.read64(expectation + FLAGS) & (_IN_USE | _CALL) == _IN_USE | _CALL
        if differences == ZERO and is_call and not expectations.is_stale(views, expectation, ZERO):
            return memory.read64(expectation + LAST) >> SOURCE_PORT_SHIFT
        named = memory.read32(expectation + NEXT)
    return ZERO


@kernel
def call_of(views, parsed):
    """Return the key that a packet of GRE lacks, which only names the call of its receiver; 0 when no call is known.

    PPTP's packets have the receiver's number of a call; the two numbers together are what both directions have in common.
    """
    memory.seldom()
    for _ in range(READ_ROUNDS_MAX):
        version = memory.acquire32(views.expectation_table + VERSION)  # A4
        if version & ONE == ZERO:
            call = _scan_calls(views, parsed)
            memory.fence_acquire()
            if memory.acquire32(views.expectation_table + VERSION) == version:
                return call
        memory.relax()
    return ZERO
