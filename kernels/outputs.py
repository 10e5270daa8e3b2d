"""Where frames go: out of ports, the frames of a round over all queues handed over together.

A worker sends by queues that are its own; where it has none of a port, by one that it shares with others.  Of several a
frame takes the one with the place of the queue it came from, so that a flow stays in order.  What goes nowhere is counted: a
port of which this worker has no queue, a ring in which the other side has left no room, a frame that is too long.

Frames that wait for the end of the round stand where they leave already: to wait costs them no copy.  They wait until a
batch is full, ``batch_max``, which is 1 where each is to leave by itself.  A frame of TCP that is longer than a port takes,
and one of several datagrams, is cut (kernels/superframes).

The answers to those who sent the frames go the same way, in the order of the frames, and have no bytes: the frames are
elsewhere.
"""

from __future__ import annotations

from ..shm.layout import (
    DESCRIPTOR_BYTES,
    FRAME_BYTES,
    FRAME_SLOT_BYTES,
    IS_OUTBOX,
    OUTBOX,
    OUTLET,
    OUTLET_BYTES,
    POLL_BURST_PACKETS,
    QUEUE,
    VERDICT_BYTES,
    FrameFlag,
    Link,
)
from ..shm.reasons import Reason
from . import completion, counters, learning, memory, port_nfqueue, port_shm, ports, ring, superframes
from .flow_fields import fields_at
from .jit import inlined, kernel
from .stages import frame_at
from .verdicts import verdict_at
from .words import ONE, SIXTEEN, THREE, ZERO, u64

queue_at = memory.record_at(QUEUE)
box_at = memory.record_at(OUTBOX)
outlet_at = memory.record_at(OUTLET)

_OUTLET, _DESCRIPTOR, _FRAME, _VERDICT = (
    u64(size) for size in (OUTLET_BYTES, DESCRIPTOR_BYTES, FRAME_BYTES, VERDICT_BYTES)
)
_IS_OUTBOX = u64(IS_OUTBOX)
_SLOT, _SPARE = u64(FRAME_SLOT_BYTES), u64(POLL_BURST_PACKETS)
_ORDINARY = u64(1518)
"""Bytes of a frame up to which nobody asks whether it is too long: Ethernet's, with a tag."""
PARTS_MAX = 2048
"""Of a frame: 64 KiB over a link of 86 bytes."""
_QUIET, _PARTIAL = u64(FrameFlag.QUIET), u64(FrameFlag.CHECKSUM_PARTIAL)
_FLAGS_SHIFT = u64(40)
_SIX, _TWELVE, _FOURTEEN = u64(6), u64(12), u64(14)
_VLAN_BITS = u64(0xFFF)


@kernel
def _send_aside(views, pipe, box):
    """Send what waits in an OUTBOX; what did not go was counted as output before, and is now as refused."""
    memory.seldom()
    waited = u64(box.count)
    lost = waited - port_shm.send_aside(box, pipe.worker + ONE)
    for _ in range(lost):
        counters.count(views, Reason.OUTPUT_FULL)


@kernel
def _put_aside(views, pipe, loop, marked, i):
    """Put frame ``i`` of the burst where it waits for a queue that several workers send by."""
    memory.seldom()
    box = box_at(marked ^ _IS_OUTBOX)
    reason = port_shm.put_aside(box, frame_at(loop.frames + i * _FRAME), loop.verdicts + i * _VERDICT)
    counters.count(views, reason if reason != ZERO else u64(Reason.OUTPUTS))
    if reason != ZERO:
        return
    if box.count >= pipe.batch_max:
        _send_aside(views, pipe, box)
    elif box.touched == ZERO:
        box.touched = ONE
        memory.set_le64(pipe.touched + (pipe.touched_count << THREE), marked)
        pipe.touched_count = pipe.touched_count + ONE


