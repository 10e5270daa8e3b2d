"""SIP: a session description names where its sender waits for RTP and RTCP; a registration, where he can be called.

    request    INVITE UPDATE ACK PRACK       what its session description offers
               INVITE, BYE                   first, media foretold before are forgotten
    answer     1xx, 2xx to INVITE UPDATE PRACK   likewise; another to the last INVITE: media are forgotten
               2xx to the last REGISTER      calls from the registrar, as long as it says

Only the other end of the signalling may come, and only to the sender's own address.  RTP has an even port and RTCP the next
one (RFC 3550 11).  A message of one of these that has no CSeq, or media without address or with a port below 1024, is
refused.  Signalling keeps its connection for an hour.

Of a translated connection a message is written anew: the two ends of its connection where they stand in the request, in
Via, From, To and Contact, the sender's address in its session description, ports that others had already, Content-Length.

Source:
    Linux nf_conntrack_sip.c with its defaults (direct signalling, direct media); RFC 3261, RFC 4566.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ..shm.layout import SIP_STATE, ExpectationFlag, Foretold, Helper
from . import address_text, foretold, memory, messages
from .address_text import is_digit, lower, number
from .endpoints import UDP
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_32, ONE, TWO, ZERO, u64

MESSAGE_BYTES_MAX = u64(8192)
"""Of a message, those that are looked at."""
LINES_MAX = 512
MEDIA_MAX = u64(3)
"""Media of a session description that are followed, as many as there are kinds."""
KEPT_MS = u64(3_600_000)
"""How long a connection of signalling is kept from its last message."""


class Method(IntEnum):
    """What a request asks, or an answer is about."""

    OTHER = 0
    INVITE = 1
    UPDATE = 2
    ACK = 3
    PRACK = 4
    BYE = 5
    REGISTER = 6


METHODS = len(Method)
_WIDTH = 14


def _texts(*texts: bytes) -> np.ndarray:
    """Return texts in lower case, a row each, u64[n, _WIDTH], filled up with 0."""
    found = np.array([list(text.ljust(_WIDTH, b"\0")) for text in texts], np.uint64)
    found.setflags(write=False)
    return found


_METHODS = _texts(b"", *(method.name.lower().encode() for method in list(Method)[1:]))
_WORDS = _texts(
    *(b"sip/2.0 ", b"cseq", b"expires", b"contact", b"v=", b"c=in ip4 ", b"c=in ip6 ", b"m=", b"sip:", b"expires="),
    *(b"via", b"from", b"to", b"content-length", b"in ip4 ", b"in ip6 ", b"o=", b"c=", b"rport="),
)
_ANSWER, _CSEQ, _EXPIRES, _CONTACT, _VERSION, _IPV4, _IPV6, _MEDIA, _URI, _PARAMETER = (u64(i) for i in range(10))
_VIA, _FROM, _TO, _LENGTH, _IN_IPV4, _IN_IPV6, _ORIGIN, _CONNECTION, _RPORT = (u64(10 + i) for i in range(9))
_KINDS = _texts(b"", b"audio ", b"video ", b"image ")
assert [Foretold.AUDIO, Foretold.VIDEO, Foretold.IMAGE] == [1, 2, 3]

_SPACE, _TAB, _COLON, _AT, _NEWLINE, _RETURN = (u64(ord(c)) for c in " \t:@\n\r")
_BRACKET, _CLOSING, _LETTER_M = (u64(ord(c)) for c in "[]m")
_LETTER_V, _LETTER_F, _LETTER_T, _LETTER_L, _EQUALS, _FULL_STOP = (u64(ord(c)) for c in "vftl=.")
_LETTER_A, _LETTER_Z = u64(ord("a")), u64(ord("z"))
_TEN = 10
_PORT_MIN, _PORT_MAX, _PORT = u64(1024), u64(65535), u64(5060)
_EXPIRES_MAX_S = u64(1 << 20)
_MEDIA_KINDS = u64(1 << Foretold.AUDIO | 1 << Foretold.VIDEO | 1 << Foretold.IMAGE)
_SIGNALLING_KIND = u64(1 << Foretold.DATA)
_DATA, _SIP = u64(Foretold.DATA), u64(Helper.SIP)
_PERMANENT = u64(ExpectationFlag.PERMANENT)
_INVITE, _UPDATE, _PRACK, _ACK = u64(Method.INVITE), u64(Method.UPDATE), u64(Method.PRACK), u64(Method.ACK)
_BYE, _REGISTER = u64(Method.BYE), u64(Method.REGISTER)
_NO_FAULT, _FAULT = False, True

state_at = memory.record_at(SIP_STATE)


# ------------------------------------------------------------------------------------------------ words
@kernel
def _behind(begin, end, texts, which):
    """Return the address behind a text that stands at ``begin``, in any case; 0 where it does not."""
    length = ZERO
    while length < u64(_WIDTH) and texts[which, length] != ZERO:
        if begin + length >= end or lower(memory.byte(begin + length)) != texts[which, length]:
            return ZERO
        length += ONE
    return begin + length


@inlined
def _skip_blanks(at, end):
    while at < end and (memory.byte(at) == _SPACE or memory.byte(at) == _TAB):
        at += ONE
    return at


@kernel
def _value(begin, end, which, letter):
    """Return the address of the value of a header line, by its name or by its one-letter name; 0 if it is another's."""
    at = _behind(begin, end, _WORDS, which)
    if at == ZERO and letter != ZERO and begin < end and lower(memory.byte(begin)) == letter:
        at = begin + ONE
    if at == ZERO:
        return ZERO
    at = _skip_blanks(at, end)
    return _skip_blanks(at + ONE, end) if at < end and memory.byte(at) == _COLON else ZERO


