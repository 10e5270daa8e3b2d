"""``zonetrack explain``: why packets got their verdicts, those of a capture, or the latest that a service has sampled."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from .errors import NothingMatchedError
from .options import ZONE, reach, where

RECENT_MAX = 20


@click.command("explain")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@where
@click.option(
    "--packet", type=click.IntRange(1), metavar="N", help="Only this packet of each file, whatever became of it."
)
@click.option("--recent", is_flag=True, help="Ask a service for the latest packets that got a reason.")
@click.option("--limit", type=click.IntRange(1, 1024), default=RECENT_MAX, metavar="N", help="With --recent: at most.")
@click.option("--zone", type=ZONE, metavar="Z", help="Zone of all packets; with --recent, only this zone.")
@click.option("--profile", type=click.Choice(["netfilter", "ovs"]), default="netfilter", help="Whose rules decide.")
@click.option(
    "--checksum", type=click.Choice(["verify", "ignore"]), default="verify", help="What to do about checksums."
)
@click.option("--liberal", is_flag=True, help="Outside of the TCP window, only resets are invalid.")
@click.option("--no-seq-check", is_flag=True, help="Do not look at TCP windows at all.")
@click.option("--helper", metavar="NAME=PORT", multiple=True, help="Follow the control channel of a protocol.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one packet per line.")
def command(
    files: tuple[str, ...],
    socket: str | None,
    instance: str | None,
    packet: int | None,
    recent: bool,
    limit: int,
    zone: int | None,
    profile: str,
    checksum: str,
    liberal: bool,
    no_seq_check: bool,
    helper: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say of packets that got a reason what arrived, what was expected, which rule decided, and what would accept them.

    Of captures: they are tracked as `replay` does, and packets that are invalid, let by or not committed are explained.
    """
    if bool(files) == recent or (recent and packet is not None):
        raise click.UsageError("name files, and perhaps a --packet of them, or --recent")
    if recent:
        with reach(socket, instance) as ct:
            told = ct.explain(limit=limit, zone=zone)
        show(told, as_json)
        return
    from ..service import explaining, warmup

    options = explaining.Options(
        zone=zone or 0,
        profile=profile,
        verify=checksum == "verify",
        liberal=liberal,
        seq_check=not no_seq_check,
        helpers=tuple(map(explaining.named_port, helper)),
        verdicts=True,
    )
    warmup.ensure()
    if not show(explaining.explained(files, options, packet), as_json) and packet is not None:
        raise NothingMatchedError(f"there is no packet {packet}")


def show(told: Iterable[Mapping[str, Any]], as_json: bool) -> int:
    """Print explanations; return how many there were."""
    count = 0
    for one in told:
        count += 1
        if as_json:
            sys.stdout.write(json.dumps(one) + "\n")
        else:
            sys.stdout.write("\n".join(lines(one)) + "\n")
    return count


def lines(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield an explanation as people read it: what became of it and why, then what it was, the rule, and what would help."""
    yield f"{title(one)}: {verdict(one)}"
    yield f"    {one['arrived']}; zone {one['zone']}{connection(one)}"
    if one["rule"]:
        yield f"    rule: {one['rule']}"
    if one["accepted_with"]:
        yield f"    accepted with {' or '.join(one['accepted_with'])}"
    elif one["fate"] == "invalid":
        yield "    no setting accepts it"


def title(one: Mapping[str, Any]) -> str:
    """Return which packet it is."""
    if "n" in one:
        return f"packet {one['n']}"
    return f"{time.strftime('%H:%M:%S', time.localtime(one['time']))} {one['by']}"


def verdict(one: Mapping[str, Any]) -> str:
    """Return what became of it, and why."""
    if one["reason"]:
        return f"{one['fate']}, {one['reason']}: {one['expected']}"
    names = "|".join(name for name in one["ct_state"] if name != "trk")
    return f"{one['fate']}{', ' if names else ''}{names}{' ' + one['direction'] if one['direction'] else ''}"


def connection(one: Mapping[str, Any]) -> str:
    """Return what is told of its connection."""
    if one["id"] is None:
        return ", no connection"
    state = f", {one['state']}" if one["state"] else ""
    return f"{state}, {one['timeout']} s to live"
