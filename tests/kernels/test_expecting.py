"""What is foretold: it replaces, clashes and makes room as it must, and is what a dict would hold."""

import foretelling
import pytest
import tables
from foretelling import SERVER, Wanted, add, claim, find
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels import expecting
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import EXPECTATIONS_MAX, ExpectationFlag, Foretold
from zonetrack.shm.reasons import Reason

ANY = ExpectationFlag.SOURCE_ANY


@pytest.fixture
def scene():
    with foretelling.Scene() as made:
        yield made


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
    monkeypatch.setattr(expecting, "EXPECTATIONS_MAX", most)  # of the interpreter only
    monkeypatch.setattr(expecting, "MAX", u64(most))
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
    assert expecting.remove_of(scene.one.views, u64(scene.parent), u64(1 << Foretold.AUDIO))
    assert scene.counts() == (4, 4)
    assert expecting.remove_of(scene.one.views, u64(scene.parent), u64(255))
    assert scene.counts() == (1, 1)


def test_what_is_withdrawn_was_not_foretold(scene):
    add(scene.one, scene.parent, Wanted(port=1))
    add(scene.one, scene.parent, Wanted(port=2))
    for wanted in (Wanted(port=2), Wanted(port=2, source=SERVER + 1)):  # this and no other
        expecting.withdraw(scene.one.views, u64(foretelling.described(scene.parent, wanted).ctypes.data))
    assert [find(scene.one, Wanted(port=port)) for port in (1, 2)] == [scene.parent, None]
    assert scene.counts() == (1, 1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-"), st.integers(1, 6), st.integers(0, 1)), max_size=20))
def test_they_are_what_a_dict_of_them_would_be(acts):
    scene = foretelling.Scene()
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
