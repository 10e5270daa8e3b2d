"""``zonetrack export``: tell collectors of flows and of logs what happens to connections: IPFIX, syslog.

A process of its own, a client like any other: the service does not wait for it, and is none the worse when it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import click

from . import collectors
from .aio import Client, connect
from .collectors import TRANSPORTS, Collector
from .connection_commands import wanted
from .errors import ZonetrackError
from .events import Batch
from .filters import Filter
from .options import Checked, as_json, print_json, where, which

IPFIX_PORT, SYSLOG_PORT = 4739, 514
REFRESH_S = 60.0
"""After which the templates go over UDP again (RFC 7011 8.4)."""
SYSLOG_KINDS = ["new", "destroy"]


def _collector(port: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        reads = Checked("collector", lambda text: collectors.address(text, port))
        command = click.option(
            "--transport", type=click.Choice(TRANSPORTS), default=TRANSPORTS[0], show_default=True, help="How it goes."
        )(command)
        return click.option("--collector", type=reads, required=True, metavar="HOST[:PORT]", help="Whom to tell.")(
            command
        )

    return add


@click.group("export")
def command() -> None:
    """Tell a collector what happens to connections, until interrupted."""


@command.command("ipfix")
@where
@which
@_collector(IPFIX_PORT)
@click.option(
    "--active-timeout",
    type=click.FloatRange(0.1),
    default=60.0,
    show_default=True,
    metavar="S",
    help="A record at least so often.",
)
@click.option(
    "--idle-timeout",
    type=click.FloatRange(0.1),
    default=15.0,
    show_default=True,
    metavar="S",
    help="A record after so long a silence.",
)
@click.option(
    "--domain", type=click.IntRange(0, (1 << 32) - 1), default=0, show_default=True, help="Observation domain."
)
@as_json
@click.option("--begins", is_flag=True, help="A record also when a connection begins.")
def ipfix_command(
    socket: str | None,
    instance: str | None,
    collector: collectors.Address,
    transport: str,
    as_json: bool,
    active_timeout: float,
    idle_timeout: float,
    domain: int,
    begins: bool,
    **filter: Any,
) -> None:
    """Tell a collector of flows by IPFIX: a record for both ways at the end of each, and of long ones in between."""
    from .ipfix import TCP_BYTES_MAX, UDP_BYTES_MAX, Exporter

    exporter = Exporter(domain, UDP_BYTES_MAX if transport == "udp" else TCP_BYTES_MAX)
    to = Collector(collector, transport, greet=lambda: exporter.announce(int(time.time())))
    timeouts = round(1000 * active_timeout), round(1000 * idle_timeout)

    async def tell(ct: Client, looker: Client) -> None:
        await _tell_flows(ct, looker, to, exporter, timeouts, begins, wanted(filter))

    run(socket, instance, to, as_json, tell)


@command.command("syslog")
@where
@which
@_collector(SYSLOG_PORT)
@click.option("--facility", default="local0", show_default=True, metavar="F", help="As local0, daemon, or user.")
@as_json
@click.option("--updates", is_flag=True, help="A message also when a connection changes.")
def syslog_command(
    socket: str | None,
    instance: str | None,
    collector: collectors.Address,
    transport: str,
    as_json: bool,
    facility: str,
    updates: bool,
    **filter: Any,
) -> None:
    """Tell a collector of logs, a message of RFC 5424 for each connection that begins or ends."""
    from . import syslog_lines

    number = syslog_lines.FACILITIES.get(facility)
    if number is None:
        raise click.UsageError(f"--facility: one of {', '.join(syslog_lines.FACILITIES)}, not {facility!r}")
    to = Collector(collector, transport)
    host, pid = syslog_lines.host_name(), os.getpid()
    kinds = None if updates else SYSLOG_KINDS

    async def tell(ct: Client, looker: Client) -> None:
        async for batch in ct.event_batches(kinds, **wanted(filter)):
            for event in batch.events():
                message = syslog_lines.line(event, number, host, pid)
                await to.send(message if transport == "udp" else syslog_lines.framed(message))

    run(socket, instance, to, as_json, tell)


# ------------------------------------------------------------------------------------------------ flows
async def _tell_flows(
    ct: Client,
    looker: Client,
    to: Collector,
    exporter: Any,
    timeouts: tuple[int, int],
    begins: bool,
    filter: Filter,
) -> None:
    """Tell a collector of flows, until cancelled."""
    from .flow_export import Told

    told = Told(*timeouts)
    announced_s = 0.0

    async def send(flows: Any) -> None:
        nonlocal announced_s
        now_s = time.time()
        if to.transport == "udp" and now_s - announced_s >= REFRESH_S:
            await to.send(exporter.announce(int(now_s)))
            announced_s = now_s
        for message in exporter.messages(flows, int(now_s)):
            await to.send(message)

    async for batch in _with_looks(ct, ["new", "destroy"] if begins else ["destroy"], min(timeouts) / 1000, filter):
        if batch is None:
            await send(told.look(await looker.dump(**filter), round(1000 * time.time())))
            continue
        if batch.lost:
            click.echo(f"{batch.lost:,} events are missing: flows that ended then are not told", err=True)
        if batch.count:
            rows = batch.array()
            kinds = {name: number for number, name in batch.reading.kinds.items()}
            began, ended = (rows[rows["kind"] == kinds[name]] for name in ("new", "destroy"))
            if len(began):
                await send(told.begin(began))
            if len(ended):
                await send(told.end(ended, list(batch.reading.ends)))


async def _with_looks(ct: Client, kinds: list[str], period_s: float, filter: Filter) -> AsyncIterator[Batch | None]:
    """Yield batches of events, and None whenever it is time to look at the whole table."""
    loop = asyncio.get_running_loop()
    batches = ct.event_batches(kinds, **filter)
    due_s = loop.time() + period_s
    waiting = asyncio.ensure_future(anext(batches))
    try:
        while True:
            await asyncio.wait({waiting}, timeout=max(0.0, due_s - loop.time()))
            if waiting.done():
                yield waiting.result()
                waiting = asyncio.ensure_future(anext(batches))
            if loop.time() >= due_s:
                yield None
                due_s = loop.time() + period_s
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError, ZonetrackError):
            await waiting


# ------------------------------------------------------------------------------------------------ running
def run(
    socket: str | None,
    instance: str | None,
    to: Collector,
    as_json: bool,
    tell: Callable[[Client, Client], Coroutine[Any, Any, None]],
) -> None:
    """Tell a collector until interrupted or asked to end, then say what was told."""

    async def main() -> None:
        await to.open()
        async with connect(socket, instance) as ct, connect(socket, instance) as looker:
            telling = asyncio.ensure_future(tell(ct, looker))
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, telling.cancel)
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await telling
            finally:
                await to.close()

    click.echo(f"telling {to.where} over {to.transport}", err=True)
    try:
        asyncio.run(main())
    finally:
        click.echo(f"{to.sent:,} messages sent, {to.given_up:,} given up", err=True)
        if as_json:
            print_json({"sent": to.sent, "given_up": to.given_up, "connected": to.connected})
