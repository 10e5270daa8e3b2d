"""Every command has an example, and its --help shows it."""

import shlex

import click
import pytest
from desk import run
from zonetrack.clients import cli, examples

ALL = dict(examples.commands(cli.group))
WITHOUT = {"", *(path for path, command in ALL.items() if path.startswith("load "))}
"""The group itself; scenarios of load that have come since are shown by `load --help`."""


@pytest.mark.parametrize("path", sorted(set(ALL) - WITHOUT))
def test_every_command_has_an_example_in_its_help(path):
    told = examples.of(path)
    assert told, "add it to clients/examples.py"
    shown = run(*path.split(), "--help").out
    for typed, says in told:
        assert f"  zonetrack {typed}\n" in shown and f"      {says}\n" in shown


@pytest.mark.parametrize("path", sorted(set(examples.EXAMPLES)))
def test_examples_are_of_commands_that_there_are_and_can_be_read(path):
    for typed, says in examples.of(path):
        assert says.endswith((".", "?")) and says[0].isupper()
        words = shlex.split(typed)
        assert words[: len(path.split())] == path.split()
        command, context = cli.group, click.Context(cli.group)
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            command = command.get_command(context, words.pop(0))
            context = click.Context(command, context)
        if not path.startswith("load compare"):  # whose files must be there
            assert command.make_context(path, words, parent=context.parent) is not None


def test_no_line_of_help_is_longer_than_a_terminal():
    for path in ALL:
        for line in run(*path.split(), "--help").out.splitlines():
            assert len(line) <= 100, path
