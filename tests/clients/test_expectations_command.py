"""``zonetrack expectations`` against a real service: for people, as both systems print them, and as JSON."""

import json

import foretelling
import pytest
from desk import key
from foretelling import CLIENT, SERVER, Wanted
from zonetrack.clients.errors import Exit
from zonetrack.shm.layout import ExpectationFlag

ZONE, EMPTY = 150, 151
NEVER = (1 << 64) - 1


@pytest.fixture(scope="module")
def foretold(desk):
    """Two in a zone: one from anybody that does not end, one from a server."""
    parent = foretelling.parent_of(desk.maker, key(ZONE, 999).reshape(1, 5))
    any_ = Wanted(
        zone=ZONE, port=7, flags=ExpectationFlag.SOURCE_ANY | ExpectationFlag.PERMANENT, mark=3, expiry_ms=NEVER
    )
    for wanted in (any_, Wanted(zone=ZONE, destination=CLIENT, source=SERVER, port=8, expiry_ms=1 << 50)):
        foretelling.add(desk.maker, parent, wanted)
    return desk


def lines(desk, *words):
    code, out, _ = desk.run("expectations", "--zone", ZONE, *words)
    assert code == Exit.OK
    return out.splitlines()


def test_a_table(foretold):
    head, first, second = (line.split() for line in lines(foretold))
    assert head[:3] == ["proto", "zone", "source"]
    assert first[:6] == ["tcp", str(ZONE), "any", "192.0.2.1:7", "ftp", "data"] and first[-1] == "none"
    assert second[2] == "198.51.100.1" and second[-4:-1] == ["192.0.2.1:999", ">", "198.51.100.1:53"]


def test_json(foretold):
    first, second = json.loads("".join(lines(foretold, "--json")))
    assert (first["dport"], first["mark"], first["timeout"], second["dport"]) == (7, 3, None, 8)
    assert first["parent"]["sport"] == 999


def test_lines_of_linux(foretold):
    first, second = lines(foretold, "--format", "conntrack")
    masters = "master-src=192.0.2.1 master-dst=198.51.100.1 sport=999 dport=53"
    assert first == (
        "0 proto=6 src=0.0.0.0 dst=192.0.2.1 sport=0 dport=7 mask-src=0.0.0.0 mask-dst=255.255.255.255 sport=0 "
        f"dport=65535 {masters} zone={ZONE} PERMANENT class=0 helper=ftp"
    )
    assert "src=198.51.100.1" in second and "mask-src=255.255.255.255" in second and "PERMANENT" not in second


def test_lines_of_open_vswitch(foretold):
    first, _ = lines(foretold, "--format", "ovs")
    parent = "parent=(src=192.0.2.1,dst=198.51.100.1,sport=999,dport=53)"
    assert first == f"tcp,orig=(src=0.0.0.0,dst=192.0.2.1,sport=0,dport=7),zone={ZONE},mark=3,{parent}"


def test_a_zone_without(foretold):
    assert json.loads(foretold.run("expectations", "--zone", EMPTY, "--json").out) == []
    assert len(json.loads(foretold.run("expectations", "--json").out)) >= 2
