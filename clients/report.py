"""What a load test shows: progress while it runs, the median of its trials, and two results side by side."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from .errors import ZonetrackError

Figures = dict[str, float]


def _rounded(value: float) -> float:
    """Return a figure without the digits that mean nothing."""
    return value if isinstance(value, int) else round(value, 6 if value < 1 else 3)


def summary(trials: list[Figures]) -> tuple[Figures, dict[str, list[float]]]:
    """Return the median of each figure over some trials, and its lowest and highest value."""
    medians, spread = {}, {}
    for name in trials[0]:
        values = [trial[name] for trial in trials]
        counted = all(isinstance(value, int) for value in values)
        medians[name] = _rounded(statistics.median_low(values) if counted else statistics.median(values))
        spread[name] = [_rounded(min(values)), _rounded(max(values))]
    return medians, spread


def read(path: str) -> dict[str, Any]:
    """Return the result in a file, as ``load --json`` printed it."""
    try:
        with open(path) as file:
            result = json.load(file)
    except (OSError, ValueError) as error:
        raise ZonetrackError(f"{path}: not a result of load --json: {error}") from error
    if not isinstance(result, dict) or "scenario" not in result:
        raise ZonetrackError(f"{path}: not a result of load --json: it names no scenario")
    return result


def compare(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the figures that two results share: both, and the second by the first.

    Raises:
        ZonetrackError: they are of different scenarios.
    """
    if before["scenario"] != after["scenario"]:
        raise ZonetrackError(f"a result of {before['scenario']} says nothing about one of {after['scenario']}")
    rows = {}
    for name, old in before.items():
        new = after.get(name)
        if isinstance(old, (int, float)) and isinstance(new, (int, float)):
            rows[name] = {"before": old, "after": new} | ({"ratio": _rounded(new / old)} if old else {})
    return rows


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def show(name: str, parameters: dict[str, Any], figures: Figures, spread: dict[str, list[float]]) -> None:
    """Print figures as a table, with their spread where there were several trials."""
    from rich.console import Console
    from rich.table import Table

    given = "  ".join(f"{key} {value}" for key, value in parameters.items() if value is not None)
    click.echo(f"{name}: {given}")
    table = Table("figure")
    table.add_column("median", justify="right")
    spread = {key: extremes for key, extremes in spread.items() if extremes[0] != extremes[1]}
    if spread:
        table.add_column("lowest", justify="right")
        table.add_column("highest", justify="right")
    for key, value in figures.items():
        table.add_row(key, _text(value), *map(_text, spread.get(key, ())))
    Console().print(table)


def show_comparison(before: str, after: str, rows: dict[str, dict[str, float]]) -> None:
    """Print a comparison as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("figure")
    for heading in (before, after, "ratio"):
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(_text(row.get(key)) for key in ("before", "after", "ratio")))
    Console().print(table)


@contextmanager
def progress(what: str, packets_count: int, *, wanted: bool) -> Iterator[Callable[[int], object]]:
    """Show how far a trial is, and at which rate, on stderr, if a person is looking.

    Yields:
        What shall be told, every now and then, how many packets were sent.
    """
    if not wanted:
        yield lambda packets: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Packets a second, of late."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:,.0f} packets/s")

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), Rate(), TimeElapsedColumn())
    # No thread that refreshes it: workers are forked meanwhile, and a lock that it holds would stay locked in them.
    with Progress(
        *columns, console=console, auto_refresh=False, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task(what, total=packets_count)

        def tick(packets: int) -> None:
            bar.update(task, completed=min(packets, packets_count), refresh=True)

        yield tick
