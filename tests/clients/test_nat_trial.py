"""A trial of translated traffic: what its check lets pass, and what it does not."""

import numpy as np
import pytest
from zonetrack.clients import nat_trial
from zonetrack.clients.driver import CheckFailed
from zonetrack.clients.nat_scenarios import NatCommits, NatPlan, Unnat
from zonetrack.clients.trips import TUPLE
from zonetrack.kernels.jit import JIT
from zonetrack.shm.layout import GLOBAL, QUOTA, Region
from zonetrack.shm.sizing import Geometry


@pytest.fixture(scope="module", autouse=True)
def kernels_are_loaded():
    """Loading them is no part of what a trial measures."""
    nat_trial.warm()


N = 2000 if JIT else 60


def done(scenario):
    """Let one worker go through a scenario, in this process; returns what is left."""
    table, tuples = nat_trial.new_table(scenario), np.zeros(scenario.plan.connections, TUPLE)
    results = np.zeros((1, len(scenario.phases(0))), nat_trial.RESULT)
    nat_trial.work(scenario, table, tuples, results, 0, lambda: None)
    return table, tuples, results


@pytest.mark.parametrize("kind", [NatCommits, Unnat])
def test_a_trial_holds_what_was_asked_and_finds_it_again(kind):
    scenario = kind(NatPlan(connections=N, iterations=2))
    table, tuples, results = done(scenario)
    assert nat_trial.check(scenario, table, tuples, 0) == -(-N // 1000)
    found = nat_trial.figures(scenario, results)
    assert found["packets"] == scenario.packets_count
    assert found[f"ns_per_{scenario.unit}"] > 0


def test_a_lost_connection_is_noticed():
    scenario = NatCommits(NatPlan(connections=N))
    table, tuples, _ = done(scenario)
    table.array(Region.CONTROL, "globals", GLOBAL)["count"] -= 1
    table.array(Region.CONTROL, "quotas", QUOTA)["count"][0] -= 1
    with pytest.raises(CheckFailed, match=f"the global count: {N - 1} connections, expected {N}"):
        nat_trial.check(scenario, table, tuples, 0)


def test_two_connections_with_one_tuple_are_noticed():
    scenario = NatCommits(NatPlan(connections=N))
    table, tuples, _ = done(scenario)
    tuples[1] = tuples[0]
    with pytest.raises(CheckFailed, match=f"{N} connections have {N - 1} tuples between them"):
        nat_trial.check(scenario, table, tuples, 0)


def test_connections_without_a_port_are_counted():
    scenario = NatCommits(NatPlan(connections=30, addresses=1, ports=(2000, 2019)))
    table, tuples, results = done(scenario)
    assert results["exhausted"].sum() == 10
    assert nat_trial.check(scenario, table, tuples, 10) == 1
    with pytest.raises(CheckFailed, match="20 connections, expected 30"):
        nat_trial.check(scenario, table, tuples, 0)


def test_a_table_has_extensions_for_what_is_translated():
    assert nat_trial.geometry(NatCommits(NatPlan(connections=1000))).extension_share == 1000
    share = nat_trial.geometry(Unnat(NatPlan(connections=100_000))).extension_share
    assert 333 <= share <= 345
    assert isinstance(nat_trial.geometry(Unnat(NatPlan())), Geometry)
