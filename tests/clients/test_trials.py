"""Rows of scenarios with trials of their own: each that `zonetrack load` names is there, and refuses what cannot be."""

import importlib

import pytest
from zonetrack.clients import load
from zonetrack.clients.flood_trial import FloodPlan
from zonetrack.clients.trials import Trial

OWN = [row for row in load.ROWS if row.kind in ("own", "ruled")]


def of(name):
    return importlib.import_module(f"zonetrack.clients.{name}_trial").TRIAL


@pytest.mark.parametrize("row", OWN, ids=lambda row: row.name)
def test_each_has_a_room_that_is_called_as_it_is(row):
    trial = of(row.name)
    assert isinstance(trial, Trial)
    plan = trial.plan(**row.defaults)
    assert trial.packets_count(plan) >= plan.connections
    trial.geometry(plan)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="two at least"):
        of("flood").geometry(FloodPlan(threads=1))
    with pytest.raises(ValueError, match="connections"):
        of("dump").geometry(of("dump").plan(connections=1 << 40))