@kernel
def _method(begin, end):
    """Return the Method that stands at ``begin``, and the address behind it."""
    for i in range(1, METHODS):
        behind = _behind(begin, end, _METHODS, u64(i))
        if behind != ZERO:
            return u64(i), behind
    return ZERO, begin


@kernel
def _search(begin, end, which):
    """Return the address behind the first of a text, 0 where there is none."""
    at = begin
    while at < end:
        behind = _behind(at, end, _WORDS, which)
        if behind != ZERO:
            return behind
        at += ONE
    return ZERO


@kernel
def _address(begin, end, family):
    """Return both words of the address that begins a text, whether it is one, and the address behind it."""
    at = begin
    if family == FOUR:
        while at < end and (is_digit(memory.byte(at)) or memory.byte(at) == u64(ord("."))):
            at += ONE
        low, good = address_text.ipv4(begin, at)
        return ZERO, low, good, at
    is_bracketed = at < end and memory.byte(at) == _BRACKET
    if is_bracketed:
        at += ONE
    first = at
    while at < end and address_text.is_of_ipv6(memory.byte(at)):
        at += ONE
    high, low, good = address_text.ipv6(first, at)
    if is_bracketed:
        if at >= end or memory.byte(at) != _CLOSING:
            return high, low, False, at
        at += ONE
    return high, low, good, at


@inlined
def _is_own(own, high, low):
    return memory.read64(own) == high and memory.read64(own + EIGHT) == low


# ------------------------------------------------------------------------------------------------ session description
@kernel
def _line_end(begin, end):
    """Return the address of the end of a line: of what ends it, or of the message."""
    at = begin
    while at < end and memory.byte(at) != _NEWLINE and memory.byte(at) != _RETURN:
        at += ONE
    return at


@kernel
def _next_line(at, end):
    """Return where the line behind the end of another begins."""
    if at + ONE < end and memory.byte(at) == _RETURN and memory.byte(at + ONE) == _NEWLINE:
        return at + TWO
    return at + ONE


@kernel
def _connection(begin, end, family, own):
    """Return whether a line has an address, and whether that is the sender's own."""
    at = _behind(begin, end, _WORDS, _IPV4 if family == FOUR else _IPV6)
    if at == ZERO:
        return False, False
    high, low, good, _ = _address(at, end, family)
    return good, good and _is_own(own, high, low)


@kernel
def _kind(begin, end):
    """Return the Foretold of a line of media and the address behind its name, 0 for what is not followed."""
    at = _behind(begin, end, _WORDS, _MEDIA)
    if at != ZERO:
        for i in range(1, len(_KINDS)):
            behind = _behind(at, end, _KINDS, u64(i))
            if behind != ZERO:
                return u64(i), behind
    return ZERO, at


@kernel
def _offer(views, entry, way, count, port, kind):
    """Write RTP and RTCP of one medium behind ``count`` others."""
    even = port & ~ONE
    foretold.to_sender(views, count, entry, way, UDP, even, kind)
    foretold.to_sender(views, count + ONE, entry, way, UDP, even + ONE, kind)
    return count + TWO


