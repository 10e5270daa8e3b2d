"""``zonetrack top``: who and what fills the table, live on a screen, or once as text or JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from . import panels
from .options import print_json, reach, where
from .panels import PANELS
from .watching import View, Watch

INTERVAL_S = 2.0
INTERVAL_S_MIN = 0.2
ROWS_ONCE = 10
"""Of each table."""


@click.command("top")
@where
@click.option("--once", is_flag=True, help="Print all tables once, as text, and end.")
@click.option(
    "--interval",
    type=click.FloatRange(INTERVAL_S_MIN),
    default=INTERVAL_S,
    metavar="S",
    help="Seconds between looks, of which rates are made.",
)
@click.option(
    "--rows", type=click.IntRange(1, 1000), default=ROWS_ONCE, metavar="N", help="With --once: of each table."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON once, and end.")
def command(socket: str | None, instance: str | None, once: bool, interval: float, rows: int, as_json: bool) -> None:
    """Show who and what fills the table: zones, addresses, states, workers, queues, reasons.

    On a terminal it goes on until q is pressed; ? shows the keys.  Elsewhere, and with --once or --json, it looks twice, an
    interval apart, and prints what it saw.
    """
    if not (once or as_json) and sys.stdout.isatty():
        from .top_screen import Top

        with reach(socket, instance):
            pass  # that nobody answers is told before the screen changes
        app = Top(socket, instance, interval)
        app.run()
        if app.failure is not None:
            raise app.failure
        return
    view = look_twice(socket, instance, interval)
    if as_json:
        print_json(view)
    else:
        click.echo("\n".join(text(view, rows)))


def look_twice(socket: str | None, instance: str | None, interval: float) -> View:
    """Return a view whose rates are of an interval."""
    watch = Watch()
    with reach(socket, instance) as ct:
        watch.take(ct.stats(), ct.summary())
        time.sleep(interval)
        return watch.take(ct.stats(), ct.summary())


def text(view: View, rows: int) -> Iterator[str]:
    """Yield the lines of a view: what stands above, and the first rows of each table that has any."""
    yield from panels.head(view)
    for panel in PANELS:
        found: list[Any] = panels.ordered(panel, view[panel.name])
        if not found:
            continue
        yield ""
        more = f", {rows} of {len(found)}" if len(found) > rows else ""
        yield f"{panel.title}{more}"
        yield panels.line(panel, [column.heading for column in panel.columns])
        for row in found[:rows]:
            yield panels.line(panel, panels.cells(panel, row))
