"""``zonetrack nat``: how many ports are left of those that connections may get as their source."""

from __future__ import annotations

from typing import Any

import click

from . import tables
from .options import as_json, print_json, reach, where

HEADINGS = ("zone", "address", "proto", "ports", "connections", "used", "free")


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """Return an address as the cells below ``HEADINGS``."""
    return tuple(f"{found[name]:,}" if isinstance(found[name], int) else found[name] for name in HEADINGS)


@click.command("nat")
@where
@as_json
def command(socket: str | None, instance: str | None, as_json: bool) -> None:
    """Show how many ports translations have left, by zone, address and protocol.

    A port that is used may serve another connection to another destination: what is free is so for all of them.
    """
    with reach(socket, instance) as ct:
        found = ct.nat()
    if as_json:
        print_json(found)
    else:
        tables.show(HEADINGS, map(row, found))
