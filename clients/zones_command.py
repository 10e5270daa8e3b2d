"""``zonetrack zones``: what is in each zone, and how its packets are judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from .errors import NothingMatchedError
from .options import ZONE, Checked, as_json, print_json, reach, where
from .stats_commands import answer

WORDS = {"on": True, "off": False, "true": True, "false": False, "yes": True, "no": False}


def setting(text: str) -> tuple[str, Any]:
    """Return name and value of KEY=VALUE, as the wire has it: true, false, a number, a list of numbers, or a word."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"KEY=VALUE, not {text!r}")
    if value.isdecimal():
        return name, int(value)
    if all(word.isdecimal() for word in value.split(",")):
        return name, [int(word) for word in value.split(",")]
    return name, WORDS.get(value.lower(), value)


SETTINGS = Checked("KEY=VALUE", setting)


@click.group("zones", invoke_without_command=True)
@where
@click.option("--zone", type=ZONE, metavar="Z", help="Only this zone.")
@as_json
@click.pass_context
def command(ctx: click.Context, socket: str | None, instance: str | None, zone: int | None, as_json: bool) -> None:
    """Show and set zones; without a command, show those in use: connections, limit, policy, settings."""
    if ctx.invoked_subcommand is None:
        tell(socket, instance, zone, as_json)


def tell(socket: str | None, instance: str | None, zone: int | None, as_json: bool) -> None:
    """Print the zones in use, or one.

    Raises:
        NothingMatchedError: nothing is in that zone.
    """
    with reach(socket, instance) as ct:
        told = ct.zones.get(zone)
    if zone is not None and not is_in_use(told[0]):
        raise NothingMatchedError(f"zone {zone} has no connections, and nothing of its own")
    answer(told if as_json else [row(one) for one in told], as_json)


def is_in_use(zone: Mapping[str, Any]) -> bool:
    """Return whether a zone has connections, or something set that others have not."""
    return bool(zone["count"] or zone["limit_is_own"] or zone["policy"] or zone["settings_are_own"])


def row(zone: Mapping[str, Any]) -> dict[str, Any]:
    """Return a zone as a row for people: what is on of its settings, in one cell."""
    settings = zone["settings"]
    return {
        "zone": zone["zone"],
        "count": zone["count"],
        "limit": "none" if zone["limit"] is None else zone["limit"],
        "policy": zone["policy_name"] or zone["policy"],
        "profile": settings["profile"],
        "on_full": settings["on_full"],
        "max_retrans": settings["max_retrans"],
        "settings": [name for name, value in settings.items() if value is True],
        "half_open": settings.get("half_open"),
        "per_source": settings.get("per_source"),
        "adaptive": settings.get("adaptive"),
        "helpers": [
            f"{name}={port}"
            for name, value in settings.items()
            if type(value) is list and name != "adaptive"
            for port in value
        ],
        "own": zone["settings_are_own"],
    }


@command.command()
@where
@click.argument("zone", type=ZONE, required=False)
@as_json
def show(socket: str | None, instance: str | None, zone: int | None, as_json: bool) -> None:
    """Show the zones in use, or one."""
    tell(socket, instance, zone, as_json)


@command.command("set")
@where
@click.argument("zone", type=ZONE)
@click.argument("settings", metavar="KEY=VALUE...", type=SETTINGS, nargs=-1, required=True)
@as_json
def set_(
    socket: str | None, instance: str | None, zone: int, settings: tuple[tuple[str, Any], ...], as_json: bool
) -> None:
    """Change how packets of a zone are judged; it is set on its own from now on.

    profile=netfilter|ovs (of connections that begin), loose, be_liberal, ignore_invalid_rst, seq_check and checksum=on|off,
    on_full=reject|early_drop, max_retrans=N; half_open=N: so many connections at most that have seen no
    reply, 0: any; per_source=N: so many connections at most that one source address has opened, 0: any;
    adaptive=START,END: between so many connections timeouts get shorter the more there are, 0: they do
    not; and ports of control channels that a helper follows, 0 for none: ftp, tftp, sip, irc,
    pptp=PORT[,PORT...]
    """
    with reach(socket, instance) as ct:
        told = ct.zones.set(zone, **dict(settings))
    if as_json:
        print_json(told)


@command.command()
@where
@click.argument("zone", type=ZONE)
@as_json
def unset(socket: str | None, instance: str | None, zone: int, as_json: bool) -> None:
    """Judge packets of a zone as those of all zones that are not set on their own."""
    with reach(socket, instance) as ct:
        told = ct.zones.unset(zone)
    if as_json:
        print_json(told)
