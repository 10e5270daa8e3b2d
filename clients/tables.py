"""Tables on the terminal: drawn by rich for a person, plain columns for a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

WIDTH_MAX = 10_000
DRAWN_ROWS_MAX = 2_000
"""Longer tables are written as plain columns even for a person: rich lays out every cell, a million take minutes."""


def show(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Write a table to standard output.

    Args:
        headings: of its columns.
        rows: cells, as many in each as there are headings.
        title: stands above it.
    """
    cells = [tuple(row) for row in rows]
    if sys.stdout.isatty() and len(cells) <= DRAWN_ROWS_MAX:
        _draw(headings, cells, title)
    else:
        _write(headings, cells, title)


def _draw(headings: Sequence[str], cells: list[tuple[str, ...]], title: str | None) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Table

    table = Table(
        *map(escape, headings),
        title=title and escape(title),
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for row in cells:
        table.add_row(*map(escape, row))
    console = Console()
    # As wide as its cells: half an address is none.  The terminal may break a line, but nothing is left out.
    any_width = console.options.update(width=WIDTH_MAX)
    console.width = max(console.width, Measurement.get(console, any_width, table).maximum)
    console.print(table, crop=False)


def _write(headings: Sequence[str], cells: list[tuple[str, ...]], title: str | None) -> None:
    lines = [tuple(headings), *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if title is not None:
        sys.stdout.write(f"{title}\n")
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write(f"{text.rstrip()}\n")
