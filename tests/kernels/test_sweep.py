"""What has expired goes, and nothing else; hints follow refreshed connections; each block is visited once per cycle."""

import numpy as np
import pytest
import tables
from tables import BUSY, NONE, Participant
from zonetrack.kernels import sweep
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.shm import roster
from zonetrack.shm.layout import BLOCK_RECORDS, DUE_UNIT_MS, SETTINGS_DEFAULT, UNLIMITED, USED, Kind, Setting, Slab
from zonetrack.shm.reasons import Reason


@pytest.fixture
def table():
    table = tables.small(1000)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def me(table):
    return Participant(table)


def hint(table, record):
    return int(tables.due(table)[int(record)])


def blocks_of(table):
    return table.geometry.blocks(Slab.ENTRIES)


# ------------------------------------------------------------------------------------------------ expiry
def test_what_has_expired_goes_and_the_rest_stays(table, me):
    keys = tables.keys(60, zone=1)
    for i, key in enumerate(keys):
        me.made(key, expiry_ms=1000 + 100 * i)
    assert me.sweep(999) == 0
    assert me.sweep(3000) == 21  # expiry 1000, 1100 ... 3000: the moment itself is too late
    found = me.find(keys)
    assert np.flatnonzero(found == NONE).tolist() == list(range(21))
    assert tables.quotas(table)["count"][1] == 39
    assert (me.counter(Reason.SWEPT), me.counter(Reason.REMOVE)) == (21, 21)
    tables.assert_at_rest(table)
    assert me.sweep(10_000) == 39
    assert tables.totals(table)["count"] == 0
    tables.assert_at_rest(table)


@pytest.mark.parametrize("late_ms", [0, 1, 15, 16, 17])
def test_a_record_is_found_in_the_unit_it_expires_in_but_not_before_its_moment(late_ms, table, me):
    expiry_ms = 100 * DUE_UNIT_MS + 5
    me.made(tables.keys(1), expiry_ms=expiry_ms)
    assert me.sweep(expiry_ms - 1) == 0
    assert me.sweep(expiry_ms - 6) == 0  # a clock that is behind does no harm
    assert me.sweep(expiry_ms + late_ms) == 1
    tables.assert_at_rest(table)


@pytest.mark.parametrize("expiry_ms", [0, 1, 15])
def test_what_expires_in_the_first_unit_goes_in_the_second(expiry_ms, table, me):
    me.made(tables.keys(1), expiry_ms=expiry_ms)
    assert me.sweep(2 * DUE_UNIT_MS) == 1
    tables.assert_at_rest(table)


def test_what_expires_later_in_this_unit_is_not_locked(table, me):
    key = tables.keys(1)
    [record] = me.made(key, expiry_ms=1600 + DUE_UNIT_MS - 1)
    with tables.held(tables.entries(table)[int(record)]):
        assert me.sweep(1600) == 0
    assert (me.counter(Reason.SWEEP_LOOKED), hint(table, record)) == (0, 100)
    me.refresh(key, 8000)
    assert me.sweep(1600) == 0  # this one is not what the hint says, and gets another
    assert (me.counter(Reason.SWEEP_LOOKED), hint(table, record)) == (1, 500)
    tables.assert_at_rest(table)


def test_a_refreshed_connection_gets_its_later_hint_when_the_old_one_is_due(table, me):
    key = tables.keys(1)
    [record] = me.made(key, expiry_ms=1600)
    me.refresh(key, 8000)
    assert hint(table, record) == 100
    assert me.sweep(1599) == 0
    assert hint(table, record) == 100  # not due yet: not looked at
    assert me.sweep(1600) == 0
    assert hint(table, record) == 500
    tables.assert_at_rest(table)
    assert me.sweep(7999) == 0
    assert me.sweep(8000) == 1
    tables.assert_at_rest(table)


def test_a_shortened_connection_is_found_in_time(table, me):
    keys = tables.keys(2)
    first, second = me.made(keys, expiry_ms=80_000)
    me.refresh(keys[0], 1600)
    assert (hint(table, first), hint(table, second)) == (100, 5000)
    assert me.sweep(1600) == 1
    assert me.find(keys).tolist() == [NONE, second]
    tables.assert_at_rest(table)


def test_a_connection_shortened_after_a_sweep_looked_at_it_is_found_in_time(table, me):
    key = tables.keys(1)
    [record] = me.made(key, expiry_ms=1600)
    me.refresh(key, 80_000)
    me.sweep(1600)
    assert hint(table, record) == 5000
    me.refresh(key, 3200)
    assert hint(table, record) == 200
    assert me.sweep(3200) == 1
    tables.assert_at_rest(table)


