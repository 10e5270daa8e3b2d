"""Tables on the terminal: drawn by rich for a person, as wide as the terminal; plain columns for a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

GAP = 2
"""Between two columns."""
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
    from rich.table import Table

    console = Console()
    columns = [[heading, *(row[place] for row in cells)] for place, heading in enumerate(headings)]
    table = Table(title=title and escape(title), title_justify="left", header_style="bold", box=None, pad_edge=False)
    for heading, width in zip(headings, fitted(columns, console.width), strict=True):
        table.add_column(escape(heading), width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    console.print(table)


def fitted(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return widths of columns with which a table fits: what has spaces gives way first, then the widest.

    Args:
        columns: the cells of each, headings too.
        width: of the terminal.
    """
    widths = [max(map(len, column)) for column in columns]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    over = sum(widths) + GAP * (len(widths) - 1) - width
    for least in (words, [1] * len(widths)):
        while over > 0:
            place = max(range(len(widths)), key=lambda i: widths[i] if widths[i] > least[i] else 0)
            if widths[place] <= least[place]:
                break
            widths[place] -= 1
            over -= 1
    return widths


def _write(headings: Sequence[str], cells: list[tuple[str, ...]], title: str | None) -> None:
    lines = [tuple(headings), *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if title is not None:
        sys.stdout.write(f"{title}\n")
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write(f"{text.rstrip()}\n")
