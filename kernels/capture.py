"""The walk through a capture file, pcap or pcapng, one record at a time over its mapping.

A CAPTURE record says where the file lies and where the walk stands; frames are described where they lie, never copied.
Nothing is believed before it was compared with the file's size, and what is wrong is a ``Fault`` at ``position``: every
packet before it has been delivered, and the walk stands still.

    format    magic, as the file's own byte order reads it      record
    pcap      a1b2c3d4 microseconds, a1b23c4d nanoseconds       16 bytes: seconds, fraction, captured, wire
              a1b2cd34 (Kuznetzov's)                            24 bytes: the same, then interface, protocol, direction
    pcapng    0a0d0d0a, then 1a2b3c4d                           blocks: type, length, body, length again

Of a pcapng file, sections (SHB), interfaces (IDB) and packets (EPB, SPB, the old PB) are read, other blocks skipped.  A
simple packet (SPB) has no time: it is given that of the packet before it.
"""

from __future__ import annotations

from enum import IntEnum

from ..shm.layout import FRAME, FRAME_BYTES, INTERFACE, INTERFACE_BYTES, INTERFACES_MAX, Link
from . import memory
from .jit import inlined, kernel
from .linktypes import LINK_OF, LINKTYPES_END
from .words import EIGHT, FOUR, ONE, SIXTEEN, SIXTY_FOUR, THIRTY_TWO, THREE, TWO, ZERO, u64


class Format(IntEnum):
    """How the records of a file are framed."""

    PCAP = 0
    PCAPNG = 1


class LengthOrder(IntEnum):
    """Which length of a pcap record comes first; old writers disagreed (libpcap's sf-pcap.c tells by the version)."""

    CAPTURED_FIRST = 0
    WIRE_FIRST = 1  # before version 2.3
    SMALLER_CAPTURED = 2  # version 2.3: either


class Fault(IntEnum):
    """What stopped a walk; ``END`` is the one way to stop that is right."""

    NONE = 0
    END = 1
    EMPTY = 2
    MAGIC = 3
    HEADER = 4
    VERSION = 5
    TRUNCATED = 6
    LENGTH = 7
    BLOCK_LENGTH = 8
    BLOCK_TRAILER = 9
    BYTE_ORDER = 10
    INTERFACE = 11
    INTERFACES = 12
    OPTIONS = 13


FAULTS = {
    Fault.EMPTY: "the file is empty",
    Fault.MAGIC: "not a pcap or pcapng file",
    Fault.HEADER: "the file ends inside its header",
    Fault.VERSION: "a version of the format that is not known",
    Fault.TRUNCATED: "the file ends inside a record",
    Fault.LENGTH: "a packet longer than its record or than any packet may be",
    Fault.BLOCK_LENGTH: "a block of impossible length",
    Fault.BLOCK_TRAILER: "the two lengths of a block differ",
    Fault.BYTE_ORDER: "a section without byte-order magic",
    Fault.INTERFACE: "a packet of an interface that was not described",
    Fault.INTERFACES: f"more than {INTERFACES_MAX:,} interfaces in a section",
    Fault.OPTIONS: "an option longer than its block",
}
"""What people are told of a fault."""

MAGIC_US = u64(0xA1B2C3D4)
MAGIC_NS = u64(0xA1B23C4D)
MAGIC_KUZNETZOV = u64(0xA1B2CD34)
PCAP_HEADER_BYTES = u64(24)
PCAP_RECORD_BYTES = u64(16)
KUZNETZOV_RECORD_BYTES = u64(24)
PCAP_MAJOR = TWO
LENGTHS_CHANGED_MINOR = THREE
LINKTYPE_MASK = u64(0x03FFFFFF)  # above it stands the length of a frame check sequence

BLOCK_SECTION = u64(0x0A0D0D0A)
BLOCK_INTERFACE = ONE
BLOCK_PACKET_OLD = TWO
BLOCK_PACKET_SIMPLE = THREE
BLOCK_PACKET = u64(6)
BYTE_ORDER_MAGIC = u64(0x1A2B3C4D)
BLOCK_FRAME_BYTES = u64(12)  # type, length, length
SECTION_BYTES = u64(28)
INTERFACE_BLOCK_BYTES = u64(20)
PACKET_BLOCK_BYTES = u64(32)
SIMPLE_BLOCK_BYTES = u64(16)
PACKET_DATA = u64(28)
SIMPLE_DATA = u64(12)
OPTION_END = ZERO
OPTION_TIME_RESOLUTION = u64(9)
OPTION_TIME_OFFSET = u64(14)