def test_more_than_a_list_holds_expire_at_once(table, me):
    keys = np.concatenate([tables.keys(300, zone=zone) for zone in (1, 2, 3)])
    me.made(keys, expiry_ms=1600)
    assert me.sweep(1600) == 900
    assert tables.totals(table)["count"] == 0
    tables.assert_at_rest(table)


def test_two_keys_expire_together(table, me):
    keys, replies = tables.keys(40, zone=1), tables.keys(40, zone=1, low=2)
    me.made(keys, replies, expiry_ms=1600)
    assert me.sweep(1600) == 40
    assert set(me.find(np.concatenate([keys, replies])).tolist()) == {NONE}
    tables.assert_at_rest(table)


def test_a_zone_in_which_nothing_expires_is_kept(table, me):
    tables.zones(table)["settings"][2] |= Setting.NO_EXPIRY
    keys = np.concatenate([tables.keys(10, zone=1), tables.keys(10, zone=2)])
    me.made(keys, expiry_ms=1600)
    assert me.sweep(80_000) == 10
    assert np.flatnonzero(me.find(keys) == NONE).tolist() == list(range(10))
    tables.assert_at_rest(table)
    tables.zones(table)["settings"][2] = SETTINGS_DEFAULT
    assert me.sweep(80_000) == 10
    tables.assert_at_rest(table)


def test_a_dead_record_is_its_deleters(table, me):
    other = Participant(table)
    me.made(tables.keys(3), expiry_ms=1600)
    other.mark(tables.keys(1))
    assert me.sweep(1600) == 2
    assert other.run() == 0
    assert other.counter(Reason.REMOVE) == 1
    tables.assert_at_rest(table)


def test_what_was_looked_at_is_not_looked_at_again_before_its_new_hint(table, me):
    me.made(tables.keys(50), expiry_ms=1600)
    me.refresh(tables.keys(50), 8000)
    looked = []
    for now_ms in (1599, 1600, 1600, 5000, 7999, 8000, 8000):
        me.sweep(now_ms)
        looked.append(me.counter(Reason.SWEEP_LOOKED))
    assert looked == [0, 50, 50, 50, 50, 100, 100]
    tables.assert_at_rest(table)


def test_who_inserts_beside_a_sweep_in_slices_finds_room(table, me):
    """As much as the counts allow, for what one frees another takes."""
    other = Participant(table)
    tables.totals(table)["limit"] = 600
    made, now_ms = 0, 1600
    for _ in range(6):
        room = 600 - int(tables.totals(table)["count"])
        reasons, _ = other.make(tables.keys(room + 5, first=made), expiry_ms=now_ms)
        assert reasons.tolist() == [Reason.NONE] * room + [Reason.FULL] * 5
        made += room
        now_ms += 1600
        for _ in range(3):
            me.sweep(now_ms, budget=BLOCK_RECORDS)
            other.sweep(now_ms, budget=BLOCK_RECORDS)
    assert made > 600
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ locks not had
def test_a_record_whose_lock_is_held_is_left_for_the_next_cycle(table, me):
    records = me.made(tables.keys(3), expiry_ms=1600)
    with tables.held(tables.entries(table)[int(records[1])]):
        assert me.sweep(1600) == 2
    assert hint(table, records[1]) == 100
    assert me.sweep(1600) == 1
    tables.assert_at_rest(table)


def test_what_cannot_leave_the_index_waits_on_the_list(table, me):
    keys = tables.keys(4)
    me.made(keys, expiry_ms=1600)
    with tables.held(tables.segments(table)[tables.directory_of(table, 0)[0] - 1]):
        assert me.sweep(1600) == 4
        assert me.find(keys).tolist() == [NONE] * 4
        assert len(me.deletes) == 4
        assert me.sweep(9000) == 0
    assert me.sweep(9000) == 0
    assert (len(me.deletes), int(tables.totals(table)["count"])) == (0, 0)
    tables.assert_at_rest(table)


