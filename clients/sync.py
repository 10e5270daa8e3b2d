"""The control socket for programs that wait: one connection, one request at a time.

    with connect() as ct:
        ct.flush(zone=7)
        table = ct.dump(zone=5)                          # numpy structured array, one row a connection

    for event in ct.events(zone=5): ...                  # what happens from now on

A client belongs to one thread.
"""

from __future__ import annotations

import contextlib
import socket as sockets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from . import address
from .connections import Connection
from .errors import NoServiceError, RemoteProtocolError, TookTooLongError, ZonetrackError
from .events import NOTICE, Batch, Event, Mark, Reading, subscription
from .filters import Filter, wire_filter
from .methods import Methods, whole
from .pages import Page, Walk, joined
from .session import Answer, Session, State

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
        self._notices: deque[Any] = deque()
        """Parameters of notifications of events that came, and nobody has taken yet."""

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

    # ------------------------------------------------------------------------------------------------ events
    def event_batches(
        self,
        kinds: Sequence[str] | None = None,
        *,
        after: Mark | None = None,
        timeout_s: float | None = None,
        **filter: Unpack[Filter],
    ) -> Iterator[Batch]:
        """Yield what happens to connections from now on, in batches as they come, until you stop.

        There is one subscription on a connection: a later one takes the place of this.  The first batch is empty, and says
        from which sequence number on all is told.

        Args:
            kinds: of ``new``, ``update``, ``destroy``; None: all.
            after: ``mark`` of the last batch of a reader before: begin with what has happened since, and say what is lost.
            timeout_s: longest wait for the next; None: no limit.
            filter: which connections.

        Raises:
            TookTooLongError: nothing happened for so long.
            NoServiceError: the service has hung up.
        """
        self._notices.clear()
        reading = Reading(self.call("events.subscribe", subscription(kinds, dict(filter), after)))
        try:
            yield Batch(0, reading.sequence, b"", reading)
            while True:
                until = None if timeout_s is None else time.monotonic() + timeout_s
                yield reading.batch(self._next_notice(until, timeout_s))
        finally:
            if self._session.state in (State.IDLE, State.WAITING):
                with contextlib.suppress(ZonetrackError):  # it is over anyway
                    self.call("events.unsubscribe", {})
            self._notices.clear()

    def events(
        self, kinds: Sequence[str] | None = None, *, timeout_s: float | None = None, **filter: Unpack[Filter]
    ) -> Iterator[Event]:
        """Yield what happens to connections from now on, as dicts; arguments as of ``event_batches``."""
        for batch in self.event_batches(kinds, timeout_s=timeout_s, **filter):
            yield from batch.events()

    def _next_notice(self, until: float | None, timeout_s: float | None) -> Any:
        self._stream.settimeout(None)
        while not self._notices:
            try:
                data = self._receive(until)
            except TookTooLongError:
                raise TookTooLongError(f"nothing happened in {timeout_s} s") from None
            for message in self._session.receive(data):
                self._note(message)
            if not data:
                raise NoServiceError("the service has hung up")
        return self._notices.popleft()

    def _note(self, message: Any) -> None:
        """Keep a notification for who reads events."""
        if not isinstance(message, Answer) and message.method == NOTICE:
            self._notices.append(message.params)

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
        found = None
        while True:
            for message in self._session.receive(self._receive(until)):
                if isinstance(message, Answer) and message.id == id:
                    found = message
                else:
                    self._note(message)
            if found is not None:
                return found

    def _receive(self, until: float | None) -> bytes:
        try:
            if until is not None:
                self._stream.settimeout(max(until - time.monotonic(), 0.001))
            return self._stream.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise TookTooLongError(f"no answer in {self._timeout_s} s") from None
        except OSError as error:
            raise RemoteProtocolError(f"the service hung up: {error.strerror or error}") from error
