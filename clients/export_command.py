"""``zonetrack export``: tell collectors of flows and of logs what happens to connections: IPFIX, syslog.

A process of its own, a client like any other: the service does not wait for it, and is none the worse when it dies.  With a
file for its state its successor goes on where it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import collectors
from .aio import Client, connect
from .collectors import TRANSPORTS, Collector
from .connection_commands import wanted
from .errors import ZonetrackError
from .events import Batch
from .filters import Filter
from .options import Checked, as_json, print_json, where, which
from .pages import joined

if TYPE_CHECKING:
    from .export_state import State

IPFIX_PORT, SYSLOG_PORT = 4739, 514
REFRESH_S = 60.0
"""After which the templates go over UDP again (RFC 7011 8.4)."""
SYSLOG_KINDS = ["new", "destroy"]
FINISH_S = 4.0
"""To tell what has happened until one is asked to end; a service that keeps an exporter gives it a little more."""


def _collector(port: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        reads = Checked("collector", lambda text: collectors.address(text, port))
        command = click.option(
            "--transport", type=click.Choice(TRANSPORTS), default=TRANSPORTS[0], show_default=True, help="How it goes."
        )(command)
        command = click.option(
            "--resume",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Goes on where the one before, by the same file, has ended.",
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
    resume: Path | None,
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

    async def tell(ct: Client, looker: Client, kept: Kept) -> None:
        await _tell_flows(ct, looker, to, exporter, timeouts, begins, wanted(filter), kept)

    run(socket, instance, to, as_json, resume, tell)


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
    resume: Path | None,
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

    async def tell(ct: Client, looker: Client, kept: Kept) -> None:
        async for batch in kept.batches(ct, kinds, wanted(filter)):
            for event in batch.events():
                message = syslog_lines.line(event, number, host, pid)
                await to.send(message if transport == "udp" else syslog_lines.framed(message))
            kept.note(batch)

    run(socket, instance, to, as_json, resume, tell)


# ------------------------------------------------------------------------------------------------ flows
async def _tell_flows(
    ct: Client,
    looker: Client,
    to: Collector,
    exporter: Any,
    timeouts: tuple[int, int],
    begins: bool,
    filter: Filter,
    kept: Kept,
) -> None:
    """Tell a collector of flows, until there is nothing more."""
    from .flow_export import Told

    told = Told(*timeouts)
    announced_s, heard = 0.0, -1

    async def send(flows: Any) -> None:
        nonlocal announced_s
        now_s = time.time()
        if to.transport == "udp" and now_s - announced_s >= REFRESH_S:
            await to.send(exporter.announce(int(now_s)))
            announced_s = now_s
        for message in exporter.messages(flows, int(now_s)):
            await to.send(message)

    batches = kept.batches(ct, ["new", "destroy"] if begins else ["destroy"], filter)
    async for batch in _with_looks(batches, min(timeouts) / 1000):
        if batch is None:
            if heard < 0:  # what the one before has told is not known yet
                continue
            pages = [page async for page in looker.pages(**filter)]
            await send(told.look(joined(pages), round(1000 * time.time()), pages[0].sequence, heard))
            kept.keep(told.rows())
            continue
        if heard < 0:
            told.take_up(kept.rows_of(batch))
        heard = batch.sequence
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
        kept.note(batch)


async def _with_looks(batches: AsyncIterator[Batch], period_s: float) -> AsyncIterator[Batch | None]:
    """Yield batches of events, and None whenever it is time to look at the whole table."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + period_s
    waiting = asyncio.ensure_future(anext(batches))
    try:
        while True:
            await asyncio.wait({waiting}, timeout=max(0.0, due_s - loop.time()))
            if waiting.done():
                try:
                    batch = waiting.result()
                except StopAsyncIteration:
                    return
                yield batch
                waiting = asyncio.ensure_future(anext(batches))
            if loop.time() >= due_s:
                yield None
                due_s = loop.time() + period_s
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, ZonetrackError):
            await waiting


# ------------------------------------------------------------------------------------------------ running
class Kept:
    """What is kept for a successor, if anything is: a state that cannot be written is said once, and done without."""

    def __init__(self, state: State | None) -> None:
        self._state = state

    async def batches(self, ct: Client, kinds: list[str] | None, filter: Filter) -> AsyncIterator[Batch]:
        """Yield batches of events, from where the one before has ended; each is noted when it was told."""
        state = self._state
        async for batch in ct.event_batches(kinds, after=None if state is None else state.mark, **filter):
            yield batch

    def note(self, batch: Batch) -> None:
        """Write down that a batch was told: at once, so that only who is killed before that leaves it to be told again."""
        if self._state is not None:
            self._do(self._state.note, batch.mark)

    def rows_of(self, batch: Batch) -> Any:
        """Return what was told of connections of the table that a batch is of."""
        import numpy as np

        from .flow_export import TOLD

        return np.zeros(0, TOLD) if self._state is None else self._state.rows_of(batch.reading.table)

    def keep(self, rows: Any) -> None:
        """Write down what was told of connections that go on."""
        if self._state is not None:
            self._do(self._state.keep, rows)

    def _do(self, write: Callable[[Any], None], what: Any) -> None:
        try:
            write(what)
        except ZonetrackError as error:
            click.echo(f"{error}; who comes after this exporter will begin anew", err=True)
            self._state = None


def run(
    socket: str | None,
    instance: str | None,
    to: Collector,
    as_json: bool,
    state: Path | None,
    tell: Callable[[Client, Client, Kept], Coroutine[Any, Any, None]],
) -> None:
    """Tell a collector until interrupted or asked to end, then say what was told."""
    from .export_state import State

    opened = None
    if state is not None:
        opened = State(state, lambda: click.echo(f"{state}: waiting until nobody else exports by it", err=True))

    async def main() -> None:
        await to.open()
        async with connect(socket, instance) as ct, connect(socket, instance) as looker:
            telling = asyncio.ensure_future(tell(ct, looker, Kept(opened)))
            ending: list[asyncio.Future[None]] = []
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(
                    number, lambda: ending or ending.append(asyncio.ensure_future(_finish(ct, telling)))
                )
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await telling
            finally:
                await to.close()

    click.echo(f"telling {to.where} over {to.transport}", err=True)
    try:
        asyncio.run(main())
    finally:
        if opened is not None:
            opened.close()
        click.echo(f"{to.sent:,} messages sent, {to.given_up:,} given up", err=True)
        if as_json:
            print_json({"sent": to.sent, "given_up": to.given_up, "connected": to.connected})


async def _finish(ct: Client, telling: asyncio.Future[None]) -> None:
    """Have all told that has happened until now; but not for ever."""
    with contextlib.suppress(ZonetrackError, TimeoutError):
        async with asyncio.timeout(FINISH_S):
            await ct.finish_events()
            await asyncio.wait({telling})
    telling.cancel()
