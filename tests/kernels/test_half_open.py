"""A budget of half-open connections: never more of them, whoever comes, replies, goes or dies; exact up to so many seats."""

import numpy as np
import pytest
import tables
from bursts import Bench, tcp, udp
from zonetrack.kernels import half_open
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.service.half_open import HalfOpen
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm.layout import SEATS_MAX, CtState, Life, Status
from zonetrack.shm.reasons import Reason
from zonetrack.shm.seats import Seats

ZONE, OTHER, BUDGET = 5, 6, 10
NEW = CtState.TRK | CtState.NEW


def bench_of(on_full, budget=BUDGET):
    table = tables.small(2000, zones=16)
    table.seats = Seats()
    ZoneSettings(table).set(ZONE, {"half_open": budget, "on_full": on_full})
    return Bench(table)


@pytest.fixture(params=["reject", "early_drop"])
def bench(request):
    made = bench_of(request.param)
    yield made
    made.settle()


@pytest.fixture
def refusing():
    made = bench_of("reject")
    yield made
    made.settle()


@pytest.fixture
def dropping():
    made = bench_of("early_drop")
    yield made
    made.settle()


def half_open_of(bench, zone=ZONE):
    """Return how many connections of a zone have seen no reply, whatever sits on its seats."""
    entries = tables.entries(bench.table)
    live = entries[entries["life"] & 0xFF == Life.LIVE]
    own = live[live["key"][:, 4] >> 16 & 0xFFFF == zone]
    return int(np.count_nonzero(own["status"] & Status.SEEN_REPLY == 0))


def seated(bench):
    return HalfOpen(bench.table).count(ZONE)


def test_never_more_than_the_budget(bench):
    for port in range(0, 60, 6):
        bench.track(*(udp(port + i) for i in range(6)), zone=ZONE)
        assert half_open_of(bench) == seated(bench) == min(port + 6, BUDGET)
    bench.track(*(udp(port) for port in range(60)), zone=OTHER)
    assert half_open_of(bench, OTHER) == 60


def test_who_is_refused_is_told_why(refusing):
    verdicts = refusing.track(*(udp(port) for port in range(12)), zone=ZONE)
    assert verdicts["reason"].tolist() == [Reason.NONE] * 10 + [Reason.HALF_OPEN_FULL] * 2
    assert verdicts["ct_state"].tolist() == [NEW] * 12 and not verdicts["incarnation"][10:].any()
    assert refusing.count(ZONE) == 10 and refusing.counter(Reason.EVICTED) == 0


def test_a_reply_frees_a_seat(refusing):
    refusing.track(*(udp(port) for port in range(10)), zone=ZONE)
    refusing.track(udp(3, reply=True), udp(4, reply=True), zone=ZONE)
    assert half_open_of(refusing) == seated(refusing) == 8
    verdicts = refusing.track(udp(20), udp(21), udp(22), zone=ZONE)
    assert verdicts["reason"].tolist() == [Reason.NONE, Reason.NONE, Reason.HALF_OPEN_FULL]
    assert refusing.count(ZONE) == 12


def test_a_delete_and_a_flush_free_seats(refusing):
    verdicts = refusing.track(*(udp(port) for port in range(10)), zone=ZONE)
    one = tables.Participant(refusing.table)
    assert one.delete(int(verdicts["record"][2]), incarnation=int(verdicts["incarnation"][2]))
    one.run()
    assert seated(refusing) == 9
    one.flush(ZONE)
    assert seated(refusing) == half_open_of(refusing) == 0
    assert not refusing.track(*(udp(port) for port in range(30, 40)), zone=ZONE)["reason"].any()


def test_over_the_budget_the_one_goes_that_has_waited_longest(dropping):
    answered = dropping.track(udp(900), udp(900, reply=True), zone=ZONE, now_ms=500)[-1]
    for n in range(BUDGET):
        dropping.track(udp(n), zone=ZONE, now_ms=1_000 + 100 * n)
    for n in range(3):
        assert dropping.track(udp(100 + n), zone=ZONE, now_ms=5_000)["reason"][0] == Reason.NONE
    dropping.settle()
    verdicts = dropping.track(*(udp(n) for n in range(BUDGET)), zone=ZONE, now_ms=5_000, commit=False)
    assert (verdicts["incarnation"] != 0).tolist() == [False] * 3 + [True] * 7
    assert dropping.counter(Reason.EVICTED) == 3
    life = int(tables.entries(dropping.table)["life"][int(answered["record"])])
    assert life >> 32 == answered["incarnation"] and life & 0xFF == Life.LIVE


def test_handshakes_are_completed_beside_a_flood(dropping):
    port, now_ms, done = 1, 1_000, []
    for n in range(6):
        number, steps = 40_000 + n, (("S", 1000, 0, False), ("SA", 5000, 1001, True), ("A", 1001, 5001, False))
        for flags, seq, ack, reply in steps:
            (verdict,) = dropping.track(tcp(flags, seq, ack, reply, sport=number), zone=ZONE, now_ms=now_ms)
            now_ms += 20
            dropping.track(*(tcp("S", 7, sport=port + i) for i in range(5)), zone=ZONE, now_ms=now_ms)
            port += 5
        done.append(verdict)
    assert [int(one["ct_state"]) for one in done] == [CtState.TRK | CtState.EST] * 6
    assert half_open_of(dropping) == BUDGET and dropping.count(ZONE) == BUDGET + 6


def test_a_seat_is_as_free_as_the_record_says(refusing):
    """Whoever frees a record, a repairer too, frees the seat with it."""
    table, entries = refusing.table, tables.entries(refusing.table)
    record, first = 7, int(tables.quotas(table)["half_open_first"][ZONE])
    before = entries["life"][record].copy()
    word = 9 << 32 | record + 1
    table.seats.words[first] = word
    for state, incarnation, taken in (
        *((Life.NEW, 9, True), (Life.LIVE, 9, True), (Life.DEAD, 9, False), (Life.FREE, 9, False)),
        *((Life.NEW, 10, False), (Life.LIVE, 8, False)),
    ):
        entries["life"][record] = incarnation << 32 | state
        assert bool(half_open.is_taken(refusing.views, u64(word))) == taken, (state, incarnation)
        assert seated(refusing) == taken
    entries["life"][record] = 9 << 32 | Life.LIVE
    entries["status"][record] = Status.SEEN_REPLY
    assert not half_open.is_taken(refusing.views, u64(word)) and seated(refusing) == 0
    entries["status"][record], entries["life"][record] = 0, before


def test_exact_with_more_seats_than_are_looked_at():
    budget = int(half_open.LOOKS_MAX) * (3 if JIT else 1) + 6
    bench, made = bench_of("reject", budget), 0
    for first in range(0, budget + 20, 10):
        made += int((bench.track(*(udp(first + i) for i in range(10)), zone=ZONE)["reason"] == Reason.NONE).sum())
    assert made == half_open_of(bench) == seated(bench) == budget
    bench.settle()


def test_a_table_without_seats_has_no_budget(refusing):
    refusing.views["seats"] = 0
    assert not refusing.track(*(udp(port) for port in range(15)), zone=ZONE)["reason"].any()


def test_seats_that_there_are_not_are_not_taken(refusing):
    tables.quotas(refusing.table)["half_open_first"][ZONE] = SEATS_MAX - 3
    reasons = refusing.track(*(udp(port) for port in range(5)), zone=ZONE)["reason"].tolist()
    assert reasons == [Reason.NONE] * 3 + [Reason.HALF_OPEN_FULL] * 2
