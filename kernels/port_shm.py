"""Ports of clients that share memory with the service: rings whose other end is not trusted (kernels/ring).

    rx_burst   copy descriptors and frames to private memory, checking what was copied; give the places back
    put        copy a frame into the ring back
    tx_burst   let the client have what was put, and wake it if it sleeps

A client's ring back has one worker that writes it, or several where a port has fewer queues than there are workers: then
each has an OUTBOX for its frames, and takes the ring's lock for a batch.  Nobody holds two of those locks, and who waits
for one gives up in time; who dies with one leaves it to its successor.

What a client can reach is read once, and nothing that is read there is used as an address or a bound before it was checked.
A descriptor that cannot be becomes a frame of no bytes, which is refused like any other that ends too early.
"""

from __future__ import annotations

from ..shm.layout import (
    DESCRIPTOR_BYTES,
    FRAME,
    FRAME_BYTES,
    LINE_BYTES,
    NO_TAG,
    POLL_BURST_PACKETS,
    QUEUE,
    VERDICT_BYTES,
    FrameFlag,
    offset,
)
from ..shm.reasons import Reason
from . import memory, ring, sizes
from .jit import inlined, kernel
from .words import EIGHT, LOW_32, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

queue_at = memory.record_at(QUEUE)
frame_at = memory.record_at(FRAME)

RX, TX, LOCK = offset(QUEUE, "rx"), offset(QUEUE, "tx"), offset(QUEUE, "lock")
LOOKS_MAX = 1 << 16
"""At a lock that another has: of which one in sixteen lets others run.  Some milliseconds: a holder whose core was taken
away comes back within a turn of the scheduler, and until then nothing has to be lost."""
_BURST = u64(POLL_BURST_PACKETS)
_DESCRIPTOR = u64(DESCRIPTOR_BYTES)
_FRAME = u64(FRAME_BYTES)
_VERDICT = u64(VERDICT_BYTES)
_LINE = u64(LINE_BYTES)
_NO_TAG = u64(NO_TAG)
_FORWARDED = u64(FrameFlag.FORWARDED)


@inlined
def describe(queue, frame, address, captured, wire, link, flags):
    """Write a FRAME of a queue's zone, with the flags that its packets may have."""
    frame.address = address
    frame.captured_bytes = captured
    frame.wire_bytes = wire
    frame.zone = queue.zone
    frame.link = link
    frame.flags = flags & u64(queue.frame_flags)


@inlined
def _accept(queue, rx, place, out, frame, copied):
    """Copy a descriptor to ``out``, and describe its frame, which is to be copied to address ``copied``.

    Returns:
        Where the frame is now; it has the bytes that ``frame`` says.
    """
    tag, slot, captured, wire, link, flags = ring.fetch(place)
    source = ring.frame_of(rx, slot)
    if slot >= u64(rx.slots):
        queue.bad_slots = queue.bad_slots + ONE
        captured = wire = ZERO
        source = u64(rx.frames)
    elif captured > ring.SLOT or captured > wire:
        queue.bad_lengths = queue.bad_lengths + ONE
        captured = wire = ZERO
    ring.write(out, tag, ZERO, captured, wire, link, flags)
    describe(queue, frame, copied, captured, wire, link, flags)
    return source


@kernel
def _receive(queue, rx, loop, count):
    """Copy ``count`` descriptors and their frames to private memory, and give their places back."""
    for i in range(count):
        frame = frame_at(loop.frames + u64(i) * _FRAME)
        place = ring.descriptor_of(rx, rx.cursor + u64(i))
        source = _accept(
            queue, rx, place, loop.descriptors + u64(i) * _DESCRIPTOR, frame, loop.bytes + u64(i) * ring.SLOT
        )
        memory.prefetch(source)
        memory.prefetch(source + _LINE)
        # until the copy has been made the frame is where the client put it
        memory.set_le64(loop.verdicts + u64(i) * _VERDICT, source)
    bytes_ = ZERO
    for i in range(count):
        frame = frame_at(loop.frames + u64(i) * _FRAME)
        memory.copy(u64(frame.address), memory.le64(loop.verdicts + u64(i) * _VERDICT), u64(frame.captured_bytes))
        bytes_ += u64(frame.wire_bytes)
    ring.consume(rx, count)
    sizes.received(queue, count, bytes_)


@inlined
def is_ready(address):
    """Return whether there is something to take from the QUEUE at ``address``."""
    return ring.filled(ring.end_at(address + RX), ONE) != ZERO


@inlined
def rx_burst(loop, address):
    """Take a burst; returns how many packets there are now in `loop.frames`, each with its descriptor."""
    rx = ring.end_at(address + RX)
    count = min(_BURST, ring.filled(rx, _BURST))
    if count != ZERO:
        _receive(queue_at(address), rx, loop, count)
    return count


@inlined
def say_waiting(address, waiting):
    """Say whether the consumer of a queue sleeps."""
    memory.release32(ring.end_at(address + RX).ring + ring.WAITING, waiting)


# ------------------------------------------------------------------------------------------------ back
@kernel
def _take(word, me):
    """Take the lock at address ``word``; False when it was not had in some milliseconds."""
    memory.seldom()
    for look in range(LOOKS_MAX):
        if memory.acquire32(word) == ZERO and memory.swap32(word, ZERO, me):
            return True
        ring.breathe(u64(look))
    return False


@inlined
def lock(queue, address, me):
    """Have the ring back to oneself, where it is shared; False when it was not to be had, which the caller counts."""
    return u64(queue.shared) == ZERO or _take(address + LOCK, me)


@inlined
def unlock(queue, address):
    """Let others have it."""
    if u64(queue.shared) != ZERO:
        memory.release32(address + LOCK, ZERO)


