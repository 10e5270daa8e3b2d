"""Every command that README, docs and --help show is one that there is, with options and values that it takes."""

import click
import commands
import pytest
from zonetrack.clients import cli


def lines():
    """Return every command that is shown, each once, with where."""
    return {tuple(words): where for where, words in commands.shown()}


def read(words):
    """Read a command line as far as it goes without doing anything; --help ends it well."""
    command, context, words = cli.group, click.Context(cli.group, info_name="zonetrack"), list(words)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        below = command.get_command(context, name)
        assert below is not None, f"there is no command {name}"
        command, context = below, click.Context(below, context, info_name=name)
    try:
        command.make_context(command.name, words, parent=context.parent)
    except click.exceptions.Exit as end:
        assert end.exit_code == 0
    except click.BadParameter as error:
        is_missing_file = isinstance(error.param and error.param.type, click.Path) and "does not exist" in str(error)
        if not is_missing_file:
            raise


def test_there_are_commands_on_every_page_that_teaches():
    assert {"README.md", "docs/operations.md", "docs/rules.md"} <= set(lines().values())


@pytest.mark.parametrize("words", sorted(lines()), ids=" ".join)
def test_a_command_that_is_shown_can_be_read(words):
    read(words)


@pytest.mark.parametrize("words", [["cuont"], ["list", "--zoen", "5"], ["list", "--zone", "many"], ["limits", "sett"]])
def test_one_that_is_wrong_is_seen(words):
    with pytest.raises((click.UsageError, AssertionError)):
        read(words)
