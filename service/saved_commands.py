"""``zonetrack save`` and ``restore``: a table to a file, and back, across a reboot."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import click

from ..clients.errors import NoServiceError
from ..shm import segment
from ..shm.errors import Missing
from . import saved

_INSTANCE = click.option(
    "--instance", default=segment.INSTANCE_DEFAULT, envvar="ZONETRACK_INSTANCE", show_default=True, help="Whose table."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command("save")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_INSTANCE
@_JSON
def save_command(file: Path, instance: str, as_json: bool) -> None:
    """Save a table, while its service runs or after: connections, translations, marks, labels, what helpers have foretold,
    limits, timeouts, zones; not fragments.

    What is said of each connection is of one moment; whoever lives all the while is in the file.  Lifetimes are saved as
    what is left of them.
    """
    try:
        with _progress() as progress:
            told = saved.save(instance, file, progress)
    except Missing:
        raise NoServiceError(f"there is no instance {instance}") from None
    if as_json:
        click.echo(json.dumps(told | {"file": str(file)}))
    else:
        click.echo(f"{told['connections']} connections, {told['bytes']} bytes")


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_INSTANCE
@click.option("--replace", is_flag=True, help="Discard the table that is there, which nobody uses.")
@_JSON
def restore_command(file: Path, instance: str, replace: bool, as_json: bool) -> None:
    """Put what a file says into the table of a service that runs, or make a table of it for the next start.

    A service that runs keeps what it has: connections whose addresses are taken stay out, and limits, timeouts and zones
    stay as they are.  A file of an older version is read by the names of its fields.  One that is cut or was altered is
    refused, and nothing is changed.
    """
    with _progress() as progress:
        told = saved.restore(instance, file, replace, progress)
    if as_json:
        click.echo(json.dumps(told))
        return
    when = datetime.fromtimestamp(told["saved_s"]).astimezone().isoformat(" ", "seconds")
    others = {"there already": told["there"], "without room": told["no_room"], "expired": told["expired"]}
    others["damaged"] = told["damaged"]
    more = "".join(f", {count} {what}" for what, count in others.items() if count)
    click.echo(f"{told['connections']} connections{more}, saved {when}")


@contextlib.contextmanager
def _progress() -> Iterator[saved.Progress]:
    """Yield what shows a person how far it is."""
    if not sys.stderr.isatty():
        yield saved.quietly
        return
    yield lambda done, of: click.echo(f"\r\x1b[K{done:,} of {of:,}", err=True, nl=False)
    click.echo("\r\x1b[K", err=True, nl=False)
