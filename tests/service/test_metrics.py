"""Families hold what the counters say; their names are fit for Prometheus, and their number does not grow with zones."""

import pytest
import tables
from bursts import Bench, tcp
from prometheus_client.parser import text_string_to_metric_families
from zonetrack.service.limits import Quotas
from zonetrack.service.metrics import COUNTERS, OTHER, PORTS_MAX, Metrics
from zonetrack.service.stats import COUNTED, OF_PACKETS, Stats
from zonetrack.shm import roster
from zonetrack.shm.layout import GLOBAL, UNLIMITED, Region
from zonetrack.shm.reasons import Reason

CONTROL = {"clients": 3, "paused": 1, "requests": 17, "refused": {"busy": 2}, "loop_latency_us": {"p99": 250}}
CONTROL |= {"kept_bytes": 4096, "rests": 5}
CONTROL |= {"events": {"subscribers": 2, "sequence": 90, "lost": 7, "lost_by_slow_readers": 5}}
WORKERS = [
    {"number": 0, "state": "running", "restarts": 2, "packets": 7, "cpu_s": 1.5},
    {"number": 1, "state": "waiting", "restarts": 3, "packets": 0, "cpu_s": None},
]


def port(name, **counts):
    """Return a port of two queues."""
    return {"name": name, "queues": [{"queue": 0, **counts}, {"queue": 1, **counts}]}


@pytest.fixture
def table():
    return tables.small(3000, zones=1100)


def made(table, zones_max=1000, workers=WORKERS, ports=()):
    return Metrics(Stats(table), lambda: workers, lambda: list(ports), lambda: CONTROL, {"version": "1"}, zones_max)


def values(metrics):
    """Return every sample as Prometheus parses it: value by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_the_table(table):
    tables.Participant(table).made(tables.keys(5, zone=1))
    table.array(Region.CONTROL, "globals", GLOBAL)["limit"] = UNLIMITED
    found = values(made(table))
    assert found["zonetrack_entries",] == 5 and found["zonetrack_entries_limit",] == float("inf")
    assert found["zonetrack_entries_capacity",] == 3000 and found["zonetrack_zones_in_use",] == 1
    assert found["zonetrack_insert_total",] == 5
    assert found["zonetrack_build_info", ("version", "1")] == 1


def test_sweeps_are_a_histogram(table):
    me = tables.Participant(table)
    me.made(tables.keys(3), expiry_ms=1)
    counters = roster.participants(table)[me.me - 1]["counters"]
    counters[Reason.SWEEPS], counters[Reason.SWEEPS_100_US] = 10, 4
    counters[Reason.SWEEPS_1_MS] = counters[Reason.SWEEPS_10_MS] = 9
    counters[Reason.SWEEP_NS] = 2_500_000
    found = values(made(table))
    buckets = {key[1][1]: value for key, value in found.items() if key[0] == "zonetrack_sweep_seconds_bucket"}
    assert buckets == {"0.0001": 4, "0.001": 9, "0.01": 9, "+Inf": 10}
    assert (found["zonetrack_sweep_seconds_count",], found["zonetrack_sweep_seconds_sum",]) == (10, 0.0025)
    assert found["zonetrack_sweep_backlog",] == 3


def test_every_reason_of_a_packet_is_in_one_family(table):
    bench = Bench(table)
    bench.track(tcp("FA", 1, 1), tcp("", 1), tcp("FA", 2, 1))
    found = values(made(table))
    assert found["zonetrack_invalid_total", ("reason", "tcp_new_refused")] == 2
    assert found["zonetrack_invalid_total", ("reason", "invalid_tcp_flags")] == 1
    named = [labels[0][1] for name, *labels in found if name in FAMILIES_OF_REASONS]
    assert sorted(named) == sorted(COUNTED[reason] for reason in OF_PACKETS)


FAMILIES_OF_REASONS = ("zonetrack_invalid_total", "zonetrack_insert_failed_total", "zonetrack_ignored_total")


def test_the_fullest_zones_have_series_of_their_own_and_the_rest_is_other(table):
    me = tables.Participant(table)
    for zone in range(12):
        me.made(tables.keys(1 + zone, zone=zone))
    Quotas(table).set_zone(11, 100)
    found = values(made(table, zones_max=2))
    assert {key: value for key, value in found.items() if key[0].startswith("zonetrack_zone_")} == {
        ("zonetrack_zone_entries", ("zone", "11")): 12,
        ("zonetrack_zone_entries", ("zone", "10")): 11,
        ("zonetrack_zone_entries", ("zone", OTHER)): sum(range(1, 11)),
        ("zonetrack_zone_entries_limit", ("zone", "11")): 100,
    }


def test_workers_and_control(table):
    found = values(made(table))
    assert found["zonetrack_worker_up", ("worker", "0")] == 1 and found["zonetrack_worker_up", ("worker", "1")] == 0
    assert found["zonetrack_worker_cpu_seconds_total", ("worker", "0")] == 1.5
    assert ("zonetrack_worker_cpu_seconds_total", ("worker", "1")) not in found
    assert found["zonetrack_worker_restarts_total", ("worker", "1")] == 3
    assert found["zonetrack_control_refused_total", ("code", "busy")] == 2
    assert found["zonetrack_control_latency_seconds",] == 0.00025
    assert (found["zonetrack_event_readers",], found["zonetrack_events_total",]) == (2, 90)
    assert found["zonetrack_events_lost_total", ("at", "ring")] == 7
    assert found["zonetrack_events_lost_total", ("at", "reader")] == 5


def test_queues_of_a_port_are_added_up_and_further_ports_are_other(table):
    ports = [port(f"p{number}", rx_packets=number, rx_dropped=7) for number in range(PORTS_MAX + 2)]
    found = values(made(table, ports=ports))
    assert found["zonetrack_port_rx_packets_total", ("port", "p3")] == 6
    assert found["zonetrack_port_rx_packets_total", ("port", OTHER)] == 2 * (PORTS_MAX + PORTS_MAX + 1)
    assert found["zonetrack_port_tx_full_total", ("port", "p3")] == 0
    assert found["zonetrack_port_rx_dropped_total", ("port", "p3")] == 14


def test_a_thousand_zones_make_as_many_series_and_no_more(table):
    me = tables.Participant(table)
    for zone in range(1010):
        me.made(tables.keys(1, zone=zone))
    metrics = made(table)
    assert sum(name == "zonetrack_zone_entries" for name, *_ in values(metrics)) == 1001


def test_plain_values_are_the_same(table):
    metrics = made(table)
    plain = {
        (sample["name"], *sorted(sample["labels"].items())): sample["value"]
        for family in metrics.plain()
        for sample in family["samples"]
    }
    assert plain == values(metrics)


def test_counters_have_different_names_and_reasons():
    assert len({one.name for one in COUNTERS}) == len({one.reason for one in COUNTERS}) == len(COUNTERS)