CAPTURED_MAX = u64(262144)
"""Longest packet that is believed of a file that does not announce longer ones: libpcap's MAXIMUM_SNAPLEN."""
SECOND_NS = u64(1_000_000_000)
MICROSECOND_NS = u64(1_000)
LAST_NS = u64(0xFFFFFFFFFFFFFFFF)
SIGN = u64(1 << 63)
TEN = u64(10)
NINE = u64(9)
TEN_POWERS_MAX = u64(28)  # 10**(28 - 9) is the highest power of ten in 64 bits
RESOLUTION_BINARY = u64(0x80)
RESOLUTION_EXPONENT = u64(0x7F)

interface_at = memory.record_at(INTERFACE)
frame_at = memory.record_at(FRAME)


@inlined
def _word32(capture, at):
    return memory.be32(at) if capture.big else memory.le32(at)


@inlined
def _word16(capture, at):
    return memory.be16(at) if capture.big else memory.le16(at)


@inlined
def _stop(capture, fault):
    capture.fault = fault
    return ZERO


@inlined
def _link(linktype):
    if linktype >= u64(LINKTYPES_END):
        return u64(Link.UNKNOWN)
    return u64(LINK_OF[linktype])


@inlined
def _multiply(a, b):
    """Return a * b, or the highest word where that is too small for it."""
    return a * b if memory.multiply_high(a, b) == ZERO else LAST_NS


@inlined
def _describe(capture, frame, address, captured, wire, link):
    frame.address = address
    frame.captured_bytes = captured
    # what was captured was on the wire, whatever the record says
    frame.wire_bytes = max(captured, wire)
    frame.zone = capture.zone
    frame.link = link
    frame.flags = capture.frame_flags
    frame.ticket = ZERO
    frame.action = ZERO


@kernel
def begin(capture):
    """Read the header of a file, and set the walk before its first record.

    Args:
        capture: CAPTURE; `address`, `bytes`, `interfaces`, `zone`, `frame_flags` are the caller's, all else is set here.

    Returns:
        The `Fault` that `capture` then has: NONE when there is something to walk through.
    """
    capture.position = ZERO
    capture.time_ns = ZERO
    capture.interface_count = ZERO
    capture.big = ZERO
    capture.fault = u64(Fault.NONE)
    if u64(capture.bytes) == ZERO:
        _stop(capture, u64(Fault.EMPTY))
    elif u64(capture.bytes) < FOUR:
        _stop(capture, u64(Fault.HEADER))
    elif memory.le32(capture.address) == BLOCK_SECTION:
        capture.format = u64(Format.PCAPNG)
    else:
        capture.format = u64(Format.PCAP)
        _pcap_header(capture)
    return u64(capture.fault)


@kernel
def _pcap_header(capture):
    base = u64(capture.address)
    magic = memory.le32(base)
    if magic != MAGIC_US and magic != MAGIC_NS and magic != MAGIC_KUZNETZOV:
        capture.big = ONE
        magic = memory.be32(base)
        if magic != MAGIC_US and magic != MAGIC_NS and magic != MAGIC_KUZNETZOV:
            return _stop(capture, u64(Fault.MAGIC))
    if u64(capture.bytes) < PCAP_HEADER_BYTES:
        return _stop(capture, u64(Fault.HEADER))
    major, minor = _word16(capture, base + FOUR), _word16(capture, base + u64(6))
    if major != PCAP_MAJOR:
        return _stop(capture, u64(Fault.VERSION))
    capture.swapped = u64(LengthOrder.CAPTURED_FIRST)
    if minor < LENGTHS_CHANGED_MINOR:
        capture.swapped = u64(LengthOrder.WIRE_FIRST)
    elif minor == LENGTHS_CHANGED_MINOR:
        capture.swapped = u64(LengthOrder.SMALLER_CAPTURED)
    capture.unit_ns = ONE if magic == MAGIC_NS else MICROSECOND_NS
    capture.record_bytes = KUZNETZOV_RECORD_BYTES if magic == MAGIC_KUZNETZOV else PCAP_RECORD_BYTES
    capture.snap_bytes = max(CAPTURED_MAX, _word32(capture, base + SIXTEEN))
    capture.link = _link(_word32(capture, base + u64(20)) & LINKTYPE_MASK)
    capture.position = PCAP_HEADER_BYTES
    return ONE


@inlined
def advance(capture, frame):
    """Go one record further.

    Args:
        capture: CAPTURE after `begin`, with no fault.
        frame: FRAME, out: the packet of the record, where it lies.

    Returns:
        1 when there is a packet, 0 when the record was none; or the walk has stopped: `capture.fault` says.
    """
    if u64(capture.position) == u64(capture.bytes):
        return _stop(capture, u64(Fault.END))
    if u64(capture.format) == u64(Format.PCAP):
        return _pcap_record(capture, frame)
    return _block(capture, frame)


