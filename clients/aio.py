"""The control socket for asyncio: one connection, any number of requests at once.

    async with connect() as ct:
        await ct.flush(zone=7)
        one, two = await asyncio.gather(ct.count(zone=1), ct.count(zone=2))
        async for connection in ct.connections(zone=5): ...

        async for event in ct.events(zone=5): ...            # what happens from now on

A client belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from . import address
from .connections import Connection
from .errors import NoServiceError, TookTooLongError, ZonetrackError
from .events import NOTICE, Batch, Event, Mark, Reading, subscription
from .filters import Filter, wire_filter
from .methods import Methods, whole
from .pages import Page, Walk, joined
from .session import Answer, Session
from .wire import Notification

if TYPE_CHECKING:
    import numpy as np

NOTICES_MAX = 16
"""Notifications that wait to be taken; with more, nothing is read, and the service will notice."""
LAST: Any = object()
"""Stands behind the last notification of a subscription."""
TIMEOUT_S = 30.0
"""Longer than any walk over a full table of a usual size."""


class connect:
    """Connect to a service: ``async with connect() as ct``, or ``ct = await connect()``.

    Args:
        socket: path of its control socket; None: ``ZONETRACK_SOCKET``, or where the instance has it.
        instance: name of the instance; None: ``ZONETRACK_INSTANCE``, or ``default``.
        timeout_s: longest wait for an answer; None: no limit.

    Raises:
        NoServiceError: nobody answers there.
        AddressError: nothing says where, or the path is too long.
    """

    def __init__(
        self, socket: str | None = None, instance: str | None = None, timeout_s: float | None = TIMEOUT_S
    ) -> None:
        self._path = address.path(socket, instance)
        self._timeout_s = timeout_s
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> Client:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                _, stream = await loop.create_unix_connection(_Stream, self._path)
        except OSError as error:  # of which TimeoutError is one
            raise NoServiceError.at(self._path, error) from error
        return Client(stream, self._timeout_s)


class _Stream(asyncio.Protocol):
    """Bytes to answers, and each answer to who awaits it."""

    def __init__(self) -> None:
        self.session = Session()
        self.awaited: dict[int, asyncio.Future[Answer]] = {}
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: ZonetrackError | None = None
        self.transport: Any = None
        self.notices: deque[Any] = deque()
        """Parameters of notifications of events that came, and nobody has taken yet."""
        self.noticed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def eof_received(self) -> None:
        self._take(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.error is None and self.awaited:
            self._take(b"")
        self.give_up(self.error or NoServiceError("the connection is closed"))
        self.over.set_result(None)

    def _take(self, data: bytes) -> None:
        try:
            for message in self.session.receive(data):
                if not isinstance(message, Answer):
                    self._note(message)
                elif not (waiter := self.awaited.pop(message.id)).done():
                    waiter.set_result(message)
        except ZonetrackError as error:
            self.give_up(error)
            self.transport.close()

    def _note(self, message: Notification) -> None:
        """Keep a notification for who reads events; who does not take them holds up what comes behind."""
        if message.method == NOTICE:
            self.notices.append(message.params)
            self.noticed.set()
            if len(self.notices) == NOTICES_MAX:
                self.transport.pause_reading()

    async def next_notice(self) -> Any:
        """Return the parameters of the next notification of events."""
        while not self.notices:
            if self.error is not None:
                raise self.error
            self.noticed.clear()
            await self.noticed.wait()
        if len(self.notices) >= NOTICES_MAX and not self.transport.is_closing():
            self.transport.resume_reading()
        return self.notices.popleft()

    def forget_notices(self) -> None:
        """Throw away what nobody will take."""
        if len(self.notices) >= NOTICES_MAX and not self.transport.is_closing():
            self.transport.resume_reading()
        self.notices.clear()

    def give_up(self, error: ZonetrackError) -> None:
        """Tell everyone who waits that no answer will come."""
        self.error = error
        self.noticed.set()
        waiters, self.awaited = self.awaited, {}
        for waiter in waiters.values():
            if not waiter.done():
                waiter.set_exception(error)


class Client(Methods):
    """A connection to a service; use it in an ``async with`` statement, or close it."""

    def __init__(self, stream: _Stream, timeout_s: float | None) -> None:
        super().__init__(self._call)
        self._stream = stream
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; who still waits gets no answer.  Twice is as good as once."""
        stream = self._stream
        stream.session.leave()
        stream.give_up(NoServiceError("the connection is closed"))
        stream.transport.close()
        await asyncio.shield(stream.over)

    # ------------------------------------------------------------------------------------------------ dumps
    async def pages(self, limit: int | None = None, **filter: Unpack[Filter]) -> AsyncIterator[Page]:
        """Yield the connections that are meant, as packed pages; no more than ``limit``."""
        walk = Walk(wire_filter(**filter), limit)
        while (params := walk.ask()) is not None:
            yield walk.take(await self.call("dump", params))

    async def connections(self, limit: int | None = None, **filter: Unpack[Filter]) -> AsyncIterator[Connection]:
        """Yield the connections that are meant, as dicts; no more than ``limit``."""
        async for page in self.pages(limit, **filter):
            for connection in page.connections():
                yield connection

    async def dump(self, limit: int | None = None, **filter: Unpack[Filter]) -> np.ndarray:
        """Return the connections that are meant as a numpy structured array, one row each; no more than ``limit``."""
        return joined([page async for page in self.pages(limit, **filter)])

    # ------------------------------------------------------------------------------------------------ events
    async def event_batches(
        self,
        kinds: Sequence[str] | None = None,
        *,
        after: Mark | None = None,
        timeout_s: float | None = None,
        **filter: Unpack[Filter],
    ) -> AsyncIterator[Batch]:
        """Yield what happens to connections from now on, in batches as they come, until you stop.

        There is one subscription on a connection: a later one takes the place of this.  The first batch is empty, and says
        from which sequence number on all is told.  While nobody takes batches, answers to requests wait behind them.

        Args:
            kinds: of ``new``, ``update``, ``destroy``; None: all.
            after: ``mark`` of the last batch of a reader before: begin with what has happened since, and say what is lost.
            timeout_s: longest wait for the next; None: no limit.
            filter: which connections.

        Raises:
            TookTooLongError: nothing happened for so long.
            NoServiceError: the service has hung up.
        """
        self._stream.forget_notices()
        reading = Reading(await self.call("events.subscribe", subscription(kinds, dict(filter), after)))
        try:
            yield Batch(0, reading.sequence, b"", reading)
            while True:
                try:
                    async with asyncio.timeout(timeout_s):
                        params = await self._stream.next_notice()
                except TimeoutError:
                    raise TookTooLongError(f"nothing happened in {timeout_s} s") from None
                if params is LAST:
                    return
                yield reading.batch(params)
        finally:
            self._stream.forget_notices()
            if self._stream.error is None:
                with contextlib.suppress(ZonetrackError):  # it is over anyway
                    await self.call("events.unsubscribe", {})
            self._stream.forget_notices()

    async def finish_events(self) -> None:
        """Have ``event_batches`` end as soon as all has been yielded that has happened until now."""
        await self.call("events.unsubscribe", {"finish": True})
        self._stream.notices.append(LAST)
        self._stream.noticed.set()

    async def events(
        self, kinds: Sequence[str] | None = None, *, timeout_s: float | None = None, **filter: Unpack[Filter]
    ) -> AsyncIterator[Event]:
        """Yield what happens to connections from now on, as dicts; arguments as of ``event_batches``."""
        async for batch in self.event_batches(kinds, timeout_s=timeout_s, **filter):
            for event in batch.events():
                yield event

    # ------------------------------------------------------------------------------------------------ requests
    async def _call(self, method: str, params: dict[str, Any], pick: Callable[[Any], Any] = whole, /) -> Any:
        stream = self._stream
        if stream.error is not None:
            raise stream.error
        id, packed = stream.session.ask(method, params)
        waiter = stream.awaited[id] = asyncio.get_running_loop().create_future()
        stream.transport.write(packed)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await waiter
        except TimeoutError:
            raise TookTooLongError(f"no answer in {self._timeout_s} s") from None
        if answer.error is not None:
            raise answer.error
        return pick(answer.result)
