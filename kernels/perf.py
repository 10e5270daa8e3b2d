"""Where a worker's time goes: of each queue one burst in MEASURED_EVERY is measured, part by part.

    begin     before the burst is taken, where there is one
    mark      a part of it is over
    end       all of it, but for what is handed over at the end of the round
    hand_over the round is over: a burst has its share of that

A clock is read for each part of a burst that is measured, and for no other: a queue counts its bursts anyway, and which of
them is measured follows from the count.  So every queue is looked at as often as it works.

Whoever has a burst tracked outside of a worker's loop has no PERF: a word that is 0 stands in its place.
"""

from __future__ import annotations

from ..shm.layout import LATENCIES, MEASURED_EVERY, PERF, QUEUE, Part, offset
from . import memory, moments
from .jit import inlined, kernel
from .words import ONE, ZERO, u64

perf_at = memory.record_at(PERF)
queue_at = memory.record_at(QUEUE)
_SPEC = offset(PERF, "spec")
_LAST = u64(LATENCIES - 1)
_MASK = u64(MEASURED_EVERY - 1)


@inlined
def is_due(queue, loop):
    """Return whether the next burst of a queue is one to be measured."""
    return u64(queue.bursts) & _MASK == u64(loop.measured_at)


@inlined
def is_on(perf):
    """Return whether the burst in hand is measured."""
    return memory.le64(perf) != ZERO


@kernel
def begin(perf, address):
    """Begin to measure a burst of the QUEUE at ``address``."""
    memory.seldom()
    at = perf_at(perf)
    at.began_ns = moments.now_ns(perf + _SPEC)
    at.mark_ns = at.began_ns
    at.queue = address
    at.on = ONE


@kernel
def mark(perf, part):
    """A part of the burst in hand is over."""
    memory.seldom()
    at = perf_at(perf)
    now = moments.now_ns(perf + _SPEC)
    at.parts_ns[part] = u64(at.parts_ns[part]) + (now - at.mark_ns)
    at.mark_ns = now


@inlined
def part_is_over(perf, part):
    """A part of the burst in hand is over, if it is measured."""
    if is_on(perf):
        mark(perf, part)


@kernel
def end(perf, count):
    """The burst in hand is over; others of its round may follow."""
    memory.seldom()
    mark(perf, u64(Part.TX))
    at = perf_at(perf)
    at.on = ZERO
    at.bursts = at.bursts + ONE
    at.packets = at.packets + count
    at.round_packets = count
    queue = queue_at(at.queue)
    queue.measured = queue.measured + ONE
    queue.busy_ns = queue.busy_ns + (at.mark_ns - at.began_ns)


@kernel
def hand_over(perf, before_ns, packets):
    """A round is over: note how old its measured burst is, and what of handing over is its share.

    Args:
        perf: address of a PERF, with a burst of this round.
        before_ns: u64, the moment before frames were handed over.
        packets: u64, of the round.
    """
    memory.seldom()
    at = perf_at(perf)
    now = moments.now_ns(perf + _SPEC)
    share = (now - before_ns) * at.round_packets // max(packets, at.round_packets)
    at.parts_ns[Part.TX] = u64(at.parts_ns[Part.TX]) + share
    queue = queue_at(at.queue)
    queue.busy_ns = queue.busy_ns + share
    age, place = now - at.began_ns, ZERO
    for _ in range(LATENCIES - 1):
        if age <= ONE:
            break
        age >>= ONE
        place += ONE
    at.latencies[place] = u64(at.latencies[place]) + ONE
    at.round_packets = ZERO


@kernel
def _now_ns(perf):
    memory.seldom()
    return moments.now_ns(perf + _SPEC)


@inlined
def before_handing_over(perf):
    """Return the moment where a burst of this round was measured, else 0."""
    if perf_at(perf).round_packets == ZERO:
        return ZERO
    return _now_ns(perf)


@inlined
def drop(perf):
    """There was no burst after all."""
    perf_at(perf).on = ZERO
