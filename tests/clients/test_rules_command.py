"""``zonetrack rules``: what it prints, and how it ends."""

import json

from click.testing import CliRunner
from zonetrack.clients.rules_command import command


def run(*arguments):
    """Run the command; returns its result."""
    return CliRunner().invoke(command, [*map(str, arguments)])


def test_check_tells_figures(tmp_path):
    file = tmp_path / "rules.txt"
    file.write_text("tcp,actions=ct(commit,zone=port)\npriority=0,actions=drop\n")
    assert run("check", file).output.startswith("2 rules in 1 tables, ")
    told = json.loads(run("check", file, "--json").output)
    assert told["rules"] == 2


def test_check_fails_with_every_complaint(tmp_path):
    file = tmp_path / "rules.txt"
    file.write_text("tcpp,actions=drop\ntcp,actions=dorp\n")
    result = run("check", file)
    assert result.exit_code == 1
    complaints = str(result.exception).splitlines()
    assert complaints == [
        f"{file}: line 1: unknown field 'tcpp': nearest is 'tcp'",
        f"{file}: line 2: unknown action 'dorp': nearest is 'drop'",
    ]
