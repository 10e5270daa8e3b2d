"""Ports that are queues of the host's firewall: it routes, and asks what shall become of each packet (nfnetlink_queue).

    rx_burst   receive messages, a packet each, and describe the packets
    accept     the packet may go on, as it is now: a verdict with its bytes, if they are others, and the connection's mark
    answer     all others of a burst may not; the verdicts of a burst are handed over by one system call

The system keeps a packet until it has a verdict, and knows it by a number.  That stands in the descriptor of its frame, and
goes with it where a fragment waits for the rest of its datagram:

    tag    number of the packet, as the system writes it 32 | message in which it came 16 | 1: it has its verdict

A packet begins with its IP header.  One that fits a place of its own is copied there, and may grow; a longer one, which
segments were joined to, is copied too, so that what came can be compared with what goes.

Where no rules hold everything may go on: then it is watched.

Source:
    include/uapi/linux/netfilter/nfnetlink_queue.h, netlink(7).  A packet whose bytes are replaced has all its checksums
    in them: the system takes them as they are (nfqnl_mangle).
"""

from __future__ import annotations

from ..shm.layout import (
    DESCRIPTOR_BYTES,
    FRAME,
    FRAME_BYTES,
    FRAME_SLOT_BYTES,
    POLL_BURST_PACKETS,
    QUEUE,
    QUEUED,
    QUEUED_ANSWERS_BYTES,
    QUEUED_MESSAGE_BYTES,
    VERDICT,
    VERDICT_BYTES,
    FrameFlag,
    Link,
    offset,
)
from ..shm.reasons import Reason
from . import completion, memory, ring, sizes, sockets
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, THREE, TWO, ZERO, u64

queue_at = memory.record_at(QUEUE)
frame_at = memory.record_at(FRAME)
queued_at = memory.record_at(QUEUED)
verdict_at = memory.record_at(VERDICT)

RX, TX = offset(QUEUE, "rx"), offset(QUEUE, "tx")
"""In QUEUE.tx stands the POLLED of a look at the descriptor."""
_BURST = u64(POLL_BURST_PACKETS)
_FRAME, _SLOT, _DESCRIPTOR, _VERDICT = (
    u64(size) for size in (FRAME_BYTES, FRAME_SLOT_BYTES, DESCRIPTOR_BYTES, VERDICT_BYTES)
)
_MESSAGE, _ANSWERS = u64(QUEUED_MESSAGE_BYTES), u64(QUEUED_ANSWERS_BYTES)

# struct nlmsghdr, struct nfgenmsg, struct nlattr
_KIND, _SEQUENCE_OF_ERROR, _ATTRIBUTES = u64(4), u64(28), u64(20)
_ERROR, _PACKET, ANSWER = u64(2), u64(0x300), u64(0x301)
_REQUEST = ONE
_KIND_MASK = u64(0x3FFF)
ATTRIBUTES_MAX = 32
"""Of a message; there are some twenty kinds."""
_PACKET_HEADER, _MARK, _PAYLOAD, _CAPTURED_OF, _ABOUT = u64(1), u64(3), u64(10), u64(13), u64(14)
_VERDICT_HEADER = TWO
_HEADER_BYTES, HEADER_LENGTH = u64(64), u64(56)
_CHECKSUM_NOT_READY = ONE
DROP, ACCEPT = ZERO, ONE
_ANSWER_BYTES, _MARK_BYTES = u64(32), u64(8)
QUIETLY = ONE
"""Sequence number of a verdict on packets that may be gone already (service/ports/nfqueue)."""

_TRUSTED, _PARTIAL, _IN_PLACE = (
    u64(flag) for flag in (FrameFlag.CHECKSUM_TRUSTED, FrameFlag.CHECKSUM_PARTIAL, FrameFlag.IN_PLACE)
)
_QUIET = u64(FrameFlag.QUIET)
_FLAGS_SHIFT, _ANSWERED_SHIFT = u64(40), u64(48)
_ANSWERED = ONE << _ANSWERED_SHIFT
_RAW_IP = u64(Link.RAW_IP)
_TWELVE, _TWENTY, _TWENTY_FOUR, _TWENTY_EIGHT = u64(12), u64(20), u64(24), u64(28)


@kernel
def is_ready(address):
    """Return whether there is something to take from the QUEUE at ``address``: a system call."""
    memory.apart()
    return sockets.can_be_read(u64(queue_at(address).rx_descriptor), address + TX)


# ------------------------------------------------------------------------------------------------ in
@inlined
def _aligned(size):
    return (size + THREE) & ~THREE


@kernel
def _find(message, size, wanted):
    """Return where the content of an attribute begins 32 | its bytes, 0 where there is none; offsets from the message."""
    memory.apart()
    at = _ATTRIBUTES
    for _ in range(ATTRIBUTES_MAX):
        if at + FOUR > size:
            break
        length = memory.le16(message + at)
        if length < FOUR or at + length > size:
            break
        if memory.le16(message + at + TWO) & _KIND_MASK == wanted:
            return ((at + FOUR) << THIRTY_TWO) | (length - FOUR)
        at += _aligned(length)
    return ZERO


