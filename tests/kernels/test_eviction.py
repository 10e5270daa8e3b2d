"""Over a limit a connection that is not assured goes for a new one, where the zone is set so; no other is touched."""

import pytest
import tables
from bursts import Bench, tcp, udp
from zonetrack.kernels.jit import JIT
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm.layout import CtState, Life
from zonetrack.shm.reasons import Reason

NEW = CtState.TRK | CtState.NEW
MANY = 200 if JIT else 40


@pytest.fixture
def bench():
    made = Bench(tables.small(2000, zones=16))
    ZoneSettings(made.table).set(5, {"early_drop": True})
    yield made
    made.settle()


def assured(bench, port, zone):
    """Make a connection that is assured; returns its verdict."""
    packets = (
        tcp("S", 1000, sport=port),
        tcp("SA", 5000, 1001, reply=True, sport=port),
        tcp("A", 1001, 5001, sport=port),
    )
    return bench.track(*packets, zone=zone)[-1]


def is_there(bench, verdict):
    life = int(tables.entries(bench.table)["life"][int(verdict["record"])])
    return life & 0xFF == Life.LIVE and life >> 32 == verdict["incarnation"]


def test_the_newest_has_room_and_the_limit_holds(bench):
    tables.set_limit(bench.table, 5, 10)
    kept = [assured(bench, 50_000 + n, 5) for n in range(4)]
    for port in range(MANY):
        (verdict,) = bench.track(udp(port), zone=5)
        assert (verdict["ct_state"], verdict["reason"]) == (NEW, Reason.NONE) and is_there(bench, verdict)
        assert bench.count(5) <= 10
    assert bench.counter(Reason.EVICTED) == MANY - 6
    assert bench.counter(Reason.ZONE_FULL) == 0
    assert all(is_there(bench, verdict) for verdict in kept)


def test_nobody_goes_who_is_assured(bench):
    tables.set_limit(bench.table, 5, 3)
    kept = [assured(bench, 50_000 + n, 5) for n in range(3)]
    bench.track(*(udp(port) for port in range(5)), zone=6)
    (verdict,) = bench.track(udp(), zone=5)
    assert (verdict["ct_state"], verdict["reason"]) == (NEW, Reason.ZONE_FULL)
    assert all(is_there(bench, one) for one in kept) and bench.count(6) == 5
    assert bench.counter(Reason.EVICTED) == 0


def test_for_the_limit_of_all_anybody_may_go(bench):
    tables.totals(bench.table)["limit"] = 1800
    for first in range(0, 1800, 200):
        bench.track(*(udp(port) for port in range(first, first + 200)), zone=6)
    (verdict,) = bench.track(udp(), zone=5)
    assert verdict["reason"] == Reason.NONE and is_there(bench, verdict)
    bench.settle()
    assert (bench.count(5), bench.count(6), bench.counter(Reason.EVICTED)) == (1, 1799, 1)


def test_a_zone_that_is_not_set_so_refuses(bench):
    tables.set_limit(bench.table, 6, 1)
    bench.track(udp(1), zone=6)
    (verdict,) = bench.track(udp(2), zone=6)
    assert verdict["reason"] == Reason.ZONE_FULL and bench.counter(Reason.EVICTED) == 0


def test_a_limit_of_none_at_all_has_no_victim(bench):
    tables.set_limit(bench.table, 5, 0)
    (verdict,) = bench.track(udp(), zone=5)
    assert verdict["reason"] == Reason.ZONE_FULL and bench.count(5) == 0


def test_a_limit_that_was_lowered_is_reached_by_and_by(bench):
    bench.track(*(udp(port) for port in range(20)), zone=5)
    tables.set_limit(bench.table, 5, 10)
    (verdict,) = bench.track(udp(99), zone=5)
    assert verdict["reason"] == Reason.ZONE_FULL  # eight have gone for it, and there are still too many
    assert bench.counter(Reason.EVICTED) == 8
    (verdict,) = bench.track(udp(99), zone=5)
    assert verdict["reason"] == Reason.NONE and bench.count(5) == 10


def test_many_in_a_burst(bench):
    tables.set_limit(bench.table, 5, 8)
    verdicts = bench.track(*(udp(port) for port in range(30)), zone=5)
    assert not verdicts["reason"].any()
    assert bench.count(5) <= 8 and is_there(bench, verdicts[-1])
