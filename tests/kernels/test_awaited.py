"""Whether a packet was awaited: who fits, who takes what was foretold, and that nobody sees half of it."""

import foretelling
import pytest
import tables
from foretelling import CLIENT, NOW, SERVER, Wanted, add, claim, find
from zonetrack.kernels import awaited, locks
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import ExpectationFlag, Setting
from zonetrack.shm.reasons import Reason

ANY, PERMANENT = ExpectationFlag.SOURCE_ANY, ExpectationFlag.PERMANENT


@pytest.fixture
def scene():
    with foretelling.Scene() as made:
        yield made


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
    claims = [awaited.claim(who.views, packet, u64(NOW)) for who in (scene.one, scene.other)]
    assert claims == [awaited.FOUND, awaited.NONE]


def test_a_permanent_one_stays(scene):
    add(scene.one, scene.parent, Wanted(flags=PERMANENT))
    assert claim(scene.one) == claim(scene.other, source_port=7) == scene.parent
    assert scene.counts() == (1, 1)


def test_what_comes_too_late_was_not_foretold(scene):
    add(scene.one, scene.parent, Wanted(expiry_ms=NOW + 10))
    assert find(scene.one, now_ms=NOW + 9) == scene.parent
    assert find(scene.one, now_ms=NOW + 10) is None
    tables.zones(scene.table)["settings"][0] |= Setting.NO_EXPIRY
    assert find(scene.one, now_ms=NOW + 10) == scene.parent


def test_it_goes_with_its_parents_zone(scene):
    add(scene.one, scene.parent)
    scene.one.flush(0)
    assert find(scene.one) is None


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
