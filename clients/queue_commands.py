"""``zonetrack ports`` and ``rebalance``: ports with their queues, which worker polls which, and how that is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from .errors import TookTooLongError
from .options import Checked, as_json, print_json, reach, where
from .stats_commands import answer, show_inside, show_rows


def queue(text: str) -> tuple[str, int]:
    """Return port and index of PORT.QUEUE."""
    port, _, index = text.rpartition(".")
    if not port or not index.isdecimal():
        raise ValueError(f"PORT.QUEUE, such as lan.0, not {text!r}")
    return port, int(index)


QUEUE = Checked("PORT.QUEUE", queue)


@click.group("ports", invoke_without_command=True)
@where
@as_json
@click.pass_context
def ports_command(ctx: click.Context, socket: str | None, instance: str | None, as_json: bool) -> None:
    """Show the ports and what their queues count; its commands say who polls them."""
    if ctx.invoked_subcommand is not None:
        return
    with reach(socket, instance) as ct:
        told = ct.ports()
    answer(told, as_json)
    if not as_json:
        for one in told:
            show_inside("port", one)


@ports_command.command("queues")
@where
@as_json
def queues_command(socket: str | None, instance: str | None, as_json: bool) -> None:
    """Show which worker polls which queue, and how much of its time that took in the last minute."""
    with reach(socket, instance) as ct:
        told = ct.queues()
    if as_json:
        print_json(told)
        return
    show_rows(told["queues"])
    show_rows(told["workers"], f"workers, over {told['seconds']:.1f} s")


@ports_command.command("assign")
@where
@click.argument("queue", type=QUEUE)
@click.argument("worker", type=click.IntRange(0))
@as_json
def assign_command(
    socket: str | None, instance: str | None, queue: tuple[str, int], worker: int, as_json: bool
) -> None:
    """Have a worker poll a queue from now on; nothing is lost, and nothing of a flow is overtaken."""
    port, index = queue
    with reach(socket, instance) as ct:
        told = ct.queues.assign(port, index, worker)
    settle(told, as_json, f"worker {worker} polls queue {index} of port {port}")


@click.command("rebalance")
@where
@click.option("--dry-run", is_flag=True, help="Say what would be done, and what it would be good for.")
@as_json
def rebalance_command(socket: str | None, instance: str | None, dry_run: bool, as_json: bool) -> None:
    """Deal queues out to workers anew, by what each took of their time in the last minute."""
    with reach(socket, instance) as ct:
        told = ct.queues.rebalance(dry_run)
    if not as_json:
        for one in told["moves"]:
            click.echo(f"queue {one['queue']} of port {one['port']}: worker {one['from']} -> {one['to']}")
    settle(told, as_json, f"improvement of the variance: {told['improvement_percent']:g} %")


def settle(told: Mapping[str, Any], as_json: bool, says: str) -> None:
    """Print what became of an assignment.

    Raises:
        TookTooLongError: whoever had a queue has not given it up yet.
    """
    if as_json:
        print_json(told)
    else:
        click.echo(says)
    if told["settled"] is False:
        raise TookTooLongError("a worker has not given its queue up yet; `zonetrack ports queues` shows when it has")
