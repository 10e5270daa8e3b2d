"""FTP, `netfilter` profile: PORT, EPRT and the answers to PASV and EPSV foretell where the data connection goes.

A line counts where one is known to begin: behind a segment that ended one (two such places are remembered for each way, so
that what is sent again counts again).  One that a segment has only the beginning of goes on in the next; what was read of
it stands in the extension.  Only the first line of a segment is looked at.

An address that is not the sender's own is not believed, so nobody opens a way to others.  A line that begins as one of
these and is none is refused.

Where its connection is translated, a line is written anew; so a segment that ends inside one is refused, for what has been
sent of it cannot be changed any more.

Source:
    Linux nf_conntrack_ftp.c.  It drops a segment that ends inside such a line, and waits for it to be sent again with the
    rest; we cannot make anybody drop it, so we read on.
"""

from __future__ import annotations

from ..shm.layout import FTP_STATE, HELPER_STATE_BYTES, Foretold, Status
from . import address_text, entries, expectations, foretold, memory, messages
from .address_text import is_digit
from .endpoints import TCP
from .helper_ftp_states import ACTION, CLASSES, PATTERN_BYTES, PATTERN_TEXTS, PATTERN_THEN, THEN, Action, Class, Phase
from .jit import inlined, kernel
from .words import EIGHT, FOUR, ONE, THREE, TWO, ZERO, seq_after, seq_before, u32_add, u64

LINE_BYTES_MAX = 512
"""Of a line, those that are looked at; RFC 959 has no limit, real lines are below 80."""

_DIGIT, _NEXT, _LAST = u64(Action.DIGIT), u64(Action.NEXT), u64(Action.LAST)
_DELIMITER, _FAMILY, _LAST_OF_FOUR = u64(Action.DELIMITER), u64(Action.FAMILY), u64(Action.LAST_OF_FOUR)
_HEX, _GROUP, _DOUBLE, _LAST_GROUP = u64(Action.HEX), u64(Action.GROUP), u64(Action.DOUBLE), u64(Action.LAST_GROUP)
_ADDRESS, _PORT_DIGIT, _PORT = u64(Action.ADDRESS), u64(Action.PORT_DIGIT), u64(Action.PORT)
_BEGINNING, _DONE, _WRONG, _OTHER = u64(Phase.BEGINNING), u64(Phase.DONE), u64(Phase.WRONG), u64(Phase.OTHER)
_CLASS_DELIMITER = u64(Class.DELIMITER)
_TEN, _FIVE, _SIX = u64(10), u64(5), u64(6)
_NUMBER_MAX, _PORT_MAX, _GROUP_MAX = u64(255), u64(65535), u64(0xFFF)
_NEWLINE, _ZERO_DIGIT, _NINE = u64(ord("\n")), u64(ord("0")), u64(ord("9"))
_UPPER, _A, _LOWER_A, _LOWER_Z = u64(0xDF), u64(ord("A")), u64(ord("a")), u64(ord("z"))
_PRINTABLE_FIRST, _PRINTABLE_LAST = u64(33), u64(126)
_SPACE, _COMMA, _PARENTHESIS, _LETTER_P, _SEVEN_DIGIT = (u64(ord(c)) for c in " ,(P7")
_BOTH, _REPLY_BIT = THREE, u64(128)
_LOW_4 = u64(15)
_GROUPS = EIGHT
_SEEN_REPLY = u64(Status.SEEN_REPLY)
_DATA = u64(Foretold.DATA)

state_at = memory.record_at(FTP_STATE)


# ------------------------------------------------------------------------------------------------ where lines begin
@inlined
def _known(state, way):
    return (u64(state.known) >> (way * FOUR)) & _LOW_4


@kernel
def _begins_line(state, way, seq):
    """Return whether a line is known to begin at a sequence number."""
    for i in range(_known(state, way)):
        if u64(state.after_line[way, u64(i)]) == seq:
            return True
    return False


@kernel
def _remember(state, way, seq):
    """Remember that a line begins at a sequence number: instead of the older of two, if it is newer than that."""
    if _begins_line(state, way, seq):
        return
    known = _known(state, way)
    if known < TWO:
        state.after_line[way, known] = seq
        state.known = u64(state.known) + (ONE << (way * FOUR))
        return
    first, second = u64(state.after_line[way, 0]), u64(state.after_line[way, 1])
    oldest = ZERO if seq_before(first, second) else ONE
    if seq_after(seq, u64(state.after_line[way, oldest])):
        state.after_line[way, oldest] = seq


# ------------------------------------------------------------------------------------------------ one character
@inlined
def _begin_line(state, way):
    """Forget what was read."""
    state.patterns = _BOTH | (way * _REPLY_BIT)
    state.phase = _BEGINNING
    state.index = ZERO
    state.port = ZERO
    state.delimiter = ZERO
    for i in range(16):
        state.value[u64(i)] = ZERO


