"""top without a screen: two looks, then text or JSON; and what it says where nobody answers."""

import json

from zonetrack.clients import panels, top_command
from zonetrack.clients.errors import Exit

ZONE = 220


def test_once(desk):
    desk.fill(ZONE, 3)
    code, out, _ = desk.run("top", "--once", "--interval", 0.2, "--rows", 1000)
    assert code == Exit.OK
    assert out.startswith("zonetrack test  up ") and "\nZones\n" in out
    assert any(line.split()[:2] == [str(ZONE), "3"] for line in out.splitlines())
    assert max(map(len, out.splitlines())) <= 80


def test_without_a_terminal_it_is_once(desk):
    assert desk.run("top", "--interval", 0.2).out.startswith("zonetrack test")


def test_rows_that_are_left_out_are_told(desk):
    for zone in range(ZONE + 1, ZONE + 4):
        desk.fill(zone, 1)
    out = desk.run("top", "--once", "--interval", 0.2, "--rows", 2).out
    zones = json.loads(desk.run("top", "--json", "--interval", 0.2).out)["zones"]
    assert f"\nZones, 2 of {len(zones)}\n" in out


def test_json(desk):
    desk.fill(ZONE + 5, 2)
    view = json.loads(desk.run("top", "--json", "--interval", 0.2).out)
    assert {"zone": ZONE + 5, "connections": 2, "limit": None, "fill": None, "change": 0.0} in view["zones"]
    assert set(view["rates"].values()) == {0.0} and {panel.name for panel in panels.PANELS} < set(view)


def test_nobody_answers(desk, tmp_path):
    code, _, err = desk.run("top", "--once", "--socket", tmp_path / "none")
    assert code == Exit.NO_SERVICE and "no service answers" in err


def test_too_short_an_interval_is_refused(desk):
    assert desk.run("top", "--interval", top_command.INTERVAL_S_MIN / 2).code == Exit.USAGE
