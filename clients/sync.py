"""The control socket for programs that wait: one connection, one request at a time.

    with connect() as ct:
        ct.flush(zone=7)
        table = ct.dump(zone=5)                          # numpy structured array, one row a connection

A client belongs to one thread.  What comes in between answers without being asked for is not for this library.
"""

from __future__ import annotations

import socket as sockets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Unpack

from . import address
from .connections import Connection
from .errors import NoServiceError, RemoteProtocolError, TookTooLongError
from .filters import Filter, wire_filter
from .methods import Methods, whole
from .pages import Page, Walk, joined
from .session import Answer, Session

if TYPE_CHECKING:
    import numpy as np

TIMEOUT_S = 30.0
"""Longer than any walk over a full table of a usual size."""
RECEIVE_BYTES = 1 << 20


def connect(socket: str | None = None, instance: str | None = None, timeout_s: float | None = TIMEOUT_S) -> Client:
    """Connect to a service.

    Args:
        socket: path of its control socket; None: ``ZONETRACK_SOCKET``, or where the instance has it.
        instance: name of the instance; None: ``ZONETRACK_INSTANCE``, or ``default``.
        timeout_s: longest wait for an answer; None: no limit.

    Raises:
        NoServiceError: nobody answers there.
        AddressError: nothing says where, or the path is too long.
    """
    path = address.path(socket, instance)
    stream = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    stream.settimeout(timeout_s)
    try:
        stream.connect(path)
    except OSError as error:
        stream.close()
        raise NoServiceError.at(path, error) from error
    return Client(stream, timeout_s)


class Client(Methods):
    """A connection to a service; use it in a ``with`` statement, or close it."""

    def __init__(self, stream: sockets.socket, timeout_s: float | None) -> None:
        super().__init__(self._call)
        self._stream = stream
        self._timeout_s = timeout_s
        self._session = Session()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; twice is as good as once."""
        self._session.leave()
        self._stream.close()

    # ------------------------------------------------------------------------------------------------ dumps
    def pages(self, limit: int | None = None, **filter: Unpack[Filter]) -> Iterator[Page]:
        """Yield the connections that are meant, as packed pages; no more than ``limit``."""
        walk = Walk(wire_filter(**filter), limit)
        while (params := walk.ask()) is not None:
            yield walk.take(self.call("dump", params))

    def connections(self, limit: int | None = None, **filter: Unpack[Filter]) -> Iterator[Connection]:
        """Yield the connections that are meant, as dicts; no more than ``limit``."""
        for page in self.pages(limit, **filter):
            yield from page.connections()

    def dump(self, limit: int | None = None, **filter: Unpack[Filter]) -> np.ndarray:
        """Return the connections that are meant as a numpy structured array, one row each; no more than ``limit``."""
        return joined(list(self.pages(limit, **filter)))

    # ------------------------------------------------------------------------------------------------ requests
    def _call(self, method: str, params: dict[str, Any], pick: Callable[[Any], Any] = whole, /) -> Any:
        id, packed = self._session.ask(method, params)
        until = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        try:
            answer = self._exchange(id, packed, until)
        except BaseException:
            self.close()  # an answer that comes later would belong to nobody
            raise
        if answer.error is not None:
            raise answer.error
        return pick(answer.result)

    def _exchange(self, id: int, packed: bytes, until: float | None) -> Answer:
        try:
            self._stream.sendall(packed)
        except TimeoutError:
            raise TookTooLongError(f"the service did not take the request in {self._timeout_s} s") from None
        except OSError:
            # it has hung up, and may have said why before that
            return self._await(id, until)
        return self._await(id, until)

    def _await(self, id: int, until: float | None) -> Answer:
        while True:
            for message in self._session.receive(self._receive(until)):
                if isinstance(message, Answer) and message.id == id:
                    return message

    def _receive(self, until: float | None) -> bytes:
        try:
            if until is not None:
                self._stream.settimeout(max(until - time.monotonic(), 0.001))
            return self._stream.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise TookTooLongError(f"no answer in {self._timeout_s} s") from None
        except OSError as error:
            raise RemoteProtocolError(f"the service hung up: {error.strerror or error}") from error
