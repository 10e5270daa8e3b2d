"""The page of commands has all of them, with every option and example, and nothing that breaks its tables."""

import click
from zonetrack.clients import cli, commands_page, examples


def test_every_command_has_its_options_and_examples():
    page = commands_page.page()
    for path, command in examples.commands(cli.group):
        if not path:
            continue
        _, found, rest = page.partition(f"\n{'##' if ' ' not in path else '###'} {path}\n")
        assert found, path
        section = rest.partition("\n## ")[0]
        for one in command.params:
            if isinstance(one, click.Option) and not one.hidden:
                assert one.opts[0] in section
        for typed, says in examples.of(path):
            assert f"zonetrack {typed}" in section and says in section


def test_cells_hold_what_they_are_given():
    assert commands_page.cell("table|conntrack \n ovs") == "table\\|conntrack ovs"
    rows = [line for line in commands_page.page().splitlines() if line.startswith("|")]
    assert all(line.replace("\\|", "").count("|") == 3 for line in rows)