@inlined
def _pcap_record(capture, frame):
    at = u64(capture.address) + u64(capture.position)
    header, left = u64(capture.record_bytes), u64(capture.bytes) - u64(capture.position)
    if left < header:
        return _stop(capture, u64(Fault.TRUNCATED))
    captured, wire = _word32(capture, at + EIGHT), _word32(capture, at + u64(12))
    swapped = u64(capture.swapped)
    if swapped == u64(LengthOrder.WIRE_FIRST) or (swapped == u64(LengthOrder.SMALLER_CAPTURED) and captured > wire):
        captured, wire = wire, captured
    if captured > u64(capture.snap_bytes):
        return _stop(capture, u64(Fault.LENGTH))
    if captured > left - header:
        return _stop(capture, u64(Fault.TRUNCATED))
    memory.prefetch(at + header + captured)
    capture.time_ns = _word32(capture, at) * SECOND_NS + _word32(capture, at + FOUR) * u64(capture.unit_ns)
    capture.position = u64(capture.position) + header + captured
    _describe(capture, frame, at + header, captured, wire, u64(capture.link))
    return ONE


@kernel
def _block(capture, frame):
    at = u64(capture.address) + u64(capture.position)
    left = u64(capture.bytes) - u64(capture.position)
    if left < BLOCK_FRAME_BYTES:
        return _stop(capture, u64(Fault.TRUNCATED))
    section = memory.le32(at) == BLOCK_SECTION  # the same in either order
    if section:
        magic = memory.le32(at + EIGHT)
        capture.big = ZERO if magic == BYTE_ORDER_MAGIC else ONE
        if magic != BYTE_ORDER_MAGIC and memory.be32(at + EIGHT) != BYTE_ORDER_MAGIC:
            return _stop(capture, u64(Fault.BYTE_ORDER))
    length = _word32(capture, at + FOUR)
    if length < BLOCK_FRAME_BYTES or length & THREE != ZERO:
        return _stop(capture, u64(Fault.BLOCK_LENGTH))
    if length > left:
        return _stop(capture, u64(Fault.TRUNCATED))
    if _word32(capture, at + length - FOUR) != length:
        return _stop(capture, u64(Fault.BLOCK_TRAILER))
    memory.prefetch(at + length)
    kind = _word32(capture, at)
    found = ZERO
    if kind in (BLOCK_PACKET, BLOCK_PACKET_OLD):
        found = _packet(capture, frame, at, length, kind)
    elif kind == BLOCK_PACKET_SIMPLE:
        found = _packet_simple(capture, frame, at, length)
    elif kind == BLOCK_INTERFACE:
        _interface(capture, at, length)
    elif section:
        _section(capture, at, length)
    if capture.fault == u64(Fault.NONE):
        capture.position = u64(capture.position) + length
    return found


@inlined
def _packet(capture, frame, at, length, kind):
    if length < PACKET_BLOCK_BYTES:
        return _stop(capture, u64(Fault.BLOCK_LENGTH))
    # in the old block a count of drops follows in the same word
    number = _word32(capture, at + EIGHT) if kind == BLOCK_PACKET else _word16(capture, at + EIGHT)
    if number >= u64(capture.interface_count):
        return _stop(capture, u64(Fault.INTERFACE))
    captured = _word32(capture, at + u64(20))
    if captured > length - PACKET_BLOCK_BYTES:
        return _stop(capture, u64(Fault.LENGTH))
    interface = interface_at(u64(capture.interfaces) + number * u64(INTERFACE_BYTES))
    ticks = _word32(capture, at + u64(12)) << THIRTY_TWO | _word32(capture, at + SIXTEEN)
    capture.time_ns = time_ns(interface, ticks)
    wire = _word32(capture, at + u64(24))
    _describe(capture, frame, at + PACKET_DATA, captured, wire, u64(interface.link))
    return ONE


@inlined
def _packet_simple(capture, frame, at, length):
    if length < SIMPLE_BLOCK_BYTES:
        return _stop(capture, u64(Fault.BLOCK_LENGTH))
    if u64(capture.interface_count) == ZERO:
        return _stop(capture, u64(Fault.INTERFACE))
    interface = interface_at(u64(capture.interfaces))
    wire = _word32(capture, at + EIGHT)
    captured = min(wire, length - SIMPLE_BLOCK_BYTES)
    if u64(interface.snap_bytes) != ZERO:
        captured = min(captured, u64(interface.snap_bytes))
    _describe(capture, frame, at + SIMPLE_DATA, captured, wire, u64(interface.link))
    return ONE


