"""limits against a real service: shown beside counts, set, taken away, and what cannot be set."""

import json

import pytest
from zonetrack.clients.errors import Exit

ZONE, OTHER = 110, 111


def shown(desk, *arguments):
    return json.loads(desk.run("limits", "show", "--json", *arguments).out)


@pytest.fixture(autouse=True)
def back_to_none(desk):
    yield
    desk.run("limits", "unset", "--default")
    desk.run("limits", "set", "--global", "none")
    for zone in (ZONE, OTHER):
        desk.run("limits", "unset", "--zone", zone)


def test_set_show_and_unset(desk):
    assert desk.run("limits", "set", "--zone", ZONE, 1000, "--zone", OTHER, "none", "--default", 5) == (Exit.OK, "", "")
    told = shown(desk)
    assert told["default"] == 5
    assert [(one["zone"], one["limit"]) for one in told["zones"]] == [(ZONE, 1000), (OTHER, None)]
    assert shown(desk, "--zone", 65535)["zones"][0]["limit"] == 5
    assert desk.run("limits", "unset", "--zone", ZONE, "--default").code == Exit.OK
    told = shown(desk)
    assert told["default"] is None and [one["zone"] for one in told["zones"]] == [OTHER]


def test_show_for_people(desk):
    desk.fill(ZONE, 2)
    desk.run("limits", "set", "--zone", ZONE, 1000, "--global", 2000)
    lines = [line.split() for line in desk.run("limits", "show").out.splitlines()]
    assert lines[0] == ["of", "limit", "count"]
    assert lines[1][:2] == ["global", "2000"] and lines[2] == ["default", "none"]
    assert ["zone", str(ZONE), "1000", "2"] in lines


def test_a_limit_that_is_not_there_cannot_be_taken_away(desk):
    code, _, err = desk.run("limits", "unset", "--zone", OTHER)
    assert code == Exit.NOTHING_MATCHED and "Error: " in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("set", "--zone", "5", "-1"), "a number from 0 to 4294967294"),
        (("set", "--zone", "5", "4294967295"), "a number from 0 to 4294967294"),
        (("set", "--zone", "65536", "1"), "a number from 0 to 65535"),
        (("set", "--global", "many"), "a number from 0 to 4294967294"),
        (("set", "--global=-1"), "a number from 0 to 4294967294"),
        (("set",), "name --global, --default, or --zone"),
        (("unset",), "name --default, or --zone"),
        (("set", "--global", "4000000000"), "connections"),
    ],
)
def test_what_cannot_be_set(desk, arguments, words):
    code, out, err = desk.run("limits", *arguments)
    assert (code, out) == (Exit.USAGE, "") and words.lower() in err.lower()
