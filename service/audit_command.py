"""``zonetrack audit``: check a table that is there, as far as it can be checked while others work on it."""

from __future__ import annotations

import json
import sys
import time

import click

from ..clients.errors import Exit, NoServiceError
from ..shm import roster, segment
from ..shm.errors import Missing
from ..shm.layout import Kind
from ..shm.views import Table
from . import audit, burial, warmup
from .audit import Broken

AT_REST, LIVE = "at rest", "live"


def is_worked_on(table: Table) -> bool:
    """Return whether any participant of a table is alive."""
    return any(place.alive for place in roster.present(table))


def check(table: Table) -> tuple[str, Broken | None]:
    """Check a table: everything when nobody works on it, else what holds in every state.

    Returns:
        AT_REST or LIVE, and the first invariant that is broken, if one is.
    """
    if not is_worked_on(table):
        broken = audit.at_rest(table)
        if not is_worked_on(table):
            return AT_REST, broken
    me = roster.join(table, Kind.TOOL)
    try:
        return LIVE, audit.live(table, me)
    finally:
        roster.leave(table, me)


@click.command()
@click.option(
    "--instance", default=segment.INSTANCE_DEFAULT, envvar="ZONETRACK_INSTANCE", show_default=True, help="Whose table."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(instance: str, as_json: bool) -> None:
    """Check every invariant of a table, and name the first that is broken.

    What the dead left half done is repaired first.  A table that nobody works on is checked completely, one that somebody
    does as far as it holds still.
    """
    try:
        attached = segment.attach(instance, sealed=True)
    except Missing:
        raise NoServiceError(f"there is no instance {instance}") from None
    with attached:
        warmup.ensure()
        dead = burial.bury_dead(attached.table)
        began = time.perf_counter()
        how, broken = check(attached.table)
        elapsed_s = time.perf_counter() - began
    if as_json:
        report = {
            "instance": instance,
            "checked": how,
            "broken": broken.finding.name.lower() if broken else None,
            "numbers": list(broken.numbers) if broken else [],
            "repaired": dead.interrupted,
            "waiting": dead.left,
            "elapsed_s": round(elapsed_s, 3),
        }
        click.echo(json.dumps(report))
    else:
        for owner, step in dead.interrupted.items():
            click.echo(f"{instance}: place {owner}, killed in step {step}, is repaired", err=True)
        click.echo(f"{instance}, {how}: {f'broken: {broken}' if broken else 'every invariant holds'}")
    if broken:
        sys.exit(Exit.FAILED)
