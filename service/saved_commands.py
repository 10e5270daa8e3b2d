"""``zonetrack save`` and ``restore``: a table to a file, and back, across a reboot."""

from __future__ import annotations

import json
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
    """Save the table that a service has left: connections, translations, limits, timeouts, zones; not fragments.

    The service must have stopped.  Lifetimes are saved as what is left of them.
    """
    try:
        told = saved.save(instance, file)
    except Missing:
        raise NoServiceError(f"there is no instance {instance}") from None
    if as_json:
        click.echo(json.dumps(told | {"file": str(file)}))
    else:
        click.echo(f"{told['connections']} connections, {told['bytes']} bytes")


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_INSTANCE
@click.option("--replace", is_flag=True, help="Discard the table that is there.")
@_JSON
def restore_command(file: Path, instance: str, replace: bool, as_json: bool) -> None:
    """Make a table from a file that was saved; the next start of the service goes on with it.

    A file that is cut, was altered, or that another version has written is refused, and nothing is changed.
    """
    told = saved.restore(instance, file, replace)
    if as_json:
        click.echo(json.dumps(told))
    else:
        when = datetime.fromtimestamp(told["saved_s"]).astimezone().isoformat(" ", "seconds")
        click.echo(f"{told['connections']} connections, saved {when}")
