"""``zonetrack list``, ``count``, ``delete``, ``flush``: the connections of a running service."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import click

from . import progress, tables
from .connections import HEADINGS, Connection, row
from .filters import Filter
from .formats import LINES, ovs
from .options import ZONE, as_json, print_json, reach, where, which
from .pages import Page

FORMATS = ("table", *LINES, "json", "csv", "parquet")
COUNT_MAX = (1 << 32) - 1


@click.command("list")
@where
@which
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, as --format json.")
@click.option("--limit", type=click.IntRange(0, COUNT_MAX), metavar="N", help="No more than this many.")
@click.option("--more", "-m", is_flag=True, help="With --format ovs: id, status, both sides' states.")
@click.option("--statistics", "-s", is_flag=True, help="With --format ovs: counters, start, timeout.")
def list_command(
    socket: str | None,
    instance: str | None,
    form: str,
    as_json: bool,
    limit: int | None,
    more: bool,
    statistics: bool,
    **filter: Any,
) -> None:
    """List connections: as a table, the lines of Linux's conntrack or of Open vSwitch's dpctl, JSON, CSV or Parquet."""
    if (more or statistics) and form != "ovs":
        raise click.UsageError("--more and --statistics are of --format ovs")
    if form == "parquet" and sys.stdout.isatty():
        raise click.UsageError("Parquet is not for a terminal: redirect it to a file")
    with reach(socket, instance) as ct:
        if not as_json and form in WRITERS and not more and not statistics:
            with progress.line() as say:
                count = WRITERS[form](_told(ct.pages(limit, **wanted(filter)), say))
            click.echo(f"{count:,} connections", err=True)
            return
        found = Counted(ct.connections(limit, **wanted(filter)))
        if as_json or form == "json":
            write(documents(found))
        elif form == "table":
            tables.show(HEADINGS, map(row, found))
        else:
            line = partial(ovs, more=more, statistics=statistics) if form == "ovs" else LINES[form]
            write(f"{line(connection)}\n" for connection in found)
    if form != "json" and not as_json:
        click.echo(f"{found.count:,} connections", err=True)


def _told(pages: Iterable[Page], say: Callable[[str], None]) -> Iterator[Page]:
    """Yield pages, and say of each how many connections have come with it."""
    count = 0
    for page in pages:
        count += len(page.array())
        say(f"{count:,} connections")
        yield page


def _as_lines(form: str) -> Callable[[Iterable[Page]], int]:
    """Return a function that writes pages as lines, and returns how many connections there were."""

    def write_pages(pages: Iterable[Page]) -> int:
        from . import lines

        count = 0
        for page in pages:
            found = list(lines.of_page(page, form))
            count += len(found)
            sys.stdout.write("".join(found))
        sys.stdout.flush()
        return count

    return write_pages


def _as_csv(pages: Iterable[Page]) -> int:
    from .columns import write_csv

    count = write_csv(pages, sys.stdout)
    sys.stdout.flush()
    return count


def _as_parquet(pages: Iterable[Page]) -> int:
    from .columns import write_parquet

    count = write_parquet(pages, sys.stdout.buffer)
    sys.stdout.flush()
    return count


WRITERS: dict[str, Callable[[Iterable[Page]], int]] = {
    "conntrack": _as_lines("conntrack"),
    "ovs": _as_lines("ovs"),
    "csv": _as_csv,
    "parquet": _as_parquet,
}
"""Formats that are written page by page, without a dict for each connection."""


class Counted:
    """Counts what passes through."""

    def __init__(self, connections: Iterable[Connection]) -> None:
        self.count = 0
        self._connections = connections

    def __iter__(self) -> Iterator[Connection]:
        for connection in self._connections:
            self.count += 1
            yield connection


def wanted(filter: dict[str, Any]) -> Filter:
    """Return the options of a filter that were given."""
    return Filter(**{name: value for name, value in filter.items() if value is not None})


def documents(connections: Iterable[Connection]) -> Iterator[str]:
    """Yield one JSON list piece by piece, a connection on each line."""
    before = "["
    for connection in connections:
        yield f"{before}\n{json.dumps(connection)}"
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"


def write(pieces: Iterable[str]) -> None:
    """Write pieces to standard output as they come."""
    sys.stdout.writelines(pieces)
    sys.stdout.flush()


@click.command("count")
@where
@which
@as_json
def count_command(socket: str | None, instance: str | None, as_json: bool, **filter: Any) -> None:
    """Count connections.

    All, and those of a zone, are counted as limits see them: one that has expired and was not swept yet is in.
    """
    with reach(socket, instance) as ct:
        count = ct.count(**wanted(filter))
    if as_json:
        print_json({"count": count})
    else:
        click.echo(count)


@click.command("delete")
@where
@which
@as_json
def delete_command(socket: str | None, instance: str | None, as_json: bool, **filter: Any) -> None:
    """Delete the connections that are meant; exit 4 if there is none."""
    if not wanted(filter):
        raise click.UsageError("say which connections; to be rid of all of them, there is zonetrack flush")
    with reach(socket, instance) as ct:
        deleted = ct.delete(**wanted(filter))
    if as_json:
        print_json({"deleted": deleted})
    else:
        click.echo(f"{deleted:,} deleted")


@click.command("flush")
@where
@click.option("--zone", type=ZONE, metavar="Z", help="Only this zone.")
@as_json
def flush_command(socket: str | None, instance: str | None, zone: int | None, as_json: bool) -> None:
    """Be rid of all connections, or of those of a zone: at once, however many there are."""
    with reach(socket, instance) as ct:
        told = ct.flush(zone)
    if as_json:
        print_json(told)
    else:
        click.echo(f"{told['flushed']:,} flushed")
