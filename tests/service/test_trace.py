"""A packet on its way in thought: the rules, ports and states of a packet that is then really sent, and each step told."""

import contextlib
from dataclasses import replace

import pytest
from ports import udp
from ruled import Switch
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from zonetrack.service import described, rules_compile, rules_text, trace
from zonetrack.service.rehearsal import Rehearsal
from zonetrack.shm.layout import CtState, Helper, Region
from zonetrack.shm.reasons import Reason, word

FIREWALL = """
priority=5,ip actions=ct(table=1,zone=7)
table=1,priority=9,ct_state=+est+trk,in_port=a actions=output:b
table=1,priority=9,ct_state=+est+trk,in_port=b actions=output:a
table=1,priority=5,ct_state=+new+trk,in_port=a actions=ct(commit,zone=7,exec(set_field:5->ct_mark)),output:b
"""
THERE, BACK = (
    "nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=5,tp_dst=53",
    "nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_src=53,tp_dst=5",
)


def way(switch, text, rules, assumed=(), rehearsal=None):
    """Return the way of a packet through rules, given as text."""
    read = rules_text.read(rules, switch.names)
    packet = described.read(text, switch.names)
    rehearsal = rehearsal or Rehearsal(switch.table, switch.worker.views)
    zones = {number: port.zone for number, port in enumerate(switch.ports, 1)}
    found = trace.Trace(packet, switch.names, zones, rehearsal.track, trace.assumptions(assumed))
    return found.run(rules_compile.compile_rules(read), rules_compile.ordered(read))


def said(told):
    """Return all that is said of actions."""
    return [line for step in told["steps"] for action in step["actions"] for line in action["said"]]


def test_a_firewall_before_and_after():
    with Switch(2, FIREWALL) as switch:
        told = way(switch, f"in_port=b,udp,{BACK}", FIREWALL)
        assert (told["outputs"], told["reason"]) == ([], "rule_missed")
        assert [(step["table"], step["rule"]) for step in told["steps"]] == [(0, "table=0,priority=5,ip"), (1, None)]
        assert said(told) == ["zone 7: new|trk"]
        told = way(switch, f"in_port=a,udp,{THERE}", FIREWALL)
        assert (told["outputs"], told["reason"]) == (["b"], None)
        assert [action["action"] for action in told["steps"][1]["actions"]] == [
            "ct(commit,zone=7,exec(set_field:0x5->ct_mark))",
            "output:b",
        ]
        assert said(told)[2] == "a connection would be made, with mark 0x5"
        assert switch.worker.counter(Reason.INSERT) == 0
        switch.through("a", [udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 5, 53)])
        told = way(switch, f"in_port=b,udp,{BACK}", FIREWALL)
        assert told["outputs"] == ["a"]
        assert said(told)[0].startswith("zone 7: est|rpl|trk, of connection ")


def test_what_is_assumed_is_found():
    with Switch(2) as switch:
        told = way(switch, f"in_port=b,udp,{BACK}", FIREWALL, ["trk,est,rpl"])
        assert told["outputs"] == ["a"]
        assert said(told) == ["zone 7: assumed est|rpl|trk"]
        with pytest.raises(ValueError, match="there is no flag 'old'"):
            trace.assumptions(["old"])
        assert trace.assumptions(["+new", "inv"]) == [CtState.NEW | CtState.TRK, CtState.INV | CtState.TRK]


def test_every_kind_of_action_is_told():
    rules = """
    priority=1 actions=output:a,IN_PORT,NORMAL,ct(zone=port),ct(zone=vlan),ct_clear,goto_table:1
    table=1,ct_state=-trk actions=drop
    """
    with Switch(3, zones=(21, 22, 23)) as switch:
        told = way(switch, f"in_port=a,dl_vlan=9,udp,{THERE}", rules)
    assert told["outputs"] == ["a", "NORMAL"]
    assert told["reason"] is None
    assert told["packet"] == ("udp,in_port=a,dl_vlan=9,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=5,tp_dst=53")
    assert said(told) == [
        "not sent: a packet goes back to its port only by IN_PORT",
        "where its Ethernet address was seen last, else to all of b, c",
        "zone 21: new|trk",
        "zone 9: new|trk",
    ]
    assert told["steps"][1]["actions"] == [{"action": "drop", "said": []}]


def test_a_way_without_end_is_ended():
    with Switch(1) as switch:
        told = way(switch, "in_port=a,udp", "actions=ct(table=0)")
    assert (len(told["steps"]), told["reason"]) == (64, word(Reason.RULE_TABLES))


def test_a_dropped_packet_has_a_reason():
    with Switch(1) as switch:
        assert way(switch, "in_port=a,arp", "actions=drop")["reason"] == "rule_dropped"


