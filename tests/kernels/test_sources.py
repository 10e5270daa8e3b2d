"""A budget for each source: never more connections of one than it has, whoever comes, goes, is flushed or dies."""

import numpy as np
import pytest
import tables
from bursts import Bench
from scapy.all import IP, UDP, Ether, IPv6
from zonetrack.kernels import repair, sources
from zonetrack.kernels.words import u64
from zonetrack.service import audit
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm import roster
from zonetrack.shm.layout import STEP_BITS, Life, Status, Step
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sources import Sources

ZONE, OTHER, BUDGET = 5, 6, 4
SERVER = "198.51.100.1"


def bench_of(budget=BUDGET, on_full="reject", zones=(ZONE,)):
    table = tables.small(2000, zones=16)
    table.sources = Sources(2000)
    for zone in zones:
        ZoneSettings(table).set(zone, {"per_source": budget, "on_full": on_full})
    return Bench(table)


@pytest.fixture(params=["reject", "early_drop"])
def bench(request):
    made = bench_of(on_full=request.param)
    yield made
    made.settle()
    assert not wrong(made.table)


def ask(host, port, dst=SERVER):
    """A datagram of a host to a server."""
    if ":" in host:
        return Ether() / IPv6(src=host, dst="2001:db8::1") / UDP(sport=port, dport=53) / b"question"
    return Ether() / IP(src=host, dst=dst) / UDP(sport=port, dport=53) / b"question"


def reply(host, port):
    return Ether() / IP(src=SERVER, dst=host) / UDP(sport=53, dport=port) / b"answer"


def counts(table):
    """Return all counts that are not 0, in order."""
    cells = table.sources.cells
    return sorted((cells[cells != 0] & 0xFFFFFF).tolist())


def wrong(table):
    """Return the difference between the counts and the records that are in."""
    entries = tables.entries(table)
    live = entries[(entries["life"] & 0xFF == Life.LIVE) & (entries["status"] & Status.SOURCE_COUNTED != 0)]
    is_high = live["status"] & Status.ORIG_IS_HIGH != 0
    names = np.where(is_high[:, None], live["key"][:, 2:4], live["key"][:, 0:2])
    zones = live["key"][:, 4] >> 16 & 0xFFFF
    _, content = np.unique(np.column_stack([names, zones]), axis=0, return_counts=True)
    return [] if sorted(content.tolist()) == counts(table) else [sorted(content.tolist()), counts(table)]


def reasons(verdicts):
    return verdicts["reason"].tolist()


def test_never_more_of_one_source_than_its_budget(bench):
    for host in ("192.0.2.1", "192.0.2.2", "203.0.113.9", "2001:db8::9"):
        verdicts = bench.track(*(ask(host, port) for port in range(1000, 1007)), zone=ZONE)
        assert reasons(verdicts) == [Reason.NONE] * 4 + [Reason.SOURCE_FULL] * 3
    assert counts(bench.table) == [4, 4, 4, 4] and bench.count(ZONE) == 16
    assert bench.counter(Reason.EVICTED) == 0  # who is over his budget drives nobody out
    assert not bench.track(*(ask("192.0.2.1", port) for port in range(1, 10)), zone=OTHER)["reason"].any()


def test_who_answers_is_not_the_source(bench):
    bench.track(*(ask(f"192.0.2.{host}", 1000) for host in range(1, 9)), zone=ZONE)
    assert not bench.track(*(reply(f"192.0.2.{host}", 1000) for host in range(1, 9)), zone=ZONE)["reason"].any()
    assert counts(bench.table) == [1] * 8
    packets = [Ether() / IP(src=SERVER, dst=f"192.0.2.{host}") / UDP(sport=7, dport=7) / b"x" for host in range(1, 7)]
    assert reasons(bench.track(*packets, zone=ZONE)) == [Reason.NONE] * 4 + [Reason.SOURCE_FULL] * 2


def test_known_connections_go_on_over_the_budget(bench):
    for _ in range(3):
        verdicts = bench.track(*(ask("192.0.2.1", 1000 + i) for i in range(6)), zone=ZONE)
        assert reasons(verdicts) == [Reason.NONE] * 4 + [Reason.SOURCE_FULL] * 2


def test_a_delete_and_a_flush_make_room(bench):
    verdicts = bench.track(*(ask("192.0.2.1", 1000 + i) for i in range(4)), zone=ZONE)
    one = tables.Participant(bench.table)
    assert one.delete(int(verdicts["record"][2]), incarnation=int(verdicts["incarnation"][2]))
    one.run()
    assert counts(bench.table) == [3] and not wrong(bench.table)
    assert reasons(bench.track(ask("192.0.2.1", 7), ask("192.0.2.1", 8), zone=ZONE)) == [0, Reason.SOURCE_FULL]
    one.flush(ZONE)
    assert counts(bench.table) == []
    assert not bench.track(*(ask("192.0.2.1", 50 + i) for i in range(4)), zone=ZONE)["reason"].any()


