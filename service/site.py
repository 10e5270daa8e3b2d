"""The site: what a service shows over HTTP, read-only, where the configuration names an address; off otherwise.

    /metrics    figures for Prometheus (``metrics.listen``)
    /           the page for people (``web.listen``, see ``web``)

It lives in control's loop and cannot hold it up: what takes long to say is said on another thread.  It takes GET and HEAD
alone, so many connections at once and no more, and no body; who asks for a name that is not this machine's is refused where
the address is of this machine alone, so that no page of the web can ask in a visitor's name (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web

from . import log
from .listening import Address

CONNECTIONS_MAX = 64
"""Open at once on one address; whoever else comes is hung up on."""
ASKED_MAX = 16
LEAVE_S = 0.5
"""What those have who are being answered when the service ends."""
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'",
}
NAMES = ("localhost",)
_log = log.logger("control")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Shown(Protocol):
    """What an address shows."""

    asked_max: int
    """Requests under way at once; the others are told to come again."""

    def begin(self) -> None: ...
    async def end(self) -> None: ...
    def routes(self) -> list[web.RouteDef]: ...


class Site:
    """One address and what is shown there."""

    def __init__(self, listener: socket.socket, shown: Shown) -> None:
        """Prepare.

        Args:
            listener: that the keeper has opened.
            shown: what is there to see.
        """
        self._shown = shown
        self.address = Address(*listener.getsockname()[:2])
        self._listener = listener
        self._asked = 0
        self._app = web.Application(middlewares=[self._guard], client_max_size=1)
        self._app.add_routes(shown.routes())
        self._runner = web.AppRunner(
            self._app,
            logger=_log,
            access_log=None,
            keepalive_timeout=15,
            handle_signals=False,
            shutdown_timeout=LEAVE_S,
        )
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Answer from now on."""
        await self._runner.setup()
        answer = self._runner.server
        assert answer is not None

        def take() -> asyncio.Protocol:
            return answer() if len(answer.connections) < CONNECTIONS_MAX else Refused()

        self._server = await asyncio.get_running_loop().create_server(take, sock=self._listener)
        self._shown.begin()
        _log.info("http://%s answers", self.address)

    async def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()
        await self._shown.end()
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what must not be asked, and see that an answer says how it may be used."""
        try:
            response = await self._answer(request, handler)
        except web.HTTPException as refusal:
            refusal.headers.update(HEADERS)
            raise
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "HEAD"], text="this is for reading only\n")
        if self.address.is_loopback and not is_here(request.host):
            raise web.HTTPForbidden(text="ask by an address of the loopback interface, or localhost\n")
        if self._asked >= self._shown.asked_max:
            raise web.HTTPServiceUnavailable(
                text="too much is asked at once: try again\n", headers={"Retry-After": "1"}
            )
        self._asked += 1
        try:
            return await handler(request)
        finally:
            self._asked -= 1


class Refused(asyncio.Protocol):
    """Whoever comes when there is no room."""

    def connection_made(self, transport: Any) -> None:
        """Hang up."""
        transport.abort()


def is_here(host: str) -> bool:
    """Return whether the host that a request names, perhaps with a port, is this machine by its loopback interface."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in NAMES or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Metrics:
    """What is shown at ``metrics.listen``: written on another thread, one scrape after the other."""

    asked_max = ASKED_MAX

    def __init__(self, text: Callable[[], bytes], content_type: str) -> None:
        self._text, self._content_type = text, content_type
        self._turn = asyncio.Lock()

    def begin(self) -> None:
        """Nothing is done before somebody asks."""

    async def end(self) -> None:
        """Nor after."""

    def routes(self) -> list[web.RouteDef]:
        """Return what can be asked for."""
        return [web.get("/metrics", self._metrics)]

    async def _metrics(self, request: web.Request) -> web.Response:
        async with self._turn:
            body = await asyncio.to_thread(self._text)
        return web.Response(body=body, headers={"Content-Type": self._content_type})