@kernel
def _match(state, way, character):
    """Take a character of a line's beginning; returns the phase after it."""
    if character >= _LOWER_A and character <= _LOWER_Z:
        character &= _UPPER
    at = u64(state.index)
    patterns = u64(state.patterns)
    for i in range(2):
        if PATTERN_TEXTS[way, u64(i), at] != character:
            patterns &= ~(ONE << u64(i))
    state.patterns = patterns
    state.index = at + ONE
    if patterns & _BOTH == ZERO:
        return _OTHER
    if at + ONE < u64(PATTERN_BYTES):
        return _BEGINNING
    state.index = ZERO
    return PATTERN_THEN[way, ZERO if patterns & ONE != ZERO else ONE]


@inlined
def _group_index(state):
    return u64(state.index) & _LOW_4


@kernel
def _end_group(state):
    """A group of an IPv6 address is whole; False when there are too many."""
    at = _group_index(state)
    if at == _GROUPS:
        return False
    group = u64(state.port)
    state.value[at << ONE] = group >> EIGHT
    state.value[(at << ONE) + ONE] = group & _NUMBER_MAX
    state.port = ZERO
    state.index = u64(state.index) + ONE
    return True


@kernel
def _end_address(state):
    """An IPv6 address is whole: groups behind :: move to its end; False when some are missing or none is left for ::."""
    groups, double = _group_index(state), u64(state.index) >> FOUR
    if double == ZERO:
        return groups == _GROUPS
    if groups == _GROUPS:
        return False
    kept = (double - ONE) << ONE
    moved = (groups << ONE) - kept
    for i in range(moved):
        source = (groups << ONE) - ONE - u64(i)
        state.value[u64(15) - u64(i)] = state.value[source]
        state.value[source] = ZERO
    return True


@kernel
def _act(state, action, character, family):
    """Do what a character asks for; False when it cannot be, so the line is wrong."""
    at = _group_index(state)
    if action == _DIGIT:
        number = u64(state.value[at]) * _TEN + character - _ZERO_DIGIT
        state.value[at] = min(number, _NUMBER_MAX)
        return number <= _NUMBER_MAX
    if action == _NEXT:
        state.index = at + ONE
        return at < _FIVE
    if action == _LAST:
        state.port = (u64(state.value[4]) << EIGHT) | u64(state.value[5])
        return at == _FIVE
    if action == _DELIMITER:
        state.delimiter = character
        is_digit = character >= _ZERO_DIGIT and character <= _NINE
        return character >= _PRINTABLE_FIRST and character <= _PRINTABLE_LAST and not is_digit
    if action == _FAMILY:
        return character == _ZERO_DIGIT + (ONE if family == FOUR else TWO)
    if action == _LAST_OF_FOUR:
        return at == THREE
    if action == _HEX:
        digit = character - _ZERO_DIGIT if character <= _NINE else (character & _UPPER) - _A + _TEN
        if u64(state.port) > _GROUP_MAX:
            return False
        state.port = (u64(state.port) << FOUR) | digit
        return True
    if action == _GROUP:
        return _end_group(state)
    if action == _DOUBLE:
        if u64(state.index) >> FOUR != ZERO:
            return False
        state.index = u64(state.index) | ((at + ONE) << FOUR)
        return True
    if action == _LAST_GROUP:
        return _end_group(state) and _end_address(state)
    if action == _ADDRESS:
        return _end_address(state)
    if action == _PORT_DIGIT:
        number = u64(state.port) * _TEN + character - _ZERO_DIGIT
        state.port = min(number, _PORT_MAX)
        return number <= _PORT_MAX
    return action != _PORT or u64(state.port) != ZERO


@kernel
def step(state, way, character, family):
    """Take one character of a line.

    Args:
        state: FTP_STATE, what was read of the line before.
        way: of its sender.
        character: u64.
        family: of the connection, 4 or 6.

    Returns:
        The Phase after it, which stands in the state too.
    """
    phase = u64(state.phase)
    if phase == _BEGINNING:
        phase = _match(state, way, character)
    else:
        kind = CLASSES[character]
        if character == u64(state.delimiter) and character != ZERO:
            kind = _CLASS_DELIMITER
        action = ACTION[phase, kind]
        phase = THEN[phase, kind]
        if not _act(state, action, character, family):
            phase = _WRONG
        elif action == _FAMILY and family != FOUR:
            phase += ONE  # EPRT_FAMILY6_END
    state.phase = phase
    return phase


# ------------------------------------------------------------------------------------------------ a segment
@inlined
def _is_over(phase):
    return phase >= _DONE


@kernel
def _foretell(views, entry, way, family, state):
    """Write what a line says that was read to its end; of another host than its sender, nothing."""
    port = u64(state.port)
    if port == ZERO:
        return foretold.NOTHING
    if u64(state.patterns) & ONE != ZERO or way == ZERO:  # all but 229 name an address
        high, low = ZERO, ZERO
        for i in range(8):
            high = (high << EIGHT) | u64(state.value[u64(i)])
            low = (low << EIGHT) | u64(state.value[u64(i) + EIGHT])
        if family == FOUR:
            high, low = ZERO, high >> (FOUR * EIGHT)
        own = foretold.sender(views, entry, way)
        if memory.read64(own) != high or memory.read64(own + EIGHT) != low:
            return foretold.NOTHING
    foretold.to_sender(views, ZERO, entry, way, TCP, port, _DATA)
    return foretold.ONE_FORETOLD


