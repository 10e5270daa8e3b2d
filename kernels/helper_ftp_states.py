"""How a line of FTP's control channel is read, character by character, so that it may end in the middle of a segment.

    PORT h1,h2,h3,h4,p1,p2 CR          client    RFC 959 4.1.2
    EPRT |1|address|port|              client    RFC 2428 2
    227 any text h1,h2,h3,h4,p1,p2     server    RFC 1123 4.1.2.6: the first digit begins the address
    229 any text (|||port|)            server    RFC 2428 3

A line that begins otherwise says nothing; one that begins so and goes on otherwise is wrong.  What is not listed below is
wrong, and so is the end of the line before the end of what it has to say.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np


class Phase(IntEnum):
    """What is to come."""

    BEGINNING = 0  # of the line: the patterns below
    PORT_SPACE = 1
    PORT_NUMBERS = 2
    PASV_TEXT = 3
    PASV_NUMBERS = 4
    EPRT_SPACE = 5
    EPRT_DELIMITER = 6
    EPRT_FAMILY = 7
    EPRT_FAMILY_END = 8  # of IPv4; that of IPv6 is the next number
    EPRT_FAMILY6_END = 9
    ADDRESS = 10  # of IPv4
    ADDRESS6 = 11
    ADDRESS6_COLON = 12  # the second one, with which it begins
    ADDRESS6_GROUP = 13  # more of a group, or its end
    ADDRESS6_NEXT = 14  # a group, or the second of two colons
    ADDRESS6_DOUBLE = 15  # a group behind two colons, or the end
    EPSV_TEXT = 16
    EPSV_DELIMITER = 17
    EPSV_DELIMITER2 = 18
    EPSV_DELIMITER3 = 19
    PORT = 20
    DONE = 21
    WRONG = 22
    OTHER = 23  # a line that is none of these


class Class(IntEnum):
    """Kinds of characters; the delimiter is whatever the line took for it."""

    OTHER = 0
    DIGIT = 1
    HEX = 2  # a to f
    SPACE = 3
    COMMA = 4
    DOT = 5
    COLON = 6
    PARENTHESIS = 7  # the opening one
    RETURN = 8
    NEWLINE = 9
    DELIMITER = 10


class Action(IntEnum):
    """What is done with the character, before the next; one that cannot be done makes the line wrong."""

    NOTHING = 0
    DIGIT = 1  # of a number
    NEXT = 2  # the number is whole
    LAST = 3  # it is, and was the last of six
    DELIMITER = 4  # what this line takes for it: printable, and no digit
    FAMILY = 5  # the connection's
    LAST_OF_FOUR = 6
    HEX = 7  # digit of a group
    GROUP = 8  # the group is whole
    DOUBLE = 9  # here are as many groups of 0 as are missing
    LAST_GROUP = 10
    ADDRESS = 11  # the address is whole
    PORT_DIGIT = 12
    PORT = 13  # the port is whole, and not 0


class Row(NamedTuple):
    """A character in a phase: what is done, and the phase after it."""

    phase: Phase
    kinds: tuple[Class, ...]
    action: Action
    to: Phase


class Pattern(NamedTuple):
    """How a line begins, and what is to come behind that."""

    reply: bool
    text: bytes
    then: Phase


PATTERNS = (
    Pattern(False, b"PORT", Phase.PORT_SPACE),
    Pattern(False, b"EPRT", Phase.EPRT_SPACE),
    Pattern(True, b"227 ", Phase.PASV_TEXT),
    Pattern(True, b"229 ", Phase.EPSV_TEXT),
)
"""Two for each Way; upper and lower case are the same."""
PATTERN_BYTES = 4

ANY = tuple(Class)
TEXT = tuple(kind for kind in Class if kind is not Class.NEWLINE)
DIGIT, HEX, COLON, DELIMITER = (Class.DIGIT,), (Class.DIGIT, Class.HEX), (Class.COLON,), (Class.DELIMITER,)

# fmt: off
ROWS = (
    # phase                 characters             action               then; later rows override earlier ones
    Row(Phase.PORT_SPACE,      TEXT,               Action.NOTHING,      Phase.PORT_SPACE),
    Row(Phase.PORT_SPACE,      (Class.SPACE,),     Action.NOTHING,      Phase.PORT_NUMBERS),
    Row(Phase.PORT_NUMBERS,    DIGIT,              Action.DIGIT,        Phase.PORT_NUMBERS),
    Row(Phase.PORT_NUMBERS,    (Class.COMMA,),     Action.NEXT,         Phase.PORT_NUMBERS),
    Row(Phase.PORT_NUMBERS,    (Class.RETURN,),    Action.LAST,         Phase.DONE),
    Row(Phase.PASV_TEXT,       TEXT,               Action.NOTHING,      Phase.PASV_TEXT),
    Row(Phase.PASV_TEXT,       DIGIT,              Action.DIGIT,        Phase.PASV_NUMBERS),
    Row(Phase.PASV_NUMBERS,    ANY,                Action.LAST,         Phase.DONE),
    Row(Phase.PASV_NUMBERS,    DIGIT,              Action.DIGIT,        Phase.PASV_NUMBERS),
    Row(Phase.PASV_NUMBERS,    (Class.COMMA,),     Action.NEXT,         Phase.PASV_NUMBERS),
    Row(Phase.EPRT_SPACE,      TEXT,               Action.NOTHING,      Phase.EPRT_SPACE),
    Row(Phase.EPRT_SPACE,      (Class.SPACE,),     Action.NOTHING,      Phase.EPRT_DELIMITER),
    Row(Phase.EPRT_DELIMITER,  ANY,                Action.DELIMITER,    Phase.EPRT_FAMILY),
    Row(Phase.EPRT_FAMILY,     DIGIT,              Action.FAMILY,       Phase.EPRT_FAMILY_END),
    Row(Phase.EPRT_FAMILY_END, DELIMITER,          Action.NOTHING,      Phase.ADDRESS),
    Row(Phase.EPRT_FAMILY6_END, DELIMITER,         Action.NOTHING,      Phase.ADDRESS6),
    Row(Phase.ADDRESS,         DIGIT,              Action.DIGIT,        Phase.ADDRESS),
    Row(Phase.ADDRESS,         (Class.DOT,),       Action.NEXT,         Phase.ADDRESS),
    Row(Phase.ADDRESS,         DELIMITER,          Action.LAST_OF_FOUR, Phase.PORT),
    Row(Phase.ADDRESS6,        HEX,                Action.HEX,          Phase.ADDRESS6_GROUP),
    Row(Phase.ADDRESS6,        COLON,              Action.NOTHING,      Phase.ADDRESS6_COLON),
    Row(Phase.ADDRESS6_COLON,  COLON,              Action.DOUBLE,       Phase.ADDRESS6_DOUBLE),
    Row(Phase.ADDRESS6_GROUP,  HEX,                Action.HEX,          Phase.ADDRESS6_GROUP),
    Row(Phase.ADDRESS6_GROUP,  COLON,              Action.GROUP,        Phase.ADDRESS6_NEXT),
    Row(Phase.ADDRESS6_GROUP,  DELIMITER,          Action.LAST_GROUP,   Phase.PORT),
    Row(Phase.ADDRESS6_NEXT,   HEX,                Action.HEX,          Phase.ADDRESS6_GROUP),
    Row(Phase.ADDRESS6_NEXT,   COLON,              Action.DOUBLE,       Phase.ADDRESS6_DOUBLE),
    Row(Phase.ADDRESS6_DOUBLE, HEX,                Action.HEX,          Phase.ADDRESS6_GROUP),
    Row(Phase.ADDRESS6_DOUBLE, DELIMITER,          Action.ADDRESS,      Phase.PORT),
    Row(Phase.EPSV_TEXT,       TEXT,               Action.NOTHING,      Phase.EPSV_TEXT),
    Row(Phase.EPSV_TEXT,       (Class.PARENTHESIS,), Action.NOTHING,    Phase.EPSV_DELIMITER),
    Row(Phase.EPSV_DELIMITER,  ANY,                Action.DELIMITER,    Phase.EPSV_DELIMITER2),
    Row(Phase.EPSV_DELIMITER2, DELIMITER,          Action.NOTHING,      Phase.EPSV_DELIMITER3),
    Row(Phase.EPSV_DELIMITER3, DELIMITER,          Action.NOTHING,      Phase.PORT),
    Row(Phase.PORT,            DIGIT,              Action.PORT_DIGIT,   Phase.PORT),
    Row(Phase.PORT,            DELIMITER,          Action.PORT,         Phase.DONE),
)
# fmt: on


def compile_rows() -> tuple[np.ndarray, np.ndarray]:
    """Return the phase after a character and what is done with it, u64[Phase, Class]."""
    then = np.full((len(Phase), len(Class)), Phase.WRONG, np.uint64)
    action = np.zeros((len(Phase), len(Class)), np.uint64)
    for row in ROWS:
        for kind in row.kinds:
            then[row.phase, kind], action[row.phase, kind] = row.to, row.action
    return then, action


def compile_classes() -> np.ndarray:
    """Return the Class of each character, u64[256]."""
    classes = np.zeros(256, np.uint64)
    for kind, characters in (
        (Class.DIGIT, b"0123456789"),
        (Class.HEX, b"abcdefABCDEF"),
        (Class.SPACE, b" "),
        (Class.COMMA, b","),
        (Class.DOT, b"."),
        (Class.COLON, b":"),
        (Class.PARENTHESIS, b"("),
        (Class.RETURN, b"\r"),
        (Class.NEWLINE, b"\n"),
    ):
        classes[list(characters)] = kind
    return classes


def compile_patterns() -> tuple[np.ndarray, np.ndarray]:
    """Return the characters of each pattern in upper case, u64[Way, 2, PATTERN_BYTES], and the phase behind, u64[Way, 2]."""
    texts, then = np.zeros((2, 2, PATTERN_BYTES), np.uint64), np.zeros((2, 2), np.uint64)
    for reply in (False, True):
        for i, pattern in enumerate(pattern for pattern in PATTERNS if pattern.reply == reply):
            texts[int(reply), i], then[int(reply), i] = list(pattern.text), pattern.then
    return texts, then


THEN, ACTION = compile_rows()
CLASSES = compile_classes()
PATTERN_TEXTS, PATTERN_THEN = compile_patterns()
for _array in (THEN, ACTION, CLASSES, PATTERN_TEXTS, PATTERN_THEN):
    _array.setflags(write=False)
