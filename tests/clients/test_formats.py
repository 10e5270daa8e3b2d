"""Lines as the real tools print them, to the byte: of Linux's conntrack and of Open vSwitch's dpctl/dump-conntrack."""

import json
import time

import pytest
from connection_rows import FIELDS, pack
from zonetrack.clients import formats
from zonetrack.clients.connections import TCP_STATES, Rows, describe
from zonetrack.clients.formats import OVS_STATES, conntrack, ovs

ICMP, UDP, GRE, ICMPV6, SCTP, IGMP, OTHER = 1, 17, 47, 58, 132, 2, 200
SEEN_REPLY, ASSURED, FIXED_TIMEOUT, RELATED, OVS = 2, 4, 32, 64, 128
SIX = {"src": "2001:db8::1", "dst": "2001:db8::2"}


def described(**fields):
    return describe(*Rows(FIELDS).read(pack(**fields)))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"packets": [3, 2], "bytes": [164, 112]},
            "tcp      6 86399 ESTABLISHED src=192.0.2.1 dst=198.51.100.1 sport=40000 dport=80 packets=3 bytes=164"
            " src=198.51.100.1 dst=192.0.2.1 sport=80 dport=40000 packets=2 bytes=112 [ASSURED] mark=0 use=1",
        ),
        (
            {
                "state": 1,
                "status": 0,
                "packets": [1, 0],
                "bytes": [60, 0],
                "mark": 77,
                "zone": 5,
                "timeout_ms": 120_000,
            },
            "tcp      6 120 SYN_SENT src=192.0.2.1 dst=198.51.100.1 sport=40000 dport=80 packets=1 bytes=60"
            " [UNREPLIED] src=198.51.100.1 dst=192.0.2.1 sport=80 dport=40000 packets=0 bytes=0 mark=77 zone=5 use=1",
        ),
        (
            {"protocol": UDP, "status": 0, "timeout_ms": 29_999, "sport": 5353, "dport": 53},
            "udp      17 29 src=192.0.2.1 dst=198.51.100.1 sport=5353 dport=53 packets=0 bytes=0"
            " [UNREPLIED] src=198.51.100.1 dst=192.0.2.1 sport=53 dport=5353 packets=0 bytes=0 mark=0 use=1",
        ),
        (
            {"protocol": ICMP, "status": SEEN_REPLY, "timeout_ms": 30_000, "sport": 77, "dport": 8 << 8},
            "icmp     1 30 src=192.0.2.1 dst=198.51.100.1 type=8 code=0 id=77 packets=0 bytes=0"
            " src=198.51.100.1 dst=192.0.2.1 type=0 code=0 id=77 packets=0 bytes=0 mark=0 use=1",
        ),
        (
            {"protocol": ICMPV6, "status": 0, "timeout_ms": 30_000, "sport": 2, "dport": 128 << 8, **SIX},
            "icmpv6   58 30 src=2001:db8::1 dst=2001:db8::2 type=128 code=0 id=2 packets=0 bytes=0"
            " [UNREPLIED] src=2001:db8::2 dst=2001:db8::1 type=129 code=0 id=2 packets=0 bytes=0 mark=0 use=1",
        ),
        (
            {"protocol": GRE, "status": 0, "timeout_ms": 30_000, "sport": 0, "dport": 0x1F},
            "gre      47 30 src=192.0.2.1 dst=198.51.100.1 srckey=0x0 dstkey=0x1f packets=0 bytes=0"
            " [UNREPLIED] src=198.51.100.1 dst=192.0.2.1 srckey=0x1f dstkey=0x0 packets=0 bytes=0 mark=0 use=1",
        ),
        (
            {"protocol": SCTP, "timeout_ms": 210_000, "state": 4},
            "sctp     132 210 ESTABLISHED src=192.0.2.1 dst=198.51.100.1 sport=40000 dport=80 packets=0 bytes=0"
            " src=198.51.100.1 dst=192.0.2.1 sport=80 dport=40000 packets=0 bytes=0 [ASSURED] mark=0 use=1",
        ),
        (
            {"protocol": GRE, "status": 0, "timeout_ms": 30_000, "sport": 0, "dport": 0},
            "gre      47 30 src=192.0.2.1 dst=198.51.100.1 srckey=0x0 dstkey=0x0 packets=0 bytes=0"
            " [UNREPLIED] src=198.51.100.1 dst=192.0.2.1 srckey=0x0 dstkey=0x0 packets=0 bytes=0 mark=0 use=1",
        ),
        (
            {"protocol": IGMP, "status": 0, "timeout_ms": 600_000},
            "unknown  2 600 src=192.0.2.1 dst=198.51.100.1 packets=0 bytes=0"
            " [UNREPLIED] src=198.51.100.1 dst=192.0.2.1 packets=0 bytes=0 mark=0 use=1",
        ),
    ],
)
def test_lines_of_conntrack(fields, line):
    assert conntrack(described(**fields)) == line


