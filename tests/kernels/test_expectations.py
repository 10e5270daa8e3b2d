"""The table of expectations: what is stale goes, and neither a kill nor another participant bends any of it."""

import foretelling
import kills
import pytest
import tables
import tiny
from foretelling import NOW, Wanted, add, claim, find
from simulation import Mapped, Simulation
from zonetrack.kernels import expectations
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.repair import repair
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import EXPECTATIONS_MAX
from zonetrack.shm.reasons import Reason

interpreted = pytest.mark.skipif(JIT, reason="kills and schedules need the interpreter")


@pytest.fixture
def scene():
    with foretelling.Scene() as made:
        yield made


def test_it_goes_with_its_parent(scene):
    add(scene.one, scene.parent)
    scene.one.remove(scene.key)
    assert find(scene.one) is None
    again = foretelling.parent_of(scene.one, scene.key)  # the same record, another incarnation
    assert again & 0xFFFFFFFF == scene.parent & 0xFFFFFFFF and find(scene.one) is None
    assert scene.counts() == (1, 1)
    assert expectations.prune(scene.one.views, u64(NOW)) == 1
    assert scene.counts() == (0, 0) and scene.one.counter(Reason.EXPECTATION_EXPIRED) == 1


def test_the_sweep_removes_what_is_stale_and_nothing_else(scene):
    for i in range(100):
        add(scene.one, scene.parent, Wanted(port=1000 + i, expiry_ms=NOW + 50 if i % 2 else NOW + 5000), most=1000)
    for _ in range(EXPECTATIONS_MAX // expectations.PRUNE_RECORDS):
        scene.one.sweep(NOW + 100)
    assert scene.counts() == (50, 50)
    assert sorted(foretelling.all_of(scene.table)["last"] >> u64(32) & u64(1)) == [0] * 50


# ------------------------------------------------------------------------------------------------ killed
@pytest.fixture
def small_table(monkeypatch):
    """Few chains and records, so that repair and audit are quick in the interpreter."""
    with kills.few_zones():
        yield


def stage(prepare=lambda made: None):
    made = tiny.Stage(2)
    one, other = made.participants
    other.made(tables.keys(1, low=9))
    made.parent = foretelling.parent_of(one, tables.keys(1))
    made.other_parent = foretelling.parent_of(other, tables.keys(1, first=2))
    prepare(made)
    made.save()
    return made


def two_there(made):
    add(made.participants[0], made.parent, Wanted(port=1))
    add(made.participants[0], made.parent, Wanted(port=2))


ACTS = {
    "add": (lambda made: None, lambda made, who: add(who, made.parent)),
    "add beside others": (two_there, lambda made, who: add(who, made.parent, Wanted(zone=1))),
    "add over the most": (two_there, lambda made, who: add(who, made.parent, Wanted(port=3), most=2)),
    "replace": (two_there, lambda made, who: add(who, made.parent, Wanted(port=1))),
    "claim": (two_there, lambda made, who: claim(who, Wanted(port=1))),
    "prune": (two_there, lambda made, who: expectations.prune(who.views, u64(foretelling.LATER))),
}


@interpreted
@pytest.mark.parametrize("name", ACTS)
def test_killed_at_each_store(name, small_table, record_property):
    prepare, act = ACTS[name]
    made = stage(prepare)

    def check():
        """The living can go on: what is foretold now is found, and goes."""
        other = made.participants[1]
        assert add(other, made.other_parent, Wanted(port=77)) is Reason.NONE
        assert claim(other, Wanted(port=77)) == made.other_parent

    count = kills.each_kill(made, lambda who: act(made, who), check)
    record_property("kills", count)
    assert count > 8


@interpreted
def test_the_repairer_killed_too(small_table, record_property):
    prepare, act = ACTS["replace"]
    made = stage(prepare)
    pairs = kills.each_kill_of_the_repairer(made, lambda who: act(made, who), 0.0004)
    record_property("kills", pairs)
    assert pairs > 5


@interpreted
def test_a_repair_that_forgets_the_table_is_found_out(small_table, monkeypatch):
    prepare, act = ACTS["add"]
    made = stage(prepare)
    monkeypatch.setattr(expectations, "settle", lambda views: None)
    with pytest.raises(AssertionError):
        kills.each_kill(made, lambda who: act(made, who))


# ------------------------------------------------------------------------------------------------ beside another
@interpreted
def test_a_reader_beside_writers_sees_one_whole_or_none(small_table):
    """One makes and takes, again and again; what the other finds has the mark that belongs to its label."""
    made = stage()
    mapped = Mapped(made.table)
    one, other = made.participants
    seen = []

    def write():
        for i in range(1, 4):
            add(one, made.parent, Wanted(mark=i, label=(i, i)))
            claim(one)

    def read():
        for _ in range(6):
            if find(other) not in (None, "busy"):
                found = foretelling.record(other.views["expected"])
                seen.append((int(found["mark"]), *found["label"].tolist()))

    for seed in range(40):
        made.restore()
        Simulation(mapped, seed).run(write, read)
        kills.whole(made, f"seed {seed}")
    assert len(set(seen)) > 1 and all(mark == high == low for mark, high, low in seen)


@interpreted
def test_killed_beside_another(small_table):
    made = stage(two_there)
    mapped = Mapped(made.table)
    one, other = made.participants
    killed = 0
    for seed in range(15):
        made.restore()
        play = kills.Massacre(mapped, seed, 400)
        play.run(
            play.mortal(one, lambda who: add(who, made.parent, Wanted(port=3))),
            lambda: add(other, made.other_parent, Wanted(port=4)),
        )
        killed += play.killed
        assert repair(made.table.views(one.me))
        kills.whole(made, f"seed {seed}")
    assert killed > 5
