"""Events at one rate after the other: all that happened is told or counted, and what is not is a failure."""

import numpy as np
import pytest
from zonetrack.clients import events_trial
from zonetrack.clients.driver import CheckFailed, streams
from zonetrack.clients.events_trial import RATES, STEP, Pace
from zonetrack.clients.trial import Plan
from zonetrack.kernels.jit import JIT

PLAN = Plan(connections=2_000 if JIT else 40)


def steps(lost=0, unknown=0):
    """Return what a trial would note, whose last step lost some events."""
    found = np.zeros(len(RATES), STEP)
    found["happened"], found["told"], found["elapsed_ns"] = (
        1_000,
        1_000,
        [1_000_000 * (8 - i) for i in range(len(RATES))],
    )
    found["told"][-1] -= lost + unknown
    found["lost"][-1] = lost
    return found


def test_a_trial_has_all_figures():
    ticks = []
    found = events_trial.conduct(PLAN, ticks.append)
    assert found["events"] >= len(RATES) * 4 * PLAN.connections
    assert found["full_events_per_second"] > 0 and 0 <= found["full_told_percent"] <= 100
    assert found["full_lost"] == 0 or found["full_told_percent"] < 100
    assert events_trial.TRIAL.packets_count(PLAN) == len(RATES) * 4 * PLAN.connections


def test_the_best_rate_is_one_at_which_nothing_was_lost():
    assert events_trial.figures(steps())["events_per_second"] == pytest.approx(1_000_000)
    found = events_trial.figures(steps(lost=400))
    assert found["events_per_second"] == pytest.approx(500_000)
    assert (found["full_lost"], found["full_told_percent"]) == (400, 60)


def test_events_that_nobody_counted_are_a_failure():
    with pytest.raises(CheckFailed, match="at full rate: 1000 events, 960 told and 30 lost"):
        events_trial.figures(steps(lost=30, unknown=10))


def test_a_pace_is_kept_by_waiting(monkeypatch):
    waited = []
    monkeypatch.setattr(events_trial.time, "sleep", waited.append)
    stream = streams(1)[0]
    pace, full = Pace(stream, 10), Pace(stream, 0)
    stream["packets"] = 1_000
    full.keep(0)
    assert not waited
    pace.keep(0)
    assert 90 < waited[0] <= 100
