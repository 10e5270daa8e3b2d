"""``zonetrack stats``, ``coverage``, ``workers``, ``metrics``: the figures of a running service."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import click

from . import tables
from .options import ZONE, as_json, print_json, reach, where

INTERVAL_S = 1.0
CLEAR = "\x1b[H\x1b[2J"


@click.command("stats")
@where
@click.option("--watch", is_flag=True, help="Again and again, until interrupted.")
@click.option("--interval", type=click.FloatRange(0.1), default=INTERVAL_S, metavar="S", help="With --watch; seconds.")
@click.option("--perf", is_flag=True, help="Where the time of workers goes, part by part.")
@click.option("--switch", type=click.Choice(["on", "off"]), help="Count and measure what comes and goes, or do not.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one document, with --watch one per line.")
def stats_command(
    socket: str | None,
    instance: str | None,
    watch: bool,
    interval: float,
    perf: bool,
    switch: str | None,
    as_json: bool,
) -> None:
    """Show totals, and the counters of each worker, queue and zone in use.

    With --perf: of the bursts that are measured, one in 64, what each part took; idle and sweep are all of their time.
    """
    with reach(socket, instance) as ct, suppress(KeyboardInterrupt):
        if switch is not None:
            ct.set_perf(switch == "on")
        while True:
            told = ct.perf() if perf else ct.stats()
            if as_json:
                print_json(told)
            else:
                if watch and sys.stdout.isatty():
                    click.echo(CLEAR, nl=False)
                show(told)
            sys.stdout.flush()
            if not watch:
                return
            time.sleep(interval)


def show(told: Mapping[str, Any]) -> None:
    """Print the answer to ``stats`` as tables: what is one value, and then what is many."""
    show_pairs("service", {name: value for name, value in told.items() if not isinstance(value, dict | list)})
    for name, value in told.items():
        if isinstance(value, dict):
            show_pairs(name, value)
        elif isinstance(value, list) and value:
            show_rows(value, name)
            for one in value:
                show_inside(name, one)


def show_pairs(heading: str, pairs: Mapping[str, Any]) -> None:
    """Print a map as a table of two columns."""
    tables.show((heading, ""), [(name, text(value)) for name, value in pairs.items()])


def show_inside(name: str, one: Mapping[str, Any]) -> None:
    """Print the lists of rows that stand inside a row, as the queues of a port do."""
    for key, value in one.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            show_rows(value, f"{key} of {name} {next(iter(one.values()))}")


def show_rows(rows: Iterable[Mapping[str, Any]], title: str | None = None) -> None:
    """Print maps as the rows of a table; a map inside a row gives columns of its own."""
    flat = [flattened(row) for row in rows]
    headings = list(dict.fromkeys(name for row in flat for name in row))
    tables.show(headings, [[text(row.get(name)) for name in headings] for row in flat], title)


def flattened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a map without those inside it: their entries stand beside the others; lists of maps are left out."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= value
        elif not (isinstance(value, list) and value and isinstance(value[0], dict)):
            found[name] = value
    return found


def text(value: Any) -> str:
    """Return a cell."""
    if isinstance(value, list):
        return " ".join(map(text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {text(one)}" for name, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


@click.command("coverage")
@where
@click.option("--zone", type=ZONE, metavar="Z", help="How often packets of this zone got which reason.")
@as_json
def coverage_command(socket: str | None, instance: str | None, zone: int | None, as_json: bool) -> None:
    """Show every counter by name."""
    with reach(socket, instance) as ct:
        told = ct.coverage(zone)
    if as_json:
        print_json(told)
    else:
        tables.show(("counter", "count"), [(name, str(count)) for name, count in told.items()])


@click.command("workers")
@where
@as_json
def workers_command(socket: str | None, instance: str | None, as_json: bool) -> None:
    """Show the workers: processes and counters."""
    with reach(socket, instance) as ct:
        answer(ct.workers(), as_json)


@click.command("metrics")
@where
@click.option("--json", "as_json", is_flag=True, help="Print JSON: families with their samples.")
def metrics_command(socket: str | None, instance: str | None, as_json: bool) -> None:
    """Print once what Prometheus reads at `metrics.listen`."""
    with reach(socket, instance) as ct:
        if as_json:
            print_json(ct.metrics("plain")["families"])
        else:
            click.echo(ct.metrics()["text"], nl=False)


def answer(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print a list of maps."""
    if as_json:
        print_json(rows)
    else:
        show_rows(rows)