@kernel
def _read_session(views, entry, way, family, begin, end):
    """Read a session description; returns how many expectations were written, and whether it cannot be right.

    The connection of a medium stands behind it and overrides that of the session; so a medium is done when the next begins.
    """
    own = foretold.sender(views, entry, way)
    has_address, is_own = False, False  # of the session
    medium_has, medium_own = False, False
    kind, port = ZERO, ZERO  # of the medium that is not done
    in_media = False
    count, media = ZERO, ZERO
    at = begin
    for _ in range(LINES_MAX):
        line_end = _line_end(at, end) if at < end else end
        next_kind, behind = _kind(at, line_end) if at < end else (ZERO, ONE)
        if behind != ZERO:  # the next medium, or the end
            if port != ZERO and media < MEDIA_MAX:
                media += ONE
                if not medium_has and not has_address:
                    return ZERO, _FAULT
                if medium_own or (is_own and not medium_has):
                    count = _offer(views, entry, way, count, port, kind)
            if at >= end:
                break
            in_media, medium_has, medium_own = True, False, False
            kind, port = next_kind, ZERO
            if kind != ZERO:
                read, _ = number(behind, line_end, _TEN)
                port = ZERO if read == address_text.NONE else read
                if port != ZERO and (port < _PORT_MIN or port > _PORT_MAX):
                    return ZERO, _FAULT
        else:
            good, mine = _connection(at, line_end, family, own)
            if good and in_media:
                medium_has, medium_own = True, mine
            elif good:
                has_address, is_own = True, mine
        at = _next_line(line_end, end)
    return count, _NO_FAULT


# ------------------------------------------------------------------------------------------------ registration
@kernel
def _contact(begin, end, family, own):
    """Return the port at which a contact can be called and for how long (s, NONE: it does not say); port 0: not his own."""
    at = _search(begin, end, _URI)
    if at == ZERO:
        return ZERO, ZERO
    host = address_text.find(at, end, _AT)
    high, low, good, behind = _address(host + ONE if host < end else at, end, family)
    if not good or not _is_own(own, high, low):
        return ZERO, ZERO
    port = _PORT
    if behind < end and memory.byte(behind) == _COLON:
        port, behind = number(behind + ONE, end, 5)
        if port == address_text.NONE or port < _PORT_MIN or port > _PORT_MAX:
            return ZERO, ZERO
    parameter = _search(behind, end, _PARAMETER)
    if parameter == ZERO:
        return port, address_text.NONE
    seconds, _ = number(parameter, end, _TEN)
    return port, seconds


@kernel
def _register(views, entry, way, port, seconds, now_ms):
    """Write that the registrar may call who registered."""
    foretold.to_sender(views, ZERO, entry, way ^ ONE, UDP, port, _DATA)
    at = foretold.address(views, ZERO)
    e = foretold.expectation_at(at)
    e.flags = u64(e.flags) | _PERMANENT
    if port == foretold.known_port(views, entry, way ^ ONE):
        e.nat_port = foretold.sender_port(views, entry, way ^ ONE)
    e.child_helper = _SIP
    e.expiry_ms = now_ms + min(seconds, _EXPIRES_MAX_S) * u64(1000)
    return foretold.forgetting(_SIGNALLING_KIND) | foretold.ONE_FORETOLD


# ------------------------------------------------------------------------------------------------ a message
@kernel
def _judge(state, method, code, cseq):
    """Return what is done about a message, apart from what it describes: the kinds to forget, and whether media count."""
    if code == ZERO:
        if method == _INVITE:
            state.invite = cseq & LOW_32
        elif method == _REGISTER:
            state.register = cseq & LOW_32
        forgotten = _MEDIA_KINDS if method == _INVITE or method == _BYE else ZERO
        return forgotten, method == _INVITE or method == _UPDATE or method == _ACK or method == _PRACK
    if method == _REGISTER:
        is_last = u64(state.register) == cseq & LOW_32 and code >= u64(200)
        return (_SIGNALLING_KIND if is_last else ZERO), False
    if method != _INVITE and method != _UPDATE and method != _PRACK:
        return ZERO, False
    if code < u64(300):
        return ZERO, True
    return (_MEDIA_KINDS if u64(state.invite) == cseq & LOW_32 else ZERO), False