def test_a_helper_in_both():
    ftp = described(dport=21) | {"helper": "ftp"}
    assert conntrack(ftp).endswith(" [ASSURED] mark=0 helper=ftp use=1")
    assert ovs(ftp).endswith(",protoinfo=(state=ESTABLISHED),helper=ftp")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"packets": [3, 2], "bytes": [164, 112]},
            "tcp,orig=(src=192.0.2.1,dst=198.51.100.1,sport=40000,dport=80),"
            "reply=(src=198.51.100.1,dst=192.0.2.1,sport=80,dport=40000),protoinfo=(state=ESTABLISHED)",
        ),
        (
            {"protocol": UDP, "zone": 5, "mark": 77, "label": [0, 1], "sport": 5353, "dport": 53},
            "udp,orig=(src=192.0.2.1,dst=198.51.100.1,sport=5353,dport=53),"
            "reply=(src=198.51.100.1,dst=192.0.2.1,sport=53,dport=5353),zone=5,mark=77,labels=0x1",
        ),
        (
            {"protocol": ICMP, "sport": 77, "dport": 8 << 8},
            "icmp,orig=(src=192.0.2.1,dst=198.51.100.1,id=77,type=8,code=0),"
            "reply=(src=198.51.100.1,dst=192.0.2.1,id=77,type=0,code=0)",
        ),
        (
            {"protocol": ICMPV6, "sport": 2, "dport": 128 << 8, **SIX},
            "icmpv6,orig=(src=2001:db8::1,dst=2001:db8::2,id=2,type=128,code=0),"
            "reply=(src=2001:db8::2,dst=2001:db8::1,id=2,type=129,code=0)",
        ),
        (
            {"protocol": GRE},
            "47,orig=(src=192.0.2.1,dst=198.51.100.1,sport=0,dport=0),"
            "reply=(src=198.51.100.1,dst=192.0.2.1,sport=0,dport=0)",
        ),
        (
            {"protocol": SCTP, "sport": 1, "dport": 2, "state": 2},
            "sctp,orig=(src=192.0.2.1,dst=198.51.100.1,sport=1,dport=2),"
            "reply=(src=198.51.100.1,dst=192.0.2.1,sport=2,dport=1),protoinfo=(state=COOKIE_WAIT)",
        ),
    ],
)
def test_lines_of_dump_conntrack(fields, line):
    assert ovs(described(**fields)) == line


