"""``zonetrack rules``: which rules packets meet.

``check`` looks at a file by itself, without a service; its room is named as text, so that the others stay quick.
"""

from __future__ import annotations

from importlib import import_module

import click

from .options import as_json, print_json

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
