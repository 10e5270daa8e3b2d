"""Timeouts are read and set in seconds, by the names of nf_conntrack, policy by policy."""

import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients.errors import BadParameterError, FailedError, NothingMatchedError, UnknownParameterError
from zonetrack.kernels import timeouts
from zonetrack.kernels.timeouts import DEFAULTS_OVS_S, DEFAULTS_S, Timeout
from zonetrack.kernels.words import u64
from zonetrack.service.policies import ALIASES, MS_MAX, NAMES, Policies, lengths, name_of, policy
from zonetrack.shm.layout import POLICIES_MAX, ZONE, Region, Setting


@pytest.fixture
def table():
    return tables.small()


@pytest.fixture
def policies(table):
    return Policies(table)


def test_a_new_table_has_the_defaults_alone(policies):
    assert policies.get() == {
        "policies": [
            {"policy": 0, "name": "default", "profile": "netfilter", "timeouts": in_words(DEFAULTS_S)},
        ],
        "zones": [],
    }


def in_words(seconds_of):
    """Return lengths by name."""
    return {timeout.name.lower(): seconds for timeout, seconds in seconds_of.items()}


def test_defaults_are_those_of_the_profiles_that_the_zones_of_a_policy_have(table, policies):
    settings = table.array(Region.CONTROL, "zones", ZONE)["settings"]
    policies.set(5, {Timeout.UDP_FIRST: 9000, Timeout.GRE: 8000})
    policies.set_zone(9, 5)
    settings[9] |= Setting.OVS
    both, of_ovs = policies.get()["policies"]
    assert (both["policy"], both["profile"]) == (0, "netfilter")
    assert of_ovs == {
        "policy": 5,
        "name": None,
        "profile": "ovs",
        "timeouts": in_words(DEFAULTS_OVS_S) | {"udp_first": 9, "gre": 8},
    }
    settings[7] |= Setting.OVS
    assert [(row["policy"], row["profile"]) for row in policies.get()["policies"]] == [
        (0, "netfilter"),
        (0, "ovs"),
        (5, "ovs"),
    ]
    assert policies.get(4)["policies"][0]["profile"] == "netfilter"


def test_what_is_set_is_what_kernels_read(table, policies):
    policies.set(3, lengths("timeouts", {"tcp_established": 7200, "udp": 0.5}))
    policies.set_zone(9, 3)
    shown = policies.get()
    assert [row["policy"] for row in shown["policies"]] == [0, 3]
    assert shown["zones"] == [{"zone": 9, "policy": 3, "name": None}]
    mine = shown["policies"][1]["timeouts"]
    assert (mine["tcp_established"], mine["udp"], mine["icmp"]) == (7200, 0.5, 30)
    length = timeouts.length_ms(tables.Participant(table).views, u64(3), u64(Timeout.UDP))
    assert int(length) == 500
    policies.set(3, lengths("timeouts", {"udp": None}))
    assert policies.get(3)["policies"][0]["timeouts"]["udp"] == 30


def test_one_policy_is_shown_with_its_zones(policies):
    policies.set_zone(9, 3)
    policies.set_zone(8, 4)
    assert policies.get(3)["zones"] == [{"zone": 9, "policy": 3, "name": None}]
    policies.set_zone(9, 0)
    assert policies.get(3)["zones"] == []


@pytest.mark.parametrize("seconds", [0, -1, 0.0001, MS_MAX / 1000 + 1, True, "30", float("nan"), float("inf"), [30]])
def test_a_length_that_cannot_be_is_named(seconds):
    with pytest.raises(BadParameterError) as refused:
        lengths("timeouts", {"udp": seconds})
    assert refused.value.detail == {"parameter": "timeouts.udp"}


@pytest.mark.parametrize("value", [None, {}, [], "udp=30"])
def test_lengths_are_a_map_of_something(value):
    with pytest.raises(BadParameterError):
        lengths("timeouts", value)


def test_an_unknown_timeout_is_named_with_the_nearest():
    with pytest.raises(UnknownParameterError, match="did you mean tcp_syn_sent") as refused:
        lengths("timeouts", {"tcp_syn_send": 5})
    assert refused.value.detail == {"parameter": "timeouts.tcp_syn_send", "nearest": "tcp_syn_sent"}


@given(st.floats(0.001, MS_MAX / 1000) | st.integers(1, MS_MAX // 1000))
def test_every_length_in_bounds_fits_its_word(seconds):
    (found,) = lengths("timeouts", {"gre": seconds}).values()
    assert 1 <= found <= MS_MAX


# ------------------------------------------------------------------------------------------------ names of policies
def test_a_new_name_gets_a_row_that_nobody_has(policies):
    policies.set(1, {Timeout.UDP: 7})
    policies.set_zone(9, 2)
    web = policies.make("web")
    assert web == 3 and policies.find("web") == policies.make("web") == 3
    policies.set(web, {Timeout.UDP: 9})
    assert policies.get(web)["policies"][0]["name"] == "web"
    assert policies.find("default") == policies.find(0) == 0
    with pytest.raises(NothingMatchedError, match="did you mean web"):
        policies.find("wbe")


def test_a_name_alone_is_shown_and_kept_apart(policies):
    assert (policies.make("a"), policies.make("b" * 32)) == (1, 2)
    assert [(row["policy"], row["name"]) for row in policies.get()["policies"]] == [
        *((0, "default"), (1, "a"), (2, "b" * 32)),
    ]


def test_what_is_taken_back_is_free(policies):
    web = policies.make("web")
    policies.set(web, {Timeout.UDP: 7})
    policies.set_zone(9, web)
    assert policies.unset(web) and not policies.unset(web)
    assert policies.get()["zones"] == [] and len(policies.get()["policies"]) == 1
    assert policies.make("other") == web


def test_there_are_only_so_many(policies):
    for row in range(1, POLICIES_MAX):
        assert policies.make(f"p{row}") == row
    with pytest.raises(FailedError, match="all 64"):
        policies.make("one.more")


@pytest.mark.parametrize("value", [-1, POLICIES_MAX, True, None, "", "7", "a b", "é", "x" * 33, 1.0])
def test_what_is_no_policy(value):
    with pytest.raises(BadParameterError):
        policy("policy", value)


# ------------------------------------------------------------------------------------------------ names of timeouts
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
    assert lengths("timeouts", {name: 7}) == {NAMES[name_of(name)]: 7000}


def test_aliases_name_what_there_is():
    assert set(ALIASES.values()) <= set(NAMES) and not set(ALIASES) & set(NAMES)
