"""A trial checks its own work: what workers leave behind passes, and each thing that is planted in it is found."""

import numpy as np
import pytest
from zonetrack.clients import trial
from zonetrack.clients.driver import CheckFailed, Driver, streams
from zonetrack.clients.errors import ZonetrackError
from zonetrack.clients.scenarios import Handshake, Hit, Miss, Plan, Scan
from zonetrack.shm.layout import ENTRY, GLOBAL, QUOTA, Life, Region

CONNECTIONS = 1500


def loaded(scenario):
    """Return the table and the results of a scenario whose one worker was this process."""
    table, results = trial.new_table(scenario), np.zeros(1, trial.RESULT)
    trial.work(scenario, table, streams(1), results, 0, lambda: None)
    return table, results


def live(table):
    """Return the records of all connections; writes go to the table."""
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    return entries, np.flatnonzero(entries["life"] & 0xFF == Life.LIVE)


@pytest.mark.parametrize(
    "scenario",
    [
        Hit(Plan(connections=CONNECTIONS, zones=4)),
        Hit(Plan(connections=CONNECTIONS, burst=1)),
        Miss(Plan(connections=CONNECTIONS, zones=4)),
        Handshake(Plan(connections=CONNECTIONS, zones=4, data_packets=2, iterations=3)),
        Scan(Plan(connections=CONNECTIONS, zones=4)),
        Scan(Plan(connections=CONNECTIONS, limit=300, timeout_ms=100)),
    ],
    ids=lambda scenario: scenario.name,
)
def test_honest_work_passes(scenario):
    table, results = loaded(scenario)
    assert trial.check(scenario, table, results) == 2
    assert results["packets"][0] - results["retries"][0] == sum(run.packets_count for run in scenario.perform(0))
    assert results["errors"][0] == 0


def test_what_expired_was_cleaned_while_the_scan_ran():
    scenario = Scan(Plan(connections=CONNECTIONS, limit=300, timeout_ms=100))
    _, results = loaded(scenario)
    assert results["cleaned"][0] >= CONNECTIONS - 300
    assert results["peak_connections"][0] == 300
    assert results["waits"][0] > 0


def global_count(table):
    table.array(Region.CONTROL, "globals", GLOBAL)["count"] += 1


def zone_count(table):
    table.array(Region.CONTROL, "quotas", QUOTA)["count"][1] += 1


def two_zone_counts(table):
    table.array(Region.CONTROL, "quotas", QUOTA)["count"][:2] += np.array([1, -1], "i4").view("u4")


def a_record_that_is_not_live(table):
    entries, records = live(table)
    entries["life"][records[0]] = Life.DEAD


def all_expired(table):
    entries, records = live(table)
    entries["expiry_ms"][records] = 1


@pytest.mark.parametrize(
    ("plant", "complaint"),
    [
        (global_count, "the global count: 1501 connections, expected 1500"),
        (zone_count, "the zones' counts: 1501 connections, expected 1500"),
        (two_zone_counts, "zone 0: 376 connections, expected 375"),
        (a_record_that_is_not_live, "live records: 1499 connections, expected 1500"),
        (all_expired, "looked up again: .* ANSWER_ACK of connection 0: expected est.trk, found"),
    ],
)
def test_what_is_planted_in_the_table_is_found(plant, complaint):
    scenario = Hit(Plan(connections=CONNECTIONS, zones=4))
    table, results = loaded(scenario)
    plant(table)
    with pytest.raises(CheckFailed, match=complaint):
        trial.check(scenario, table, results)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("units", CONNECTIONS - 1, "1499 packets were finished, expected 1500"),
        ("cleaned", 1, "1500 connections, expected 1499"),
        ("peak_connections", 10**6, "there were 1000000 connections at once, the limit is"),
    ],
)
def test_results_that_are_not_what_was_asked_are_found(field, value, complaint):
    scenario = Hit(Plan(connections=CONNECTIONS))
    table, results = loaded(scenario)
    results[field] = value
    with pytest.raises(CheckFailed, match=complaint):
        trial.check(scenario, table, results)


def test_a_wrong_verdict_fails_the_worker():
    """A second handshake of connections that are open already is not what the first packet's row says."""
    scenario = Hit(Plan(connections=CONNECTIONS))
    table, results = loaded(scenario)
    with pytest.raises(CheckFailed, match="1500 packets with a wrong verdict, the first of them SYN of connection 0"):
        trial.work(scenario, table, streams(1), results, 0, lambda: None)


def test_a_limit_that_is_too_small_is_waited_for_only_so_long():
    with pytest.raises(CheckFailed, match=r"32 connections were refused for \d+ ms \(full\), with 100 in the table"):
        loaded(Handshake(Plan(connections=CONNECTIONS, limit=100)))


def test_the_table_is_left_at_rest():
    table, _ = loaded(Handshake(Plan(connections=CONNECTIONS, iterations=2)))
    driver = Driver(table, 1, 32)
    assert driver.connections == CONNECTIONS
    assert driver.me == 1, "the worker's place is free again"
    driver.leave()


def test_the_figures_are_per_core_and_without_the_generator():
    results = np.zeros(3, trial.RESULT)
    results["begun_ns"], results["ended_ns"] = [100, 150, 120], [1000, 1100, 1050]
    results["packets"], results["alone_ns"], results["alone_packets"] = 40, 20, 10
    found = trial.figures(Hit(Plan(threads=3, connections=120)), results)
    assert found["elapsed_s"] == pytest.approx(1000e-9)
    assert found["generator_ns"] == 2
    assert found["ns_per_packet"] == pytest.approx((1000 * trial.cores(3) - 120 * 2) / 120)
    assert found["packets_per_second"] == pytest.approx(120 / 1000e-9)


def test_workers_that_wait_for_one_that_failed_are_ended():
    def job(index, meet):
        if index == 1:
            raise ZonetrackError("planted")
        meet()

    with pytest.raises(ZonetrackError, match=r"worker 1 \(pid \d+\) failed with exit code 1"):
        trial.together(3, job, lambda: None)


def test_the_floor_has_three_figures():
    assert list(trial.measure_floor(1 << 16, 1)) == ["floor_ns_1", "floor_ns_2", "floor_ns_4"]