@kernel
def read(views, entry, state_address, way, family, begin, end, now_ms):
    """Read a message of signalling.

    Args:
        entry: address of the ENTRY.
        state_address: of its SIP_STATE.
        way: of the message.
        family: of the connection, 4 or 6.
        begin, end: addresses of the payload, as far as it was captured.
        now_ms: the moment from which a registration counts.

    Returns:
        What foretold describes.
    """
    end = begin + min(end - begin, MESSAGE_BYTES_MAX)
    line_end = _line_end(begin, end)
    code, method = ZERO, ZERO
    behind = _behind(begin, line_end, _WORDS, _ANSWER)
    if behind != ZERO:
        code, _ = number(behind, line_end, 3)
        if code == address_text.NONE or code == ZERO:
            return foretold.REFUSED
    else:
        method, behind = _method(begin, line_end)
        letter = lower(memory.byte(behind + ONE)) if behind + ONE < line_end else ZERO
        if method == ZERO or letter < _LETTER_A or letter > _LETTER_Z or memory.byte(behind) != _SPACE:
            return foretold.NOTHING
    cseq, expires, port, seconds = address_text.NONE, ZERO, ZERO, ZERO
    session = ZERO
    own = foretold.known(views, entry, way ^ ONE)  # of an answer to REGISTER: who registered
    at = _next_line(line_end, end)
    for _ in range(LINES_MAX):
        if at >= end:
            break
        line_end = _line_end(at, end)
        value = _value(at, line_end, _CSEQ, ZERO)
        if value != ZERO:
            cseq, behind = number(value, line_end, _TEN)
            if code != ZERO:
                method, _ = _method(_skip_blanks(behind, line_end), line_end)
        value = _value(at, line_end, _EXPIRES, ZERO)
        if value != ZERO:
            expires, _ = number(value, line_end, _TEN)
        value = _value(at, line_end, _CONTACT, _LETTER_M)
        if value != ZERO and port == ZERO:
            port, seconds = _contact(value, line_end, family, own)
        if _behind(at, line_end, _WORDS, _VERSION) != ZERO:
            session = at
            break
        at = _next_line(line_end, end)
    if cseq == address_text.NONE:
        return foretold.REFUSED
    state = state_at(state_address)
    forgotten, describes = _judge(state, method, code, cseq)
    if code != ZERO and method == _REGISTER:
        seconds = expires if seconds == address_text.NONE else seconds
        if forgotten != ZERO and code < u64(300) and port != ZERO and seconds != ZERO and seconds != address_text.NONE:
            return _register(views, entry, way, port, seconds, now_ms)
        return foretold.forgetting(forgotten)
    count = ZERO
    if describes and session != ZERO:
        count, fault = _read_session(views, entry, way, family, session, end)
        if fault:
            return foretold.REFUSED
    return foretold.forgetting(forgotten) | count


# ------------------------------------------------------------------------------------------------ a message written anew
@kernel
def _end_of(views, high, low, port, is_parameter):
    """Return which end an address and port name where a message comes from: 1 its sender, 2 the other, 0 none."""
    message = messages.message_at(views.message)
    if u64(message.own[0, 0]) == high and u64(message.own[0, 1]) == low:
        if is_parameter or u64(message.own_port[0]) == port:
            return ONE
    if u64(message.known[1, 0]) == high and u64(message.known[1, 1]) == low:
        if is_parameter or u64(message.known_port[1]) == port:
            return TWO
    return ZERO


@kernel
def _write_end(views, family, end, has_port, is_parameter):
    """Put what an end is where the message goes."""
    message = messages.message_at(views.message)
    ends, ports, i = message.known, message.known_port, ZERO
    if end == TWO:
        ends, ports, i = message.own, message.own_port, ONE
    if family != FOUR:
        messages.put(views, _BRACKET)
    messages.address(views, family, u64(ends[i, 0]), u64(ends[i, 1]))
    if family != FOUR:
        messages.put(views, _CLOSING)
    if has_port or (not is_parameter and u64(ports[i]) != _PORT):
        messages.put(views, _COLON)
        messages.number(views, u64(ports[i]))


@inlined
def _can_begin(begin, at, family):
    """Return whether an address can begin at a place of a line."""
    character = memory.byte(at)
    if family != FOUR:
        return character == _BRACKET
    if not is_digit(character):
        return False
    before = lower(memory.byte(at - ONE)) if at > begin else _SPACE
    return not (is_digit(before) or before == _FULL_STOP or (before >= _LETTER_A and before <= _LETTER_Z))


