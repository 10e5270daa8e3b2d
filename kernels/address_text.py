"""Addresses and numbers as text: read within bounds, and refused when they are none.

Each reader takes the addresses of the first byte and of the end, and never looks at the end or beyond.
"""

from __future__ import annotations

from . import memory
from .jit import inlined, kernel
from .words import EIGHT, FOUR, ONE, SIXTEEN, ZERO, u64

_ZERO_DIGIT, _NINE = u64(ord("0")), u64(ord("9"))
_LOWER, _A, _F = u64(0x20), u64(ord("a")), u64(ord("f"))
_UPPER_A, _UPPER_Z = u64(ord("A")), u64(ord("Z"))
_COLON, _DOT = u64(ord(":")), u64(ord("."))
_TEN = u64(10)
_GROUPS = EIGHT
_BYTE_MAX = u64(255)
NONE = u64(1 << 63)
"""No number."""
NOT_HEX = u64(99)


@inlined
def is_digit(character):
    """Return whether a character is 0 to 9."""
    return character >= _ZERO_DIGIT and character <= _NINE


@inlined
def lower(character):
    """Return a letter in lower case, and anything else as it is."""
    return character | _LOWER if character >= _UPPER_A and character <= _UPPER_Z else character


@kernel
def number(begin, end, digits_max):
    """Return the decimal number at ``begin``, NONE where no digit is, and the address behind its digits.

    A digit more than ``digits_max`` ends it; that is for the caller to see.
    """
    value = ZERO
    at = begin
    for _ in range(digits_max):
        if at >= end or not is_digit(memory.byte(at)):
            break
        value = value * _TEN + memory.byte(at) - _ZERO_DIGIT
        at += ONE
    return (value if at != begin else NONE), at


@inlined
def _hex(character):
    if is_digit(character):
        return character - _ZERO_DIGIT
    character |= _LOWER
    return character - _A + _TEN if character >= _A and character <= _F else NOT_HEX


@kernel
def ipv4(begin, end):
    """Return the IPv4 address that fills the text, and whether it is one: four numbers up to 255 (inet_pton)."""
    value = ZERO
    at = begin
    for i in range(4):
        part, after = number(at, end, 3)
        if part == NONE or part > _BYTE_MAX or (after - at > ONE and memory.byte(at) == _ZERO_DIGIT):
            return ZERO, False
        value = (value << EIGHT) | part
        at = after
        if i < 3:
            if at >= end or memory.byte(at) != _DOT:
                return ZERO, False
            at += ONE
    return value, at == end


@inlined
def is_of_ipv6(character):
    """Return whether a character may stand in an IPv6 address."""
    return _hex(character) != NOT_HEX or character == _COLON or character == _DOT


@kernel
def ipv6(begin, end):
    """Return both halves of the IPv6 address that fills the text, and whether it is one (RFC 4291 2.2, without dots)."""
    high, low = ZERO, ZERO  # the groups so far, as one number
    behind = ZERO  # groups behind ::
    groups, double = ZERO, False
    at = begin
    for _ in range(9):
        if at + ONE < end and memory.byte(at) == _COLON and memory.byte(at + ONE) == _COLON:
            if double:
                return ZERO, ZERO, False
            double = True
            at += u64(2)
            if at >= end:
                break
        elif groups + behind != ZERO:
            if at >= end or memory.byte(at) != _COLON:
                break
            at += ONE
        group, digits = ZERO, ZERO
        while at < end and digits < FOUR:
            digit = _hex(memory.byte(at))
            if digit == NOT_HEX:
                break
            group = (group << FOUR) | digit
            digits += ONE
            at += ONE
        if digits == ZERO or groups + behind == _GROUPS:
            return ZERO, ZERO, False
        high, low = (high << SIXTEEN) | (low >> u64(48)), (low << SIXTEEN) | group
        if double:
            behind += ONE
        else:
            groups += ONE
        if at >= end:
            break
    total = groups + behind
    if at != end or (total != _GROUPS and not double) or (total == _GROUPS and double):
        return ZERO, ZERO, False
    return _spread(high, low, groups, behind)


@kernel
def _spread(high, low, groups, behind):
    """Return an address from its groups as one number: those behind :: at its end, the others at its beginning."""
    tail_high, tail_low = _keep(high, low, behind)
    # what is before :: : the groups above, moved up to the beginning
    head_high, head_low = high, low
    for _ in range(behind):
        head_low = (head_low >> SIXTEEN) | (head_high << u64(48))
        head_high >>= SIXTEEN
    for _ in range(_GROUPS - groups):
        head_high = (head_high << SIXTEEN) | (head_low >> u64(48))
        head_low <<= SIXTEEN
    return head_high | tail_high, head_low | tail_low, True


@inlined
def _keep(high, low, groups):
    """Return the lowest so many groups of a number of eight."""
    if groups >= _GROUPS:
        return high, low
    if groups > FOUR:
        return high & ((ONE << ((groups - FOUR) * SIXTEEN)) - ONE), low
    if groups == FOUR:
        return ZERO, low
    return ZERO, low & ((ONE << (groups * SIXTEEN)) - ONE)


@kernel
def find(begin, end, character):
    """Return the address of the first such character, ``end`` when there is none."""
    at = begin
    while at < end and memory.byte(at) != character:
        at += ONE
    return at
