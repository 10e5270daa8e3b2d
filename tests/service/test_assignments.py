"""What queues cost, and how they are dealt out better: few moves, never worse; names, shares, percentiles."""

import instances
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.service import assignments
from zonetrack.service.assignments import Assignments, Move, latency, perf, plan, read, variance
from zonetrack.shm import port
from zonetrack.shm.layout import LATENCIES, Part
from zonetrack.shm.queues import Queues


def test_a_queue_goes_to_who_has_nothing():
    made = plan({0: 0.5, 1: 0.4, 2: 0.0}, {0: 0, 1: 0, 2: 1}, 2)
    assert made.moves in ([Move(0, 0, 1)], [Move(1, 0, 1)])
    assert made.improvement == pytest.approx(100 * (1 - 0.05**2 / 0.45**2))


def test_two_queues_change_places():
    made = plan({0: 0.6, 1: 0.3, 2: 0.2, 3: 0.1}, {0: 0, 1: 0, 2: 1, 3: 1}, 2)
    loads = {0: 0.6, 1: 0.3, 2: 0.2, 3: 0.1}
    after = {0: 0, 1: 0, 2: 1, 3: 1} | {move.number: move.after for move in made.moves}
    assert sum(loads[one] for one, worker in after.items() if worker == 0) == pytest.approx(0.6)
    assert made.improvement == pytest.approx(100.0)


def test_what_is_even_is_left():
    assert plan({0: 0.5, 1: 0.5}, {0: 1, 1: 0}, 2) == ([], 0.0)
    assert plan({}, {}, 3) == ([], 0.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3)), max_size=12))
def test_no_plan_is_worse_than_what_there_is(queues):
    loads = {number: load for number, (load, _) in enumerate(queues)}
    holders = {number: worker for number, (_, worker) in enumerate(queues)}
    made = plan(loads, holders, 4)
    after = holders | {move.number: move.after for move in made.moves}

    def spread(held):
        return variance(sum(loads[one] for one, worker in held.items() if worker == number) for number in range(4))

    assert spread(after) <= spread(holders) + 1e-12
    assert 0.0 <= made.improvement <= 100.0 + 1e-9


def test_names_of_queues():
    assert read("lan.0") == ("lan", 0)
    for wrong in ("lan", "lan.", ".0", "lan.x"):
        with pytest.raises(ValueError, match=r"expected a queue as PORT.QUEUE"):
            read(wrong)


@pytest.fixture
def service():
    with instances.named() as instance, port.create(instance, "lab", 3, slots=8) as made:
        queues = Queues([made], workers=2)
        yield queues, Assignments(queues)


def work(queues, number, busy_ns, bursts):
    """Let a queue have had bursts, of which one in ten was measured."""
    record = queues.records[number]
    record["bursts"], record["measured"], record["busy_ns"] = bursts, bursts // 10, busy_ns // 10
    record["rx_packets"] = 32 * bursts


def test_shares_are_of_what_was_measured(service, monkeypatch):
    queues, made = service
    began_ns = made._looks[0].moment_ns
    monkeypatch.setattr(assignments.time, "monotonic_ns", lambda: began_ns + 1_000_000_000)
    work(queues, 0, 400_000_000, 1000)
    work(queues, 2, 300_000_000, 1000)
    queues.perf["calls_ns"][0], queues.perf["idle_ns"][0] = 1_000_000_000, 250_000_000
    told = made.tell()
    usage = {(row["port"], row["queue"]): row["usage_percent"] for row in told["queues"]}
    assert usage == {("lab", 0): 40.0, ("lab", 1): 0.0, ("lab", 2): 30.0}
    assert told["queues"][0]["packets_per_second"] == 32_000
    assert told["workers"][0] == {
        "worker": 0,
        "usage_percent": 75.0,
        "queues_percent": 70.0,
        "overhead_percent": 5.0,
    }
    planned = made.told(made.plan())
    (move,) = planned["moves"]
    assert (move["port"], move["from"], move["to"]) == ("lab", 0, 1) and move["queue"] in (0, 2)
    assert made.balance_if_needed() is None  # nobody is at the limit
    work(queues, 0, 700_000_000, 1000)
    done = made.balance_if_needed()
    assert done is not None and queues.records["wanted"].tolist() in ([2, 2, 1], [1, 2, 2])
    assert queues.records["holder"].tolist() == [1, 2, 1]


def test_parts_are_told_per_packet(service):
    queues, _ = service
    line = queues.perf[1]
    line["bursts"], line["packets"] = 2, 64
    line["parts_ns"][Part.TRACK] = 6_400
    line["latencies"][12] = 2
    first, second = perf(queues)
    assert first["ns_per_packet"]["track"] is None and first["latency"]["p50_ns"] is None
    assert second["ns_per_packet"]["track"] == 100.0
    assert (second["packets_per_burst"], second["latency"]["p99_ns"], second["latencies"]) == (32.0, 8192, {"4096": 2})


def test_percentiles_are_powers_of_two():
    counts = np.zeros(LATENCIES, "u8")
    counts[[3, 10]] = 99, 1
    assert latency(counts) == {"p50_ns": 16, "p99_ns": 16, "max_ns": 2048}
