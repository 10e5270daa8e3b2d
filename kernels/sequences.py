"""Sequence numbers of a connection whose payload was made longer or shorter: each end goes on counting what it has sent.

For each direction the extension holds a place and two offsets: what is added to sequence numbers up to that place, where the
latest change was made, and after it.  So a segment that is sent again gets what it got before, unless it is older than the
change before the latest.

    hear       before a segment is judged: it acknowledges what the other end has counted, not what has arrived
    forget     after that: its own numbers again
    send       in the frame of a segment that goes on: sequence number, acknowledgment, SACK
    correct    another change, at the segment whose payload was changed

A connection without the status bit has no offsets, and none of this is called for it.

Concurrency: the record's lock is held; but for ``forget`` and what is only about a segment.

Source:
    Linux's nf_conntrack_seqadj.c.
"""

from __future__ import annotations

from ..shm.layout import EXTENSION, MESSAGE, Status, offset
from . import checksum, entries, memory, rewrite, tcp_window
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_16, LOW_32, ONE, SIXTEEN, TWO, ZERO, seq_after, seq_before, u32_add, u32_sub, u64

message_at = memory.record_at(MESSAGE)

OFFSETS = offset(EXTENSION, "sequence_offset")
_HEADER = offset(MESSAGE, "header")
_WAY_BYTES = u64(12)
_STATUS = u64(Status.SEQUENCE_OFFSETS)
_ACK = u64(0x10)
_HEADER_BYTES = tcp_window.HEADER_BYTES


@inlined
def _of(extension, way):
    """Return the place of the latest change in a direction, the offset up to it and the one after it."""
    at = extension + OFFSETS + way * _WAY_BYTES
    return memory.le32(at), memory.le32(at + FOUR), memory.le32(at + EIGHT)


@kernel
def sent_as(extension, way, seq):
    """Return what a sequence number of packets that go ``way`` is where they go to."""
    place, before, after = _of(extension, way)
    return u32_add(seq, after if seq_after(seq, place) else before)


@kernel
def known_as(extension, way, seq):
    """Return what a sequence number of packets that go ``way`` is where they come from.

    One in the middle of what was changed is taken for its beginning.
    """
    place, before, after = _of(extension, way)
    own = u32_sub(seq, before)
    if not seq_after(own, place):
        return own
    own = u32_sub(seq, after)
    return place if seq_before(own, place) else own


@kernel
def _acknowledge(extension, way, header, options_bytes):
    """Write into the SACK blocks of a header that acknowledges packets that go ``way`` what their sender has counted."""
    at, left = header + _HEADER_BYTES, options_bytes
    for _ in range(tcp_window.OPTIONS_MAX):
        size = tcp_window.option_bytes(at, left)
        if size == ZERO:
            break
        if memory.byte(at) == tcp_window.OPTION_SACK:
            for i in range((size - TWO) >> TWO):
                edge = at + TWO + (u64(i) << TWO)
                memory.set_be32(edge, known_as(extension, way, memory.be32(edge)))
        at += size
        left -= size


# ------------------------------------------------------------------------------------------------ what is judged
@kernel
def hear(views, parsed, entry, way, is_sent):
    """Give a segment the numbers by which its connection is judged: of each end its own.

    Args:
        parsed: PARSED of a TCP segment; ``forget`` makes it again what it was.
        entry: address of the ENTRY, with SEQUENCE_OFFSETS.
        way: of the segment.
        is_sent: bool, whether it is as it was sent; else as it goes on.
    """
    memory.seldom()
    message = message_at(views.message)
    message.seq, message.ack, message.l4 = parsed.seq, parsed.ack, parsed.l4
    extension = entries.extension_of(views, entry)
    if not is_sent:
        parsed.seq = known_as(extension, way, u64(parsed.seq))
        return
    if u64(parsed.tcp_flags) & _ACK == ZERO:
        return
    parsed.ack = known_as(extension, way ^ ONE, u64(parsed.ack))
    options = u64(parsed.options_bytes)
    if options != ZERO:
        header = views.message + _HEADER
        memory.copy(header, u64(parsed.l4), _HEADER_BYTES + options)
        _acknowledge(extension, way ^ ONE, header, options)
        parsed.l4 = header


@kernel
def forget(views, parsed):
    """Give a segment back the numbers that it came with."""
    memory.seldom()
    message = message_at(views.message)
    parsed.seq, parsed.ack, parsed.l4 = message.seq, message.ack, message.l4


# ------------------------------------------------------------------------------------------------ what goes on
@kernel
def send(parsed, extension, way, partial):
    """Give a segment that goes on, as it was sent, the numbers that it has where it goes to.

    Args:
        parsed: PARSED of it; the frame's bytes are written.
        extension: address of the EXTENSION of its connection.
        way: of the segment.
        partial: bool, whether its checksum is yet to be completed by a device.
    """
    memory.seldom()
    l4 = u64(parsed.l4)
    size = _HEADER_BYTES + u64(parsed.options_bytes)
    before = checksum.sum_bytes(l4, size)
    memory.set_be32(l4 + FOUR, sent_as(extension, way, u64(parsed.seq)))
    if u64(parsed.tcp_flags) & _ACK != ZERO:
        memory.set_be32(l4 + EIGHT, known_as(extension, way ^ ONE, u64(parsed.ack)))
        _acknowledge(extension, way ^ ONE, l4, u64(parsed.options_bytes))
    after = checksum.sum_bytes(l4, size)
    if not partial:
        # a little-endian sum joins a number in host order as that number times 256 (kernels/checksum)
        rewrite.mend(l4 + SIXTEEN, (rewrite.difference(before % LOW_16, after % LOW_16) << EIGHT) % LOW_16)


@kernel
def correct(views, entry, way, seq, longer):
    """Remember that the payload of a segment was made longer, or shorter.

    The offsets are written so that who dies here leaves what holds for all segments but this one, which was not sent.

    Args:
        entry: address of the ENTRY, which has an extension.
        way: of the segment.
        seq: its sequence number, as it was sent.
        longer: by how many bytes, modulo 2**32.
    """
    memory.seldom()
    fields = entries.entry_at(entry)
    extension = entries.extension_of(views, entry)
    if u64(fields.status) & _STATUS == ZERO:
        memory.set_bytes(extension + OFFSETS, ZERO, _WAY_BYTES << ONE)
        fields.status = u64(fields.status) | _STATUS
    place, before, after = _of(extension, way)
    if before != after and not seq_before(place, seq):
        return  # it was sent again
    at = extension + OFFSETS + way * _WAY_BYTES
    memory.release32(at + FOUR, after)
    memory.release32(at, seq)
    memory.release32(at + EIGHT, u32_add(after, longer & LOW_32))