@inlined
def _touch(pipe, address):
    """Remember that a queue has something to be handed over at the end of the round."""
    queue = queue_at(address)
    if queue.touched == ZERO:
        queue.touched = ONE
        memory.set_le64(pipe.touched + (pipe.touched_count << THREE), address)
        pipe.touched_count = pipe.touched_count + ONE


@kernel
def _put_whole(views, pipe, loop, address, i):
    """Put frame ``i`` of the burst where it leaves by a queue; a batch that is full leaves at once."""
    memory.apart()
    frame = frame_at(loop.frames + i * _FRAME)
    if u64(frame.flags) & _PARTIAL != ZERO:
        completion.complete(frame)
    if address & _IS_OUTBOX != ZERO:
        _put_aside(views, pipe, loop, address, i)
        return
    reason = ports.put(address, frame, loop.verdicts + i * _VERDICT)
    if reason != ZERO:
        counters.count(views, reason)
        return
    counters.count(views, Reason.OUTPUTS)
    if u64(queue_at(address).pending) >= pipe.batch_max:
        ports.tx_burst(address)
    if u64(queue_at(address).pending) != ZERO:
        _touch(pipe, address)


@kernel
def _put_in_parts(views, pipe, loop, address, i):
    """Put frame ``i`` of the burst where it leaves in parts, where it is too long, or several, and can be cut; False where
    it is not."""
    memory.seldom()
    frame = frame_at(loop.frames + i * _FRAME)
    queue = u64(box_at(address ^ _IS_OUTBOX).queue) if address & _IS_OUTBOX != ZERO else address
    most = ports.longest(queue, frame)
    told = ports.segment_bytes(loop, i)
    if u64(frame.captured_bytes) <= most and told == ZERO:
        return False
    shape = superframes.look(frame)
    size = superframes.part_bytes(shape, min(most, _SLOT), told) if shape != ZERO else ZERO
    if size == ZERO:
        return False
    part = frame_at(loop.frames + _SPARE * _FRAME)
    part.address = loop.bytes + _SPARE * _SLOT
    memory.copy(loop.verdicts + _SPARE * _VERDICT, loop.verdicts + i * _VERDICT, _VERDICT)
    left = superframes.end_of(shape) - superframes.data_of(shape)
    for number in range(PARTS_MAX):
        first = u64(number) * size
        if first >= left:
            break
        superframes.write(frame, part, u64(number), first, min(size, left - first), shape)
        _put_whole(views, pipe, loop, address, _SPARE)
    return True


@kernel
def _put(views, pipe, loop, address, i):
    """Put frame ``i`` of the burst where it leaves by a queue, in parts where it is longer than that can take."""
    memory.apart()
    frame = frame_at(loop.frames + i * _FRAME)
    # what is joined has its checksum to be filled in, whatever its length
    if (u64(frame.captured_bytes) > _ORDINARY or u64(frame.flags) & _PARTIAL != ZERO) and _put_in_parts(
        views, pipe, loop, address, i
    ):
        return
    _put_whole(views, pipe, loop, address, i)


@kernel
def to_port(views, pipe, loop, from_index, port, i):
    """Send frame ``i`` of the burst out of a port.

    Args:
        views: record of shm.views of the worker, for its counters.
        pipe: PIPE.
        loop: POLL, whose burst it is.
        from_index: u64, place in its port of the queue that the frame came from.
        port: u64, its number.
        i: u64.

    Returns:
        1 where this worker can reach the port, else 0.
    """
    memory.apart()
    if port > pipe.port_count:
        counters.count(views, Reason.OUTPUT_UNREACHABLE)
        return ZERO
    outlet = outlet_at(pipe.outlets + port * _OUTLET)
    count = u64(outlet.count)
    if count == ZERO:
        counters.count(views, Reason.OUTPUT_UNREACHABLE)
        return ZERO
    place = u64(outlet.first) + (from_index if from_index < count else from_index % count)
    _put(views, pipe, loop, memory.le64(pipe.outlet_queues + (place << THREE)), i)
    return ONE


