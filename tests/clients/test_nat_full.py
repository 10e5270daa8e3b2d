"""A range that is nearly full: it stays as full as it is, each commit is timed, and so is the machine."""

import pytest
from zonetrack.clients import nat_full, nat_trial
from zonetrack.clients.driver import CheckFailed
from zonetrack.clients.nat_scenarios import NatCommits, NatPlan


def measured(**plan):
    """Return the figures of a trial."""
    scenario = NatCommits(NatPlan(addresses=1, **plan))
    return nat_full.measure(scenario, nat_trial.new_table(scenario), lambda packets: None)


def test_a_range_that_is_nearly_full_is_as_full_after_each_commit():
    found = measured(connections=20, ports=(2000, 2099), fill=95)
    assert (found["ports_filled"], found["ports_total"], found["exhausted"]) == (95, 100, 0)
    for name in ("commit", "least", "machine"):
        assert 0 < found[f"{name}_us_p50"] <= found[f"{name}_us_p9999"]
    assert found["commit_us_p9999"] <= found["commit_us_max"]


def test_where_all_are_taken_none_is_found():
    assert measured(connections=100, ports=(2000, 2019), fill=100)["exhausted"] == 100


def test_a_connection_that_stays_is_noticed():
    scenario = NatCommits(NatPlan(addresses=1, connections=1, ports=(2000, 2019), fill=50))
    table = nat_trial.new_table(scenario)
    scenario.plan = NatPlan(addresses=1, connections=1, ports=(2000, 2019), fill=45)
    nat_full.measure(scenario, table, lambda packets: None)
    scenario.plan = NatPlan(addresses=1, connections=1, ports=(2000, 2019), fill=40, seed=1 << 20)
    with pytest.raises(CheckFailed, match="9 connections, expected 8"):
        nat_full.measure(scenario, table, lambda packets: None)
