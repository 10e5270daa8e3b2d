"""A worker's loop: take packets from the queues it polls, track them, answer; sweep; sleep when there is nothing.

For each queue in turn, a burst:

    receive    ports.rx_burst, by the kind of its port
    track      burst.track_burst
    answer     clients that share memory get frames and verdicts back, as far as they have left room

Where rules hold (kernels/rulebook), the pipeline says what is tracked and where frames go, and the answers have no frames.
What was output leaves at the end of a round over all queues, or where a batch is full, each queue's frames together; while
there are packets it may wait for longer, ``flush_interval_ns``.

Every descriptor of a client gets its answer, in order; only a fragment's comes later, when its datagram is whole.

A call is bounded: in rounds, in looks while there is nothing, and by the sleep, which ends ``sleep_ms`` after the moment
that the caller calls now.  It also ends after a burst in which a lock was waited for in vain: its holder may be dead, and
the caller can see to that.
"""

from __future__ import annotations

from ..shm.layout import (
    DESCRIPTOR_BYTES,
    FRAGMENTS_MAX,
    FRAME,
    FRAME_BYTES,
    PARTICIPANT,
    POLL_BURST_PACKETS,
    POLLED,
    POLLED_BYTES,
    QUEUE,
    VERDICT,
    VERDICT_BYTES,
    WAIT,
    WAITING,
    WAITING_BYTES,
    Part,
    VerdictFlag,
    offset,
)
from ..shm.reasons import Reason
from . import (
    burst,
    fragments,
    futex,
    late,
    memory,
    moments,
    outputs,
    perf,
    pipeline,
    port_nfqueue,
    port_shm,
    ports,
    ring,
    rulebook,
    sockets,
    sweep,
)
from .jit import inlined, kernel
from .words import ONE, THREE, ZERO, u64

queue_at = memory.record_at(QUEUE)
frame_at = memory.record_at(FRAME)
verdict_at = memory.record_at(VERDICT)
waiting_at = memory.record_at(WAITING)
polled_at = memory.record_at(POLLED)

_TX = offset(QUEUE, "tx")
_HEARTBEAT = offset(PARTICIPANT, "heartbeat")
_ADDRESS = offset(WAIT, "address")
_RECEIVE, _RULES = u64(Part.RECEIVE), u64(Part.RULES)
_BUSY = u64(8 * Reason.BUSY)
_BURST = u64(POLL_BURST_PACKETS)
_DESCRIPTOR = u64(DESCRIPTOR_BYTES)
_FRAME = u64(FRAME_BYTES)
_VERDICT = u64(VERDICT_BYTES)
_WAITING = u64(WAITING_BYTES)
_POLLED = u64(POLLED_BYTES)
_POLLERR = u64(0x08)
RESUMED_MAX = u64(64)
"""Fragments that are taken on through the rules in one round."""
SLEEP_MS_WAITING = ONE
"""The longest sleep of a worker that holds fragments: another may say any moment what becomes of them."""


@kernel
def _set_aside(address, loop, count):
    """Take fragments that wait out of a burst, and remember what to answer some time; returns how many packets are left."""
    memory.seldom()
    left = ZERO
    for i in range(count):
        verdict = verdict_at(loop.verdicts + u64(i) * _VERDICT)
        descriptor = loop.descriptors + u64(i) * _DESCRIPTOR
        if u64(verdict.flags) & u64(VerdictFlag.HELD) != ZERO:
            ports.describe(queue_at(address), loop, u64(i))
            waiting = loop.waiting + u64(verdict.record) * _WAITING
            memory.copy(waiting, descriptor, _DESCRIPTOR)
            waiting_at(waiting).queue = address
            waiting_at(waiting).generation = verdict.incarnation
            continue
        if left != u64(i):
            memory.copy(loop.descriptors + left * _DESCRIPTOR, descriptor, _DESCRIPTOR)
            memory.copy(loop.frames + left * _FRAME, loop.frames + u64(i) * _FRAME, _FRAME)
            memory.copy(loop.verdicts + left * _VERDICT, loop.verdicts + u64(i) * _VERDICT, _VERDICT)
        left += ONE
    return left


