"""Where a MessagePack value ends: measured token by token as bytes arrive, before anything is decoded.

A decoder trusts what a header promises: five bytes may ask for a list of four billion.  So a value is measured first;
what is larger, deeper or longer than its limits is refused as soon as its header says so, and costs nothing.

Refused in any case: the byte that MessagePack never uses, and extension types, which this protocol has none of.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from .errors import Code, RemoteProtocolError


class Limits(NamedTuple):
    """How much one message may be."""

    message_bytes: int
    depth: int  # lists and maps inside each other
    items: int  # elements of all lists, keys and values of all maps


class _Kind(IntEnum):
    PLAIN = 0  # the head is all
    BODY = 1  # as many bytes follow as the head counts
    ITEMS = 2  # as many values follow
    PAIRS = 3  # twice as many


class _Token(NamedTuple):
    kind: _Kind
    head_bytes: int  # tag, and count or value behind it
    count: int | None  # None: stands behind the tag


def _tokens() -> tuple[_Token | None, ...]:
    """Return the token that each first byte announces, None for what is refused (msgpack spec, "Formats")."""
    found: dict[int, _Token] = dict.fromkeys([*range(0x80), *range(0xE0, 0x100)], _Token(_Kind.PLAIN, 1, 0))
    for count in range(16):
        found[0x80 + count] = _Token(_Kind.PAIRS, 1, count)
        found[0x90 + count] = _Token(_Kind.ITEMS, 1, count)
    for count in range(32):
        found[0xA0 + count] = _Token(_Kind.BODY, 1, count)
    for tag in (0xC0, 0xC2, 0xC3):  # nil, false, true
        found[tag] = _Token(_Kind.PLAIN, 1, 0)
    for first in (0xCC, 0xD0):  # unsigned and signed integers of 8 to 64 bits
        for power in range(4):
            found[first + power] = _Token(_Kind.PLAIN, 1 + (1 << power), 0)
    found[0xCA], found[0xCB] = _Token(_Kind.PLAIN, 5, 0), _Token(_Kind.PLAIN, 9, 0)  # floats
    for first in (0xC4, 0xD9):  # binary, strings, by the width of their length
        for power in range(3):
            found[first + power] = _Token(_Kind.BODY, 1 + (1 << power), None)
    for first, kind in ((0xDC, _Kind.ITEMS), (0xDE, _Kind.PAIRS)):
        for power in (1, 2):
            found[first + power - 1] = _Token(kind, 1 + (1 << power), None)
    return tuple(found.get(tag) for tag in range(256))


_TOKENS = _tokens()


class Framer:
    """Cuts a stream of bytes into MessagePack values, each within the limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._buffer = bytearray()
        self._restart()

    def _restart(self) -> None:
        self._position = 0  # of the next token; may lie beyond what has arrived
        self._open: list[int] = [1]  # values still to come, for the message and each list or map we are inside of
        self._items = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take in bytes as they came."""
        self._buffer += data

    @property
    def waits(self) -> bool:
        """Whether a value has begun and not ended."""
        return bool(self._buffer)

    @property
    def kept_bytes(self) -> int:
        """Bytes that have come, and were not taken yet."""
        return len(self._buffer)

    def take(self) -> bytes | None:
        """Return the next whole value, None when more bytes are needed.

        Raises:
            RemoteProtocolError: the bytes are no value, or not one within the limits.  The framer is of no use then.
        """
        if not self._measure():
            return None
        with memoryview(self._buffer) as view:
            value = bytes(view[: self._position])
        del self._buffer[: self._position]
        self._restart()
        return value

    def _measure(self) -> bool:
        """Go on over what has arrived; return whether the value is all there."""
        buffer, present, limits = self._buffer, len(self._buffer), self.limits
        while self._open:
            if self._position >= present:
                return False
            token = _TOKENS[buffer[self._position]]
            if token is None:
                raise RemoteProtocolError(f"byte {buffer[self._position]:#04x} begins nothing that is used here")
            head_end = self._position + token.head_bytes
            if head_end > present:
                return False
            count = token.count
            if count is None:
                count = int.from_bytes(buffer[self._position + 1 : head_end], "big")
            self._position = head_end
            self._open[-1] -= 1
            if token.kind is _Kind.BODY:
                self._position += count
            elif token.kind is not _Kind.PLAIN:
                self._enter(count * (2 if token.kind is _Kind.PAIRS else 1))
            if self._position > limits.message_bytes:
                raise _too_large(f"{limits.message_bytes:,} bytes")
            while self._open and not self._open[-1]:
                self._open.pop()
        return self._position <= present

    def _enter(self, count: int) -> None:
        self._items += count
        if self._items > self.limits.items:
            raise _too_large(f"{self.limits.items:,} items")
        self._open.append(count)
        if len(self._open) > self.limits.depth + 1:
            raise _too_large(f"{self.limits.depth} levels")


def _too_large(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"a message has more than {what}", Code.TOO_LARGE)