def test_lines_of_dump_conntrack_with_m_and_s(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    fields = {"zone": 5, "packets": [3, 0], "bytes": [164, 0], "start_ms": 1_595_567_223_998, "mark": 1}
    assert ovs(described(**fields), more=True, statistics=True) == (
        "tcp,orig=(src=192.0.2.1,dst=198.51.100.1,sport=40000,dport=80,packets=3,bytes=164),"
        "reply=(src=198.51.100.1,dst=192.0.2.1,sport=80,dport=40000),start=2020-07-24T05:07:03.998,id=17,zone=5,"
        "status=SEEN_REPLY|ASSURED|CONFIRMED,timeout=86399,mark=1,"
        "protoinfo=(state_orig=ESTABLISHED,state_reply=ESTABLISHED,flags_orig=0,flags_reply=0)"
    )
    expected = described(status=RELATED | FIXED_TIMEOUT, protocol=UDP, parent=9)
    assert "status=EXPECTED|CONFIRMED|FIXED_TIMEOUT" in ovs(expected, more=True)
    parent = {"src": "192.0.2.1", "dst": "198.51.100.1", "sport": 1, "dport": 21}
    line = ovs(expected | {"parent": parent}, more=True)
    assert line.endswith(",parent=(src=192.0.2.1,dst=198.51.100.1,sport=1,dport=21)")


@pytest.mark.parametrize(
    ("state", "plain", "verbose"),
    [
        ("NONE", "CLOSED", "CLOSED"),
        ("SYN_SENT", "SYN_SENT", "SYN_SENT"),
        ("SYN_SENT2", "SYN_SENT", "SYN_SENT"),
        ("SYN_RECV", "ESTABLISHED", "SYN_RECV"),
        ("ESTABLISHED", "ESTABLISHED", "ESTABLISHED"),
        ("FIN_WAIT", "FIN_WAIT_1", "FIN_WAIT_1"),
        ("CLOSE_WAIT", "CLOSE_WAIT", "CLOSE_WAIT"),
        ("LAST_ACK", "LAST_ACK", "LAST_ACK"),
        ("TIME_WAIT", "TIME_WAIT", "TIME_WAIT"),
        ("CLOSE", "CLOSING", "CLOSING"),
    ],
)
def test_states_as_open_vswitch_shows_those_of_linux(state, plain, verbose):
    connection = described(state=TCP_STATES.index(state))
    assert f"protoinfo=(state={plain})" in ovs(connection)
    assert f"state_orig={verbose},state_reply={verbose}," in ovs(connection, more=True)


def test_each_side_has_its_state_in_the_ovs_profile():
    connection = described(status=OVS, state=7 | 4 << 4)
    assert "protoinfo=(state=CLOSING)" in ovs(connection)
    assert "state_orig=CLOSING,state_reply=ESTABLISHED," in ovs(connection, more=True)
    assert " CLOSING src=" in conntrack(connection)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, "flags_orig=0,flags_reply=0)"),
        (
            {"scales": [7, 0], "peer_flags": [1, 0]},
            "wscale_orig=7,wscale_reply=0,flags_orig=WINDOW_SCALE,flags_reply=0)",
        ),
        ({"peer_flags": [8, 9]}, "flags_orig=BE_LIBERAL,flags_reply=WINDOW_SCALE|BE_LIBERAL)"),
    ],
)
def test_what_is_known_of_windows(fields, shown):
    connection = described(status=OVS, state=0x44, **fields)
    assert ovs(connection, more=True).endswith(f"state_orig=ESTABLISHED,state_reply=ESTABLISHED,{shown}")
    assert "protoinfo=(state=ESTABLISHED)" in ovs(connection)


def test_every_state_has_open_vswitch_s_name():
    assert set(OVS_STATES) == set(TCP_STATES)


def test_json_lines():
    connection = described()
    line = formats.jsonl(connection)
    assert json.loads(line) == connection and "\n" not in line


# ---------------------------------------------------------------------------------------------------- conntrack -E
NEW, UPDATE, DESTROY = {"event": "new"}, {"event": "update"}, {"event": "destroy", "end": "expired"}
OF_STATE = {**UPDATE, "changes": ["state", "status"]}