@inlined
def place(address):
    """Take the next place in a queue's ring back.

    Returns:
        Its position, and whether there was room; what lacks it is counted.
    """
    queue = queue_at(address)
    tx = ring.end_at(address + TX)
    pending = u64(queue.pending)
    if ring.room(tx, pending + ONE) <= pending:
        queue.tx_full = queue.tx_full + ONE
        return ZERO, False
    queue.pending = pending + ONE
    return tx.cursor + pending, True


@kernel
def put(address, frame, verdict):
    """Put a frame into a queue's ring back.

    Args:
        address: of the QUEUE.
        frame: FRAME.
        verdict: address of its VERDICT.

    Returns:
        The Reason why it did not go, NONE when it did.
    """
    memory.apart()
    queue = queue_at(address)
    captured = u64(frame.captured_bytes)
    if captured > ring.SLOT:
        queue.tx_too_long = queue.tx_too_long + ONE
        return u64(Reason.OUTPUT_TOO_LONG)
    position, there_is_room = place(address)
    if not there_is_room:
        return u64(Reason.OUTPUT_FULL)
    tx = ring.end_at(address + TX)
    slot = position & (u64(tx.slots) - ONE)
    memory.copy(ring.frame_of(tx, slot), u64(frame.address), captured)
    at = ring.descriptor_of(tx, position)
    ring.write(at, _NO_TAG, slot, captured, u64(frame.wire_bytes), u64(frame.link), _FORWARDED)
    ring.write_verdict(at, verdict)
    queue.tx_bytes = queue.tx_bytes + u64(frame.wire_bytes)
    return u64(Reason.NONE)


@inlined
def tx_burst(address):
    """Let the client have what was put into the ring back."""
    queue = queue_at(address)
    tx = ring.end_at(address + TX)
    ring.produce(tx, u64(queue.pending))
    queue.wakes = queue.wakes + ring.wake(tx)


@inlined
def _hand_over(queue, address, tx, count, n):
    """Hand over ``n`` of ``count`` descriptors that stand in a ring that is ours, and let others have it."""
    queue.tx_full = queue.tx_full + (count - n)
    if n != ZERO:
        ring.produce(tx, n)
        queue.wakes = queue.wakes + ring.wake(tx)
        sizes.handed_over(queue, n)
    unlock(queue, address)


@kernel
def answer(queue, address, loop, count, me):
    """Put the frames of a burst and their verdicts into the ring back, and hand them over."""
    if not lock(queue, address, me):
        queue.tx_full = queue.tx_full + count
        return
    tx = ring.end_at(address + TX)
    n = min(count, ring.room(tx, count))
    bytes_ = ZERO
    for i in range(n):
        frame = frame_at(loop.frames + u64(i) * _FRAME)
        position = tx.cursor + u64(i)
        slot = position & (tx.slots - ONE)
        captured = u64(frame.captured_bytes)
        memory.copy(ring.frame_of(tx, slot), u64(frame.address), captured)
        at = ring.descriptor_of(tx, position)
        tag = memory.le64(loop.descriptors + u64(i) * _DESCRIPTOR)
        ring.write(at, tag, slot, captured, u64(frame.wire_bytes), u64(frame.link), u64(frame.flags))
        ring.write_verdict(at, loop.verdicts + u64(i) * _VERDICT)
        bytes_ += u64(frame.wire_bytes)
    queue.tx_bytes = queue.tx_bytes + bytes_
    _hand_over(queue, address, tx, count, n)


# ------------------------------------------------------------------------------------------------ back, where several send
@kernel
def put_aside(box, frame, verdict):
    """Copy a frame to where it waits for the ring back.

    Args:
        box: OUTBOX, with room.
        frame: FRAME.
        verdict: address of its VERDICT.

    Returns:
        The Reason why it cannot go, NONE when it can.
    """
    memory.apart()
    captured = u64(frame.captured_bytes)
    if captured > ring.SLOT:
        queue_at(box.queue).tx_too_long = queue_at(box.queue).tx_too_long + ONE
        return u64(Reason.OUTPUT_TOO_LONG)
    memory.copy(box.bytes + box.count * ring.SLOT, u64(frame.address), captured)
    at = box.descriptors + box.count * _DESCRIPTOR
    ring.write(at, _NO_TAG, ZERO, captured, u64(frame.wire_bytes), u64(frame.link), _FORWARDED)
    ring.write_verdict(at, verdict)
    box.count = box.count + ONE
    return u64(Reason.NONE)


@kernel
def send_aside(box, me):
    """Put the frames of an OUTBOX into the ring back, as far as there is room, and hand them over; returns how many went."""
    memory.seldom()
    count, address = u64(box.count), u64(box.queue)
    queue = queue_at(address)
    box.count = ZERO
    if count == ZERO:
        return ZERO
    if not lock(queue, address, me):
        return ZERO
    tx = ring.end_at(address + TX)
    n = min(count, ring.room(tx, count))
    for i in range(n):
        waiting = box.descriptors + u64(i) * _DESCRIPTOR
        position = tx.cursor + u64(i)
        slot = position & (tx.slots - ONE)
        captured = memory.le64(waiting + EIGHT) >> THIRTY_TWO
        memory.copy(ring.frame_of(tx, slot), box.bytes + u64(i) * ring.SLOT, captured)
        at = ring.descriptor_of(tx, position)
        memory.copy(at, waiting, _DESCRIPTOR)
        memory.write64(at + EIGHT, slot | (captured << THIRTY_TWO))
        queue.tx_bytes = queue.tx_bytes + (memory.le64(waiting + SIXTEEN) & LOW_32)
    _hand_over(queue, address, tx, count, n)
    return n
