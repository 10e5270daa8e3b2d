"""Ports of every kind, told apart by a number inside the one compiled loop: how packets come in, and how they go out.

    kind      rx_burst                         release                     put                      tx_burst
    SHM       copies out of a client's ring    nothing: they are copies    into the ring back       moves its cursor, wakes
    PACKET    walks a block, in place          gives the block back        into a ring, by copy     one system call
    FRAMES    walks a ring, in place           gives the places back       as PACKET                as PACKET
    TAP       reads, a call each               nothing: they are copies    writes it                nothing is left to do
    PCAP      walks an index, in place          nothing                     into a buffer            one system call
    NFQUEUE   receives messages                nothing: they are copies    not possible             one system call
    XDP       walks a ring, in place           gives the places back       into a ring, by copy     a system call for 32

A port of another kind is a room ``port_<kind>`` with these kernels, a row above, and a branch in each function below; what
opens it, and whatever can go wrong with that, is a room of service/ports.

A frame is handed on as FRAME, with its bytes where they are: those that stand in a device's ring are IN_PLACE, and cannot
grow there.  A queue of the host's firewall takes verdicts on the packets that came from it, and no others: ``decides``.
Between ``rx_burst`` and ``release`` of a queue its frames are the worker's, to read and to write.
"""

from __future__ import annotations

from ..shm.layout import (
    DESCRIPTOR_BYTES,
    FRAME,
    FRAME_BYTES,
    FRAME_SLOT_BYTES,
    NO_TAG,
    PIPE,
    QUEUE,
    FrameFlag,
    PortKind,
)
from ..shm.reasons import Reason
from . import (
    frame_status,
    memory,
    port_frames,
    port_nfqueue,
    port_packet,
    port_pcap,
    port_shm,
    port_tap,
    port_xdp,
    ring,
    sizes,
)
from .jit import inlined, kernel
from .words import ZERO, u64

queue_at = memory.record_at(QUEUE)
frame_at = memory.record_at(FRAME)
pipe_at = memory.record_at(PIPE)

_SHM, _PACKET, _TAP, _PCAP, _NFQUEUE, _XDP, _FRAMES = (u64(kind) for kind in PortKind)
_FRAME, _DESCRIPTOR, _SLOT = u64(FRAME_BYTES), u64(DESCRIPTOR_BYTES), u64(FRAME_SLOT_BYTES)
_NO_TAG = u64(NO_TAG)
_ETHERNET_FRAME = u64(1514)
_IN_PLACE = u64(FrameFlag.IN_PLACE)


@inlined
def is_shm(queue):
    """Return whether a QUEUE is that of a client, who is told what became of each of his frames."""
    return u64(queue.kind) == _SHM


@inlined
def decides(queue):
    """Return whether what comes from a QUEUE waits elsewhere until it is said whether it may go on."""
    return u64(queue.kind) == _NFQUEUE


@kernel
def _is_other_ready(address, kind):
    memory.seldom()
    if kind == _TAP:
        return port_tap.is_ready(address)
    if kind == _NFQUEUE:
        return port_nfqueue.is_ready(address)
    if kind == _XDP:
        return port_xdp.is_ready(address)
    if kind == _FRAMES:
        return port_frames.is_ready(address)
    return port_pcap.is_ready(address)


@inlined
def is_ready(address):
    """Return whether there is something to take from the QUEUE at ``address``."""
    kind = u64(queue_at(address).kind)
    if kind == _SHM:
        return port_shm.is_ready(address)
    if kind == _PACKET:
        return port_packet.is_ready(address)
    return _is_other_ready(address, kind)


@inlined
def rx_burst(loop, address):
    """Take a burst from the QUEUE at ``address``; returns how many packets there are now in `loop.frames`."""
    kind = u64(queue_at(address).kind)
    if kind == _SHM:
        return port_shm.rx_burst(loop, address)
    if kind == _PACKET:
        return port_packet.rx_burst(loop, address)
    if kind == _TAP:
        return port_tap.rx_burst(loop, address)
    if kind == _NFQUEUE:
        return port_nfqueue.rx_burst(loop, address)
    if kind == _XDP:
        return port_xdp.rx_burst(loop, address)
    if kind == _FRAMES:
        return port_frames.rx_burst(loop, address)
    return port_pcap.rx_burst(loop, address)


