"""``zonetrack timeouts``: how long connections may be silent, by policy, and which policy the connections of a zone get."""

from __future__ import annotations

import click

from . import tables
from .options import ZONE, Checked, as_json, print_json, reach, where

ALIASES = {
    "udp_first": "udp",
    "udp_single": "udp",
    "udp_multiple": "udp_stream",
    "icmp_first": "icmp",
    "icmp_reply": "icmp",
    "tcp_retransmit": "tcp_max_retrans",
    "tcp_unack": "tcp_unacknowledged",
}
"""Open vSwitch's names where they are others than Linux's (lib/netlink-conntrack.c has them so for the kernel)."""
POLICY_MAX = 63


def name_of(text: str) -> str:
    """Return the name of a timeout: ours, Open vSwitch's, or that of Linux's sysctl."""
    name = text.lower().removeprefix("nf_conntrack_").replace("_timeout", "")
    return ALIASES.get(name, name)


def setting(text: str) -> tuple[str, float | None]:
    """Return name and seconds of KEY=SECONDS; None for ``default``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"KEY=SECONDS, not {text!r}")
    if value == "default":
        return name_of(name), None
    try:
        seconds = float(value)
    except ValueError:
        raise ValueError(f"{name}: seconds, or default, not {value!r}") from None
    return name_of(name), seconds


POLICY = click.IntRange(0, POLICY_MAX)


@click.group("timeouts")
def command() -> None:
    """Show and set timeouts."""


@command.command()
@where
@click.option("--policy", type=POLICY, metavar="N", help="Only this policy.")
@as_json
def show(socket: str | None, instance: str | None, policy: int | None, as_json: bool) -> None:
    """Show the timeouts of policies, in seconds, and the zones that have another policy than 0."""
    with reach(socket, instance) as ct:
        told = ct.timeouts.get(policy)
    if as_json:
        print_json(told)
        return
    policies = told["policies"]
    names = list(policies[0]["timeouts"])
    rows = [(name, *(f"{one['timeouts'][name]:g}" for one in policies)) for name in names]
    tables.show(("timeout", *(f"policy {one['policy']}" for one in policies)), rows)
    if told["zones"]:
        tables.show(("zone", "policy"), [(str(one["zone"]), str(one["policy"])) for one in told["zones"]])


@command.command("set")
@where
@click.argument("policy", type=POLICY)
@click.argument("settings", metavar="KEY=SECONDS...", type=Checked("KEY=SECONDS", setting), nargs=-1, required=True)
@as_json
def set_(
    socket: str | None,
    instance: str | None,
    policy: int,
    settings: tuple[tuple[str, float | None], ...],
    as_json: bool,
) -> None:
    """Set timeouts of a policy; a connection has them from its next packet on.  `default` takes a setting away."""
    with reach(socket, instance) as ct:
        ct.timeouts.set(policy, dict(settings))
    if as_json:
        print_json({})


@command.command()
@where
@click.argument("zone", type=ZONE)
@click.argument("policy", type=POLICY)
@as_json
def zone(socket: str | None, instance: str | None, zone: int, policy: int, as_json: bool) -> None:
    """Give the new connections of a zone a policy."""
    with reach(socket, instance) as ct:
        ct.timeouts.set_zone(zone, policy)
    if as_json:
        print_json({})
