"""``zonetrack events``: what happens to connections, as it happens, in the lines of Linux's ``conntrack -E`` or in JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from .connection_commands import wanted
from .connections import TCP_STATES
from .events import KINDS, Batch, Event
from .formats import conntrack_event
from .nearest import hint
from .options import Checked, reach, where, which

COUNT_MAX = (1 << 32) - 1
FORMATS = ("conntrack", "jsonl")


def kinds(text: str) -> list[str]:
    """Return the kinds that a list names, parted by commas."""
    found = text.lower().split(",")
    for kind in found:
        if kind not in KINDS:
            raise ValueError(f"one or more of {', '.join(KINDS)}, parted by commas, not {kind!r}{hint(kind, KINDS)}")
    return found


@click.command("events")
@where
@which
@click.option("--type", "of", type=Checked("types", kinds), metavar="T[,T]", help="Of these: new, update, destroy.")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), metavar="N", help="End after this many.")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True, help="How to print."
)
@click.option("--timestamp", is_flag=True, help="With --format conntrack: when, as with -o timestamp.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, as --format jsonl.")
def command(
    socket: str | None,
    instance: str | None,
    of: list[str] | None,
    count: int | None,
    form: str,
    timestamp: bool,
    as_json: bool,
    **filter: Any,
) -> None:
    """Show what happens to connections from now on: those that are made, that change, that end.

    Where more happened than could be told, a line GAP says how many events are missing.
    """
    is_json = as_json or form == "jsonl"
    if timestamp and is_json:
        raise click.UsageError("--timestamp is of --format conntrack; JSON has the time anyway")
    shown = 0
    try:
        with reach(socket, instance) as ct:
            for batch in ct.event_batches(of, **wanted(filter)):
                shown += write(batch, None if count is None else count - shown, is_json, timestamp)
                if count is not None and shown >= count:
                    break
    except KeyboardInterrupt:
        click.echo(err=True)
    click.echo(f"{shown:,} events", err=True)


def write(batch: Batch, most: int | None, is_json: bool, timestamp: bool) -> int:
    """Write the events of a batch, as they came; returns how many, gaps not counted."""
    if not is_json and not timestamp and (most is None or batch.count <= most):
        from . import lines

        sys.stdout.writelines(lines.conntrack_events(batch, TCP_STATES))
        sys.stdout.flush()
        return batch.count
    shown = 0
    for event in _up_to(batch.events(), most):
        shown += event["event"] != "gap"
        text = json.dumps(event) if is_json else conntrack_event(event)
        if timestamp and "time" in event:
            text = f"[{stamp(event)}]\t{text}"
        sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    return shown


def stamp(event: Event) -> str:
    """Return when an event happened, as conntrack prints it."""
    seconds, milliseconds = divmod(round(event["time"] * 1000), 1000)
    return f"{seconds}.{1000 * milliseconds:<6}"


def _up_to(events: Iterator[Event], most: int | None) -> Iterator[Event]:
    """Yield events until there were so many beside gaps."""
    left = most
    for event in events:
        if left == 0:
            return
        yield event
        if left is not None and event["event"] != "gap":
            left -= 1