def test_a_translated_packet_goes_on_as_its_connection_is():
    rules = """
    table=0,ip actions=ct(table=1,nat)
    table=1,ct_state=+new,in_port=a,ip actions=ct(commit,nat(src=192.0.2.7:5000-5000)),output:b
    table=1,ct_state=+est,ip,nw_dst=10.0.0.1 actions=output:a
    """
    with Switch(2, rules, extension_share=1000) as switch:
        told = way(switch, f"in_port=a,udp,{THERE}", rules)
        assert said(told)[1:] == [
            "zone 0: new|trk|snat",
            "a connection would be made, with another source",
            "goes on as udp,nw_src=192.0.2.7,nw_dst=10.0.0.2,tp_src=5000,tp_dst=53, while nobody has that",
        ]
        assert switch.worker.counter(Reason.INSERT) == 0
        switch.through("a", [udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 5, 53)])
        back = "in_port=b,udp,nw_src=10.0.0.2,nw_dst=192.0.2.7,tp_src=53,tp_dst=5000"
        before = switch.worker.counter(Reason.HIT)
        told = way(switch, back, rules)
        assert told["outputs"] == ["a"]
        assert said(told)[0].startswith("zone 0: est|rpl|trk|dnat, of connection ")
        assert said(told)[1] == "goes on as udp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_src=53,tp_dst=5"
        assert switch.worker.counter(Reason.HIT) == before


FTP = """
table=0,tcp actions=ct(table=1,nat)
table=1,ct_state=+new,in_port=a,tcp actions=ct(commit,helper=ftp,nat(src=203.0.113.200)),output:b
table=1,ct_state=+est,in_port=a,tcp actions=output:b
table=1,ct_state=+est,in_port=b,tcp actions=output:a
"""


@contextlib.contextmanager
def helped(helper):
    """Yield a switch of two ports, whose rules know a helper."""
    with Switch(2, extension_share=1000) as switch:
        switch.names = replace(switch.names, helpers={helper.name.lower(): int(helper)})
        yield switch


def segment(source, destination, sport, dport, flags, seq, ack, data=b""):
    """Return a frame of TCP."""
    layers = IP(src=source, dst=destination) / TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack, window=8192)
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / layers / data)


def test_what_a_helper_rewrites_is_told():
    client, server, public, line = "10.0.0.1", "10.0.0.9", "203.0.113.200", b"PORT 10,0,0,1,156,65\r\n"
    longer = len("203,0,113,200") - len("10,0,0,1")
    with helped(Helper.FTP) as switch:
        switch.load(FTP)
        for port, frame in (
            ("a", segment(client, server, 4000, 21, "S", 1000, 0)),
            ("b", segment(server, public, 21, 4000, "SA", 9000, 1001)),
            ("a", segment(client, server, 4000, 21, "PA", 1001, 9001, b"USER x\r\n")),
        ):
            assert switch.through(port, [frame])[0]["reason"].tolist() == [0]
        there = f"in_port=a,tcp,nw_src={client},nw_dst={server},tp_src=4000,tp_dst=21,tcp_flags=ack"
        back = f"in_port=b,tcp,nw_src={server},nw_dst={public},tp_src=21,tp_dst=4000,tcp_flags=ack"
        rewrites = "its helper ftp rewrites what its messages say of"
        assert said(way(switch, there, FTP))[2:] == [f"{rewrites} {client} as {public}"]
        came = switch.through("a", [segment(client, server, 4000, 21, "PA", 1009, 9001, line)])[1]["b"]
        assert b"PORT 203,0,113,200,156,65" in came[0]
        numbers = "its numbers change, for payloads were rewritten: sequence {:+d}, acknowledgment {:+d}"
        assert said(way(switch, there, FTP))[2:] == [numbers.format(longer, 0), f"{rewrites} {client} as {public}"]
        assert said(way(switch, back, FTP))[2:] == [numbers.format(0, -longer), f"{rewrites} {public} as {client}"]


CLIENT, SERVER, PUBLIC = "10.0.0.1", "10.0.0.9", "203.0.113.200"
OUT = f"in_port=a,tcp,nw_src={CLIENT},nw_dst={SERVER},tp_src=4000,tp_dst=21"
HOME = f"in_port=b,tcp,nw_src={SERVER},nw_dst={PUBLIC},tp_src=21,tp_dst=4000"