@kernel
def _word(message, size, wanted):
    """Return what an attribute of a word says, as the network writes it, 0 where there is none."""
    memory.apart()
    found = _find(message, size, wanted)
    return memory.be32(message + (found >> THIRTY_TWO)) if found & LOW_32 >= FOUR else ZERO


@inlined
def _flags_of(queue, message, size):
    """Return the flags of a packet's frame: what the system says of its checksum."""
    flags, about = u64(queue.frame_flags), _word(message, size, _ABOUT)
    if about & _CHECKSUM_NOT_READY != ZERO:
        flags |= _TRUSTED | _PARTIAL
    return flags


@kernel
def _read(queue, queued, loop, i, place):
    """Describe the packet of message ``i``, as frame ``place`` of the burst; returns its bytes, 0 where there is none."""
    memory.apart()
    message = queued.messages + i * _MESSAGE
    size = min(memory.le32(queued.headers + i * _HEADER_BYTES + HEADER_LENGTH), _MESSAGE)
    size = min(size, memory.le32(message))
    kind = memory.le16(message + _KIND)
    if kind == _ERROR and memory.le32(message + _SEQUENCE_OF_ERROR) != QUIETLY:
        queue.tx_failed = queue.tx_failed + ONE  # of a verdict: its packet is gone
    header = _find(message, size, _PACKET_HEADER)
    if kind != _PACKET or header & LOW_32 < FOUR:
        return ZERO
    number = memory.le32(message + (header >> THIRTY_TWO))
    payload = _find(message, size, _PAYLOAD)
    captured, source = payload & LOW_32, message + (payload >> THIRTY_TWO)
    wire = max(captured, _word(message, size, _CAPTURED_OF), ONE)
    if captured < wire:
        queue.rx_truncated = queue.rx_truncated + ONE
    flags = _flags_of(queue, message, size)
    to = loop.bytes + place * _SLOT
    if captured > _SLOT:
        to = queued.copies + i * _MESSAGE
        flags |= _IN_PLACE
    memory.copy(to, source, captured)
    frame = frame_at(loop.frames + place * _FRAME)
    frame.address = to
    frame.captured_bytes = captured
    frame.wire_bytes = wire
    frame.zone = queue.zone
    frame.link = _RAW_IP
    frame.flags = flags
    tag = number | (i << THIRTY_TWO)
    ring.write(loop.descriptors + place * _DESCRIPTOR, tag, ZERO, captured, wire, _RAW_IP, flags & ~_IN_PLACE)
    return wire


@kernel
def rx_burst(loop, address):
    """Receive a burst; returns how many packets there are now in `loop.frames`, each with its descriptor."""
    memory.apart()
    queue = queue_at(address)
    queued = queued_at(address + RX)
    came = sockets.receive_many(u64(queue.rx_descriptor), u64(queued.headers), _BURST)
    count, bytes_ = ZERO, ZERO
    for i in range(came):
        wire = _read(queue, queued, loop, u64(i), count)
        if wire != ZERO:
            count += ONE
            bytes_ += wire
    if count != ZERO:
        queued.unanswered = queued.unanswered + count
        sizes.received(queue, count, bytes_)
    return count


# ------------------------------------------------------------------------------------------------ verdicts
@kernel
def _hand_over(queue, queued):
    """Hand over all verdicts that wait; where the system will not, they wait for the next time."""
    memory.apart()
    if queued.cursor == ZERO:
        return
    if not sockets.write(u64(queue.tx_descriptor), u64(queued.answers), u64(queued.cursor)):
        queue.tx_failed = queue.tx_failed + ONE
        return
    queued.unanswered = queued.unanswered - queued.answered
    queued.answered = ZERO
    queued.cursor = ZERO
    pending = u64(queue.pending)
    queue.pending = ZERO
    if pending != ZERO:
        sizes.handed_over(queue, pending)


@kernel
def _say(queue, queued, number, what, mark, payload, payload_bytes):
    """Write a verdict; 0 bytes of payload: the packet is as it came; returns whether there was room."""
    memory.apart()
    size = _ANSWER_BYTES + (_MARK_BYTES if mark != ZERO else ZERO)
    size += _aligned(FOUR + payload_bytes) if payload_bytes != ZERO else ZERO
    if queued.cursor + size > _ANSWERS:
        _hand_over(queue, queued)
        if queued.cursor + size > _ANSWERS:
            return False
    at = queued.answers + queued.cursor
    memory.set_le32(at, size)
    memory.set_le32(at + FOUR, ANSWER | (_REQUEST << SIXTEEN))
    memory.set_le64(at + EIGHT, ZERO)
    memory.set_le32(at + SIXTEEN, ZERO)
    memory.set_be16(at + SIXTEEN + TWO, u64(queued.number))
    memory.set_le32(at + _TWENTY, _TWELVE | (_VERDICT_HEADER << SIXTEEN))
    memory.set_be32(at + _TWENTY_FOUR, what)
    memory.set_le32(at + _TWENTY_EIGHT, number)
    at += _ANSWER_BYTES
    if mark != ZERO:
        memory.set_le32(at, EIGHT | (_MARK << SIXTEEN))
        memory.set_be32(at + FOUR, mark)
        at += _MARK_BYTES
    if payload_bytes != ZERO:
        memory.set_le32(at, (FOUR + payload_bytes) | (_PAYLOAD << SIXTEEN))
        memory.copy(at + FOUR, payload, payload_bytes)
    queued.cursor = queued.cursor + size
    queued.answered = queued.answered + ONE
    return True


