"""``zonetrack trace``: described packets through the rules of a service, each step shown; nothing becomes of them."""

from __future__ import annotations

from typing import Any

import click

from .options import as_json, print_json, reach, where


@click.command("trace")
@where
@click.argument("packets", metavar="PACKET...", nargs=-1, required=True)
@click.option(
    "--ct-next",
    metavar="STATE",
    multiple=True,
    help="What the next ct is to find, as `trk,new` or `trk,est,rpl`; may be repeated.  Else the packet is tracked.",
)
@as_json
def command(
    socket: str | None, instance: str | None, packets: tuple[str, ...], ct_next: tuple[str, ...], as_json: bool
) -> None:
    """Send described packets through the rules, in thought.

    PACKET has the words of rules: 'in_port=lan,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80', and may carry
    something: 'payload="USER me\\r\\n"'.  Each finds what those before it would have left.
    """
    with reach(socket, instance) as ct:
        told = ct.rules.trace(packets[0], list(ct_next), list(packets[1:]))
    if as_json:
        print_json(told)
        return
    if not told["number"]:
        click.echo("No rules hold: this is what happens then.")
    for number, way in enumerate((told, *told["then"])):
        if number:
            click.echo()
        show(way)


def show(way: dict[str, Any]) -> None:
    """Show the way of a packet."""
    click.echo(f"Packet: {way['packet']}")
    for step in way["steps"]:
        click.echo()
        click.echo(f"{step['table']:2}. {step['rule'] or 'no rule'}")
        for action in step["actions"]:
            click.echo(f"    {action['action']}")
            for said in action["said"]:
                click.echo(f"     -> {said}")
    click.echo()
    why = f", {way['reason']}" if way["reason"] else ""
    click.echo(f"Result: {', '.join(way['outputs']) or 'nowhere'}{why}")
