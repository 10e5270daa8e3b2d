"""FTP, `ovs` profile: what Open vSwitch reads in a segment of the control channel, and what it finds malformed.

Each segment stands alone, wherever its lines begin; of its first 128 bytes, and of fewer, all but the last are looked
at.  A segment that begins as one of these and is none makes the packet invalid, beside what else it is.

    IPv4    PORT h1,h2,h3,h4,p1,p2    EPRT |1|address|port|    227 ... h1,h2,h3,h4,p1,p2    229 ... port
    IPv6                              EPRT |2|address|port|    anything with EXTENDED PASSIVE ... port

The address must be the client's in the first two, the server's in 227: his own, or the one that he is translated to.  The
connection goes to who sent the segment.

Source:
    Open vSwitch lib/conntrack.c, detect_ftp_ctl_type, process_ftp_ctl_v4, process_ftp_ctl_v6.
"""

from __future__ import annotations

import numpy as np

from ..shm.layout import Foretold
from . import address_text, foretold, memory
from .address_text import is_digit, number
from .endpoints import TCP
from .jit import inlined, kernel
from .words import EIGHT, FOUR, ONE, THREE, TWO, ZERO, u64

MESSAGE_BYTES_MAX = u64(128)

_PORT_MAX, _BYTE_MAX = u64(65535), u64(255)
_SPACE, _COMMA, _DOT = u64(ord(" ")), u64(ord(",")), u64(ord("."))
_ONE_DIGIT, _TWO_DIGIT = u64(ord("1")), u64(ord("2"))
_FIVE = u64(5)
_DATA = u64(Foretold.DATA)


def _text(text: bytes) -> np.ndarray:
    found = np.array(list(text), np.uint64)
    found.setflags(write=False)
    return found


_WORDS = tuple(_text(word) for word in (b"port", b"eprt", b"227", b"229"))
_COMMAND_PORT, _COMMAND_EPRT, _ANSWER_PASV, _ANSWER_EPSV = _WORDS
_EXTENDED_PASSIVE = _text(b"extended passive")


# ------------------------------------------------------------------------------------------------ text
@kernel
def _begins_with(begin, end, word):
    """Return whether a text begins with a word of lower-case letters and digits, in any case."""
    if end - begin < u64(len(word)):
        return False
    for i in range(len(word)):
        if address_text.lower(memory.byte(begin + u64(i))) != word[i]:
            return False
    return True


@kernel
def _first_digit(begin, end):
    at = begin
    while at < end and not is_digit(memory.byte(at)):
        at += ONE
    return at


@kernel
def _port(begin, end):
    """Return the port of EPRT and EPSV and whether it is one."""
    value, _ = number(begin, end, 6)
    return value, value != address_text.NONE and value <= _PORT_MAX


@kernel
def _two_bytes(begin, end):
    """Return the port that ``p1,p2`` says and whether it does."""
    first, after = number(begin, end, 4)
    second, _ = number(min(after + ONE, end), end, 10)
    good = first != address_text.NONE and first <= _BYTE_MAX and second != address_text.NONE and second <= _BYTE_MAX
    return (first << EIGHT) | second, good


@kernel
def _with_commas(begin, end):
    """Return the IPv4 address of ``h1,h2,h3,h4,``, whether it is one, and the address behind the last comma."""
    value, at = ZERO, begin
    for _ in range(4):
        part, after = number(at, end, 3)
        if part == address_text.NONE or part > _BYTE_MAX or (after - at > ONE and memory.byte(at) == u64(ord("0"))):
            return ZERO, False, at
        if after >= end or memory.byte(after) != _COMMA:
            return ZERO, False, at
        value = (value << EIGHT) | part
        at = after + ONE
    return value, True, at


# ------------------------------------------------------------------------------------------------ messages
@inlined
def _foretell(views, entry, way, port):
    foretold.to_sender(views, ZERO, entry, way, TCP, port, _DATA)
    return foretold.ONE_FORETOLD


@kernel
def _is_end(views, entry, way, high, low):
    """Return whether an address is that of who sends packets that go ``way``, or the one that he is translated to."""
    own, known = foretold.sender(views, entry, way), foretold.known(views, entry, way)
    if memory.read64(own) == high and memory.read64(own + EIGHT) == low:
        return True
    return memory.read64(known) == high and memory.read64(known + EIGHT) == low


@kernel
def _read_v4(views, entry, way, begin, end):
    is_eprt = _begins_with(begin, end, _COMMAND_EPRT)
    is_epsv = _begins_with(begin, end, _ANSWER_EPSV)
    is_port = _begins_with(begin, end, _COMMAND_PORT)
    if not (is_eprt or is_epsv or is_port or _begins_with(begin, end, _ANSWER_PASV)):
        return foretold.NOTHING
    at = _first_digit(address_text.find(begin + (FOUR if is_eprt or is_port else THREE), end, _SPACE), end)
    if at >= end:
        return foretold.REFUSED
    if is_epsv:
        port, good = _port(at, end)
        return _foretell(views, entry, way, port) if good else foretold.REFUSED
    if is_eprt:
        if memory.byte(at) != _ONE_DIGIT or (at + ONE < end and is_digit(memory.byte(at + ONE))):
            return foretold.REFUSED
        at = _first_digit(at + ONE, end)
        after = at
        while after < end and (is_digit(memory.byte(after)) or memory.byte(after) == _DOT):
            after += ONE
        address, good = address_text.ipv4(at, after)
        port, good_port = _port(min(after + ONE, end), end)
    else:
        address, good, after = _with_commas(at, end)
        port, good_port = _two_bytes(after, end)
    if not good or not good_port or not _is_end(views, entry, ZERO if is_eprt or is_port else ONE, ZERO, address):
        return foretold.REFUSED
    return _foretell(views, entry, way, port)


@kernel
def _find_extended_passive(begin, end):
    """Return the address behind EXTENDED PASSIVE, 0 where it does not stand."""
    at = begin
    while at < end:
        if _begins_with(at, end, _EXTENDED_PASSIVE):
            return at + u64(len(_EXTENDED_PASSIVE))
        at += ONE
    return ZERO


@kernel
def _read_v6(views, entry, way, begin, end):
    if not _begins_with(begin, end, _COMMAND_EPRT):
        behind = _find_extended_passive(begin, end)
        if behind == ZERO:
            return foretold.NOTHING
        port, good = _port(_first_digit(behind, end), end)
        return _foretell(views, entry, way, port) if good else foretold.REFUSED
    at = _first_digit(begin + FOUR, end)
    if at + TWO >= end or memory.byte(at) != _TWO_DIGIT or is_digit(memory.byte(at + ONE)):
        return foretold.REFUSED
    at += TWO
    after = at
    while after < end and address_text.is_of_ipv6(memory.byte(after)):
        after += ONE
    high, low, good = address_text.ipv6(at, after)
    port, good_port = _port(min(after + ONE, end), end)
    if not good or not good_port or not _is_end(views, entry, ZERO, high, low):
        return foretold.REFUSED
    return _foretell(views, entry, way, port)


@kernel
def read(views, entry, way, family, begin, end):
    """Read a segment of the control channel.

    Args:
        entry: address of the ENTRY.
        way: of the segment.
        family: of the connection, 4 or 6.
        begin, end: addresses of its payload, as far as it was captured.

    Returns:
        What foretold describes.
    """
    end = begin + min(end - begin, MESSAGE_BYTES_MAX) - ONE  # Open vSwitch's copy leaves out the last
    end = address_text.find(begin, end, ZERO)
    return _read_v4(views, entry, way, begin, end) if family == FOUR else _read_v6(views, entry, way, begin, end)