@pytest.mark.parametrize(
    ("what", "fields", "line"),
    [
        (
            NEW,
            {"status": 0, "state": 1, "timeout_ms": 120_000},
            "    [NEW] tcp      6 120 SYN_SENT src=192.0.2.1 dst=198.51.100.1 sport=40000 dport=80 [UNREPLIED]"
            " src=198.51.100.1 dst=192.0.2.1 sport=80 dport=40000",
        ),
        (
            OF_STATE,
            {"status": 2, "state": 2, "timeout_ms": 60_000, "packets": [1, 1]},
            " [UPDATE] tcp      6 60 SYN_RECV src=192.0.2.1 dst=198.51.100.1 sport=40000 dport=80"
            " src=198.51.100.1 dst=192.0.2.1 sport=80 dport=40000",
        ),
        (
            OF_STATE,
            {"status": 6, "timeout_ms": 432_000_000, **SIX},
            " [UPDATE] tcp      6 432000 ESTABLISHED src=2001:db8::1 dst=2001:db8::2 sport=40000 dport=80"
            " src=2001:db8::2 dst=2001:db8::1 sport=80 dport=40000 [ASSURED]",
        ),
        (
            {**DESTROY, "end": "closed"},
            {"status": 2, "state": 8, "timeout_ms": 120_000, "sport": 40001, "dport": 81, "packets": [1, 1]}
            | {"bytes": [60, 40]},
            "[DESTROY] tcp      6 120 CLOSE src=192.0.2.1 dst=198.51.100.1 sport=40001 dport=81 packets=1 bytes=60"
            " [UNREPLIED] src=198.51.100.1 dst=192.0.2.1 sport=81 dport=40001 packets=1 bytes=40",
        ),
        (
            {**UPDATE, "changes": ["status"]},
            {"protocol": UDP, "status": 2, "timeout_ms": 30_000, "sport": 1234, "dport": 53},
            " [UPDATE] udp      17 30 src=192.0.2.1 dst=198.51.100.1 sport=1234 dport=53"
            " src=198.51.100.1 dst=192.0.2.1 sport=53 dport=1234",
        ),
        (
            NEW,
            {"protocol": UDP, "status": 0, "timeout_ms": 30_000, "sport": 1235, "dport": 5353, "mark": 7, "zone": 3},
            "    [NEW] udp      17 30 src=192.0.2.1 dst=198.51.100.1 sport=1235 dport=5353 [UNREPLIED]"
            " src=198.51.100.1 dst=192.0.2.1 sport=5353 dport=1235 mark=7 zone=3",
        ),
        (
            NEW,
            {"protocol": 99, "status": 0, "timeout_ms": 600_000},
            "    [NEW] unknown  99 600 src=192.0.2.1 dst=198.51.100.1 [UNREPLIED] src=198.51.100.1 dst=192.0.2.1",
        ),
        (
            NEW,
            {"protocol": GRE, "status": 0, "timeout_ms": 30_000, "sport": 0, "dport": 0},
            "    [NEW] gre      47 30 src=192.0.2.1 dst=198.51.100.1 srckey=0x0 dstkey=0x0 [UNREPLIED]"
            " src=198.51.100.1 dst=192.0.2.1 srckey=0x0 dstkey=0x0",
        ),
        (
            DESTROY,
            {
                "protocol": UDP,
                "status": 2,
                "timeout_ms": 0,
                "sport": 1,
                "dport": 2,
                "packets": [1, 1],
                "bytes": [48, 58],
            },
            "[DESTROY] udp      17 src=192.0.2.1 dst=198.51.100.1 sport=1 dport=2 packets=1 bytes=48"
            " src=198.51.100.1 dst=192.0.2.1 sport=2 dport=1 packets=1 bytes=58",
        ),
        (
            {**UPDATE, "changes": ["mark"]},
            {"mark": 0, "timeout_ms": 5000},
            " [UPDATE] tcp      6 5 src=192.0.2.1 dst=198.51.100.1 sport=40000 dport=80"
            " src=198.51.100.1 dst=192.0.2.1 sport=80 dport=40000 [ASSURED] mark=0",
        ),
    ],
)
def test_events_as_conntrack_prints_them(what, fields, line):
    """As conntrack 1.4.7 printed them of Linux 6.18, but for the last two, which its sources tell."""
    assert formats.conntrack_event(what | described(**fields)) == line


def test_a_gap_is_what_conntrack_does_not_know():
    assert formats.conntrack_event({"event": "gap", "lost": 12, "sequence": 40}) == "GAP 12"