@kernel
def _write_ends(views, family, begin, end):
    """Write a line with the two ends of the connection as they are where it goes."""
    at = begin
    while at < end:
        if not _can_begin(begin, at, family):
            at += ONE
            continue
        high, low, good, behind = _address(at, end, family)
        if not good:
            at += ONE
            continue
        is_parameter = memory.byte(at - ONE) == _EQUALS if at > begin else False
        port, has_port = _PORT, False
        if behind + ONE < end and memory.byte(behind) == _COLON and is_digit(memory.byte(behind + ONE)):
            port, behind = number(behind + ONE, end, 5)
            has_port = True
        found = _end_of(views, high, low, port, is_parameter)
        if found != ZERO:
            messages.copy_to(views, at)
            _write_end(views, family, found, has_port, is_parameter)
            messages.leave_out(views, behind)
        at = max(behind, at + ONE)


@kernel
def _write_rport(views, begin, end):
    """Write the port that a server has seen a request come from, if that is the one which the client was translated to."""
    message = messages.message_at(views.message)
    at = _search(begin, end, _RPORT)
    if at == ZERO or at < u64(message.at):
        return
    port, behind = number(at, end, 5)
    if port == u64(message.known_port[1]):
        messages.copy_to(views, at)
        messages.number(views, u64(message.own_port[1]))
        messages.leave_out(views, behind)


@kernel
def _write_header(views, family, begin, end):
    """Write a line of the header, if it is one with addresses."""
    is_via = _value(begin, end, _VIA, _LETTER_V) != ZERO
    if is_via or (
        _value(begin, end, _FROM, _LETTER_F) != ZERO
        or _value(begin, end, _TO, _LETTER_T) != ZERO
        or _value(begin, end, _CONTACT, _LETTER_M) != ZERO
    ):
        _write_ends(views, family, begin, end)
    if is_via:
        _write_rport(views, begin, end)


@kernel
def _write_description(views, family, count, begin, end):
    """Write a line of a session description: the sender's address, and the port of a medium."""
    message = messages.message_at(views.message)
    if _behind(begin, end, _WORDS, _ORIGIN) != ZERO or _behind(begin, end, _WORDS, _CONNECTION) != ZERO:
        at = _search(begin, end, _IN_IPV4 if family == FOUR else _IN_IPV6)
        if at == ZERO:
            return
        high, low, good, behind = _address(at, end, family)
        if good and u64(message.own[0, 0]) == high and u64(message.own[0, 1]) == low:
            messages.copy_to(views, at)
            messages.address(views, family, u64(message.known[0, 0]), u64(message.known[0, 1]))
            messages.leave_out(views, behind)
        return
    kind, at = _kind(begin, end)
    if kind == ZERO:
        return
    port, behind = number(at, end, _TEN)
    for i in range(count):
        if u64(foretold.expectation_at(foretold.address(views, u64(i))).nat_port) == port & ~ONE and port != ZERO:
            messages.copy_to(views, at)
            messages.number(views, foretold.port_of(views, u64(i)) | (port & ONE))
            messages.leave_out(views, behind)
            break


@kernel
def _write_once(views, family, count, begin, end, longer):
    """Write a message whose body gets longer by so many bytes; returns by how many it does, modulo 2**64."""
    messages.begin(views, begin)
    at = begin
    body, body_text = ZERO, ZERO
    for _ in range(LINES_MAX):
        if at >= end:
            break
        line_end = _line_end(at, end)
        if body != ZERO:
            _write_description(views, family, count, at, line_end)
        elif line_end == at:
            body = _next_line(at, end)
            messages.copy_to(views, min(body, end))
            body_text = messages.length(views)
        elif at == begin:
            _write_ends(views, family, at, line_end)
        else:
            value = _value(at, line_end, _LENGTH, _LETTER_L)
            bytes_, behind = number(value, line_end, 5) if value != ZERO else (address_text.NONE, ZERO)
            if bytes_ != address_text.NONE:
                messages.copy_to(views, value)
                messages.number(views, (bytes_ + longer) & LOW_32)
                messages.leave_out(views, behind)
            else:
                _write_header(views, family, at, line_end)
        at = _next_line(line_end, end)
    messages.copy_to(views, end)
    if body == ZERO or body > end:
        return ZERO
    return (messages.length(views) - body_text) - (end - body)


@kernel
def write(views, family, count, begin, end):
    """Write a message that was read with the addresses and ports that are right where it goes.

    Args:
        family: of the connection, 4 or 6.
        count: how many expectations were made of it.
        begin, end: addresses of its payload, all of it.
    """
    memory.seldom()
    longer = _write_once(views, family, count, begin, end, ZERO)
    if longer != ZERO:
        _write_once(views, family, count, begin, end, longer)
