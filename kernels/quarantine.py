"""Tuples that translated TCP connections have left, kept from others for as long as the other end may remember them.

A host that closed a connection waits two segment lifetimes before it takes a SYN from the same address and port for a new
one (TIME-WAIT, RFC 9293 3.3.2).  A record that ends by itself in TIME_WAIT has held its port for that long; one that is
deleted before, for whatever reason, leaves its tuple here, and what chooses tuples passes it over (RFC 6888 REQ-8).  The
same opener may have it again at once: that is what opening anew means.

Each tuple is one word; the hash of the tuple says in which line of eight.

    tag 24, of that hash | opener 16, of the hash of the connection's own tuple | until 24, in seconds

Who may    while
    leave  anyone, holding the record's lock, before it is DEAD: so no moment is between
    holds  anyone

A word is one store and says all there is, so nobody's death leaves anything to repair, and no lock is taken.  What two
write at once to one place, or what a full line has no room for (the one that ends first goes), is forgotten: a quarantine
that is too short costs one connection, memory without a bound would cost all.

Concurrency: beside anyone.  Where `views.quarantine` is 0 there is none.
"""

from __future__ import annotations

from ..shm.layout import LINE_BYTES, LINE_SLOTS, PARTICIPANT, QUARANTINE_LINES, Status, offset
from ..shm.reasons import Reason
from . import counters, entries, memory, taken_ports, timeouts, tuples
from .endpoints import TCP
from .jit import inlined, kernel
from .tcp_states import Tcp
from .timeouts import Timeout
from .words import EIGHT, LOW_16, ONE, THREE, ZERO, u64

TRANSLATED = u64(Status.SOURCE_NAT) | u64(Status.DESTINATION_NAT)

_LINE = u64(LINE_BYTES)
_LINES_MASK = u64(QUARANTINE_LINES - 1)
_CLOCK = offset(PARTICIPANT, "clock_ms")
_TAG_SHIFT, _OPENER_SHIFT = u64(40), u64(24)
_UNTIL = u64((1 << 24) - 1)
_HALF = u64(1 << 23)
_MS_PER_S = u64(1000)
_SEEN_REPLY, _OVS = u64(Status.SEEN_REPLY), u64(Status.OVS)
_TIME_WAIT = u64(Tcp.TIME_WAIT)
_LENGTH = u64(Timeout.TCP_TIME_WAIT)


@inlined
def tell_time(views, now_ms):
    """Say what time it is, for what this participant deletes until it says so again."""
    memory.release64(views.intent + _CLOCK, now_ms)


@inlined
def line_of(views, hash_):
    """Return the address of the line in which a tuple of this hash would stand."""
    return views.quarantine + ((hash_ >> EIGHT) & _LINES_MASK) * _LINE


@inlined
def _seconds_left(word, now_s):
    """Return how long a word holds from now on, modulo 2**24: over the half of that it has ended."""
    return ((word & _UNTIL) - now_s) & _UNTIL


@inlined
def _has_ended(word, now_s):
    left = _seconds_left(word, now_s)
    return left == ZERO or left > _HALF


@kernel
def _put(views, hash_, word, now_s):
    """Store a word in its line: where the same tuple stands, else where none stands any more, else where one ends first."""
    line = line_of(views, hash_)
    place, least = line, _UNTIL
    for i in range(LINE_SLOTS):
        at = line + (u64(i) << THREE)
        other = memory.acquire64(at)
        left = ZERO if other == ZERO or _has_ended(other, now_s) else _seconds_left(other, now_s)
        if left != ZERO and other >> _TAG_SHIFT == word >> _TAG_SHIFT:
            place, least = at, ZERO
            break
        if left < least:
            place, least = at, left
    if least != ZERO:
        counters.count(views, Reason.QUARANTINE_FORGOTTEN)
    memory.release64(place, word)
    counters.count(views, Reason.QUARANTINED)


@inlined
def _keep(views, entry, second):
    """Keep the tuple whose key is at ``second``, if the other end remembers it; returns whether."""
    fields = entries.entry_at(entry)
    status = u64(fields.status)
    if views.quarantine == ZERO or status & _SEEN_REPLY == ZERO or tuples.protocol_of(second) != TCP:
        return False
    now_ms = memory.acquire64(views.intent + _CLOCK)
    waited = status & _OVS == ZERO and u64(fields.state) == _TIME_WAIT
    if waited and memory.read64(entry + entries.EXPIRY) <= now_ms:
        return False
    now_s = now_ms // _MS_PER_S
    until = now_s + timeouts.length_ms(views, u64(fields.policy), _LENGTH) // _MS_PER_S + ONE
    hash_ = tuples.hash_key(views, second)
    opener = tuples.hash_key(views, entry + tuples.ENTRY_KEY) & LOW_16
    word = (hash_ >> _TAG_SHIFT << _TAG_SHIFT) | (opener << _OPENER_SHIFT) | (until & _UNTIL)
    _put(views, hash_, word, now_s)
    return True


@kernel
def leave(views, entry):
    """Keep the tuple of a translated connection that is about to end, if it is one that the other end remembers.

    Else its port is free, and whoever knows that it was taken (kernels/taken_ports) is told.

    Args:
        entry: address of its ENTRY, whose lock is held.
    """
    memory.seldom()
    second = entries.second_key(views, entry)
    if second != ZERO and not _keep(views, entry, second):
        taken_ports.let_go(views, second, u64(entries.entry_at(entry).status))


@kernel
def holds(views, hash_, own_hash, now_ms):
    """Return whether a tuple is kept from a connection.

    Args:
        hash_: of the tuple that its answers would have.
        own_hash: of its own tuple.
        now_ms: u64.
    """
    line = line_of(views, hash_)
    now_s = now_ms // _MS_PER_S
    for i in range(LINE_SLOTS):
        word = memory.acquire64(line + (u64(i) << THREE))
        if word == ZERO or word >> _TAG_SHIFT != hash_ >> _TAG_SHIFT:
            continue
        if not _has_ended(word, now_s) and (word >> _OPENER_SHIFT) & LOW_16 != own_hash & LOW_16:
            return True
    return False
