"""zones against a real service: what is in them, how they are set, for people and as JSON."""

import json

import pytest
from zonetrack.clients.errors import Exit

ZONE = 262


def told(desk, zone):
    """Return what is said of a zone."""
    (found,) = json.loads(desk.run("zones", "show", zone, "--json").out)
    return found


def test_zones(desk):
    desk.fill(ZONE, 2)
    (found,) = json.loads(desk.run("zones", "--zone", ZONE, "--json").out)
    assert (found["zone"], found["count"], found["settings"]["profile"]) == (ZONE, 2, "netfilter")
    assert told(desk, ZONE) == found
    for words in (("zones",), ("zones", "show")):
        lines = [line.split() for line in desk.run(*words).out.splitlines()]
        assert lines[0][:2] == ["zone", "count"] and [str(ZONE), "2"] in [line[:2] for line in lines]


def test_a_zone_that_is_not_in_use(desk):
    code, out, err = desk.run("zones", "--zone", ZONE + 1)
    assert (code, out) == (Exit.NOTHING_MATCHED, "")
    assert err == f"Error: zone {ZONE + 1} has no connections, and nothing of its own\n"
    desk.run("limits", "set", "--zone", ZONE + 1, 7)
    assert desk.run("zones", "show", ZONE + 1).code == Exit.OK
    desk.run("limits", "unset", "--zone", ZONE + 1)


def test_a_zone_is_set_on_its_own_and_back(desk):
    words = ("profile=ovs", "loose=off", "be_liberal=true", "max_retrans=7")
    assert desk.run("zones", "set", ZONE + 2, *words) == (Exit.OK, "", "")
    found = told(desk, ZONE + 2)
    wanted = {"profile": "ovs", "loose": False, "be_liberal": True, "max_retrans": 7, "seq_check": True}
    assert found["settings"].items() >= wanted.items() and found["settings_are_own"]
    line = next(line for line in desk.run("zones").out.splitlines() if line.split()[0] == str(ZONE + 2))
    assert "ovs" in line and "be_liberal" in line and "loose" not in line and line.split()[-1] == "yes"
    assert json.loads(desk.run("zones", "unset", ZONE + 2, "--json").out)["loose"] is True
    assert desk.run("zones", "unset", ZONE + 2).code == Exit.NOTHING_MATCHED


def test_budgets_of_a_zone(desk):
    assert desk.run("zones", "set", ZONE + 2, "per_source=9", "half_open=70").code == Exit.OK
    assert told(desk, ZONE + 2)["settings"].items() >= {"per_source": 9, "half_open": 70}.items()
    assert "settings.per_source: a whole number" in desk.run("zones", "set", ZONE + 2, "per_source=-1").err
    line = next(line for line in desk.run("zones").out.splitlines() if line.split()[0] == str(ZONE + 2))
    assert {"9", "70"} <= set(line.split())
    told_then = json.loads(desk.run("zones", "unset", ZONE + 2, "--json").out)
    assert "per_source" not in told_then and "half_open" not in told_then


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("lose=on",), "did you mean loose"),
        (("loose",), "KEY=VALUE, not 'loose'"),
        (("loose=",), "KEY=VALUE"),
        (("loose=perhaps",), "settings.loose: true or false"),
        (("loose=7",), "settings.loose: true or false"),
        (("profile=linux",), "netfilter or ovs"),
        (("max_retrans=256",), "a whole number from 0 to 255"),
        (("max_retrans=on",), "a whole number from 0 to 255"),
        (("be_liberal=on", "loose=perhaps"), "settings.loose"),
        ((), "Missing argument"),
    ],
)
def test_what_cannot_be_set_changes_nothing(desk, settings, words):
    code, out, err = desk.run("zones", "set", ZONE + 3, *settings)
    assert (code, out) == (Exit.USAGE, "") and words in err
    assert desk.run("zones", "show", ZONE + 3).code == Exit.NOTHING_MATCHED
