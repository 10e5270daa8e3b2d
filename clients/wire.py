"""MessagePack-RPC without I/O: values in, bytes out; bytes in, messages out.  Both sides of the socket use it.

    request       [0, id, method, params]      params is a map; id a number that the client chooses
    response      [1, id, error, result]       error is nil, or a map {code, message, detail}; one of the two is nil
    notification  [2, method, params]          nothing is answered

Responses may come in another order than their requests.  An error whose id is nil is about the connection as a whole:
what came could not be read, or nobody is served any more; nothing follows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack

from .errors import Code, LocalProtocolError, RemoteProtocolError
from .framing import Framer, Limits

VERSION = 1
"""Of the methods and what they mean; `hello` tells it."""

REQUEST_LIMITS = Limits(message_bytes=64 * 1024, depth=8, items=8192)
"""What a service takes: a filter or a list of zones is no more than that."""
ANSWER_LIMITS = Limits(message_bytes=64 * 1024 * 1024, depth=16, items=4 * 1024 * 1024)
"""What a client takes: a page of connections, or a map of 65,536 zones."""

ID_MAX = (1 << 32) - 1


class Type(IntEnum):
    """First element of a message."""

    REQUEST = 0
    RESPONSE = 1
    NOTIFICATION = 2


class Request(NamedTuple):
    """A method is asked for."""

    id: int
    method: str
    params: dict[str, Any]


class Failure(NamedTuple):
    """Why there is no result."""

    code: str
    message: str
    detail: dict[str, Any]


class Response(NamedTuple):
    """The answer to a request, or the last word about a connection (id None)."""

    id: int | None
    failure: Failure | None
    result: Any


class Notification(NamedTuple):
    """Something is told."""

    method: str
    params: dict[str, Any]


Message = Request | Response | Notification


class Reader:
    """Makes messages of the bytes that the other side sends.

    Args:
        limits: of one message.
        takes: types of message that may come; others are refused.
    """

    def __init__(self, limits: Limits, takes: frozenset[Type]) -> None:
        self._framer = Framer(limits)
        self._takes = takes
        self.message_bytes = 0
        """Of the message that was yielded last."""

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take in bytes as they came."""
        self._framer.feed(data)

    @property
    def kept_bytes(self) -> int:
        """Bytes that have come, and are no message yet that was yielded."""
        return self._framer.kept_bytes

    def __iter__(self) -> Iterator[Message]:
        """Yield every message that is complete.

        Raises:
            RemoteProtocolError: the other side does not speak the protocol; nothing more can be read.
        """
        while (frame := self._framer.take()) is not None:
            message, self.message_bytes = read(frame), len(frame)
            if _TYPES[type(message)] not in self._takes:
                raise RemoteProtocolError(f"a {type(message).__name__.lower()} is not for this side")
            yield message

    def end(self) -> None:
        """Say that no bytes will come any more.

        Raises:
            RemoteProtocolError: they ended in the middle of a message.
        """
        if self._framer.waits:
            raise RemoteProtocolError("the connection ended in the middle of a message")


def requests(limits: Limits = REQUEST_LIMITS) -> Reader:
    """Return the reader of a service."""
    return Reader(limits, frozenset({Type.REQUEST}))


def answers(limits: Limits = ANSWER_LIMITS) -> Reader:
    """Return the reader of a client."""
    return Reader(limits, frozenset({Type.RESPONSE, Type.NOTIFICATION}))


_TYPES = {Request: Type.REQUEST, Response: Type.RESPONSE, Notification: Type.NOTIFICATION}


# ---------------------------------------------------------------------------------------------------- bytes to messages
def read(frame: bytes) -> Message:
    """Return the message that one MessagePack value is.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        value = msgpack.unpackb(frame, strict_map_key=True, raw=False, use_list=True)
    except ValueError as error:  # a string that is not UTF-8, a key that is no string
        raise RemoteProtocolError(f"not a value of this protocol: {error}") from error
    match value:
        case [Type.REQUEST, id, str(method), dict(params)] if _is_id(id):
            return Request(id, method, _named(params))
        case [Type.RESPONSE, id, None, result] if _is_id(id):
            return Response(id, None, result)
        case [Type.RESPONSE, id, {"code": str(code), "message": str(message), **rest}, None] if (
            id is None or _is_id(id)
        ) and isinstance(detail := rest.get("detail") or {}, dict):
            return Response(id, Failure(code, message, detail), None)
        case [Type.NOTIFICATION, str(method), dict(params)]:
            return Notification(method, _named(params))
    raise RemoteProtocolError("a value that is no request, response or notification")


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value <= ID_MAX


def _named(params: dict[Any, Any]) -> dict[str, Any]:
    if not all(type(name) is str for name in params):
        raise RemoteProtocolError("a parameter's name is not text")
    return params


# ---------------------------------------------------------------------------------------------------- messages to bytes
def request(id: int, method: str, params: dict[str, Any]) -> bytes:
    """Return the bytes of a request."""
    return _packed([Type.REQUEST, id, method, params], REQUEST_LIMITS)


def response(id: int, result: Any) -> bytes:
    """Return the bytes of a response with a result."""
    return _packed([Type.RESPONSE, id, None, result], ANSWER_LIMITS)


def failure(id: int | None, code: str, message: str, detail: dict[str, Any] | None = None) -> bytes:
    """Return the bytes of a response with an error; id None: about the connection as a whole."""
    error = {"code": Code(code).value, "message": message, "detail": detail or {}}
    return _packed([Type.RESPONSE, id, error, None], ANSWER_LIMITS)


def notification(method: str, params: dict[str, Any]) -> bytes:
    """Return the bytes of a notification."""
    return _packed([Type.NOTIFICATION, method, params], ANSWER_LIMITS)


def _packed(value: list[Any], limits: Limits) -> bytes:
    """Return the bytes of a value.

    Raises:
        LocalProtocolError: it has something in it that MessagePack has not, such as numpy's numbers or integers beyond
            64 bits; or it is larger than the other side takes.
    """
    try:
        packed = msgpack.packb(value, use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"a message cannot be packed: {error}") from error
    assert packed is not None  # it is only with autoreset off, which it is not
    if len(packed) > limits.message_bytes:
        raise LocalProtocolError(f"a message of {len(packed):,} bytes; the most is {limits.message_bytes:,}")
    return packed
