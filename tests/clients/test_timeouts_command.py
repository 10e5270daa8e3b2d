"""timeouts against a real service: by the names of Linux and of Open vSwitch, policies and the zones that have them."""

import json

import pytest
from zonetrack.clients.errors import Exit

ZONE, POLICY = 120, 9


def policies(desk, *arguments):
    told = json.loads(desk.run("timeouts", "show", "--json", *arguments).out)
    return {one["policy"]: one["timeouts"] for one in told["policies"]}, told["zones"]


def test_set_show_and_back(desk):
    words = ("tcp_established=86400", "udp_multiple=30.5", "nf_conntrack_icmp_timeout=7")
    assert desk.run("timeouts", "set", POLICY, *words) == (Exit.OK, "", "")
    of, _ = policies(desk)
    assert (of[POLICY]["tcp_established"], of[POLICY]["udp_multiple"], of[POLICY]["icmp"]) == (86400, 30.5, 7)
    assert of[POLICY]["udp"] == of[0]["udp"] == 30
    desk.run("timeouts", "set", POLICY, *(f"{word.partition('=')[0]}=default" for word in words))
    assert policies(desk, "--policy", POLICY)[0][POLICY] == of[0]


def test_a_zone_has_a_policy(desk):
    assert desk.run("timeouts", "zone", ZONE, POLICY).code == Exit.OK
    assert {"zone": ZONE, "policy": POLICY, "name": None} in policies(desk)[1]
    text = desk.run("timeouts", "show").out
    assert f"policy {POLICY}" in text and [str(ZONE), str(POLICY)] in [line.split() for line in text.splitlines()]
    assert desk.run("timeouts", "zone", ZONE, 0).code == Exit.OK
    assert policies(desk)[1] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("set", "9", "tcp_estalished=5"), "did you mean tcp_established"),
        (("set", "9", "udp"), "KEY=SECONDS, not 'udp'"),
        (("set", "9", "=5"), "KEY=SECONDS"),
        (("set", "9", "udp=soon"), "udp: seconds, or default, not 'soon'"),
        (("set", "9", "udp=0"), "seconds from 0.001"),
        (("set", "9", "udp=nan"), "seconds from 0.001"),
        (("set", "64", "udp=5"), "a number from 0 to 63, or a name"),
        (("set", "a b", "udp=5"), "a number from 0 to 63, or a name"),
        (("set", "9"), "Missing argument"),
        (("zone", "65536", "1"), "a number from 0 to 65535"),
    ],
)
def test_what_cannot_be_set(desk, arguments, words):
    code, out, err = desk.run("timeouts", *arguments)
    assert (code, out) == (Exit.USAGE, "") and words in err


def test_a_policy_by_name(desk):
    assert desk.run("timeouts", "set", "web", "udp_multiple=40", "tcp_retransmit=9").code == Exit.OK
    assert desk.run("timeouts", "zone", ZONE, "web").code == Exit.OK
    told = json.loads(desk.run("timeouts", "show", "--policy", "web", "--json").out)
    (mine,) = told["policies"]
    assert (mine["name"], mine["timeouts"]["udp_multiple"], mine["timeouts"]["tcp_max_retrans"]) == ("web", 40, 9)
    assert told["zones"] == [{"zone": ZONE, "policy": mine["policy"], "name": "web"}]
    assert "policy web" in desk.run("timeouts", "show").out
    assert desk.run("timeouts", "unset", "web").code == Exit.OK
    for arguments in (("unset", "web"), ("zone", ZONE, "web"), ("show", "--policy", "web")):
        assert desk.run("timeouts", *arguments).code == Exit.NOTHING_MATCHED
