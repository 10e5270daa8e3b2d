"""``zonetrack trace`` against a real control process: what a person sees, and what a script does."""

import json

from zonetrack.clients.errors import Exit

RULES = """
priority=5,in_port=lab,ip actions=ct(table=1,zone=60000)
table=1,ct_state=+new,tcp actions=ct(commit,zone=60000),IN_PORT
"""
PACKET = "in_port=lab,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=5,tp_dst=80"


def trace(desk, *arguments):
    return desk.run("trace", *arguments)


def test_each_step_is_shown(desk, tmp_path):
    assert "No rules hold" in trace(desk, PACKET).out
    file = tmp_path / "rules.txt"
    file.write_text(RULES)
    assert desk.run("rules", "load", file).code == Exit.OK
    assert trace(desk, PACKET).out.splitlines() == [
        "Packet: tcp,in_port=lab,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=5,tp_dst=80,tcp_flags=0x2",
        "",
        " 0. table=0,priority=5,ip,in_port=lab",
        "    ct(table=1,zone=60000)",
        "     -> zone 60000: new|trk",
        "",
        " 1. table=1,priority=32768,tcp,ct_state=+new",
        "    ct(commit,zone=60000)",
        "     -> zone 60000: new|trk",
        "     -> a connection would be made",
        "    IN_PORT",
        "",
        "Result: lab",
    ]
    told = json.loads(trace(desk, "--json", "--ct-next", "trk,est", PACKET).out)
    assert (told["outputs"], told["reason"], len(told["steps"])) == ([], "rule_missed", 2)
    assert trace(desk, "--ct-next", "est", PACKET).out.endswith("Result: nowhere, rule_missed\n")
    desk.run("rules", "clear")


def test_what_is_no_packet(desk):
    outcome = trace(desk, "tcp")
    assert outcome.code == Exit.USAGE
    assert "in_port is missing" in outcome.err
