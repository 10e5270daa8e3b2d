"""The same connections in one zone and in many: figures of each step, and each check that can fail does."""

import numpy as np
import pytest
from zonetrack.clients import zones_trial
from zonetrack.clients.driver import CheckFailed, streams
from zonetrack.clients.zones_trial import Maker, ZonesPlan
from zonetrack.kernels.jit import JIT
from zonetrack.service import audit
from zonetrack.shm import segment
from zonetrack.shm.layout import ENTRY, QUOTA, Region

PLAN = ZonesPlan(connections=20_000 if JIT else 300, zones=7, pairs=2)


@pytest.fixture(autouse=True)
def small_background(monkeypatch):
    monkeypatch.setattr(zones_trial, "BACKGROUND_CONNECTIONS", 64)


def maker(zones):
    return Maker(PLAN, segment.anonymous(zones_trial.geometry(PLAN, zones)), zones)


def test_a_trial_has_all_figures():
    ticks = []
    found = zones_trial.conduct(PLAN, ticks.append)
    layouts = ("create_ns", "sweep_ns_per_entry", "flush_us_empty", "flush_us_full", "home_ms")
    assert found.keys() >= {*layouts, *(f"{name}_many" for name in layouts), "sweep_ratio", "burst_ratio"}
    assert found.keys() >= {"burst_us_p999_idle", "burst_us_p999_during_flush", "elapsed_s"}
    assert all(value > 0 for name, value in found.items() if name not in ("create_ns", "create_ns_many"))
    assert found["bursts_during_flush"] >= PLAN.pairs
    assert ticks[-1] == (2 + PLAN.pairs) * PLAN.connections == zones_trial.TRIAL.packets_count(PLAN)


@pytest.mark.parametrize("zones", [1, 7])
def test_connections_are_spread_and_come_home(zones):
    one = maker(zones)
    one.create()
    quotas = one.table.array(Region.CONTROL, "quotas", QUOTA)["count"]
    own = quotas[zones_trial.FIRST_ZONE : zones_trial.FIRST_ZONE + zones]
    assert int(own.sum()) == PLAN.connections and own.max() - own.min() <= 1
    one.sweep()
    one.flush_empty()
    one.flush()
    one.check_empty()
    assert not quotas.any()
    one.driver.leave()
    assert audit.at_rest(one.table) is None


def test_a_zone_that_has_something_is_not_called_empty():
    one = maker(1)
    one.create()
    with pytest.raises(CheckFailed, match="connections that are left: "):
        one.check_empty()


def test_what_is_found_after_a_flush_is_a_failure():
    one = maker(1)
    one.create()
    one.table.array(Region.CONTROL, "quotas", QUOTA)["count"][:] = 0
    with pytest.raises(CheckFailed, match="looked up again"):
        one.check_empty()


def test_a_connection_that_is_due_is_a_failure():
    one = maker(1)
    one.create()
    one.table.array(Region.DUE, "due", "u4")[: PLAN.connections] = 1
    one.table.array(Region.ENTRIES, "entries", ENTRY)["expiry_ms"][:] = 1
    with pytest.raises(CheckFailed, match="connections that had expired: "):
        one.sweep()


def test_a_zone_that_is_short_of_one_is_a_failure():
    one = maker(7)
    one.table.array(Region.CONTROL, "quotas", QUOTA)["count"][5] = np.uint32(1)
    with pytest.raises(CheckFailed, match=rf"connections that were made: {PLAN.connections + 1}, "):
        one.create()


def test_parts_of_pairs_take_turns():
    assert [zones_trial.order(pair) for pair in range(3)] == [(True, False), (False, True), (True, False)]


def test_each_flush_has_a_burst_beside_it_however_soon_it_is_over():
    plan = ZonesPlan(connections=20, zones=7, pairs=30 if JIT else 4)
    found = zones_trial.beside(plan, streams(1), lambda packets: None)
    assert found["bursts_during_flush"] >= plan.pairs and found["bursts_idle"] >= plan.pairs


def test_who_watches_sees_packets():
    watched = streams(1)
    one = Maker(PLAN, segment.anonymous(zones_trial.geometry(PLAN, 1)), 1, watched[0])
    one.create()
    assert int(watched["packets"][0]) == PLAN.connections