@kernel
def _answer_fragment(views, loop, number):
    """Put a fragment that has waited into the ring back of the queue that it came from."""
    waiting = loop.waiting + number * _WAITING
    if u64(waiting_at(waiting).generation) != fragments.generation_of(fragments.word_of(views, number)):
        return
    address = u64(waiting_at(waiting).queue)
    if address == ZERO:  # its queue has gone to another worker
        return
    queue = queue_at(address)
    if ports.decides(queue):
        mark = u64(verdict_at(fragments.fragment(views, number) + fragments.VERDICT).mark)
        port_nfqueue.accept_late(address, waiting, mark)
    if not ports.is_shm(queue):
        return
    tx = ring.end_at(address + _TX)
    me = pipeline.pipe_at(loop.pipe).worker + ONE
    if not port_shm.lock(queue, address, me):
        return
    if ring.room(tx, ONE) == ZERO:
        queue.tx_full = queue.tx_full + ONE
        port_shm.unlock(queue, address)
        return
    tag, _, captured, wire, link, flags = ring.fetch(waiting)
    slot = tx.cursor & (tx.slots - ONE)
    memory.copy(ring.frame_of(tx, slot), fragments.buffer(views, number), captured)
    place = ring.descriptor_of(tx, tx.cursor)
    ring.write(place, tag, slot, captured, wire, link, flags & u64(queue.frame_flags))
    ring.write_verdict(place, fragments.fragment(views, number) + fragments.VERDICT)
    ring.produce(tx, ONE)
    queue.wakes = queue.wakes + ring.wake(tx)
    queue.tx_packets = queue.tx_packets + ONE
    queue.tx_bytes = queue.tx_bytes + wire
    port_shm.unlock(queue, address)


@kernel
def _answer_late(views, loop, now_ms):
    """Answer fragments of whose datagrams it is known what became."""
    memory.seldom()
    for _ in range(FRAGMENTS_MAX):
        found = late.next_one(views, now_ms)
        if found == ZERO:
            break
        _answer_fragment(views, loop, found - ONE)


@kernel
def _fetch_late(views, pipe, loop, now_ms):
    """Make a burst of the next fragment whose verdict has come, to be taken on through the rules.

    Returns:
        Address of the QUEUE that it came from, 0 when there is none.
    """
    memory.seldom()
    for _ in range(FRAGMENTS_MAX):
        found = late.next_one(views, now_ms)
        if found == ZERO:
            break
        number = found - ONE
        at = loop.waiting + number * _WAITING
        if u64(waiting_at(at).generation) != fragments.generation_of(fragments.word_of(views, number)):
            continue
        address = u64(waiting_at(at).queue)
        if address == ZERO:  # its queue has gone to another worker
            continue
        queue = queue_at(address)
        _, _, captured, wire, link, flags = ring.fetch(at)
        memory.copy(loop.descriptors, at, _DESCRIPTOR)
        memory.copy(loop.bytes, fragments.buffer(views, number), captured)
        port_shm.describe(queue, frame_at(loop.frames), loop.bytes, captured, wire, link, flags)
        pipeline.begin(pipe, loop, queue, ONE)
        pipe.queue = address
        pipeline.resume(views, pipe, loop, at, fragments.fragment(views, number) + fragments.VERDICT)
        return address
    return ZERO


@kernel
def _is_time(loop, pipe):
    """Return whether what was output has waited for long enough; then it waits anew."""
    memory.seldom()
    now_ns = moments.now_ns(loop.timeout)
    if now_ns - pipe.flushed_ns < pipe.flush_interval_ns:
        return False
    pipe.flushed_ns = now_ns
    return True


@kernel
def _round(views, loop, now_ms):
    """Take a burst from each queue, and fragments whose verdict has come; returns the packets taken."""
    packets = ZERO
    pipe = pipeline.pipe_at(loop.pipe)
    ruled = pipe.generation != ZERO
    for i in range(loop.queue_count + RESUMED_MAX):
        count = ONE
        if i < loop.queue_count:
            address = memory.le64(loop.queues + (u64(i) << THREE))
            queue = queue_at(address)
            measured = perf.is_due(queue, loop) and ports.is_ready(address)
            if measured:
                perf.begin(loop.perf, address)
            count = ports.rx_burst(loop, address)
            if count == ZERO:
                if measured:
                    perf.drop(loop.perf)
                continue
            perf.part_is_over(loop.perf, _RECEIVE)
            packets += count
            if ruled:
                pipeline.begin(pipe, loop, queue, count)
                pipe.queue = address
        else:
            measured = False
            if not (ruled and fragments.waits_for(views)):
                break
            address = _fetch_late(views, pipe, loop, now_ms)
            if address == ZERO:
                break
            queue = queue_at(address)
        frames, verdicts, waiting = loop.frames, loop.verdicts, count
        taken = count
        if ruled:
            waiting = pipeline.advance(views, pipe, loop, queue, count, now_ms)
            perf.part_is_over(loop.perf, _RULES)
            frames, verdicts = pipe.frames, pipe.verdicts
        for _ in range(pipeline.TURNS_MAX):
            if waiting == ZERO:
                break
            burst.track_burst(views, frames, waiting, now_ms, verdicts)
            if not ruled:
                break
            waiting = pipeline.advance(views, pipe, loop, queue, count, now_ms)
            perf.part_is_over(loop.perf, _RULES)
        if ruled:
            pipeline.finish(views, pipe, loop, address, count)
        else:
            if fragments.waits_for(views):
                count = _set_aside(address, loop, count)
                _answer_late(views, loop, now_ms)
            if ports.is_shm(queue):
                port_shm.answer(queue, address, loop, count, pipe.worker + ONE)
            elif ports.decides(queue):
                port_nfqueue.accept_all(address, loop, count)
        ports.release(address)
        if measured:
            perf.end(loop.perf, taken)
    before_ns = perf.before_handing_over(loop.perf)
    if ruled:
        if packets == ZERO or pipe.flush_interval_ns == ZERO or _is_time(loop, pipe):
            outputs.hand_over(views, pipe)
    elif fragments.waits_for(views):
        _answer_late(views, loop, now_ms)
    if before_ns != ZERO:
        perf.hand_over(loop.perf, before_ns, packets)
    return packets


