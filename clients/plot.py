"""A trial as a picture: throughput, occupancy, cleaning and latency over time, one above the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from .errors import ZonetrackError
from .series import Row

ENDINGS = (".png", ".svg", ".pdf")
PANELS: tuple[tuple[str, Callable[[Row], float | None]], ...] = (
    ("packets/s", lambda row: row.packets_per_second),
    ("connections", lambda row: row.connections),
    ("freed/s", lambda row: row.freed_per_second),
    ("ns/packet", lambda row: row.packet_ns),
)
"""What is drawn: the axis, and its values."""


def ready(path: str) -> None:
    """See whether a plot can be drawn and written, before anything is measured for it.

    Raises:
        click.UsageError: the file's name says no format that is known.
        ZonetrackError: matplotlib is not there, or the directory is not.
    """
    if Path(path).suffix not in ENDINGS:
        raise click.UsageError(f"--plot: {path} must end in {', '.join(ENDINGS)}")
    if not Path(path).absolute().parent.is_dir():
        raise ZonetrackError(f"--plot: there is no directory {Path(path).absolute().parent}")
    _figure_class()


def _figure_class() -> Any:
    """Return matplotlib's Figure, without the part of it that wants a screen.

    Raises:
        ZonetrackError: it is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ZonetrackError("--plot needs matplotlib: pip install 'zonetrack[plot]'") from error
    return Figure


def draw(path: str, title: str, trials: Sequence[Sequence[Row]]) -> None:
    """Draw the trials of a scenario over one another, and write the picture.

    Args:
        path: of the file; its ending says the format.
        title: above it.
        trials: rows of each.

    Raises:
        ZonetrackError: the file cannot be written.
    """
    figure = _figure_class()(figsize=(9, 9), layout="constrained")
    panels = figure.subplots(len(PANELS), 1, sharex=True)
    for panel, (label, value) in zip(panels, PANELS, strict=True):
        for i, rows in enumerate(trials):
            values = [float("nan") if (y := value(row)) is None else y for row in rows]
            panel.plot([row.seconds for row in rows], values, linewidth=1, label=f"trial {i + 1}")
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    panels[-1].set_xlabel("seconds")
    panels[0].set_title(title)
    if len(trials) > 1:
        panels[0].legend(fontsize="small")
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ZonetrackError(f"{path}: {error.strerror or error}") from error
