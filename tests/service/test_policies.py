"""Timeouts are read and set in seconds, by the names of nf_conntrack, policy by policy."""

import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients.errors import BadParameterError, UnknownParameterError
from zonetrack.kernels import timeouts
from zonetrack.kernels.timeouts import DEFAULTS_S, Timeout
from zonetrack.kernels.words import u64
from zonetrack.service.policies import MS_MAX, Policies, lengths


@pytest.fixture
def table():
    return tables.small()


@pytest.fixture
def policies(table):
    return Policies(table)


def test_a_new_table_has_the_defaults_alone(policies):
    assert policies.get() == {
        "policies": [
            {"policy": 0, "timeouts": {timeout.name.lower(): seconds for timeout, seconds in DEFAULTS_S.items()}}
        ],
        "zones": [],
    }


def test_what_is_set_is_what_kernels_read(table, policies):
    policies.set(3, lengths("timeouts", {"tcp_established": 7200, "udp": 0.5}))
    policies.set_zone(9, 3)
    shown = policies.get()
    assert [row["policy"] for row in shown["policies"]] == [0, 3]
    assert shown["zones"] == [{"zone": 9, "policy": 3}]
    mine = shown["policies"][1]["timeouts"]
    assert (mine["tcp_established"], mine["udp"], mine["icmp"]) == (7200, 0.5, 30)
    length = timeouts.length_ms(tables.Participant(table).views, u64(3), u64(Timeout.UDP))
    assert int(length) == 500
    policies.set(3, lengths("timeouts", {"udp": None}))
    assert policies.get(3)["policies"][0]["timeouts"]["udp"] == 30


def test_one_policy_is_shown_with_its_zones(policies):
    policies.set_zone(9, 3)
    policies.set_zone(8, 4)
    assert policies.get(3)["zones"] == [{"zone": 9, "policy": 3}]
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
