"""Control: the process that answers clients, over the socket, in MessagePack-RPC, from one event loop that never waits.

Of each client at most so much is kept, and none can harm another:

    requests   one is answered after the other, in their order; more than ``in_flight_max`` that wait are refused, and such
               as have more than ``request_bytes_max`` bytes together
    bytes in   a message is measured before it is decoded; what is no message ends the connection
    bytes out  above ``output_bytes_max`` the client is paused: nothing more of it is read or answered; if it has not read
               on after ``stall_s`` it is dropped
    turns      after some messages of one client it is the others' turn, whatever has arrived; who is answered next, and how
               much of a core a crowd may have, says service/turns.py

What all of them together make us keep has a bound too, ``kept_bytes_max``.  Of it each may have an equal part at any time;
more only while the sum is within the bound.  Who is over both is told so, request by request.

The loop's own latency is measured all the time, and shown in the figures.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import uvloop

from ..clients import wire
from ..clients.errors import Code, RemoteProtocolError
from ..clients.framing import Limits
from . import (
    event_handlers,  # noqa: F401 - puts its rows into the table
    handlers,
    log,
    privileges,
    queue_handlers,  # noqa: F401 - puts its rows into the table
    rules_handlers,  # noqa: F401 - likewise
    watch_handlers,  # noqa: F401 - likewise
)
from .context import Context
from .door import BACKLOG, Rights, peer_of
from .turns import Account, Turns

if TYPE_CHECKING:
    from .site import Site

PIECES = (
    *("walk.collect", "walk.count", "walk.delete", "delete_list.run", "tally.count"),
    *("flush.detach", "flush.reclaim", "shrink.shrink", "audit.live"),
    *("preview.judge", "classify.classify", "event_reader.survey", "event_reader.gather"),
)
"""Kernels that control calls; the keeper loads them before it forks."""
TURN_MESSAGES = 4
"""Requests of one client that are read before it is the others' turn; reading one takes some 10 us."""
ITEMS_MAX = 8_192
DESCRIPTORS = 256
"""Open files beside those of clients: the table, ports and their queues, pages over HTTP."""
LEAVE_S = 1.0
"""How long a client has to read its last word."""
TICK_S = 0.1
TICKS_KEPT = 600
"""Measurements of the loop's latency: the last minute."""
SWITCH_S = 0.0005
"""How long a thread that builds a long list may keep the loop waiting; Python's own 5 ms would show in every answer."""
_log = log.logger("control")


class Server:
    """Control's state: the desk, the clients, and figures about both."""

    def __init__(self, context: Context) -> None:
        self.context = context
        bounds = context.bounds
        self.limits = Limits(bounds.request_bytes_max, bounds.depth_max, ITEMS_MAX)
        self.desk = handlers.Desk(context, self.figures)
        self.clients: set[Connection] = set()
        self.counts: collections.Counter[str] = collections.Counter()
        self.pulse = Pulse()
        self.turns = Turns(bounds.crowd_percent)

    def figures(self) -> dict[str, Any]:
        """Return the server's figures."""
        return {
            "clients": len(self.clients),
            "paused": sum(client.is_paused for client in self.clients),
            "accepted": self.counts["accepted"],
            "requests": self.counts["requests"],
            "refused": {code: self.counts[code] for code in Code if self.counts[code]},
            "loop_latency_us": self.pulse.figures(),
            "kept_bytes": self.kept_bytes,
            "rests": self.turns.order.rests,
        }

    @property
    def kept_bytes(self) -> int:
        """What clients have sent and is not answered, and what they have not read."""
        return sum(client.kept_bytes for client in self.clients)

    def has_room(self, client: Connection, more_bytes: int = 0) -> bool:
        """Return whether so much more may be kept for a client; the others are looked at only beyond its own part."""
        bounds = self.context.bounds
        if client.kept_bytes + more_bytes <= bounds.kept_bytes_max // bounds.clients_max:
            return True
        return self.kept_bytes + more_bytes <= bounds.kept_bytes_max

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until SIGTERM."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
        loop.set_exception_handler(_log_mistake)
        desk = self.desk
        works = (self.pulse.beat(), desk.warnings.watch(), desk.shrinker.watch(), desk.assignments.watch())
        tasks = [asyncio.create_task(work) for work in works]
        server = await loop.create_unix_server(
            lambda: Connection(self), sock=self.context.door.listener, backlog=BACKLOG
        )
        sites = self._sites()
        for site in sites:
            await site.open()
        ready()
        await stopping.wait()
        server.close()
        for site in sites:
            await site.close()
        for task in tasks:
            task.cancel()
        await self._part()
        await self.desk.flusher.finish()

    def _sites(self) -> list[Site]:
        """Return what is shown over HTTP, if anything is."""
        listeners = self.context.sites
        if not listeners:
            return []
        from . import metrics, site, web  # and with them much that few services need

        pages = {
            "metrics": lambda: site.Metrics(self.desk.metrics.text, metrics.CONTENT_TYPE),
            "web": lambda: web.Page(self.desk),
        }
        return [site.Site(listener, pages[shown]()) for shown, listener in listeners.items()]

    async def _part(self) -> None:
        """Say to all clients that it is over, and wait until they know."""
        for client in list(self.clients):
            client.end(Code.STOPPING, "the service is going down")
        gone = [client.gone.wait() for client in self.clients]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*gone), LEAVE_S)
        for client in list(self.clients):
            client.drop()


