"""timeouts against a real service: by the names of Linux and of Open vSwitch, policies and the zones that have them."""

import json

import pytest
from zonetrack.clients.errors import Exit
from zonetrack.clients.timeouts_command import ALIASES, POLICY_MAX, name_of
from zonetrack.kernels.timeouts import Timeout
from zonetrack.shm.layout import POLICIES_MAX

ZONE, POLICY = 120, 9


def policies(desk, *arguments):
    told = json.loads(desk.run("timeouts", "show", "--json", *arguments).out)
    return {one["policy"]: one["timeouts"] for one in told["policies"]}, told["zones"]


def test_set_show_and_back(desk):
    words = ("tcp_established=86400", "udp_multiple=30.5", "nf_conntrack_icmp_timeout=7")
    assert desk.run("timeouts", "set", POLICY, *words) == (Exit.OK, "", "")
    of, _ = policies(desk)
    assert (of[POLICY]["tcp_established"], of[POLICY]["udp_stream"], of[POLICY]["icmp"]) == (86400, 30.5, 7)
    assert of[POLICY]["udp"] == of[0]["udp"] == 30
    desk.run("timeouts", "set", POLICY, *(f"{word.partition('=')[0]}=default" for word in words))
    assert policies(desk, "--policy", POLICY)[0][POLICY] == of[0]


def test_a_zone_has_a_policy(desk):
    assert desk.run("timeouts", "zone", ZONE, POLICY).code == Exit.OK
    assert {"zone": ZONE, "policy": POLICY} in policies(desk)[1]
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
        (("set", "64", "udp=5"), "0<=x<=63"),
        (("set", "9"), "Missing argument"),
        (("zone", "65536", "1"), "a number from 0 to 65535"),
    ],
)
def test_what_cannot_be_set(desk, arguments, words):
    code, out, err = desk.run("timeouts", *arguments)
    assert (code, out) == (Exit.USAGE, "") and words in err


NAMES = {timeout.name.lower() for timeout in Timeout}
TCP = ("close", "close_wait", "established", "fin_wait", "last_ack", "max_retrans", "syn_recv", "syn_sent", "time_wait")
SCTP = ("closed", "cookie_echoed", "cookie_wait", "established", "heartbeat_sent", "shutdown_ack_sent", "shutdown_sent")
SYSCTLS = [
    *("generic_timeout", "icmp_timeout", "icmpv6_timeout", "udp_timeout", "udp_timeout_stream"),
    *("gre_timeout", "gre_timeout_stream", "tcp_timeout_unacknowledged", "sctp_timeout_shutdown_recd"),
    *(f"tcp_timeout_{name}" for name in TCP),
    *(f"sctp_timeout_{name}" for name in SCTP),
]
OF_OPEN_VSWITCH = [
    *("tcp_syn_sent", "tcp_syn_recv", "tcp_established", "tcp_fin_wait", "tcp_close_wait", "tcp_last_ack"),
    *("tcp_time_wait", "tcp_close", "tcp_syn_sent2", "tcp_retransmit", "tcp_unack"),
    *("udp_first", "udp_single", "udp_multiple", "icmp_first", "icmp_reply"),
]


@pytest.mark.parametrize("name", [*SYSCTLS, *(f"nf_conntrack_{name}" for name in SYSCTLS), *OF_OPEN_VSWITCH, *NAMES])
def test_names_of_both_worlds(name):
    assert name_of(name) in NAMES and name_of(name.upper()) in NAMES


def test_aliases_name_what_there_is():
    assert set(ALIASES.values()) <= NAMES and not set(ALIASES) & NAMES
    assert POLICY_MAX == POLICIES_MAX - 1
