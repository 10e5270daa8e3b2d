"""``zonetrack fragments``: how fragments are put together, how many wait, and what became of those before."""

from __future__ import annotations

import click

from . import tables
from .options import as_json, print_json, reach, where


@click.group("fragments")
def command() -> None:
    """Show and set how fragments are put together."""


@command.command()
@where
@as_json
def show(socket: str | None, instance: str | None, as_json: bool) -> None:
    """Show settings, how many fragments wait, and counters since the table was made."""
    with reach(socket, instance) as ct:
        told = ct.fragments.get()
    if as_json:
        print_json(told)
        return
    rows = [(name, shown(value)) for name, value in told.items() if name != "counters"]
    rows += [(name, shown(value)) for name, value in told["counters"].items()]
    tables.show(("fragments", ""), rows)


def shown(value: bool | int) -> str:
    """Return a value as people read and write it."""
    return ("off", "on")[value] if isinstance(value, bool) else f"{value}"


def switched(word: str | None) -> bool | None:
    """Return what a switch says; None when nothing."""
    return None if word is None else word == "on"


SWITCH = click.Choice(["on", "off"])


@command.command("set")
@where
@click.option("--v4", type=SWITCH, help="Put fragments of IPv4 together, or refuse them.")
@click.option("--v6", type=SWITCH, help="Likewise of IPv6.")
@click.option(
    "--min-v4", type=int, metavar="BYTES", help="Least IPv4 packet of all but the last fragment (ovs profile)."
)
@click.option("--min-v6", type=int, metavar="BYTES", help="Likewise of IPv6.")
@click.option("--max", "most", type=int, metavar="N", help="Fragments that may wait.")
@as_json
def set_(
    socket: str | None,
    instance: str | None,
    v4: str | None,
    v6: str | None,
    min_v4: int | None,
    min_v6: int | None,
    most: int | None,
    as_json: bool,
) -> None:
    """Change what is named; it holds from the next fragment on."""
    if all(value is None for value in (v4, v6, min_v4, min_v6, most)):
        raise click.UsageError("name --v4, --v6, --min-v4, --min-v6, or --max")
    with reach(socket, instance) as ct:
        ct.fragments.set(v4=switched(v4), v6=switched(v6), min_v4=min_v4, min_v6=min_v6, max=most)
    if as_json:
        print_json({})
