"""The page of docs that has every command with its options and examples, printed from the commands themselves.

    python -m zonetrack.clients.commands_page

``make docs`` writes docs/commands.md with it, and a test compares the two.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

import click

from . import cli, examples
from .manual import CODES, NAME, VARIABLES

INTRODUCTION = f"""# Commands

Printed from the commands by `make docs`; `{NAME} COMMAND --help` and the man pages say the same.

"""


def cell(text: str) -> str:
    """Return text as it may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def lines() -> Iterator[str]:
    """Yield the lines of docs/commands.md."""
    yield INTRODUCTION
    yield from ("| exit code | |", "|---|---|")
    yield from (f"| {int(code)} | {says} |" for code, says in CODES.items())
    yield from ("", "| variable | |", "|---|---|")
    yield from (f"| `{variable}` | {says} |" for variable, says in VARIABLES.items())
    for path, command in examples.commands(cli.group):
        if path:
            yield from _of(path, command)


def _of(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"{NAME} {path}")
    yield from ("", f"{'##' if ' ' not in path else '###'} {path}", "")
    yield f"`{' '.join([NAME, path, *command.collect_usage_pieces(context)])}`"
    for paragraph in inspect.cleandoc(command.help or "").replace("\b", "").split("\n\n"):
        yield from ("", paragraph.strip("\n"))
    options = [found for one in command.get_params(context) if (found := one.get_help_record(context))]
    own = [(term, says) for term, says in options if not term.endswith("--help")]
    if own:
        yield from ("", "| option | |", "|---|---|")
        yield from (f"| `{cell(term)}` | {cell(says)} |" for term, says in own)
    told = examples.of(path)
    if told:
        width = max(len(typed) for typed, _ in told)
        yield ""
        yield from (f"    {NAME} {typed:<{width}}    # {says}" for typed, says in told)


def page() -> str:
    """Return docs/commands.md as text."""
    return "\n".join(lines()).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
