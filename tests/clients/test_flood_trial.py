"""A flood at small scale: connections in use stay, others are opened, and what is lost is a failure."""

import numpy as np
import pytest
from zonetrack.clients import flood_trial
from zonetrack.clients.driver import CheckFailed, Driver
from zonetrack.clients.flood_trial import BATCH, HALF_TRIP_MS, Caller, FloodPlan
from zonetrack.kernels.jit import JIT
from zonetrack.shm import segment
from zonetrack.shm.layout import ENTRY, GLOBAL, Life, Region

PLAN = FloodPlan(threads=2, connections=5_000 if JIT else 40, room=65_536 if JIT else 300, seconds=1 if JIT else 4)


@pytest.fixture(autouse=True)
def small_calls(monkeypatch):
    if not JIT:
        monkeypatch.setattr(flood_trial, "USED_PACKETS", 8)
        monkeypatch.setattr(flood_trial, "FLOOD_PACKETS", 32)


def test_a_flood_leaves_alone_what_is_in_use_and_lets_others_in():
    ticks = []
    found = flood_trial.conduct(PLAN, ticks.append)
    assert found["established_lost"] == 0 and PLAN.connections <= found["held"] <= PLAN.connections + PLAN.room
    sent = found["flood_packets_per_second"] * found["elapsed_s"]
    assert found["evicted"] > 0 or sent < PLAN.room  # on a busy machine it does not even fill the table
    assert found["handshakes"] >= BATCH and found["handshakes_completed_percent"] >= 95
    assert found["flood_packets_per_second"] > 0 and found["used_packets_per_second"] > 0
    assert ticks[-1] > PLAN.connections


def test_a_handshake_takes_its_round_trip():
    table = segment.anonymous(flood_trial.geometry(PLAN))
    driver = Driver(table, PLAN.seed, PLAN.burst)
    caller = Caller(PLAN, driver)
    moments = [1_000, 1_001, 1_000 + HALF_TRIP_MS, 1_000 + 2 * HALF_TRIP_MS - 1, 1_000 + 2 * HALF_TRIP_MS]
    seen = []
    for moment in moments:
        caller.go_on(moment)
        seen.append((caller.opened, caller.under_way, caller.completed))
    assert seen == [(32, 32, 0), (32, 32, 0), (32, 32, 0), (32, 32, 0), (32, 0, 32)]
    driver.leave()


def test_who_was_driven_out_is_not_counted_as_completed():
    table = segment.anonymous(flood_trial.geometry(PLAN))
    driver = Driver(table, PLAN.seed, PLAN.burst)
    caller = Caller(PLAN, driver)
    caller.go_on(1_000)
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    live = np.flatnonzero(entries["life"] & 0xFF == Life.LIVE)[:5]
    entries["expiry_ms"][live] = 1
    for moment in (1_010, 1_020):
        caller.go_on(moment)
    assert (caller.opened, caller.completed) == (BATCH, BATCH - 5)
    driver.settle()


def test_a_connection_that_is_lost_is_a_failure(monkeypatch):
    def forgetful(plan, table, stream, result, meet):
        meet()
        meet()
        result["lost"], result["elapsed_ns"] = 3, 1

    monkeypatch.setattr(flood_trial, "use", forgetful)
    with pytest.raises(CheckFailed, match="3 packets of connections in use did not find them"):
        flood_trial.conduct(FloodPlan(threads=1, connections=10, room=300, seconds=1), lambda packets: None)


def test_more_than_the_limit_is_a_failure(monkeypatch):
    def more(plan, table, stream, result, meet):
        meet()
        meet()
        table.array(Region.CONTROL, "globals", GLOBAL)["count"] = 1 << 20
        result["elapsed_ns"] = 1

    monkeypatch.setattr(flood_trial, "use", more)
    with pytest.raises(CheckFailed, match="there are 1048576 connections, the limit is 310"):
        flood_trial.conduct(FloodPlan(threads=1, connections=10, room=300, seconds=1), lambda packets: None)
