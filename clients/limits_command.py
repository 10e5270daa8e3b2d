"""``zonetrack limits``: how many connections there may be, in all and by zone, beside how many there are."""

from __future__ import annotations

import click

from . import tables
from .options import LIMIT, NONE, ZONE, as_json, print_json, reach, where


@click.group("limits")
def command() -> None:
    """Show and set limits of connections."""


@command.command()
@where
@click.option("--zone", type=ZONE, metavar="Z", help="Only this zone.")
@as_json
def show(socket: str | None, instance: str | None, zone: int | None, as_json: bool) -> None:
    """Show limits beside counts: the table's, the default of zones, and zones with a limit of their own."""
    with reach(socket, instance) as ct:
        told = ct.limits.get(zone)
    if as_json:
        print_json(told)
        return
    rows = [("global", shown(told["global"]["limit"]), str(told["global"]["count"]))]
    rows.append(("default", shown(told["default"]), ""))
    for one in told["zones"]:
        rows.append((f"zone {one['zone']}", shown(one["limit"]), str(one["count"])))
    tables.show(("of", "limit", "count"), rows)


def shown(limit: int | None) -> str:
    """Return a limit as people read and write it."""
    return NONE if limit is None else str(limit)


def wired(limit: int | str) -> int | None:
    """Return a limit as the wire has it."""
    return None if isinstance(limit, str) else limit


@command.command("set")
@where
@click.option("--global", "total", type=LIMIT, metavar="N", help="Of the whole table.")
@click.option("--default", type=LIMIT, metavar="N", help="Of each zone without its own.")
@click.option("--zone", "zones", type=(ZONE, LIMIT), metavar="Z N", multiple=True, help="Of a zone; may be repeated.")
@as_json
def set_(
    socket: str | None,
    instance: str | None,
    total: int | str | None,
    default: int | str | None,
    zones: tuple[tuple[int, int | str], ...],
    as_json: bool,
) -> None:
    """Set limits; 0 refuses every new connection, `none` is no limit."""
    of_all = {name: wired(value) for name, value in (("total", total), ("default", default)) if value is not None}
    if not of_all and not zones:
        raise click.UsageError("name --global, --default, or --zone")
    with reach(socket, instance) as ct:
        if of_all:
            ct.limits.set(**of_all)
        for zone, limit in zones:
            ct.limits.set(zone=zone, limit=wired(limit))
    if as_json:
        print_json({})


@command.command()
@where
@click.option("--default", is_flag=True, help="That of zones without their own.")
@click.option("--zone", "zones", type=ZONE, metavar="Z", multiple=True, help="That of a zone; may be repeated.")
@as_json
def unset(socket: str | None, instance: str | None, default: bool, zones: tuple[int, ...], as_json: bool) -> None:
    """Take limits away: a zone follows the default again, the default is none."""
    if not default and not zones:
        raise click.UsageError("name --default, or --zone")
    with reach(socket, instance) as ct:
        if default:
            ct.limits.unset(default=True)
        for zone in zones:
            ct.limits.unset(zone=zone)
    if as_json:
        print_json({})