@kernel
def _is_same(one, other, size):
    memory.apart()
    words = size >> THREE
    for i in range(words):
        if memory.le64(one + u64(8 * i)) != memory.le64(other + u64(8 * i)):
            return False
    for i in range(words << THREE, size):
        if memory.byte(one + u64(i)) != memory.byte(other + u64(i)):
            return False
    return True


@kernel
def _is_as_it_came(queued, tag, frame):
    """Return whether the bytes of a packet are those that came; not known of one whose message is gone."""
    memory.apart()
    message = queued.messages + ((tag >> THIRTY_TWO) & LOW_16) * _MESSAGE
    size = memory.le32(message)
    header, payload = _find(message, size, _PACKET_HEADER), _find(message, size, _PAYLOAD)
    if memory.le32(message + (header >> THIRTY_TWO)) != tag & LOW_32 or u64(frame.captured_bytes) != payload & LOW_32:
        return False
    return _is_same(u64(frame.address), message + (payload >> THIRTY_TWO), payload & LOW_32)


@kernel
def accept(address, frame, descriptor, mark):
    """Let a packet that came from a queue go on as it is now.

    Args:
        address: of the QUEUE.
        frame: FRAME of the packet.
        descriptor: address of its DESCRIPTOR.
        mark: u64, of its connection; 0: the packet's stays what it is.

    Returns:
        The Reason why it could not be, NONE when it could.
    """
    memory.apart()
    queue = queue_at(address)
    queued = queued_at(address + RX)
    tag = memory.le64(descriptor)
    if tag & _ANSWERED != ZERO:
        return u64(Reason.OUTPUT_FULL)  # it can go on once
    bytes_ = ZERO
    if not _is_as_it_came(queued, tag, frame):
        bytes_ = u64(frame.captured_bytes)
        if bytes_ < u64(frame.wire_bytes):
            queue.tx_too_long = queue.tx_too_long + ONE
            return u64(Reason.OUTPUT_TOO_LONG)
        if u64(frame.flags) & _PARTIAL != ZERO:
            completion.complete(frame)
    if not _say(queue, queued, tag & LOW_32, ACCEPT, mark, u64(frame.address), bytes_):
        queue.tx_full = queue.tx_full + ONE
        return u64(Reason.OUTPUT_FULL)
    memory.set_le64(descriptor, tag | _ANSWERED)
    queue.pending = u64(queue.pending) + ONE
    queue.tx_bytes = queue.tx_bytes + u64(frame.wire_bytes)
    return u64(Reason.NONE)


@kernel
def answer(address, loop, count):
    """Say of those packets of a burst that were not accepted that they may not go on, and hand all verdicts over.

    A fragment that waits has its verdict to come: its descriptor is QUIET here.
    """
    memory.apart()
    queue = queue_at(address)
    queued = queued_at(address + RX)
    for i in range(count):
        descriptor = loop.descriptors + u64(i) * _DESCRIPTOR
        tag = memory.le64(descriptor)
        if tag & _ANSWERED != ZERO or (memory.le64(descriptor + SIXTEEN) >> _FLAGS_SHIFT) & _QUIET != ZERO:
            continue
        if not _say(queue, queued, tag & LOW_32, DROP, ZERO, ZERO, ZERO):
            queue.tx_full = queue.tx_full + ONE
    _hand_over(queue, queued)


@kernel
def accept_all(address, loop, count):
    """Let all packets of a burst go on, and hand their verdicts over: where no rules hold."""
    memory.apart()
    for i in range(count):
        mark = u64(verdict_at(loop.verdicts + u64(i) * _VERDICT).mark)
        accept(address, frame_at(loop.frames + u64(i) * _FRAME), loop.descriptors + u64(i) * _DESCRIPTOR, mark)
    answer(address, loop, count)


@kernel
def accept_late(address, descriptor, mark):
    """Let a fragment go on that has waited for its datagram, as it came: where no rules hold."""
    memory.seldom()
    queue = queue_at(address)
    queued = queued_at(address + RX)
    if not _say(queue, queued, memory.le64(descriptor) & LOW_32, ACCEPT, mark, ZERO, ZERO):
        queue.tx_full = queue.tx_full + ONE
        return
    queue.pending = u64(queue.pending) + ONE
    queue.tx_bytes = queue.tx_bytes + (memory.le64(descriptor + SIXTEEN) & LOW_32)
    _hand_over(queue, queued)


@inlined
def tx_burst(address):
    """Hand over what waits."""
    _hand_over(queue_at(address), queued_at(address + RX))
