"""When a worker sweeps, how much, and what is told of it; who is behind does not wait."""

import numpy as np
import pytest
import tables
from zonetrack.kernels.jit import JIT
from zonetrack.service import sweeping
from zonetrack.service.sweeping import Sweeper
from zonetrack.shm.layout import BLOCK_RECORDS, DUE_UNIT_MS, Life, Slab
from zonetrack.shm.reasons import Reason

NOW_MS = 100 * DUE_UNIT_MS


@pytest.fixture
def table():
    return tables.small(20_000 if JIT else 2_000)


@pytest.fixture
def me(table):
    return tables.Participant(table)


def clock(*moments_ns):
    return iter(moments_ns).__next__


@pytest.mark.parametrize(
    ("count", "passed_ms", "share"),
    [(0, 50, "slots"), (0, 49, None), (1_700, 49, None), (1_800, 1, "slots_behind"), (1_800, 0, "slots_behind")],
)
def test_how_much_is_swept(count, passed_ms, share, table, me):
    sweeper = Sweeper(table, me.me, clock(0, 0))
    assert sweeper.due(NOW_MS) == sweeper.slots
    sweeper.sweep(me.views, NOW_MS, sweeper.slots)
    totals = tables.totals(table)
    totals["count"], totals["limit"] = count, 2_000
    assert sweeper.due(NOW_MS + passed_ms) == (getattr(sweeper, share) if share else 0)
    totals["count"] = 0


def test_shares_of_large_and_small_tables(table, me):
    sweeper = Sweeper(table, me.me)
    assert sweeper.slots == sweeping.SLOTS_MIN
    assert sweeper.slots <= sweeper.slots_behind <= sweeping.SLOTS_MAX


def test_who_has_freed_something_is_behind_until_nothing_is_left(table, me):
    me.made(tables.keys(300), expiry_ms=NOW_MS)
    sweeper, records = Sweeper(table, me.me), table.geometry.records(Slab.ENTRIES)
    assert not sweeper.is_behind
    assert sweeper.sweep(me.views, NOW_MS, 1) == 256 and sweeper.is_behind  # a block
    assert sweeper.due(NOW_MS) == sweeper.slots_behind  # at once, whatever the clock says
    assert sweeper.sweep(me.views, NOW_MS, records) == 44 and sweeper.is_behind
    assert sweeper.sweep(me.views, NOW_MS, records) == 0 and not sweeper.is_behind
    assert sweeper.due(NOW_MS) == 0
    tables.assert_at_rest(table)


def test_what_has_expired_is_there_for_one_round_of_the_blocks_at_most():
    """Connections come all the time and live for half a second; a worker turns every 10 ms, and sweeps a block at once."""
    table = tables.small(2_000)
    me = tables.Participant(table)
    sweeper, blocks = Sweeper(table, me.me), table.geometry.blocks(Slab.ENTRIES)
    sweeper.slots, sweeper.slots_behind = BLOCK_RECORDS, 2 * BLOCK_RECORDS
    entries, late_ms, made = tables.entries(table), 0, 0
    for now_ms in range(NOW_MS, NOW_MS + 2_000, 10):
        me.made(tables.keys(7, first=made), expiry_ms=now_ms + 500)
        made += 7
        if slots := sweeper.due(now_ms):
            sweeper.sweep(me.views, now_ms, slots)
        live = entries["life"] & 0xFF == Life.LIVE
        late_ms = max(late_ms, now_ms - int(entries["expiry_ms"][live].min()))
    assert 0 < late_ms <= blocks * sweeping.INTERVAL_MS
    assert me.counter(Reason.SWEPT) > made // 2
    tables.assert_at_rest(table)


def test_what_is_told(table, me):
    me.made(tables.keys(10), expiry_ms=NOW_MS)
    me.made(tables.keys(30, first=100), expiry_ms=NOW_MS)
    me.made(tables.keys(5, first=200), expiry_ms=2 * NOW_MS)
    me.refresh(tables.keys(30, first=100), expiry_ms=3 * NOW_MS)
    later_ms = NOW_MS + DUE_UNIT_MS
    assert sweeping.backlog(table, NOW_MS - 1) == 0 and sweeping.backlog(table, later_ms) == 40
    sweeper = Sweeper(table, me.me, clock(0, 100_000, 0, 100_001, 0, 10_000_001))
    records = table.geometry.records(Slab.ENTRIES)
    for _ in range(3):
        sweeper.sweep(me.views, later_ms, records)
    told = sweeping.figures(table, later_ms)
    assert told == {
        "visited": me.counter(Reason.SWEEP_VISITED),
        "looked_at": 40,
        "freed": 10,
        "efficiency": 0.25,
        "cycles": 3,
        "backlog": 0,
        "sweeps": 3,
        "ns": 10_200_002,
        "at_most_us": {"100": 1, "1000": 2, "10000": 2},
    }


def test_nothing_is_said_of_the_efficiency_of_nothing(table):
    told = sweeping.figures(table, NOW_MS)
    assert told["efficiency"] is None and told["sweeps"] == 0


def test_hints_far_from_now_are_no_backlog(table):
    due = tables.due(table)
    due[:4] = [0, 1, np.uint32(0xFFFFFFFF), NOW_MS // DUE_UNIT_MS + 1]
    assert sweeping.backlog(table, NOW_MS) == 1
    due[:4] = 0
