"""IRC: a client that offers a file or a chat to another (DCC) names the address and port where it waits for him.

    PRIVMSG nick :\\1DCC SEND file 3232235521 5000 ...      also CHAT, MOVE, TSEND, SCHAT

Anybody may come, for the offer goes to whoever the nick is.  Only clients are read, only of IPv4, and only an address
that is the client's own is believed.

Source:
    Linux nf_conntrack_irc.c; the Client-To-Client Protocol (CTCP), 1994.
"""

from __future__ import annotations

import numpy as np

from ..shm.layout import ExpectationFlag, Foretold, Status
from . import address_text, entries, expectations, foretold, memory, messages
from .address_text import lower, number
from .endpoints import TCP
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_32, ONE, TWO, ZERO, u64

SEARCH_BYTES_MAX = u64(4095)
"""Of a segment, those that are looked at."""
OFFER_BYTES_MIN = u64(26)
"""The shortest offer behind the nick: `` :\\1DCC CHAT t AAAAAAAA P\\1\\n``."""
ADDRESS_BYTES_MIN = u64(12)
"""The shortest address and port, to the end of the line."""

_SPACE, _RETURN, _NEWLINE, _COLON = (u64(ord(c)) for c in " \r\n:")
_DIGITS_MAX = 10
_PORT_MAX = u64(65535)
_DATA = u64(Foretold.DATA)
_SOURCE_ANY, _NAT_SOURCE = u64(ExpectationFlag.SOURCE_ANY), u64(ExpectationFlag.NAT_SOURCE)
_SEEN_REPLY = u64(Status.SEEN_REPLY)


def _text(text: bytes) -> np.ndarray:
    found = np.array(list(text), np.uint64)
    found.setflags(write=False)
    return found


_PRIVMSG, _DCC = _text(b"privmsg "), _text(b"\1DCC ")
OFFERS = (b"SEND ", b"CHAT ", b"MOVE ", b"TSEND ", b"SCHAT ")
_OFFER_BYTES = max(map(len, OFFERS))
_OFFERS = np.array([list(offer.ljust(_OFFER_BYTES, b"\0")) for offer in OFFERS], np.uint64)
_OFFERS.setflags(write=False)


@kernel
def _begins_with(begin, end, text, any_case):
    if end - begin < u64(len(text)):
        return False
    for i in range(len(text)):
        character = memory.byte(begin + u64(i))
        if (lower(character) if any_case else character) != text[i]:
            return False
    return True


@kernel
def _behind_offer(begin, end):
    """Return the address behind the name of an offer, 0 where there is none."""
    for i in range(len(OFFERS)):
        length = ZERO
        while length < u64(_OFFER_BYTES) and _OFFERS[u64(i), length] != ZERO:
            if begin + length >= end or memory.byte(begin + length) != _OFFERS[u64(i), length]:
                break
            length += ONE
        if length == u64(_OFFER_BYTES) or (length != ZERO and _OFFERS[u64(i), length] == ZERO):
            return begin + length
    return ZERO


@inlined
def _is_blank(character):
    return character == _SPACE or character == _RETURN or character == _NEWLINE


@kernel
def _read_ends(begin, end):
    """Return address and port that an offer names behind the word at ``begin``, and whether it does."""
    at = address_text.find(begin, end, _SPACE) + ONE
    if at + ADDRESS_BYTES_MIN > end + ONE or address_text.find(at, end, _NEWLINE) == end:
        return ZERO, ZERO, False
    address, at = number(at, end, _DIGITS_MAX)
    while at < end and memory.byte(at) == _SPACE:
        at += ONE
    port, _ = number(at, end, _DIGITS_MAX)
    good = address != address_text.NONE and address <= LOW_32 and port != address_text.NONE
    return address, port, good and port != ZERO and port <= _PORT_MAX


@kernel
def _offer(begin, end):
    """Return the address behind ``DCC NAME`` of the message in a line, 0 when there is no such."""
    at = begin
    while at + TWO < end and _is_blank(memory.byte(at)):
        at += ONE
    if not _begins_with(at, end, _PRIVMSG, True):
        return ZERO
    at += EIGHT
    while at + OFFER_BYTES_MIN < end + ONE:
        if memory.byte(at) == _SPACE and memory.byte(at + ONE) == _COLON:
            at += TWO
            return _behind_offer(at + u64(len(_DCC)), end) if _begins_with(at, end, _DCC, False) else ZERO
        at += ONE
    return ZERO


@kernel
def read(views, entry, way, family, begin, end):
    """Read a segment of a client.

    Args:
        entry: address of the ENTRY.
        way: of the segment.
        family: of the connection, 4 or 6.
        begin, end: addresses of its payload, as far as it was captured.

    Returns:
        What foretold describes.
    """
    if way != ZERO or family != FOUR or u64(entries.entry_at(entry).status) & _SEEN_REPLY == ZERO:
        return foretold.NOTHING
    end = begin + min(end - begin, SEARCH_BYTES_MAX)
    at = _offer(begin, end)
    if at == ZERO:
        return foretold.NOTHING
    address, port, good = _read_ends(at, end)
    if not good or memory.read64(foretold.sender(views, entry, way) + EIGHT) != address:
        return foretold.NOTHING
    foretold.to_sender(views, ZERO, entry, way, TCP, port, _DATA)
    e = foretold.expectation_at(foretold.address(views, ZERO))
    e.flags = (u64(e.flags) | _SOURCE_ANY) & ~_NAT_SOURCE & LOW_32  # whoever comes keeps his address
    return foretold.ONE_FORETOLD


@kernel
def write(views, begin, end):
    """Write a segment whose offer was read with the address and the port that were foretold.

    Args:
        begin, end: addresses of its payload.
    """
    memory.seldom()
    until = begin + min(end - begin, SEARCH_BYTES_MAX)
    at = address_text.find(_offer(begin, until), until, _SPACE) + ONE
    messages.begin(views, begin)
    messages.copy_to(views, at)
    messages.number(views, memory.le64(foretold.address(views, ZERO) + expectations.DESTINATION + EIGHT))
    messages.put(views, _SPACE)
    messages.number(views, foretold.port_of(views, ZERO))
    _, at = number(at, until, _DIGITS_MAX)
    while at < until and memory.byte(at) == _SPACE:
        at += ONE
    _, at = number(at, until, _DIGITS_MAX)
    messages.leave_out(views, at)
    messages.copy_to(views, end)
