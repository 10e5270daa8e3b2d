"""Tables on the terminal: drawn by rich for a person, plain columns for a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

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
    from rich.table import Table

    table = Table(*headings, title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for row in cells:
        table.add_row(*row)
    Console().print(table, markup=False)


def _write(headings: Sequence[str], cells: list[tuple[str, ...]], title: str | None) -> None:
    lines = [tuple(headings), *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if title is not None:
        sys.stdout.write(f"{title}\n")
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write(f"{text.rstrip()}\n")
