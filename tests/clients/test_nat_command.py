"""``zonetrack nat`` against a real service: a table for people, and JSON."""

import json

from zonetrack.clients.errors import Exit

RULES = "ip actions=ct(commit,zone=3,nat(src=203.0.113.1:1024-2047))"


def test_ports_that_are_left(desk, tmp_path):
    path = tmp_path / "nat.rules"
    path.write_text(RULES)
    assert desk.run("rules", "load", path).code == Exit.OK
    try:
        code, out, _ = desk.run("nat")
        assert code == Exit.OK
        head, *rows = (line.split() for line in out.splitlines())
        assert head == ["zone", "address", "proto", "ports", "connections", "used", "free"]
        assert rows == [["3", "203.0.113.1", proto, "1,024", "0", "0", "1,024"] for proto in ("tcp", "udp")]
        first, _ = json.loads(desk.run("nat", "--json").out)
        assert (first["ports"], first["free"], first["used"]) == (1024, 1024, 0)
    finally:
        desk.run("rules", "clear")


def test_without_rules_and_translations_there_is_nothing(desk):
    assert json.loads(desk.run("nat", "--json").out) == []
