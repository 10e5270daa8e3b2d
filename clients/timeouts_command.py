"""``zonetrack timeouts``: how long connections may be silent, by policy, and which policy the connections of a zone get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from . import tables
from .options import ZONE, Checked, as_json, print_json, reach, where


def setting(text: str) -> tuple[str, float | None]:
    """Return name and seconds of KEY=SECONDS; None for ``default``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"KEY=SECONDS, not {text!r}")
    if value == "default":
        return name, None
    try:
        seconds = float(value)
    except ValueError:
        raise ValueError(f"{name}: seconds, or default, not {value!r}") from None
    return name, seconds


def policy_of(text: str) -> int | str:
    """Return a policy: its number, or its name."""
    return int(text) if text.isdecimal() else text


def _length(timeouts: Mapping[str, float], name: str) -> str:
    return f"{timeouts[name]:g}" if name in timeouts else "-"


POLICY = Checked("policy", policy_of)


@click.group("timeouts")
def command() -> None:
    """Show and set timeouts."""


@command.command()
@where
@click.option("--policy", type=POLICY, metavar="P", help="Only this policy, by number or name.")
@as_json
def show(socket: str | None, instance: str | None, policy: int | str | None, as_json: bool) -> None:
    """Show the timeouts of policies, in seconds, and the zones that have another policy than 0."""
    with reach(socket, instance) as ct:
        told = ct.timeouts.get(policy)
    if as_json:
        print_json(told)
        return
    policies = told["policies"]
    names = dict.fromkeys(name for one in policies for name in one["timeouts"])
    rows = [(name, *(_length(one["timeouts"], name) for one in policies)) for name in names]
    tables.show(("timeout", *(f"policy {called(one)} {one['profile']}" for one in policies)), rows)
    if told["zones"]:
        tables.show(("zone", "policy"), [(str(one["zone"]), called(one)) for one in told["zones"]])


def called(policy: Mapping[str, Any]) -> str:
    """Return how people call a policy: by its name, else by its number."""
    return policy["name"] if policy["policy"] and policy["name"] else str(policy["policy"])


@command.command("set")
@where
@click.argument("policy", type=POLICY)
@click.argument("settings", metavar="KEY=SECONDS...", type=Checked("KEY=SECONDS", setting), nargs=-1, required=True)
@as_json
def set_(
    socket: str | None,
    instance: str | None,
    policy: int | str,
    settings: tuple[tuple[str, float | None], ...],
    as_json: bool,
) -> None:
    """Set timeouts of a policy, known by a number or a name; a connection has them from its next packet on.

    A name that is not known yet makes a policy.  SECONDS may be `default`, which takes a setting away.
    """
    with reach(socket, instance) as ct:
        ct.timeouts.set(policy, dict(settings))
    if as_json:
        print_json({})


@command.command()
@where
@click.argument("policy", type=POLICY)
@as_json
def unset(socket: str | None, instance: str | None, policy: int | str, as_json: bool) -> None:
    """Take a policy back: its timeouts are the defaults, its zones have policy 0, its name is free."""
    with reach(socket, instance) as ct:
        ct.timeouts.unset(policy)
    if as_json:
        print_json({})


@command.command()
@where
@click.argument("zone", type=ZONE)
@click.argument("policy", type=POLICY)
@as_json
def zone(socket: str | None, instance: str | None, zone: int, policy: int | str, as_json: bool) -> None:
    """Give the new connections of a zone a policy."""
    with reach(socket, instance) as ct:
        ct.timeouts.set_zone(zone, policy)
    if as_json:
        print_json({})
