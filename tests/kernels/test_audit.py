"""Every finding of the audit, each planted in a good table and named for what it is; a good table has none."""

import mmap

import pytest
import tables
from faults import FAULTS, PAIRED, SPLIT, Scene
from forked import Child
from tables import Participant
from zonetrack.kernels.audit import Finding
from zonetrack.kernels.jit import JIT
from zonetrack.shm.layout import BLOCK_RECORDS, Kind, Slab, Step
from zonetrack.shm.reasons import Reason


@pytest.fixture(scope="module")
def kept():
    return Scene()


@pytest.fixture
def scene(kept):
    kept.restore()
    return kept


def found(scene):
    """Return what an audit at rest finds: the Finding and its numbers."""
    broken = tables.at_rest(scene.table)
    return broken and (broken.finding, *broken.numbers)


def found_live(scene):
    broken = tables.live(scene.table, scene.auditor.me)
    return broken and (broken.finding, *broken.numbers)


# ------------------------------------------------------------------------------------------------ at rest
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named_for_what_it_is(name, scene):
    finding, plant, _ = FAULTS[name]
    numbers = tuple(map(int, plant(scene)))
    assert found(scene) == (finding, *numbers)


def test_every_finding_has_been_planted():
    assert {finding for finding, _, _ in FAULTS.values()} == set(Finding) - {Finding.NONE, Finding.BUSY}


def test_a_good_table_has_no_finding_and_is_left_as_it_was(scene):
    before = {region: bytes(buffer) for region, buffer in scene.table.regions.items()}
    assert found(scene) is None
    assert {region: bytes(buffer) for region, buffer in scene.table.regions.items()} == before


def test_an_empty_table_has_no_finding():
    assert tables.at_rest(tables.small(1, zones=1, extension_share=0)) is None


def test_a_full_table_has_no_finding():
    table = tables.small(256, zones=2, extension_share=0)
    total = table.geometry.records(Slab.ENTRIES)
    tables.totals(table)["limit"] = total
    Participant(table).made(tables.keys(total))
    tables.assert_at_rest(table)


def test_zones_beyond_those_in_use_are_looked_at_too(scene):
    last = tables.ZONES - 1
    scene.me.made(tables.keys(5, zone=last))
    assert found(scene) is None
    tables.segments(scene.table)["depth"][scene.segment(last)] = 3
    assert found(scene) == (Finding.SEGMENT_DEPTH, scene.segment(last), 3, last)


# ------------------------------------------------------------------------------------------------ beside others
@pytest.mark.parametrize("name", [name for name, (_, _, live) in FAULTS.items() if live])
def test_what_may_never_be_is_found_beside_others(name, scene):
    finding, plant, _ = FAULTS[name]
    numbers = tuple(map(int, plant(scene)))
    assert found_live(scene) == (finding, *numbers)
    assert not tables.segments(scene.table)["lock"].any()


def test_a_missing_slot_is_found_beside_others(scene):
    _, place, slots = scene.slot_of(scene.single)
    slots[place] = 0
    assert found_live(scene) == (Finding.SLOTS_MISSING, scene.single, 0, 0)


@pytest.mark.parametrize("low", [1, 2])
def test_a_missing_slot_of_two_is_found_beside_others(low, scene):
    record = int(scene.paired[1])
    _, place, slots = scene.slot_of(record, low)
    slots[place] = 0
    assert found_live(scene) == (Finding.SLOTS_MISSING, record, 0, 0)


def test_a_segment_that_stays_locked_makes_busy(scene):
    segment = int(scene.directory[0]) - 1
    with tables.held(tables.segments(scene.table)[segment]):
        assert found_live(scene)[:2] == (Finding.BUSY, segment)


def test_what_may_be_for_a_while_is_no_finding_beside_others(scene):
    """Records under way, locks, credit, counts that are ahead: all of it at once, and a detached zone."""
    other = Participant(scene.table)
    other.mark(tables.keys(50, zone=SPLIT))
    scene.entries["lock"][scene.single] = other.me
    other.place["intent"]["credit"] = 9
    tables.quotas(scene.table)["count"][SPLIT] += 9
    tables.quotas(scene.table)["zone_lock"][SPLIT] = other.me
    flusher = Participant(scene.table)
    flusher.detach(PAIRED)
    assert found_live(scene) is None
    assert found(scene) is not None
    assert scene.auditor.step is Step.NONE


def test_a_live_audit_changes_nothing(scene):
    """Its own intent aside."""
    before = {region: bytes(buffer) for region, buffer in scene.table.regions.items()}
    assert found_live(scene) is None
    scene.auditor.place["intent"] = 0
    assert {region: bytes(buffer) for region, buffer in scene.table.regions.items()} == before


ROUNDS = 200 if JIT else 3
KEYS = 400 if JIT else 60


def churn(table, me, round_):
    """Make, find, shorten, sweep and delete connections in three zones, with one and with two keys."""
    for zone in (1, 2, 3):
        keys = tables.keys(KEYS, zone, first=1 + round_ % 7)
        replies = tables.keys(KEYS, zone, first=1 + round_ % 7, low=2)
        me.make(keys[::2], replies[::2] if zone == 2 else None)
        me.make(keys[1::2], wanted=8)
        me.refresh(keys[::5], 1600)
        me.sweep(1600, budget=BLOCK_RECORDS)
        me.remove(keys[round_ % 3 :: 3])
    if round_ % 10 == 9:
        me.flush(1 + round_ // 10 % 3)


@pytest.mark.skipif(not JIT, reason="the twins' words are whole within one process only")
def test_a_live_audit_beside_a_real_process_finds_nothing():
    table = tables.small(4 * KEYS, zones=4, extension_share=500)
    auditor = Participant(table, Kind.TOOL)
    churn(table, Participant(table), 9)  # compiled before the fork
    assert tables.live(table, auditor.me) is None

    ended = mmap.mmap(-1, mmap.PAGESIZE)

    def work(child):
        me = Participant(table)
        child.say("begun")
        for round_ in range(ROUNDS):
            churn(table, me, round_)
        ended[0] = 1
        child.say((me.counter(Reason.INSERT), me.run()))

    with Child(work) as child:
        assert child.hear() == "begun"
        audits = 0
        while not ended[0] and audits < 10_000:  # far more than fit
            broken = tables.live(table, auditor.me)
            if broken is not None and broken.finding is Finding.BUSY:
                continue  # who holds a lock has no core: nothing was seen
            assert broken is None
            audits += 1
        made, left = child.hear()
        assert (made > ROUNDS * KEYS, left, child.wait()) == (True, 0, 0)
    assert audits > 1
    tables.assert_at_rest(table)


def test_an_audit_after_each_step_of_another_finds_nothing():
    table = tables.small(4 * KEYS, zones=4, extension_share=500)
    auditor, first, second = (Participant(table) for _ in range(3))
    for round_ in range(20 if JIT else 3):
        churn(table, first, round_)
        assert tables.live(table, auditor.me) is None
        second.mark(tables.keys(KEYS // 3, zone=1 + round_ % 3))
        assert tables.live(table, auditor.me) is None
        assert second.run() == 0
        tables.assert_at_rest(table)