@kernel
def _read_line(views, entry, way, family, state, begin, end):
    """Read on in a line; returns what foretold describes, and whether the segment ended inside it."""
    phase = u64(state.phase)
    for i in range(min(end - begin, u64(LINE_BYTES_MAX))):
        phase = step(state, way, memory.byte(begin + u64(i)), family)
        if _is_over(phase):
            break
    if not _is_over(phase):
        return foretold.NOTHING, end - begin <= u64(LINE_BYTES_MAX)
    if phase == _WRONG:
        return foretold.REFUSED, False
    if phase == _OTHER:
        return foretold.NOTHING, False
    return _foretell(views, entry, way, family, state), False


@kernel
def read(views, entry, state_address, parsed, way, translates, begin, end):
    """Read a segment of the control channel, all of which was captured.

    Args:
        entry: address of the ENTRY.
        state_address: of its FTP_STATE.
        parsed: PARSED of the segment.
        translates: bool, whether it is translated.
        begin, end: addresses of its payload.

    Returns:
        What foretold describes.
    """
    if way == ZERO and u64(entries.entry_at(entry).status) & _SEEN_REPLY == ZERO:
        return foretold.NOTHING
    state = state_at(state_address)
    seq = u64(parsed.seq)
    following = u32_add(seq, end - begin)
    result = foretold.NOTHING
    ends_inside = False
    goes_on = u64(state.patterns) != ZERO and u64(state.resume) == seq and u64(state.patterns) // _REPLY_BIT == way
    goes_on = goes_on and not translates
    begins = _begins_line(state, way, seq)
    if begins or goes_on:
        # a line of the other side may be unfinished, and stays so unless this one is too
        memory.copy(views.expected, state_address, u64(HELPER_STATE_BYTES))
        if begins:
            _begin_line(state, way)
        result, ends_inside = _read_line(views, entry, way, u64(parsed.family), state, begin, end)
        if ends_inside and not translates:
            state.resume = following
        else:
            memory.copy(state_address, views.expected, u64(HELPER_STATE_BYTES))
            if u64(state.patterns) // _REPLY_BIT == way:
                state.patterns = ZERO
            if ends_inside:
                return foretold.SPLIT
    if result != foretold.REFUSED and memory.byte(end - ONE) == _NEWLINE:
        _remember(state, way, following)
    return result


# ------------------------------------------------------------------------------------------------ a segment written anew
@kernel
def _behind_digits(at, end, separator):
    """Return the address behind digits and separators."""
    while at < end and (is_digit(memory.byte(at)) or memory.byte(at) == separator):
        at += ONE
    return at


@kernel
def _first_digit(at, end):
    while at < end and not is_digit(memory.byte(at)):
        at += ONE
    return at


@kernel
def write(views, family, way, begin, end):
    """Write the segment whose line was read with the address and the port that were foretold.

    Args:
        family: of the connection, 4 or 6.
        way: of the segment.
        begin, end: addresses of its payload.
    """
    memory.seldom()
    destination = foretold.address(views, ZERO) + expectations.DESTINATION
    high, low = memory.le64(destination), memory.le64(destination + EIGHT)
    port = foretold.port_of(views, ZERO)
    kind = memory.byte(begin + (ZERO if way == ZERO else TWO)) & _UPPER
    messages.begin(views, begin)
    if kind == _LETTER_P or kind == _SEVEN_DIGIT & _UPPER:  # PORT, 227
        at = _first_digit(address_text.find(begin + (FOUR if way == ZERO else THREE), end, _SPACE), end)
        messages.copy_to(views, at)
        messages.ipv4(views, low, _COMMA)
        messages.put(views, _COMMA)
        messages.number(views, port >> EIGHT)
        messages.put(views, _COMMA)
        messages.number(views, port & _NUMBER_MAX)
        messages.leave_out(views, _behind_digits(at, end, _COMMA))
    elif way == ZERO:  # EPRT
        at = _first_digit(address_text.find(begin + FOUR, end, _SPACE), end)  # of the family
        delimiter = memory.byte(at - ONE)
        messages.copy_to(views, at + TWO)
        messages.address(views, family, high, low)
        messages.put(views, delimiter)
        messages.number(views, port)
        behind = address_text.find(at + TWO, end, delimiter)
        messages.leave_out(views, _behind_digits(min(behind + ONE, end), end, delimiter) - ONE)
    else:  # 229
        at = address_text.find(begin, end, _PARENTHESIS)
        at = _first_digit(at if at < end else begin + FOUR, end)
        messages.copy_to(views, at)
        messages.number(views, port)
        messages.leave_out(views, _behind_digits(at, end, ZERO))
    messages.copy_to(views, end)
