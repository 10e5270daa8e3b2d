"""What is nearly a name is taken for it; what is not is left alone."""

import pytest
from desk import run
from zonetrack.clients.errors import Exit
from zonetrack.clients.nearest import hint, nearest

NAMES = ("list", "limits", "load")


@pytest.mark.parametrize(("name", "near"), [("lsit", "list"), ("limit", "limits"), ("xyz", None), ("", None)])
def test_nearest(name, near):
    assert nearest(name, NAMES) == near
    assert hint(name, NAMES) == (f"; did you mean {near}?" if near else "")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["cuont"], "count"),
        (["list", "--zoen", "5"], "--zone"),
        (["limits", "sett"], "set"),
        (["list", "--proto", "tpc"], "tcp"),
        (["list", "--state", "establishd"], "ESTABLISHED"),
    ],
)
def test_commands_options_and_values_that_are_nearly_right(words, meant):
    code, _, err = run(*words)
    assert code == Exit.USAGE and "did you mean" in err.lower() and meant in err


def test_a_sentence_has_one_end():
    assert "No such command 'cuont'; did you mean count? `zonetrack --help` lists all." in run("cuont")[2]
    assert "No such command 'qqqqq'. `zonetrack --help` lists all." in run("qqqqq")[2]