def test_a_budget_changes_while_packets_flow():
    bench = bench_of()
    settings = ZoneSettings(bench.table)
    bench.track(*(ask("192.0.2.1", 1000 + i) for i in range(4)), zone=ZONE)
    settings.set(ZONE, {"per_source": 2})
    assert reasons(bench.track(ask("192.0.2.1", 7), ask("192.0.2.2", 7), zone=ZONE)) == [Reason.SOURCE_FULL, 0]
    assert bench.count(ZONE) == 5  # nobody was driven out
    settings.set(ZONE, {"per_source": 6})
    assert reasons(bench.track(*(ask("192.0.2.1", 20 + i) for i in range(3)), zone=ZONE)) == [0, 0, Reason.SOURCE_FULL]
    settings.set(ZONE, {"per_source": 0})
    assert not bench.track(*(ask("192.0.2.1", 40 + i) for i in range(3)), zone=ZONE)["reason"].any()
    assert counts(bench.table) == [1, 6]  # who came meanwhile is not in
    settings.set(ZONE, {"per_source": 6})
    assert reasons(bench.track(ask("192.0.2.1", 60), zone=ZONE)) == [Reason.SOURCE_FULL]
    tables.Participant(bench.table).flush(ZONE)
    assert counts(bench.table) == [] and not wrong(bench.table)
    bench.settle()


def test_zones_count_apart():
    bench = bench_of(zones=(ZONE, OTHER))
    for zone in (ZONE, OTHER):
        verdicts = bench.track(*(ask("192.0.2.1", 1000 + i) for i in range(5)), zone=zone)
        assert reasons(verdicts) == [0] * 4 + [Reason.SOURCE_FULL]
    assert counts(bench.table) == [4, 4]


def test_two_workers_never_exceed_a_budget_together():
    bench = bench_of(budget=5)
    other = Bench(bench.table)
    for first in range(1000, 1016, 2):
        bench.track(ask("192.0.2.1", first), zone=ZONE)
        other.track(ask("192.0.2.1", first + 1), zone=ZONE)
    assert counts(bench.table) == [5] and bench.count(ZONE) == 5
    bench.settle()


def test_a_source_without_a_cell_is_refused():
    bench = bench_of()
    bench.table.sources.cells[:] = 1 << 24 | 1
    assert reasons(bench.track(ask("192.0.2.1", 7), zone=ZONE)) == [Reason.SOURCE_FULL]
    assert bench.count(ZONE) == 0
    bench.settle()


def test_a_table_without_counts_has_no_budget():
    bench = bench_of()
    bench.views["sources"] = 0
    assert not bench.track(*(ask("192.0.2.1", 1000 + i) for i in range(9)), zone=ZONE)["reason"].any()
    bench.settle()


def test_a_table_that_was_kept_is_counted_again():
    bench = bench_of()
    for host, count in (("192.0.2.1", 3), ("192.0.2.2", 1)):
        bench.track(*(ask(host, 1000 + i) for i in range(count)), zone=ZONE)
    before = np.sort(bench.table.sources.cells).tolist()
    bench.table.sources = Sources(2000)
    fresh = Bench(bench.table)
    assert sources.recount(fresh.views) == 4 and np.sort(bench.table.sources.cells).tolist() == before
    assert reasons(fresh.track(*(ask("192.0.2.1", 20 + i) for i in range(2)), zone=ZONE)) == [0, Reason.SOURCE_FULL]
    bench.settle()


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("was_done", [True, False])
def test_a_death_over_a_count_is_settled(is_first, was_done):
    """Killed with the lock of the count, before or after the store: the record is not published, so it is not in."""
    bench = bench_of()
    dead = Bench(bench.table)
    if not is_first:
        bench.track(ask("192.0.2.1", 1), zone=ZONE)
    record = int(dead.track(ask("192.0.2.1", 2), zone=ZONE)["record"][0])
    entry = tables.entries(bench.table)[record]
    assert entry["status"] & Status.SOURCE_COUNTED
    before = 0 if is_first else 1
    # as it was a moment before its commit: NEW, no slot, in no count of its zone
    slots = tables.slots(bench.table)
    slots[(slots & 0xFFFFFFFF) == record + 1] = 0
    tables.quotas(bench.table)["count"][ZONE] -= 1
    tables.totals(bench.table)["count"] -= 1
    tables.entries(bench.table)["life"][record] = int(entry["life"]) & ~0xFFFFFFFF | dead.me << 8 | Life.NEW
    intent = roster.participants(bench.table)["intent"]
    intent["record"][dead.me - 1], intent["step"][dead.me - 1] = record + 1, before << STEP_BITS | Step.SOURCE_ENTER
    tables.quotas(bench.table)["count_lock"][ZONE] = dead.me
    if not was_done:
        cells = bench.table.sources.cells
        cells[cells != 0] = 0 if is_first else (cells[cells != 0] & ~np.uint64(0xFFFFFF)) | 1
        tables.entries(bench.table)["status"][record] &= ~np.uint16(Status.SOURCE_COUNTED)
    assert repair.repair(dead.views)
    assert counts(bench.table) == [1] * before and not wrong(bench.table)
    assert bench.count(ZONE) == before and u64(tables.entries(bench.table)["life"][record]) & u64(0xFF) == Life.FREE
    assert audit.at_rest(bench.table) is None
