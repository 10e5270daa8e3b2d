"""``zonetrack trace``: one described packet through the rules of a service, each step shown; nothing becomes of it."""

from __future__ import annotations

import click

from .options import as_json, print_json, reach, where


@click.command("trace")
@where
@click.argument("packet", metavar="PACKET")
@click.option(
    "--ct-next",
    metavar="STATE",
    multiple=True,
    help="What the next ct is to find, as `trk,new` or `trk,est,rpl`; may be repeated.  Else the table is asked.",
)
@as_json
def command(socket: str | None, instance: str | None, packet: str, ct_next: tuple[str, ...], as_json: bool) -> None:
    """Send a described packet through the rules, in thought.

    PACKET has the words of rules: 'in_port=lan,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80'.
    """
    with reach(socket, instance) as ct:
        told = ct.rules.trace(packet, list(ct_next))
    if as_json:
        print_json(told)
        return
    click.echo(f"Packet: {told['packet']}")
    if not told["number"]:
        click.echo("No rules hold: this is what happens then.")
    for step in told["steps"]:
        click.echo()
        click.echo(f"{step['table']:2}. {step['rule'] or 'no rule'}")
        for action in step["actions"]:
            click.echo(f"    {action['action']}")
            for said in action["said"]:
                click.echo(f"     -> {said}")
    click.echo()
    why = f", {told['reason']}" if told["reason"] else ""
    click.echo(f"Result: {', '.join(told['outputs']) or 'nowhere'}{why}")
