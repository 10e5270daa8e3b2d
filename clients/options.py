"""What the commands that ask a service have in common: where it is, which connections are meant, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from . import filters
from .nearest import hint
from .sync import Client, connect

Command = Callable[..., Any]


class Checked(click.ParamType):
    """A value of the command line, taken by a function that raises ValueError."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what the function makes of it, or end with its words."""
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Word(click.Choice):
    """One of some words; of one that is none of them the nearest is told."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return what is wrong with a word."""
        return super().get_invalid_choice_message(value, ctx).rstrip(".") + hint(str(value), map(str, self.choices))


def suggest(command: click.Command) -> click.Command:
    """Have all choices of a command, and of those below it, tell the nearest; return it."""
    for param in command.params:
        if type(param.type) is click.Choice:
            param.type = Word(param.type.choices, param.type.case_sensitive)
    if isinstance(command, click.Group):
        for one in command.commands.values():
            suggest(one)
    return command


NONE = "none"


def limit(text: str) -> int | str:
    """Return a limit: a number, or NONE."""
    return NONE if text == NONE else filters.number(text, filters.U32_MAX - 1)


ZONE = Checked("zone", filters.u16)
PORT = Checked("port", filters.u16)
ADDRESS = Checked("address[/prefix]", filters.address)
LIMIT = Checked("n", limit)

_WHERE = (
    click.option("--socket", metavar="PATH", help="Path of the control socket."),
    click.option("--instance", metavar="NAME", help="Name of the instance."),
)
_WHICH = (
    click.option("--zone", type=ZONE, metavar="Z", help="In this zone."),
    click.option("--proto", type=Checked("protocol", filters.protocol), metavar="P", help="Name or number."),
    click.option("--src", type=ADDRESS, metavar="A[/N]", help="Whoever opened it has this address."),
    click.option("--dst", type=ADDRESS, metavar="A[/N]", help="To this address."),
    click.option("--sport", type=PORT, metavar="N", help="From this port; ICMP has none."),
    click.option("--dport", type=PORT, metavar="N", help="To this port."),
    click.option("--reply-src", type=ADDRESS, metavar="A[/N]", help="Replies come from this address."),
    click.option("--reply-dst", type=ADDRESS, metavar="A[/N]", help="Replies go to this address."),
    click.option("--state", type=Checked("state", filters.state), metavar="S", help="State of TCP or SCTP."),
    click.option("--mark", type=Checked("mark", filters.mark), metavar="V[/M]", help="Marked so, under a mask."),
    click.option("--unreplied", is_flag=True, default=None, help="Nobody has answered."),
)


def _all(options: tuple[Callable[[Command], Command], ...]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


where = _all(_WHERE)
"""Adds --socket and --instance, for ``connect``."""
which = _all(_WHICH)
"""Adds the options of a filter, named as ``filters.Filter`` has them."""
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def reach(socket: str | None, instance: str | None) -> Client:
    """Connect to the service that the options name."""
    return connect(socket, instance)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value))
