"""``zonetrack rules``: which rules packets meet.

``check`` looks at a file by itself, without a service; its room is named as text, so that the others stay quick.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

import click

from .errors import BadParameterError, ZonetrackError
from .options import as_json, print_json, reach, where

CHECK = "zonetrack.service.rules_check"
FILE = click.Path(dir_okay=False)


@click.group("rules")
def command() -> None:
    """Show, load and check the rules that packets meet."""


@command.command()
@click.argument("file", type=FILE)
@as_json
def check(file: str, as_json: bool) -> None:
    """Check the rules of FILE: text as ovs-ofctl has it, or .toml, or .json."""
    told = import_module(CHECK).check_file(file)
    if as_json:
        print_json(told)
    else:
        click.echo(f"{told['rules']} rules in {told['tables']} tables, {told['bytes']:,} bytes compiled")


@command.command()
@where
@click.option("--table", type=int, metavar="N", help="Only the rules of this table.")
@as_json
def show(socket: str | None, instance: str | None, table: int | None, as_json: bool) -> None:
    """Show the rules that hold, with the packets and bytes that have met them; the text can be loaded again."""
    with reach(socket, instance) as ct:
        told = ct.rules.get()
    told["rules"] = [rule for rule in told["rules"] if table in (None, rule["table"])]
    if as_json:
        print_json(told)
        return
    for rule in told["rules"]:
        click.echo(rule["text"])
    if not told["number"]:
        click.echo("no rules: each packet is tracked and committed in the zone of its port, and answered", err=True)


@command.command()
@where
@click.argument("file", type=FILE)
@as_json
def load(socket: str | None, instance: str | None, file: str, as_json: bool) -> None:
    """Let the rules of FILE hold from now on: all of them or, where anything is wrong, none."""
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ZonetrackError(f"{file}: cannot be read: {error}") from error
    suffix = PurePath(file).suffix.lower().removeprefix(".")
    with reach(socket, instance) as ct:
        try:
            told = ct.rules.load(text, suffix if suffix in ("toml", "json") else "text")
        except BadParameterError as error:  # of the file, not of the command line
            raise ZonetrackError(str(error)) from error
    _tell(told, as_json, f"generation {told['number']}: {told['rules']} rules")


@command.command()
@where
@as_json
def clear(socket: str | None, instance: str | None, as_json: bool) -> None:
    """Let no rules hold: each packet is tracked and committed in the zone of its port, and answered."""
    with reach(socket, instance) as ct:
        told = ct.rules.clear()
    _tell(told, as_json, "no rules")


def _tell(told: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        print_json(told)
        return
    click.echo(text)
    if not told["followed"]:
        click.echo("a worker still goes by the rules before", err=True)
