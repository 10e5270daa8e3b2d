"""fragments against a real service: shown, set, and what cannot be set."""

import json

import pytest
from zonetrack.clients.errors import Exit


@pytest.fixture(autouse=True)
def back(desk):
    yield
    desk.run("fragments", "set", "--v4", "on", "--v6", "on", "--min-v4", 1200, "--min-v6", 1280, "--max", 1000)


def shown(desk):
    return json.loads(desk.run("fragments", "show", "--json").out)


def test_set_and_show(desk):
    assert desk.run("fragments", "set", "--v6", "off", "--min-v4", 600, "--max", 7) == (Exit.OK, "", "")
    told = shown(desk)
    assert (told["v4"], told["v6"], told["min_v4"], told["min_v6"], told["max"]) == (True, False, 600, 1280, 7)
    assert told["waiting"] == 0 and set(told["counters"]) == {
        *("accepted", "completed", "expired", "too_small", "overlapped", "purged")
    }


def test_show_for_people(desk):
    desk.run("fragments", "set", "--v4", "off")
    lines = [line.split() for line in desk.run("fragments", "show").out.splitlines()]
    assert ["v4", "off"] in lines and ["v6", "on"] in lines and ["max", "1000"] in lines and ["purged", "0"] in lines


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name --v4"),
        (("--v4", "maybe"), "'maybe'"),
        (("--min-v4", "399"), "min_v4: a whole number from 400 to 65535"),
        (("--max", "1025"), "max: a whole number from 1 to 1024"),
    ],
)
def test_what_cannot_be_set(desk, arguments, words):
    code, out, err = desk.run("fragments", "set", *arguments)
    assert (code, out) == (Exit.USAGE, "") and words in err
    assert shown(desk)["max"] == 1000