class Pulse:
    """Measures how late the loop does what was to be done at a moment."""

    def __init__(self) -> None:
        self._late_us: collections.deque[int] = collections.deque([0], TICKS_KEPT)
        self._highest_us = 0

    async def beat(self) -> None:
        """Measure until cancelled."""
        while True:
            due_s = time.monotonic() + TICK_S  # the loop's own clock stands still while a callback runs
            await asyncio.sleep(TICK_S)
            late_us = max(0, round((time.monotonic() - due_s) * 1e6))
            self._late_us.append(late_us)
            self._highest_us = max(self._highest_us, late_us)

    def figures(self) -> dict[str, int]:
        """Return the latencies of the last minute, and the highest there ever was."""
        late_us = sorted(self._late_us)
        return {
            "p50": round(statistics.median(late_us)),
            "p99": late_us[len(late_us) * 99 // 100],
            "max": late_us[-1],
            "highest": self._highest_us,
        }


class Connection(asyncio.Protocol):
    """One client."""

    transport: asyncio.Transport
    client: handlers.Client

    def __init__(self, server: Server) -> None:
        self.server = server
        self.gone = asyncio.Event()
        self._reader = wire.requests(server.limits)
        self._waiting: collections.deque[tuple[wire.Request, int]] = collections.deque()
        """With the bytes that each has."""
        self._waiting_bytes = 0
        self._account = Account()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._timer: asyncio.TimerHandle | None = None
        self._last_word: bytes | None = None
        """What to say when the requests before it are answered; nothing is read any more."""
        self._has_ended = False
        """Whether the client has said all that it will."""

    @property
    def is_paused(self) -> bool:
        """Whether the client has to read before anything else is done for it."""
        return not self._writable.is_set()

    # -------------------------------------------------------------------------------------------- what the loop calls
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let a client in, or tell it why not."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own, which only acts like one
        bounds = self.server.context.bounds
        self.transport.set_write_buffer_limits(high=bounds.output_bytes_max)
        peer = peer_of(transport.get_extra_info("socket"))
        self.client = handlers.Client(peer, self.server.context.door.rights(peer), self)
        self.server.counts["accepted"] += 1
        full = len(self.server.clients) >= bounds.clients_max
        self.server.clients.add(self)
        if self.client.rights is Rights.NONE:
            self.end(Code.FORBIDDEN, f"user {peer.uid} is neither the service's nor in the group of its socket")
        elif full:
            self.end(Code.TOO_MANY_CLIENTS, f"{bounds.clients_max} clients are connected, and no more are served")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a client."""
        self.server.clients.discard(self)
        self.server.desk.hub.forget(self)
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        """Take in what a client sends."""
        if self._last_word is None:
            self._reader.feed(data)
            self._take_turn()

    def eof_received(self) -> bool:
        """Answer what was asked before the client said that there will be nothing more, then hang up."""
        self._has_ended = True
        self._take_turn()
        return True

    def pause_writing(self) -> None:
        """Wait for a client that does not read."""
        self._writable.clear()
        self._read_on(False)
        self._start_timer()

    def resume_writing(self) -> None:
        """Go on with a client that has read."""
        self._writable.set()
        if not self.transport.is_closing():
            self._stop_timer()
            self._take_turn()

    def _read_on(self, wanted: bool) -> None:
        """Let the loop read what the client sends, or not."""
        if self.transport.is_closing():
            return
        if wanted and not self._has_ended:
            self.transport.resume_reading()
        elif not wanted:
            self.transport.pause_reading()

    # -------------------------------------------------------------------------------------------- what it is told
    @property
    def unread(self) -> int:
        """Bytes that wait for the client."""
        return self.transport.get_write_buffer_size()

    @property
    def kept_bytes(self) -> int:
        """Bytes that it has sent and are not answered, and that it has not read."""
        return self._reader.kept_bytes + self._waiting_bytes + self.unread

    @property
    def has_room(self) -> bool:
        """Whether more may be kept for it."""
        return self.server.has_room(self)

    def post(self, data: bytes) -> None:
        """Tell the client something that it did not ask for."""
        if self._last_word is None and not self.transport.is_closing():
            self.transport.write(data)

    # -------------------------------------------------------------------------------------------- requests
    def _take_turn(self) -> None:
        """Read some of the messages that have arrived, and come back for the others when it was everybody's turn."""
        if self.is_paused or self._last_word is not None or self.transport.is_closing():
            return
        taken = 0
        try:
            for request in self._reader:
                assert isinstance(request, wire.Request)  # the reader takes nothing else
                self._take(request)
                taken += 1
                if taken == TURN_MESSAGES:
                    self._read_on(False)
                    asyncio.get_running_loop().call_soon(self._take_turn)
                    return
            if self._has_ended:
                self._reader.end()
            elif self._reader.kept_bytes and not self.has_room:
                self.end(Code.TOO_MANY_REQUESTS, self._why_no_room())
        except RemoteProtocolError as error:
            self.end(error.code, str(error))
        self._read_on(self._last_word is None and not self.is_paused)
        self._hang_up_when_done()

    def _take(self, request: wire.Request) -> None:
        self.server.counts["requests"] += 1
        bounds, size = self.server.context.bounds, self._reader.message_bytes
        if len(self._waiting) >= bounds.in_flight_max or self._waiting_bytes + size > bounds.request_bytes_max:
            waits = f"{len(self._waiting)} requests of this client wait already, {self._waiting_bytes} bytes"
            self._refuse(request.id, Code.TOO_MANY_REQUESTS, waits)
            return
        if not self.server.has_room(self, size):
            self._refuse(request.id, Code.TOO_MANY_REQUESTS, self._why_no_room())
            return
        self._waiting.append((request, size))
        self._waiting_bytes += size
        self._work()

    def _work(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._answer_all())

    async def _answer_all(self) -> None:
        """Answer the requests that wait, one after the other, each when it is this client's turn."""
        turns = self.server.turns
        try:
            while self._waiting:
                await self._writable.wait()
                turn = await turns.take(self._account, len(self._waiting))
                try:
                    await self._answer()
                finally:
                    turns.leave(turn)
        finally:
            self._task = None
        self._hang_up_when_done()

    async def _answer(self) -> None:
        """Answer the first request that waits."""
        request, size = self._waiting[0]
        answer = await handlers.answer(self.server.desk, self.client, request) if self.has_room else None
        self._waiting.popleft()
        self._waiting_bytes -= size
        if answer is None:
            self._refuse(request.id, Code.TOO_MANY_REQUESTS, self._why_no_room())
        else:
            self.transport.write(answer)

    def _why_no_room(self) -> str:
        most, own = self.server.context.bounds.kept_bytes_max, self.kept_bytes
        return f"{self.server.kept_bytes} bytes of requests and answers are kept, {own} of this client; {most} are the most"

    # -------------------------------------------------------------------------------------------- ends
    def _refuse(self, id: int | None, code: Code, message: str) -> None:
        self.server.counts[code] += 1
        self.transport.write(wire.failure(id, code, message))

    def end(self, code: Code, message: str) -> None:
        """Read nothing more from a client; answer what it has asked, tell it why, and hang up."""
        if self._last_word is not None or self.transport.is_closing():
            return
        self.server.counts[code] += 1
        _log.info("pid %d is served no more: %s", self.client.peer.pid, message, extra=log.facts(code=code.value))
        self._last_word = wire.failure(None, code, message)
        self._read_on(False)
        self._hang_up_when_done()

    def _hang_up_when_done(self) -> None:
        """Hang up if nothing is left to be said."""
        if self._waiting or self.transport.is_closing() or not (self._has_ended or self._last_word):
            return
        if self._last_word is not None:
            self.transport.write(self._last_word)
        self.transport.close()  # after what is written has been read
        self._start_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self.server.context.stall_s, self._stalled)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stalled(self) -> None:
        """Drop a client that does not read."""
        unread = self.transport.get_write_buffer_size()
        self.server.counts[Code.SLOW_READER] += 1
        _log.warning(
            "pid %d is dropped: it has left %d bytes of answers unread for %g s",
            self.client.peer.pid,
            unread,
            self.server.context.stall_s,
            extra=log.facts(code=Code.SLOW_READER.value),
        )
        self.drop()

    def drop(self) -> None:
        """Hang up at once."""
        self.transport.abort()


def _log_mistake(loop: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
    """Log an exception that nobody caught, and part with the client that it is about."""
    _log.error("%s", what.get("message", "an exception that nobody caught"), exc_info=what.get("exception"))
    if isinstance(protocol := what.get("protocol"), Connection):
        protocol.drop()


def run(context: Context, ready: Callable[[], None]) -> None:
    """Be the control process, until SIGTERM.

    Args:
        context: what the keeper hands over.
        ready: called when clients are answered.
    """
    gc.freeze()  # what was inherited is never garbage: collections need not look at it
    sys.setswitchinterval(SWITCH_S)
    allowed = privileges.allow_descriptors(context.bounds.clients_max + DESCRIPTORS)
    if allowed < context.bounds.clients_max + DESCRIPTORS:
        _log.warning("control.clients_max is %d, but only %d files may be open", context.bounds.clients_max, allowed)
    uvloop.run(_run(context, ready))


async def _run(context: Context, ready: Callable[[], None]) -> None:
    server = Server(context)
    try:
        await server.run(ready)
    finally:
        await asyncio.to_thread(server.desk.close)