@kernel
def let_go_on(views, pipe, loop, i):
    """Let frame ``i`` of the burst go on, which waits where it came from; returns 1."""
    memory.seldom()
    mark = verdict_at(loop.verdicts + i * _VERDICT).mark
    frame = frame_at(loop.frames + i * _FRAME)
    reason = port_nfqueue.accept(pipe.queue, frame, loop.descriptors + i * _DESCRIPTOR, u64(mark))
    counters.count(views, reason if reason != ZERO else u64(Reason.OUTPUTS))
    return ONE


@kernel
def as_a_switch(views, pipe, loop, from_index, fields, i, now_s):
    """Learn where frame ``i`` came from, and send it where its address was seen, or out of all other ports.

    Args:
        views, pipe, loop, from_index, i: as for `to_port`.
        fields: address of its FIELDS.
        now_s: u64, for what is learned.

    Returns:
        The ports it went out of.
    """
    memory.apart()
    frame = frame_at(loop.frames + i * _FRAME)
    in_port = u64(fields_at(fields).in_port)
    if u64(frame.link) == u64(Link.ETHERNET) and u64(frame.captured_bytes) >= _FOURTEEN:
        start = u64(frame.address)
        vlan = u64(fields_at(fields).vlan) & _VLAN_BITS
        learning.learn(pipe.learned, memory.be64(start + _SIX) >> SIXTEEN, vlan, in_port, now_s)
        port = learning.where(pipe.learned, memory.be64(start) >> SIXTEEN, vlan, now_s)
        if port == in_port:
            return ZERO
        if port != learning.NOWHERE and port <= pipe.port_count:
            return to_port(views, pipe, loop, from_index, port, i)
    went = ZERO
    for j in range(pipe.port_count):
        port = u64(j) + ONE
        if port != in_port:
            went += to_port(views, pipe, loop, from_index, port, i)
    return went


@kernel
def answer(pipe, loop, address, count):
    """Answer the descriptors of a burst to the queue they came from, but those of which no answer is wanted."""
    memory.apart()
    queue = queue_at(address)
    if ports.decides(queue):
        port_nfqueue.answer(address, loop, count)
    if not ports.is_shm(queue):
        return
    shared = u64(queue.shared) != ZERO
    if not port_shm.lock(queue, address, pipe.worker + ONE):
        queue.tx_full = queue.tx_full + count
        return
    for i in range(count):
        descriptor = loop.descriptors + u64(i) * _DESCRIPTOR
        if (memory.le64(descriptor + SIXTEEN) >> _FLAGS_SHIFT) & _QUIET != ZERO:
            continue
        if not shared:
            _touch(pipe, address)
        position, there_is_room = port_shm.place(address)
        if not there_is_room:
            continue
        frame = frame_at(loop.frames + u64(i) * _FRAME)
        tx = ring.end_at(address + port_shm.TX)
        place = ring.descriptor_of(tx, position)
        slot = position & (u64(tx.slots) - ONE)
        tag = memory.le64(descriptor)
        ring.write(place, tag, slot, ZERO, u64(frame.wire_bytes), u64(frame.link), u64(frame.flags))
        ring.write_verdict(place, loop.verdicts + u64(i) * _VERDICT)
    if shared:
        ports.tx_burst(address)
        port_shm.unlock(queue, address)


@kernel
def hand_over(views, pipe):
    """Hand over what was put anywhere; where a device would not take it yet, that is tried again after the next round."""
    memory.apart()
    kept = ZERO
    for i in range(pipe.touched_count):
        address = memory.le64(pipe.touched + (u64(i) << THREE))
        if address & _IS_OUTBOX != ZERO:
            box = box_at(address ^ _IS_OUTBOX)
            box.touched = ZERO
            _send_aside(views, pipe, box)
            continue
        ports.tx_burst(address)
        queue = queue_at(address)
        if u64(queue.pending) == ZERO:
            queue.touched = ZERO
        else:
            memory.set_le64(pipe.touched + (kept << THREE), address)
            kept += ONE
    pipe.touched_count = kept
