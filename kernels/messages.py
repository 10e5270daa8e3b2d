"""A message of a translated control channel written anew, so that what it says of addresses and ports is true where it goes.

    describe   under the record's lock: who the two ends are, and as whom each is known to the other
    begin      an empty text; then what stays is copied from the payload up to some place, and what does not is put instead
    replace    the text takes the payload's place in its frame: lengths and checksums are what that makes of them

The text is private memory.  A frame that has no room of its own keeps its length: a text of another length is refused then,
and so is one for a payload of which not all was captured.

Source:
    RFC 3022 4.3, 5.2; Linux's nf_nat_helper.c.
"""

from __future__ import annotations

from ..shm.layout import FRAME_SLOT_BYTES, MESSAGE, FrameFlag, offset
from ..shm.reasons import Reason
from . import checksum, foretold, links, memory, rewrite
from .endpoints import TCP, UDP
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_16, ONE, SIXTEEN, TWO, ZERO, u64

message_at = memory.record_at(MESSAGE)

TEXT = offset(MESSAGE, "text")
_ROOM = u64(FRAME_SLOT_BYTES)
_HAS_ROOM, _PARTIAL = u64(FrameFlag.ROOM), u64(FrameFlag.CHECKSUM_PARTIAL)
_NO_ROOM, _NONE = u64(Reason.HELPER_NO_ROOM), u64(Reason.NONE)
_SIX, _TEN, _NINE = u64(6), u64(10), u64(9)
_ZERO_DIGIT, _LETTER_A = u64(ord("0")), u64(ord("a"))
_COLON = u64(ord(":"))
_GROUPS = 8
_DIGITS_MAX = 10
_MULTIPLE = LOW_16 << SIXTEEN
"""Of 65,535, and larger than any length: what is taken off it stays positive."""
assert FRAME_SLOT_BYTES < 1 << 16


# ------------------------------------------------------------------------------------------------ whose it is
@kernel
def describe(views, entry, way):
    """Write down who the ends of a connection are, for a message that goes ``way``; its lock is held."""
    memory.seldom()
    message = message_at(views.message)
    for i in range(2):
        end = u64(i)
        own, known = foretold.sender(views, entry, way ^ end), foretold.known(views, entry, way ^ end)
        for word in range(2):
            message.own[end, word] = memory.read64(own + u64(8 * word))
            message.known[end, word] = memory.read64(known + u64(8 * word))
        message.own_port[end] = foretold.sender_port(views, entry, way ^ end)
        message.known_port[end] = foretold.known_port(views, entry, way ^ end)
    message.length = ZERO


@inlined
def length(views):
    """Return how long the text is; 0: none was written."""
    return u64(message_at(views.message).length)


# ------------------------------------------------------------------------------------------------ the text
@inlined
def put(views, character):
    """Put one character behind the text."""
    message = message_at(views.message)
    at = u64(message.length)
    if at < _ROOM:
        memory.set_byte(views.message + TEXT + at, character)
    message.length = at + ONE


@kernel
def begin(views, payload):
    """Begin a text for the payload at an address."""
    message = message_at(views.message)
    message.begin = payload
    message.at = payload
    message.length = ZERO


@kernel
def copy_to(views, end):
    """Copy what stays of the payload, up to an address."""
    message = message_at(views.message)
    size = end - u64(message.at)
    at = u64(message.length)
    if at + size <= _ROOM:
        memory.copy(views.message + TEXT + at, u64(message.at), size)
    message.length = at + size
    message.at = end


@inlined
def leave_out(views, end):
    """Leave out what does not stay, up to an address."""
    message_at(views.message).at = end


