"""``zonetrack serve``: the flags, the check of a configuration, and the line that says that packets can flow."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import click

from . import log
from .config import Loaded, load, page
from .config_values import SPEC


@click.command()
@click.option(
    "--config", "file", type=click.Path(path_type=Path), help="TOML file, /etc/zonetrack/zonetrack.toml if there."
)
@click.option("--instance", help="Name of the table and of the socket.")
@click.option("--socket", help="Path of the control socket.")
@click.option("--workers", type=int, metavar="N", help="Processes that track packets.")
@click.option("--max-connections", type=int, metavar="N", help="Size of the table, where a new one is made.")
@click.option("--port", "ports", metavar="SPEC", multiple=True, help=f"{SPEC}; may be repeated.")
@click.option(
    "--restore", metavar="FILE", help="Saved table with which a new one begins; one that was kept stays as it is."
)
@click.option("--fresh", is_flag=True, help="Discard the table that the last service left.")
@click.option("--log-level", help="Least important lines: debug, info, warning, error.")
@click.option("--log-json", is_flag=True, help="The log as JSON, one object a line.")
@click.option("--check-config", is_flag=True, help="Show every key, its value and its source, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the line that says ready, or the configuration.")
def command(
    file: Path | None,
    instance: str | None,
    socket: str | None,
    workers: int | None,
    max_connections: int | None,
    ports: tuple[str, ...],
    restore: str | None,
    fresh: bool,
    log_level: str | None,
    log_json: bool,
    check_config: bool,
    as_json: bool,
) -> None:
    """Run the service in the foreground: workers that track what comes through ports, and the control socket.

    SIGTERM empties the queues and stops; the table is kept for the next start.  SIGHUP reads the configuration again.
    """
    flags: dict[str, Any] = {
        "instance": instance,
        "socket": socket,
        "workers": workers,
        "max_connections": max_connections,
        "ports": ports,
        "restore": restore,
        "fresh": fresh or None,
        "log_level": log_level,
        "log_json": log_json or None,
    }

    def read() -> Loaded:
        return load(flags, file=file)

    loaded = read()
    if check_config:
        show(loaded, as_json)
        return
    log.configure(level=loaded.config.log_level, as_json=loaded.config.log_json)
    from . import keeper, orders  # with all kernels: not for a check

    if keeper.Keeper(loaded, read, lambda about: announce(about, as_json)).run():
        again = orders.command()
        os.execv(again[0], again)


def show(loaded: Loaded, as_json: bool) -> None:
    """Print a configuration."""
    rows = page(loaded)
    if as_json:
        click.echo(json.dumps({"file": None if loaded.file is None else str(loaded.file), "keys": rows}))
        return
    for path, row in rows.items():
        click.echo(f"{path} = {json.dumps(row['value'])}  # {row['source']}")


def announce(about: dict[str, Any], as_json: bool) -> None:
    """Print that packets can flow: ``ready``, and what a script needs to go on, as ``key=value``."""
    if as_json:
        line = json.dumps({"ready": True} | about)
    else:
        ports = ",".join(f"{name}:{queues}" for name, queues in about["ports"].items()) or "none"
        line = " ".join(["ready", *(f"{key}={value}" for key, value in (about | {"ports": ports}).items())])
    with contextlib.suppress(BrokenPipeError):  # nobody reads it, and the service runs all the same
        click.echo(line)