@inlined
def _section(capture, at, length):
    if length < SECTION_BYTES:
        return _stop(capture, u64(Fault.BLOCK_LENGTH))
    # version 1.2 was written by some for 1.0 (draft-ietf-opsawg-pcapng, 4.1); only the major number tells
    if _word16(capture, at + u64(12)) != ONE:
        return _stop(capture, u64(Fault.VERSION))
    capture.interface_count = ZERO
    return ZERO


@kernel
def _interface(capture, at, length):
    """Describe one more interface; timestamps are in microseconds where no option says otherwise."""
    number = u64(capture.interface_count)
    if length < INTERFACE_BLOCK_BYTES:
        return _stop(capture, u64(Fault.BLOCK_LENGTH))
    if number == u64(INTERFACES_MAX):
        return _stop(capture, u64(Fault.INTERFACES))
    interface = interface_at(u64(capture.interfaces) + number * u64(INTERFACE_BYTES))
    interface.link = _link(_word16(capture, at + EIGHT))
    interface.snap_bytes = _word32(capture, at + u64(12))
    interface.offset_s = ZERO
    interface.reserved = ZERO
    _resolution(interface, u64(6))
    option, end = at + SIXTEEN, at + length - FOUR
    for _ in range(length >> TWO):
        if end - option < FOUR:
            break
        code, size = _word16(capture, option), _word16(capture, option + TWO)
        if code == OPTION_END:
            break
        padded = (size + THREE) & ~THREE
        if padded > end - option - FOUR:
            return _stop(capture, u64(Fault.OPTIONS))
        if code == OPTION_TIME_RESOLUTION and size == ONE:
            _resolution(interface, memory.byte(option + FOUR))
        elif code == OPTION_TIME_OFFSET and size == EIGHT:
            value = option + FOUR
            interface.offset_s = memory.be64(value) if capture.big else memory.le64(value)
        option += FOUR + padded
    capture.interface_count = number + ONE
    return ZERO


@inlined
def _resolution(interface, resolution):
    """Set the length of a tick: 10**-n or, with the high bit, 2**-n seconds (if_tsresol)."""
    exponent = resolution & RESOLUTION_EXPONENT
    interface.multiplier = SECOND_NS
    interface.divisor = ONE
    interface.shift = ZERO
    if resolution & RESOLUTION_BINARY != ZERO:
        interface.divisor = ZERO
        interface.shift = exponent
        return
    divisor = ONE
    for i in range(TEN_POWERS_MAX):
        if u64(i) < exponent:
            if u64(i) < NINE:
                interface.multiplier = u64(interface.multiplier) // TEN
            else:
                divisor *= TEN
    interface.divisor = divisor


@inlined
def time_ns(interface, ticks):
    """Return the nanoseconds since 1970 of a timestamp; what 64 bits cannot hold is their first or last."""
    low, high = ticks * u64(interface.multiplier), memory.multiply_high(ticks, u64(interface.multiplier))
    divisor, shift = u64(interface.divisor), u64(interface.shift)
    if divisor != ZERO:
        time = low // divisor if high == ZERO else LAST_NS
    elif shift == ZERO:
        time = low if high == ZERO else LAST_NS
    elif shift < SIXTY_FOUR:
        time = high << (SIXTY_FOUR - shift) | low >> shift
        if high >> shift != ZERO:
            time = LAST_NS
    else:
        time = high >> (shift - SIXTY_FOUR)
    offset = u64(interface.offset_s)
    if offset & SIGN != ZERO:
        back = _multiply(ZERO - offset, SECOND_NS)
        return time - min(time, back)
    later = _multiply(offset, SECOND_NS)
    return time + min(later, LAST_NS - time)


@kernel
def next_frames(capture, frames, times, count, records_budget):
    """Describe the next packets of a capture.

    Args:
        capture: CAPTURE after `begin`.
        frames: out, address of FRAME[count].
        times: out, address of u64[count]: nanoseconds since 1970.
        count: packets at most.
        records_budget: records looked at at most, packets or not.

    Returns:
        How many packets there are; the walk goes on behind them. Fewer than `count` once `capture.fault` is set, or
        because the budget is used up.
    """
    found = ZERO
    for _ in range(records_budget):
        if found == count or capture.fault != u64(Fault.NONE):
            break
        if advance(capture, frame_at(frames + found * u64(FRAME_BYTES))) != ZERO:
            memory.set_le64(times + (found << THREE), u64(capture.time_ns))
            found += ONE
    return found
