"""Expectations: who fits, who is consumed, what is stale, and that a kill or another participant bends none of it."""

import foretelling
import kills
import pytest
import tables
import tiny
from foretelling import CLIENT, NOW, SERVER, Wanted, add, claim, find
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import Mapped, Simulation
from zonetrack.kernels import expectations, locks
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.repair import repair
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import EXPECTATIONS_MAX, ExpectationFlag, Foretold, Setting
from zonetrack.shm.reasons import Reason

ANY, PERMANENT = ExpectationFlag.SOURCE_ANY, ExpectationFlag.PERMANENT
interpreted = pytest.mark.skipif(JIT, reason="kills and schedules need the interpreter")


class Scene:
    """A table with two participants and two parents."""

    def __init__(self):
        self.table = tables.small()
        self.one, self.other = tables.Participant(self.table), tables.Participant(self.table)
        self.key, self.other_key = tables.keys(1), tables.keys(1, first=2)
        self.parent = foretelling.parent_of(self.one, self.key)
        self.other_parent = foretelling.parent_of(self.one, self.other_key)

    def counts(self, zone=0):
        """Return how many the table counts, and the zone."""
        zone_count = int(tables.zones(self.table)["expectations"][zone])
        return int(foretelling.header(self.table)["count"]), zone_count


@pytest.fixture
def scene():
    made = Scene()
    yield made
    tables.assert_at_rest(made.table)


# ------------------------------------------------------------------------------------------------ who fits
def test_who_comes_as_foretold_is_found_from_any_port(scene):
    assert add(scene.one, scene.parent, Wanted(mark=7)) is Reason.NONE
    for port in (1, 20, 65535):
        assert find(scene.other, source_port=port) == scene.parent
    assert foretelling.record(scene.other.views["expected"])["mark"] == 7
    assert scene.counts() == (1, 1)


@pytest.mark.parametrize(
    "other",
    [
        Wanted(port=5001),
        Wanted(protocol=17),
        Wanted(zone=1),
        Wanted(source=SERVER + 1),
        Wanted(destination=CLIENT + 1),
        Wanted(source=CLIENT, destination=SERVER),
    ],
)
def test_who_does_not_is_not(scene, other):
    add(scene.one, scene.parent)
    assert find(scene.one, other) is None


def test_a_source_port_that_was_foretold_counts(scene):
    add(scene.one, scene.parent, Wanted(source_port=20))
    assert find(scene.one, source_port=21) is None
    assert find(scene.one, source_port=20) == scene.parent


def test_any_source_will_do_where_none_was_foretold(scene):
    add(scene.one, scene.parent, Wanted(flags=ANY))
    assert find(scene.one, Wanted(source=12345)) == scene.parent


# ------------------------------------------------------------------------------------------------ taken, and left
def test_one_connection_takes_it(scene):
    add(scene.one, scene.parent)
    assert claim(scene.other) == scene.parent
    assert scene.counts() == (0, 0)
    assert find(scene.one) is None
    assert scene.other.counter(Reason.EXPECTATION_MATCHED) == 1


def test_of_two_who_found_it_one_has_it(scene):
    add(scene.one, scene.parent)
    assert find(scene.one) == find(scene.other) == scene.parent
    packet = Wanted().packet()
    claims = [expectations.claim(who.views, packet, u64(NOW)) for who in (scene.one, scene.other)]
    assert claims == [expectations.FOUND, expectations.NONE]


def test_a_permanent_one_stays(scene):
    add(scene.one, scene.parent, Wanted(flags=PERMANENT))
    assert claim(scene.one) == claim(scene.other, source_port=7) == scene.parent
    assert scene.counts() == (1, 1)


# ------------------------------------------------------------------------------------------------ stale
def test_what_comes_too_late_was_not_foretold(scene):
    add(scene.one, scene.parent, Wanted(expiry_ms=NOW + 10))
    assert find(scene.one, now_ms=NOW + 9) == scene.parent
    assert find(scene.one, now_ms=NOW + 10) is None
    tables.zones(scene.table)["settings"][0] |= Setting.NO_EXPIRY
    assert find(scene.one, now_ms=NOW + 10) == scene.parent


def test_it_goes_with_its_parent(scene):
    add(scene.one, scene.parent)
    scene.one.remove(scene.key)
    assert find(scene.one) is None
    again = foretelling.parent_of(scene.one, scene.key)  # the same record, another incarnation
    assert again & 0xFFFFFFFF == scene.parent & 0xFFFFFFFF and find(scene.one) is None
    assert scene.counts() == (1, 1)
    assert expectations.prune(scene.one.views, u64(NOW)) == 1
    assert scene.counts() == (0, 0) and scene.one.counter(Reason.EXPECTATION_EXPIRED) == 1


