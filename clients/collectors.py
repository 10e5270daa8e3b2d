"""Where exported messages go: a collector over UDP or TCP, which may be away for a while.

Over UDP a message goes or does not, and nobody says.  Over TCP one that cannot go is given up and counted, and the
connection is made again after a pause that grows; nobody is held up by a collector for longer than ``SEND_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import NamedTuple

from .errors import Exit, ZonetrackError

CONNECT_S = 5.0
SEND_S = 10.0
PAUSE_S, PAUSE_S_MAX = 0.5, 30.0
TRANSPORTS = ("udp", "tcp")


class CollectorError(ZonetrackError):
    """There is no such collector."""

    exit_code = Exit.USAGE


class Address(NamedTuple):
    """Where a collector is."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str, port_default: int) -> Address:
    """Return what ``host``, ``host:port`` or ``[address]:port`` names.

    Raises:
        ValueError: it names nothing.
    """
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    number = int(port) if port.isdecimal() else port_default if not port else -1
    if not host or not 0 < number < 1 << 16:
        raise ValueError(f"host:port, or [address]:port, not {text!r}")
    return Address(host, number)


class Collector:
    """One collector.

    Args:
        where: its address.
        transport: of TRANSPORTS.
        greet: makes what is said first on each new connection; None: nothing.
    """

    def __init__(self, where: Address, transport: str, greet: Callable[[], bytes] | None = None) -> None:
        self.where, self.transport = where, transport
        self._greet = greet
        self._datagrams: socket.socket | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._again_s = 0.0
        self._pause_s = PAUSE_S
        self.sent = 0
        self.given_up = 0
        self.connected = 0

    async def open(self) -> None:
        """Find it.

        Raises:
            CollectorError: its name cannot be found.
        """
        kind = socket.SOCK_DGRAM if self.transport == "udp" else socket.SOCK_STREAM
        try:
            found = await asyncio.get_running_loop().getaddrinfo(self.where.host, self.where.port, type=kind)
        except OSError as error:
            raise CollectorError(f"{self.where.host}: {error.strerror or error}") from error
        if self.transport == "udp":
            family, _, _, _, sockaddr = found[0]
            self._datagrams = socket.socket(family, socket.SOCK_DGRAM)
            self._datagrams.setblocking(False)
            self._datagrams.connect(sockaddr)
            self.connected = 1

    async def send(self, message: bytes) -> bool:
        """Send a message; False when it was given up."""
        sent = await (self._send_datagram(message) if self._datagrams is not None else self._send_on(message))
        self.sent, self.given_up = self.sent + sent, self.given_up + (not sent)
        return sent

    async def _send_datagram(self, message: bytes) -> bool:
        assert self._datagrams is not None
        for _ in range(2):  # the first may be told that the one before found nobody
            with contextlib.suppress(ConnectionRefusedError):
                await asyncio.get_running_loop().sock_sendall(self._datagrams, message)
                return True
        return False

    async def _send_on(self, message: bytes) -> bool:
        writer = self._writer or await self._connect()
        if writer is None:
            return False
        try:
            writer.write(message)
            async with asyncio.timeout(SEND_S):
                await writer.drain()
        except OSError:  # of which TimeoutError is one
            self._hang_up()
            return False
        return True

    async def _connect(self) -> asyncio.StreamWriter | None:
        """Connect, if it is time for another try."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._again_s:
            return None
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(*self.where)
            if self._greet is not None:
                writer.write(self._greet())
                await writer.drain()
        except OSError:
            self._again_s = loop.time() + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
            return None
        self._pause_s, self._writer = PAUSE_S, writer
        self.connected += 1
        self._watch = asyncio.create_task(self._hear(reader, writer))
        return writer

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read what a collector says, which is nothing, until it hangs up."""
        with contextlib.suppress(OSError):
            while await reader.read(4096):
                pass
        if self._writer is writer:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    async def close(self) -> None:
        """Let what was sent go out, and hang up."""
        if self._datagrams is not None:
            self._datagrams.close()
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(SEND_S):
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