def test_a_full_list_leaves_hints_due(table, me):
    full = np.concatenate([tables.keys(tables.FULL_LIST // 3 + 1, zone=zone) for zone in (1, 2, 3)])[: tables.FULL_LIST]
    me.made(full)
    keys = tables.keys(10, zone=4)
    records = me.made(keys, expiry_ms=1600)
    me.mark_unasked(full)
    segments = tables.segments(table)
    segments["lock"][segments["owner"] == USED] = 255
    assert me.sweep(1600) == 0
    assert tables.due(table)[records.astype("i8")].tolist() == [100] * 10
    segments["lock"] = 0
    assert me.sweep(1600) == 10
    assert (len(me.deletes), int(tables.totals(table)["count"])) == (0, 0)
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ budget, cursor
def test_every_block_is_visited_once_per_cycle_whatever_the_budget(table, me):
    total = table.geometry.records(Slab.ENTRIES)
    me.made(tables.keys(total))
    assert set(tables.blocks(table).tolist()) == {me.me}
    visits, entries, due = [], tables.entries(table), tables.due(table)
    for _ in range(2 * blocks_of(table)):
        due[:], entries["hint"] = 1, 1  # all have been refreshed since
        me.sweep(1600, budget=1)  # rounded up to a block
        raised = np.flatnonzero(due != 1)
        visits.append(set((raised // BLOCK_RECORDS).tolist()))
        assert len(raised) == BLOCK_RECORDS
    assert visits == [{block} for block in range(blocks_of(table))] * 2
    assert me.counter(Reason.SWEEP_CYCLES) == 2
    assert me.counter(Reason.SWEEP_VISITED) == 2 * total
    tables.assert_at_rest(table)


@pytest.mark.parametrize(("budget", "blocks"), [(0, 0), (1, 1), (BLOCK_RECORDS, 1), (BLOCK_RECORDS + 1, 2)])
def test_a_budget_is_rounded_up_to_blocks(budget, blocks, table, me):
    me.made(tables.keys(table.geometry.records(Slab.ENTRIES)))
    me.sweep(0, budget)
    assert me.counter(Reason.SWEEP_VISITED) == blocks * BLOCK_RECORDS
    assert me.place["sweep_cursor"] == blocks


def test_a_call_that_has_freed_much_ends_and_the_next_goes_on_there(monkeypatch):
    most = int(sweep.FREED_MAX)
    if not JIT:
        most = 256
        monkeypatch.setattr(sweep, "FREED_MAX", u64(most))
    table = tables.small(3 * most)
    me = Participant(table)
    me.made(tables.keys(3 * most), expiry_ms=1600)
    freed = []
    while not freed or freed[-1]:
        freed.append(me.sweep(1600))
    assert freed[:-1] == [most] * 3
    tables.assert_at_rest(table)


def test_a_call_goes_round_once_at_most(table, me):
    me.made(tables.keys(table.geometry.records(Slab.ENTRIES)))
    me.sweep(0)
    assert (me.counter(Reason.SWEEP_CYCLES), int(me.place["sweep_cursor"])) == (1, 0)
    assert me.place["clock_ms"] == 0
    me.sweep(77)
    assert (me.counter(Reason.SWEEP_CYCLES), int(me.place["clock_ms"])) == (2, 77)


def test_a_cursor_beyond_the_slab_begins_anew(table, me):
    """It may have been left by who had the place before."""
    me.made(tables.keys(1), expiry_ms=1600)
    me.place["sweep_cursor"] = 10**6
    assert me.sweep(1600) == 1


# ------------------------------------------------------------------------------------------------ whose block
def test_each_sweeps_its_own_blocks_and_all_are_swept(table, me):
    other = Participant(table)
    mine, others = tables.keys(BLOCK_RECORDS, zone=1), tables.keys(BLOCK_RECORDS, zone=2)
    me.made(mine, expiry_ms=1600)
    other.made(others, expiry_ms=1600)
    assert me.sweep(1600) == BLOCK_RECORDS
    assert set(me.find(mine).tolist()) == {NONE}
    assert not {NONE, BUSY} & set(me.find(others).tolist())
    assert other.sweep(1600) == BLOCK_RECORDS
    tables.assert_at_rest(table)


def test_blocks_of_who_left_are_adopted_by_the_first_who_sweeps(table):
    gone, heir, late = (Participant(table, Kind.TOOL) for _ in range(3))
    keys = tables.keys(2 * BLOCK_RECORDS)
    gone.made(keys, expiry_ms=1600)
    roster.leave(table, gone.me)
    owned = np.flatnonzero(tables.blocks(table))
    assert set(tables.blocks(table)[owned].tolist()) == {USED}
    assert heir.sweep(1600, budget=1) == BLOCK_RECORDS
    assert sorted(tables.blocks(table)[owned].tolist()) == sorted([USED] * (len(owned) - 1) + [heir.me])
    assert late.sweep(1600) == BLOCK_RECORDS
    assert set(tables.blocks(table)[owned].tolist()) == {heir.me, late.me}
    assert tables.totals(table)["count"] == 0
    tables.assert_at_rest(table)


def test_blocks_never_handed_out_are_not_visited(table, me):
    me.sweep(1600)
    assert (me.counter(Reason.SWEEP_VISITED), me.counter(Reason.SWEEP_CYCLES)) == (0, 1)
    assert not tables.blocks(table).any()