@inlined
def release(address):
    """Give back what the last burst of a queue was received in."""
    kind = u64(queue_at(address).kind)
    if kind == _PACKET:
        port_packet.release(address)
    elif kind == _XDP:
        port_xdp.release(address)
    elif kind == _FRAMES:
        port_frames.release(address)


@inlined
def put(address, frame, verdict):
    """Copy a frame to where it leaves by the QUEUE at ``address``, with ``tx_burst``.

    Args:
        address: of the QUEUE.
        frame: FRAME.
        verdict: address of its VERDICT.

    Returns:
        The Reason why it did not go, NONE when it did.
    """
    kind = u64(queue_at(address).kind)
    if kind == _SHM:
        return port_shm.put(address, frame, verdict)
    if kind == _PACKET or kind == _FRAMES:
        return port_packet.put(address, frame)
    if kind == _TAP:
        return port_tap.put(address, frame)
    if kind == _XDP:
        return port_xdp.put(address, frame)
    if kind == _NFQUEUE:
        return u64(Reason.OUTPUT_UNREACHABLE)  # the host has not asked
    return port_pcap.put(address, frame)


@kernel
def longest(address, frame):
    """Return the most bytes that a frame may have to leave by the QUEUE at ``address``; of one that is longer, a part."""
    memory.seldom()
    kind = u64(queue_at(address).kind)
    if kind == _SHM:
        return _SLOT if u64(frame.captured_bytes) <= _SLOT else _ETHERNET_FRAME
    if kind == _PACKET or kind == _FRAMES:
        return port_packet.longest(frame, port_packet.places_at(address + port_packet.TX))
    if kind == _XDP:
        return port_xdp.longest(frame, port_xdp.injected_at(address + port_xdp.TX))
    return u64(frame.captured_bytes)


@kernel
def tx_burst(address):
    """Hand over all that was put into the QUEUE at ``address`` since the last time; what a device would not take yet is
    pending still, and to be handed over again."""
    queue = queue_at(address)
    pending = u64(queue.pending)
    if pending == ZERO:
        return
    kind = u64(queue.kind)
    if kind == _NFQUEUE:
        port_nfqueue.tx_burst(address)
        return
    if kind == _SHM:
        port_shm.tx_burst(address)
    elif kind == _PACKET or kind == _FRAMES:
        if not port_packet.tx_burst(address):
            return
    elif kind == _PCAP:
        port_pcap.tx_burst(address)
    elif kind == _XDP and not port_xdp.tx_burst(address):
        return
    queue.pending = ZERO
    sizes.handed_over(queue, pending)


# ------------------------------------------------------------------------------------------------ frames that stay
@kernel
def describe(queue, loop, i):
    """Write the descriptor of frame ``i`` of a burst, where its client has not written one: for it has to wait."""
    memory.seldom()
    if not (is_shm(queue) or decides(queue)):
        frame = frame_at(loop.frames + i * _FRAME)
        captured, wire = u64(frame.captured_bytes), u64(frame.wire_bytes)
        at = loop.descriptors + i * _DESCRIPTOR
        ring.write(at, _NO_TAG, ZERO, captured, wire, u64(frame.link), u64(frame.flags) & ~_IN_PLACE)


@kernel
def segment_bytes(loop, i):
    """Return the bytes of data of each segment that frame ``i`` of a burst was, or is to be cut into; 0: it is one, or
    nobody has told."""
    memory.seldom()
    address, frame = u64(pipe_at(loop.pipe).queue), frame_at(loop.frames + i * _FRAME)
    if address == ZERO or u64(frame.flags) & _IN_PLACE == ZERO or u64(queue_at(address).tells_segments) == ZERO:
        return ZERO
    return frame_status.segment_bytes(u64(frame.address))


@kernel
def take_along(loop, i):
    """Copy frame ``i`` of a burst to a place of its own, where it can grow; one that is too long, or several joined, stays
    where it is."""
    memory.seldom()
    frame = frame_at(loop.frames + i * _FRAME)
    captured = u64(frame.captured_bytes)
    if captured <= _SLOT and segment_bytes(loop, i) == ZERO:
        to = loop.bytes + i * _SLOT
        memory.copy(to, u64(frame.address), captured)
        frame.address = to
        frame.flags = u64(frame.flags) & ~_IN_PLACE
