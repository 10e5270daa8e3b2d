"""``zonetrack rules``: what it prints, and how it ends."""

import json

from click.testing import CliRunner
from zonetrack.clients.errors import Exit
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


def test_load_show_and_clear(desk, tmp_path):
    file = tmp_path / "rules.txt"
    file.write_text(
        "priority=5,tcp,in_port=lab actions=IN_PORT\ntable=1 actions=drop\npriority=1 actions=goto_table:1\n"
    )
    shown = desk.run("rules", "show")
    assert (shown.code, shown.out) == (Exit.OK, "") and shown.err.startswith("no rules: each packet is tracked")
    loaded = desk.run("rules", "load", file)
    assert (loaded.code, loaded.err) == (Exit.OK, "") and loaded.out.endswith(": 3 rules\n")
    lines = desk.run("rules", "show").out.splitlines()
    assert lines[0] == "table=0,n_packets=0,n_bytes=0,priority=5,tcp,in_port=lab actions=IN_PORT"
    assert len(lines) == 3
    assert len(desk.run("rules", "show", "--table", 1).out.splitlines()) == 1
    (tmp_path / "again.txt").write_text("\n".join(lines))
    told = json.loads(desk.run("rules", "load", tmp_path / "again.txt", "--json").out)
    assert (told["rules"], told["followed"]) == (3, True)
    assert json.loads(desk.run("rules", "show", "--json").out)["number"] == told["number"]
    assert desk.run("rules", "clear").out == "no rules\n"
    assert json.loads(desk.run("rules", "clear", "--json").out) == {"followed": True}


def test_load_fails_with_every_complaint_and_changes_nothing(desk, tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text('[[rules]]\nactions = ["output:wan"]\n[[rules]]\nactions = ["ct(table=3)"]\n')
    outcome = desk.run("rules", "load", file)
    assert outcome.code == Exit.FAILED
    assert "there is no port 'wan': 1 is lab" in outcome.err
    assert desk.run("rules", "load", tmp_path / "none").code == Exit.FAILED
    assert json.loads(desk.run("rules", "show", "--json").out) == {"number": 0, "rules": []}