def test_a_command_is_read_and_written_anew_as_a_helper_does_it():
    """Of a connection that is there: each line has the numbers that come next, and the table stays as it is."""
    with helped(Helper.FTP) as switch:
        switch.load(FTP)
        for port, frame in (
            ("a", segment(CLIENT, SERVER, 4000, 21, "S", 1000, 0)),
            ("b", segment(SERVER, PUBLIC, 21, 4000, "SA", 9000, 1001)),
            ("b", segment(SERVER, PUBLIC, 21, 4000, "PA", 9001, 1001, b"220 ready\r\n")),
            ("a", segment(CLIENT, SERVER, 4000, 21, "PA", 1001, 9012, b"USER x\r\n")),
        ):
            switch.through(port, [frame])
        before = [bytes(switch.table.regions[region]) for region in (Region.ENTRIES, Region.EXTENSIONS)]
        told = way(switch, OUT + r',payload="PORT 10,0,0,1,156,65\r\n"', FTP)
        assert told["packet"].endswith(r',tcp_flags=0x18,payload="PORT 10,0,0,1,156,65\r\n"')
        assert said(told)[-2:] == [
            f"foretells tcp from {SERVER} to {PUBLIC}:40001, data",
            r'carries "PORT 203,0,113,200,156,65\r\n"',
        ]
        assert told["outputs"] == ["b"]
        told = way(switch, OUT + r",payload='PORT 10,0,0,1,999,1\r\n'", FTP)
        assert said(told)[0].endswith(", helper_refused") and told["reason"] == "rule_missed"
        told = way(switch, HOME + r',payload="227 Entering Passive Mode (10,0,0,9,100,10)\r\n"', FTP)
        assert f"foretells tcp from {CLIENT} to {SERVER}:25610, data" in said(told)
        assert [bytes(switch.table.regions[region]) for region in (Region.ENTRIES, Region.EXTENSIONS)] == before


def test_packets_find_what_those_before_them_have_left():
    """A whole conversation in thought, and the connection that it foretells."""
    rules = FTP.replace("table=1,ct_state=+new,in_port=a", "table=1,priority=9,ct_state=+new+rel,tcp "
                        "actions=ct(commit,nat),output:a\ntable=1,ct_state=+new,in_port=a")  # fmt: skip
    with helped(Helper.FTP) as switch:
        rehearsal = Rehearsal(switch.table, switch.worker.views)
        ways = [
            way(switch, text, rules, rehearsal=rehearsal)
            for text in (
                OUT,
                f"{HOME},tcp_flags=0x12",
                f"{OUT},tcp_flags=0x10",
                OUT + r',payload="USER x\r\n"',
                HOME + r',payload="331 more\r\n"',
                OUT + r',payload="EPRT |1|10.0.0.1|40001|\r\n"',
                HOME + r',payload="200 fine\r\n"',
                f"in_port=b,tcp,nw_src={SERVER},nw_dst={PUBLIC},tp_src=20,tp_dst=40001",
            )
        ]
        assert [told["outputs"] for told in ways] == [["b"], ["a"], ["b"], ["b"], ["a"], ["b"], ["a"], ["a"]]
        assert said(ways[5])[-1] == r'carries "EPRT |1|203.0.113.200|40001|\r\n"'
        assert said(ways[6])[2] == "its numbers change, for payloads were rewritten: sequence +0, acknowledgment -5"
        assert said(ways[7])[0] == "zone 0: new|rel|trk"
        assert f"nw_src={SERVER},nw_dst={CLIENT},tp_src=20,tp_dst=40001" in said(ways[7])[-1]
        assert switch.worker.counter(Reason.INSERT) == 0


def test_what_is_foretold_in_the_table_is_related():
    with helped(Helper.FTP) as switch:
        switch.load(FTP)
        for port, frame in (
            ("a", segment(CLIENT, SERVER, 4000, 21, "S", 1000, 0)),
            ("b", segment(SERVER, PUBLIC, 21, 4000, "SA", 9000, 1001)),
            ("a", segment(CLIENT, SERVER, 4000, 21, "PA", 1001, 9001, b"USER x\r\n")),
            ("a", segment(CLIENT, SERVER, 4000, 21, "PA", 1009, 9001, b"PORT 10,0,0,1,156,65\r\n")),
        ):
            switch.through(port, [frame])
        data = f"in_port=b,tcp,nw_src={SERVER},nw_dst={PUBLIC},tp_src=20,tp_dst=40001"
        assert said(way(switch, data, FTP))[0] == "zone 0: new|rel|trk"
        assert said(way(switch, data.replace("40001", "40002"), FTP))[0] == "zone 0: new|trk"


def test_the_first_packet_of_a_connection_may_already_say_something():
    rules = "table=0,udp actions=ct(commit,alg=tftp,nat(src=192.0.2.7)),output:b"
    with helped(Helper.TFTP) as switch:
        text = (
            f"in_port=a,udp,nw_src={CLIENT},nw_dst={SERVER},tp_src=4000,tp_dst=69,payload=0x000166696c65006f6374657400"
        )
        told = way(switch, text, rules)
        assert said(told)[-1] == f"foretells udp from {SERVER} to 192.0.2.7:4000, data"