# ------------------------------------------------------------------------------------------------ when there is nothing
@inlined
def _is_quiet(loop):
    """Look at all queues once."""
    for i in range(loop.queue_count):
        if ports.is_ready(memory.le64(loop.queues + (u64(i) << THREE))):
            return False
    return True


@kernel
def _spin(loop):
    """Look at the queues for a while; returns whether there is something."""
    for i in range(loop.spins_max):
        if not _is_quiet(loop):
            return True
        ring.breathe(i)
    return False


@kernel
def _say_waiting(loop, waiting):
    for i in range(loop.queue_count):
        address = memory.le64(loop.queues + (u64(i) << THREE))
        if ports.is_shm(queue_at(address)):
            port_shm.say_waiting(address, waiting)


@kernel
def _wait_for_devices(loop, sleep_ms):
    """Sleep until a descriptor has something; note which of them have an error, for that does not go away by itself."""
    memory.seldom()
    sockets.wait(loop.polled, loop.polled_count, sleep_ms)
    for i in range(loop.polled_count):
        if u64(polled_at(loop.polled + u64(i) * _POLLED).came) & _POLLERR != ZERO:
            queue = queue_at(memory.le64(loop.polled_queues + (u64(i) << THREE)))
            queue.troubled = ONE
            loop.troubled = ONE


@kernel
def _sleep(loop, now_ms, sleep_ms):
    """Sleep until a client wakes us or a device has something, but not longer than ``sleep_ms`` from ``now_ms``."""
    _say_waiting(loop, ONE)
    memory.fence_full()  # F2 of kernels/ring
    if _is_quiet(loop):
        if loop.polled_count != ZERO:
            _wait_for_devices(loop, sleep_ms)
            loop.sleeps = loop.sleeps + ONE
            _say_waiting(loop, ZERO)
            return
        futex.until(loop.timeout, now_ms + sleep_ms)
        if loop.wait_count == ONE:
            futex.wait(memory.le64(loop.waits + _ADDRESS), ONE, loop.timeout)
        else:
            futex.wait_for_any(loop.waits, loop.wait_count, loop.timeout)
        loop.sleeps = loop.sleeps + ONE
    _say_waiting(loop, ZERO)


@kernel
def poll(views, loop, now_ms, rounds_max, sweep_slots):
    """Work on queues for a while, or sleep where there is nothing to do.

    Args:
        views: record of shm.views of the worker.
        loop: POLL of `shm.loop.Loop`.
        now_ms: u64, milliseconds of CLOCK_MONOTONIC; one instant for the whole call.
        rounds_max: u64, bursts at most, but from each queue that has something in the last round.
        sweep_slots: u64, slots to sweep after them.

    Returns:
        The number of packets taken. A call that took none has slept, up to `sleep_ms`, or was woken.

        All packets of a call meet the same rules: those that hold when it begins.

    Concurrency:
        Beside any others on the table; the queues of `loop` are this worker's alone.
    """
    memory.release64(views.intent + _HEARTBEAT, memory.acquire64(views.intent + _HEARTBEAT) + ONE)
    views.perf = loop.perf
    packets = ZERO
    if not rulebook.pick_up(pipeline.pipe_at(loop.pipe)):
        rounds_max = ZERO
    budget = rounds_max * _BURST
    busy = views.counters + _BUSY
    before = memory.le64(busy)
    for _ in range(rounds_max):
        taken = _round(views, loop, now_ms)
        packets += taken
        if taken != ZERO:
            loop.busy = ONE
            if packets >= budget or memory.le64(busy) != before:
                break
        elif loop.busy == ZERO or not _spin(loop):
            break
    if sweep_slots != ZERO:
        sweep.sweep(views, now_ms, sweep_slots)
    if packets == ZERO:
        loop.busy = ZERO
        sleep_ms = u64(loop.sleep_ms)
        if sleep_ms != ZERO:
            _sleep(loop, now_ms, min(sleep_ms, SLEEP_MS_WAITING) if fragments.waits_for(views) else sleep_ms)
    return packets