def test_it_goes_with_its_parents_zone(scene):
    add(scene.one, scene.parent)
    scene.one.flush(0)
    assert find(scene.one) is None


def test_the_sweep_removes_what_is_stale_and_nothing_else(scene):
    for i in range(100):
        add(scene.one, scene.parent, Wanted(port=1000 + i, expiry_ms=NOW + 50 if i % 2 else NOW + 5000), most=1000)
    for _ in range(EXPECTATIONS_MAX // expectations.PRUNE_RECORDS):
        scene.one.sweep(NOW + 100)
    assert scene.counts() == (50, 50)
    assert sorted(foretelling.all_of(scene.table)["last"] >> u64(32) & u64(1)) == [0] * 50


# ------------------------------------------------------------------------------------------------ bounds
def test_what_says_the_same_replaces(scene):
    add(scene.one, scene.parent, Wanted(mark=1))
    assert add(scene.one, scene.parent, Wanted(mark=2)) is Reason.NONE
    [left] = foretelling.all_of(scene.table)
    assert left["mark"] == 2


def test_of_another_parent_it_clashes(scene):
    add(scene.one, scene.parent)
    assert add(scene.one, scene.other_parent) is Reason.CLASH
    assert add(scene.one, scene.other_parent, Wanted(flags=ANY)) is Reason.CLASH
    assert add(scene.one, scene.other_parent, Wanted(source=SERVER + 1)) is Reason.NONE
    assert scene.counts() == (2, 2)


def test_what_is_stale_clashes_with_nobody(scene):
    add(scene.one, scene.parent)
    scene.one.remove(scene.key)
    assert add(scene.one, scene.other_parent) is Reason.NONE
    assert scene.counts() == (1, 1)


def test_the_oldest_of_its_kind_makes_room(scene):
    for port in (1, 2, 3):
        add(scene.one, scene.parent, Wanted(port=port), most=2)
    add(scene.one, scene.parent, Wanted(port=4, kind=Foretold.AUDIO), most=1)
    add(scene.one, scene.other_parent, Wanted(port=5), most=2)
    assert {int(last) >> 32 & 0xFFFF for last in foretelling.all_of(scene.table)["last"]} == {2, 3, 4, 5}
    assert scene.one.counter(Reason.HELPER_DROPPED) == 1


def test_a_full_table_refuses_until_something_is_stale(scene, monkeypatch):
    most = EXPECTATIONS_MAX if JIT else 60
    monkeypatch.setattr(expectations, "EXPECTATIONS_MAX", most)  # of the interpreter only
    monkeypatch.setattr(expectations, "_MAX", u64(most))
    for i in range(most):
        parent = scene.other_parent if i == 9 else scene.parent
        assert add(scene.one, parent, Wanted(port=i), most=9000) is Reason.NONE
    assert add(scene.one, scene.parent, Wanted(port=60000), most=9000) is Reason.EXPECTATIONS_FULL
    scene.one.remove(scene.other_key)
    assert add(scene.one, scene.parent, Wanted(port=60000), most=9000) is Reason.NONE
    assert find(scene.one, Wanted(port=60000)) == scene.parent


def test_all_of_a_parent_are_removed(scene):
    for port in (1, 2, 3):
        add(scene.one, scene.parent, Wanted(port=port))
    add(scene.one, scene.other_parent, Wanted(port=4))
    assert expectations.remove_of(scene.one.views, u64(scene.parent), u64(1 << Foretold.AUDIO))
    assert scene.counts() == (4, 4)
    assert expectations.remove_of(scene.one.views, u64(scene.parent), u64(255))
    assert scene.counts() == (1, 1)


def test_a_lock_that_is_not_had_makes_busy(scene, monkeypatch):
    monkeypatch.setattr(locks, "YIELDS_MAX", 5)  # of the interpreter only
    add(scene.one, scene.parent)
    header = foretelling.header(scene.table)
    with tables.held(header):
        assert find(scene.one) == scene.parent  # reading takes no lock
        assert claim(scene.one) == "busy"
        assert add(scene.one, scene.parent, Wanted(port=9)) is Reason.BUSY
        header["version"] += 1
        assert find(scene.one) == "busy"
        header["version"] += 1


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-"), st.integers(1, 6), st.integers(0, 1)), max_size=20))
def test_they_are_what_a_dict_of_them_would_be(acts):
    scene = Scene()
    known = {}
    for act, port, zone in acts:
        wanted = Wanted(port=port, zone=zone)
        if act == "+":
            assert add(scene.one, scene.parent, wanted, most=99) is Reason.NONE
            known[port, zone] = scene.parent
        else:
            assert claim(scene.one, wanted) == known.pop((port, zone), None)
        assert scene.counts()[0] == len(known)
    tables.assert_at_rest(scene.table)


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