@kernel
def number(views, value):
    """Put a number below 2**32 in decimal."""
    power = ONE
    for _ in range(_DIGITS_MAX - 1):
        if value // power < _TEN:
            break
        power *= _TEN
    for _ in range(_DIGITS_MAX):
        put(views, _ZERO_DIGIT + value // power % _TEN)
        if power == ONE:
            break
        power //= _TEN


@kernel
def ipv4(views, address, separator):
    """Put an IPv4 address, its numbers apart by a character."""
    for i in range(4):
        if i != 0:
            put(views, separator)
        number(views, (address >> u64(24 - 8 * i)) & u64(255))


@inlined
def _group(high, low, i):
    word = high if i < FOUR else low
    return (word >> (u64(48) - (i % FOUR) * SIXTEEN)) & LOW_16


@kernel
def _longest_zeros(high, low):
    """Return where the first of the longest runs of groups of zero begins, and how many they are (RFC 5952 4.2)."""
    first, most, run = ZERO, ZERO, ZERO
    for i in range(_GROUPS):
        run = run + ONE if _group(high, low, u64(i)) == ZERO else ZERO
        if run > most:
            first, most = u64(i) + ONE - run, run
    return first, most


@kernel
def ipv6(views, high, low):
    """Put an IPv6 address as RFC 5952 has it."""
    first, zeros = _longest_zeros(high, low)
    if zeros < TWO:
        first, zeros = u64(_GROUPS), ZERO
    i = ZERO
    for _ in range(_GROUPS):
        if i >= u64(_GROUPS):
            break
        if i == first:
            put(views, _COLON)
            put(views, _COLON)
            i += zeros
            continue
        if i != ZERO and i != first + zeros:
            put(views, _COLON)
        group = _group(high, low, i)
        is_written = False
        for j in range(4):
            digit = (group >> u64(12 - 4 * j)) & u64(15)
            is_written = is_written or digit != ZERO or j == 3
            if is_written:
                put(views, _ZERO_DIGIT + digit if digit <= _NINE else _LETTER_A + digit - _TEN)
        i += ONE


@kernel
def address(views, family, high, low):
    """Put an address."""
    if family == FOUR:
        ipv4(views, low, u64(ord(".")))
    else:
        ipv6(views, high, low)


# ------------------------------------------------------------------------------------------------ the frame
@kernel
def says_the_same(views, size):
    """Return whether the text is the payload, of which there are ``size`` bytes."""
    message = message_at(views.message)
    if u64(message.length) != size:
        return False
    for i in range(size):
        if memory.byte(views.message + TEXT + u64(i)) != memory.byte(u64(message.begin) + u64(i)):
            return False
    return True


@kernel
def _set_lengths(frame, parsed, longer):
    """Write other lengths into the headers before a payload.

    Args:
        longer: u64, modulo 65,535: by how much it is longer.

    Returns:
        What the sum that the transport checksum covers changes by: the lengths in pseudo header and header.
    """
    captured = u64(frame.captured_bytes)
    ip = u64(frame.address) + (links.find(u64(frame.link), u64(frame.address), captured) >> EIGHT)
    if u64(parsed.family) == FOUR:
        memory.set_be16(ip + TWO, (memory.be16(ip + TWO) + longer) % LOW_16)
        rewrite.mend(ip + _TEN, longer)
    else:
        memory.set_be16(ip + FOUR, (memory.be16(ip + FOUR) + longer) % LOW_16)
    if u64(parsed.protocol) != UDP:
        return longer
    at = u64(parsed.l4) + FOUR
    memory.set_be16(at, (memory.be16(at) + longer) % LOW_16)
    return (longer + longer) % LOW_16


@kernel
def replace(views, frame, parsed, end):
    """Put the text into the place of the payload that it was written for, of TCP or UDP.

    Args:
        frame: FRAME, whose bytes and lengths are written.
        parsed: PARSED of it as it came.
        end: address behind the payload, 0 when not all of it was captured.

    Returns:
        NONE, or HELPER_NO_ROOM with nothing changed.
    """
    memory.seldom()
    message = message_at(views.message)
    payload, size = u64(message.begin), u64(message.length)
    if end == ZERO or size > _ROOM:
        return _NO_ROOM
    before = end - payload
    has_room = u64(frame.flags) & _HAS_ROOM != ZERO and payload + size <= u64(frame.address) + _ROOM
    if size != before and not has_room:
        return _NO_ROOM
    old = checksum.sum_bytes(payload, before)
    memory.copy(payload, views.message + TEXT, size)
    new = checksum.sum_bytes(payload, size)
    # a little-endian sum joins a number in host order as that number times 256 (kernels/checksum)
    change = (rewrite.difference(old % LOW_16, new % LOW_16) << EIGHT) % LOW_16
    longer = (size + _MULTIPLE - before) % LOW_16
    lengths = ZERO
    if size != before:
        lengths = _set_lengths(frame, parsed, longer)
        frame.captured_bytes = payload + size - u64(frame.address)
        frame.wire_bytes = frame.captured_bytes
    at = u64(parsed.l4) + (SIXTEEN if u64(parsed.protocol) == TCP else _SIX)
    if u64(parsed.protocol) == UDP and memory.be16(at) == ZERO:
        return _NONE  # RFC 768: none
    if u64(frame.flags) & _PARTIAL != ZERO:
        rewrite.mend_partial(at, longer)
        return _NONE
    rewrite.mend(at, (change + lengths) % LOW_16)
    if u64(parsed.protocol) == UDP and memory.be16(at) == ZERO:
        memory.set_be16(at, LOW_16)
    return _NONE
