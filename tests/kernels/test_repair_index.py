"""Splits, first segments and detaches killed at each of their stores: the index is whole, and nothing is lost from pools."""

import kills
import pytest
import tables
import tiny
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.repair import repair
from zonetrack.shm.layout import Step

interpreted = pytest.mark.skipif(
    JIT, reason="kills at every store need the interpreter: tests/kernels/test_repair runs it"
)


@pytest.fixture(autouse=True)
def few_zones():
    with kills.few_zones():
        yield


def stage(prepare):
    """Return a stage whose victim holds connections; saved."""
    made = tiny.Stage(2)
    prepare(made.participants[0])
    made.save()
    return made


def doubling(one):
    one.made(tiny.aimed(16))


def in_place(one):
    """The directory is deeper than the segment of hashes that begin with 1, whose pair of lines is full."""
    one.made(tiny.aimed(17, prefix="0"))
    one.made(tiny.aimed(16, prefix="1"))


SPLITS = {
    "doubling": (doubling, lambda one: one.make(tiny.aimed(1, skip=16))),
    "in place": (in_place, lambda one: one.make(tiny.aimed(1, prefix="1", skip=16))),
}


@interpreted
@pytest.mark.parametrize("name", SPLITS)
def test_a_split_killed_at_each_store(name, record_property):
    prepare, act = SPLITS[name]
    stand = stage(prepare)
    one, other = stand.participants
    depth = tables.depth_of(stand.table, 0)
    act(one)
    assert (tables.depth_of(stand.table, 0) > depth) == (name == "doubling")
    known = tiny.aimed(16) if name == "doubling" else tiny.aimed(16, prefix="1")

    def check():
        assert (other.find(known) != tables.NONE).all()
        act(one)
        one.run()

    count = kills.each_kill(stand, act, check)
    record_property("kills", count)
    assert count > 50


@interpreted
@pytest.mark.parametrize("name", SPLITS)
def test_the_repairer_of_a_split_killed(name):
    prepare, act = SPLITS[name]
    assert kills.each_kill_of_the_repairer(stage(prepare), act, 0.03) > 20


@interpreted
def test_a_directory_without_room_killed_at_each_store():
    """No segment is left: the split gives back what it took."""
    stand = stage(doubling)
    tables.segments(stand.table)["owner"][3:] = 77
    stand.save()
    owners = tables.segments(stand.table)["owner"]
    victim = stand.participants[0]
    for at in range(1, 160):
        stand.restore()
        if not kills.is_killed(at, lambda: victim.make(tiny.aimed(18, prefix="0"))):
            break
        kills.repaired(victim)
        assert set(owners[3:].tolist()) == {77}
        owners[3:] = 0
        kills.whole(stand, f"killed at store {at}")


def test_a_detach_that_had_not_begun_is_none():
    table = tables.small()
    one = tables.Participant(table)
    one.made(tables.keys(3))
    tables.quotas(table)["zone_lock"][0] = one.me
    one.place["intent"]["step"], one.place["intent"]["zone_word"] = Step.DETACH, tables.zones(table)["word"][0]
    assert repair(table.views(one.me))
    assert (one.find(tables.keys(3)) != tables.NONE).all()
    tables.assert_at_rest(table)
