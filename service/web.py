"""The web page: what ``zonetrack top`` shows, in a browser, with an hour of history, a search and explanations.

    /                 the page, and its two files; nothing from outside, nothing to build
    /events           server-sent events: a view every two seconds while somebody looks
    /history          rates and connections of the last hour, a point every ten seconds
    /connections?q=   what a search finds
    /explain          the latest packets that got a reason

Nothing can be changed here.  Views are made only while somebody looks, and one is made for all who do; a viewer who does not
read misses some.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Mapping
from importlib import resources
from typing import Any

from aiohttp import web

from ..clients.connections import Rows, describe
from ..clients.errors import ServerError
from ..clients.watching import View, Watch
from . import filters, handlers
from .connections import FIELDS
from .door import Peer, Rights
from .site import ASKED_MAX, HEADERS

INTERVAL_S = 2.0
HISTORY_STEP_S = 10.0
HISTORY_POINTS = 360
"""An hour."""
VIEWERS_MAX = 16
FOUND_MAX = 100
SEARCH_S_MAX = 3.0
"""After that a search shows what it has found."""
EXPLAINED_MAX = 50
ASSETS = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_READER = handlers.Client(Peer(0, 0, frozenset()), Rights.READ)
_NUMBERS = ("zone", "sport", "dport")


class Page:
    """The page of one service."""

    asked_max = ASKED_MAX + VIEWERS_MAX

    def __init__(self, desk: handlers.Desk) -> None:
        self._desk = desk
        self._watch = Watch()
        self._view: View | None = None
        self._looked = asyncio.Condition()
        self._viewers = 0
        self._wanted = asyncio.Event()
        self._number = 0
        self.history: deque[dict[str, Any]] = deque(maxlen=HISTORY_POINTS)
        self._tasks: list[asyncio.Task[None]] = []
        folder = resources.files("zonetrack.service") / "page"
        self._assets = {path: ((folder / file).read_text(), kind) for path, (file, kind) in ASSETS.items()}

    def begin(self) -> None:
        """Keep history from now on, and make views for who looks."""
        self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._remember())]

    async def end(self) -> None:
        """Stop, and let all viewers go."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def routes(self) -> list[web.RouteDef]:
        """Return what can be asked for."""
        return [
            *(web.get(path, self._asset) for path in ASSETS),
            web.get("/favicon.ico", self._nothing),
            web.get("/events", self._events),
            web.get("/history", self._history),
            web.get("/connections", self._connections),
            web.get("/explain", self._explain),
        ]

    # -------------------------------------------------------------------------------------------- looking
    async def _look(self) -> None:
        """Make a view now and then while somebody looks."""
        while True:
            await self._wanted.wait()
            told = await handlers.stats(self._desk, _READER), await self._desk.summary.get()
            async with self._looked:
                self._view = self._watch.take(*told)
                self._number += 1
                self._looked.notify_all()
            await asyncio.sleep(INTERVAL_S)

    async def _remember(self) -> None:
        """Take a point of history now and then, from counters alone."""
        before: tuple[float, Mapping[str, int]] | None = None
        while True:
            now_s, counters = time.monotonic(), self._desk.stats.counters()
            point: dict[str, Any] = {"time": round(time.time(), 1), "connections": self._desk.stats.count()}
            if before is not None:
                elapsed_s = now_s - before[0]
                for name, counter in (("packets", "packets"), ("new", "insert"), ("invalid", "invalid")):
                    point[name] = round((counters[counter] - before[1][counter]) / elapsed_s, 2)
                self.history.append(point)
            before = now_s, counters
            await asyncio.sleep(HISTORY_STEP_S)

    # -------------------------------------------------------------------------------------------- answers
    async def _asset(self, request: web.Request) -> web.Response:
        text, kind = self._assets[request.path]
        return web.Response(text=text, content_type=kind, charset="utf-8")

    async def _nothing(self, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._viewers >= VIEWERS_MAX:
            raise web.HTTPServiceUnavailable(text=f"{VIEWERS_MAX} people look already\n")
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self._viewers += 1
        self._wanted.set()
        seen = 0
        try:
            while True:
                async with self._looked:
                    while self._number == seen:
                        await self._looked.wait()
                    seen, view = self._number, self._view
                await response.write(f"data: {json.dumps(view)}\n\n".encode())
        except ConnectionError:
            return response
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._wanted.clear()

    async def _history(self, request: web.Request) -> web.Response:
        return web.json_response(list(self.history))

    async def _connections(self, request: web.Request) -> web.Response:
        try:
            ways = wanted(request.query.get("q", ""))
            found, is_whole = await self._search(ways)
        except (ServerError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response({"connections": found, "whole": is_whole})

    async def _search(self, ways: list[filters.Wanted]) -> tuple[list[dict[str, Any]], bool]:
        """Return connections that one of some filters means, and whether these are all."""
        found: dict[int, dict[str, Any]] = {}
        until_s = time.monotonic() + SEARCH_S_MAX
        for one in ways:
            cursor: int | None = 0
            while cursor is not None:
                if len(found) >= FOUND_MAX or time.monotonic() > until_s:
                    return list(found.values())[:FOUND_MAX], False
                page = await self._desk.snapshot.page(one, cursor, FOUND_MAX)
                for row in Rows(FIELDS).read(bytes(page.records)):
                    found[row["id"]] = describe(row)
                cursor = page.next
        return list(found.values()), True

    async def _explain(self, request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(self._desk.recent, EXPLAINED_MAX, None))


def wanted(text: str) -> list[filters.Wanted]:
    """Return the filters that a search means: ``KEY=VALUE`` as filters have them, and addresses of either side.

    Raises:
        ServerError: a key or a value is none.
        ValueError: it says nothing.
    """
    pairs: dict[str, Any] = {}
    hosts: list[str] = []
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals:
            hosts.append(word)
        elif name == "unreplied":
            pairs[name] = True
        else:
            pairs[name] = int(value) if name in _NUMBERS and value.isdecimal() else value
    if not pairs and not hosts:
        raise ValueError("name an address, or KEY=VALUE such as zone=5, proto=tcp, dport=80, state=ESTABLISHED")
    if len(hosts) > 2:
        raise ValueError("two addresses at most: one of each side")
    if not hosts:
        return [filters.read("q", pairs)]
    one, other = hosts[0], hosts[1] if len(hosts) == 2 else None
    sides = [{"src": one, "dst": other}, {"src": other, "dst": one}]
    return [filters.read("q", pairs | {key: host for key, host in side.items() if host}) for side in sides]
