"""`zonetrack load forward`: what it takes, what it prints."""

import json

import pytest
from click.testing import CliRunner
from zonetrack.clients import forward_command, forward_trial, load


def run(*words):
    """Return what the command did."""
    return CliRunner().invoke(load.command, ["forward", *words])


def test_a_table_for_a_person_and_json_for_a_program():
    done = run("--topology", "vv", "--flows", "3", "--seconds", "0.1")
    assert done.exit_code == 0, done.output
    heading, *_ = [line for line in done.output.splitlines() if line.startswith("flows")]
    assert "packets/s" in heading and "p99 us" in heading
    done = run(
        "--topology", "vv", "--flows", "3,5", "--tx-batching", "on", "--seconds", "0.1", "--size", "1518", "--json"
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["scenario"], told["topology"], told["size"]) == ("forward", "vv", 1518)
    assert [row["flows"] for row in told["rows"]] == [3, 5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--flows", "a"], "'a' is no list of numbers"),
        (["--flows", "0"], "1 to 10,000 flows"),
        (["--size", "63"], "63 is not in the range"),
        (["--topology", "vp"], "'vp' is not one of"),
    ],
)
def test_what_is_wrong_is_said(words, said):
    done = run(*words)
    assert done.exit_code == 2 and said in done.output


def test_figures_are_short():
    assert [forward_command.text(one) for one in (1234.5, 12.34, 7, "on", None)] == ["1,234", "12.3", "7", "on", ""]


def test_what_is_offered_is_what_there_is():
    assert tuple(forward_trial.PORT_KINDS) == forward_command.PORT_KINDS
    assert forward_command.TOPOLOGIES == forward_trial.TOPOLOGIES
