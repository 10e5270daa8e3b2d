"""``zonetrack expectations``: the connections that helpers have foretold, and nobody has made yet."""

from __future__ import annotations

from typing import Any

import click

from . import tables
from .connections import endpoint
from .formats import EXPECTATION_LINES
from .options import ZONE, as_json, print_json, reach, where

HEADINGS = ("proto", "zone", "source", "destination", "helper", "class", "parent", "timeout")


def row(expectation: dict[str, Any]) -> tuple[str, ...]:
    """Return an expectation as the cells below ``HEADINGS``."""
    parent = expectation["parent"]
    ends = (endpoint(parent[end], parent.get(port)) for end, port in (("src", "sport"), ("dst", "dport")))
    return (
        expectation["proto"] if expectation["proto"] != "unknown" else str(expectation["proto_num"]),
        str(expectation["zone"]),
        endpoint(expectation["src"] or "any", expectation["sport"] or None),
        endpoint(expectation["dst"], expectation["dport"]),
        expectation["helper"],
        expectation["class"],
        " > ".join(ends),
        "none" if expectation["timeout"] is None else str(expectation["timeout"]),
    )


@click.command("expectations")
@where
@click.option("--zone", type=ZONE, metavar="Z", help="Only this zone.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("table", *EXPECTATION_LINES)),
    default="table",
    show_default=True,
    help="How to print.",
)
@as_json
def command(socket: str | None, instance: str | None, zone: int | None, form: str, as_json: bool) -> None:
    """List what helpers have foretold: as a table, or as conntrack -L expect or dpctl/dump-conntrack-exp print it."""
    with reach(socket, instance) as ct:
        found = ct.expectations(zone)
    if as_json:
        print_json(found)
    elif form == "table":
        tables.show(HEADINGS, map(row, found))
    else:
        for expectation in found:
            click.echo(EXPECTATION_LINES[form](expectation))
