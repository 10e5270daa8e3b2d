"""How fragments are put together, as it is read and set."""

import pytest
from fragmented import HELD, NEW, OVS, Bench, cut, refused, udp
from zonetrack.clients.errors import BadParameterError
from zonetrack.service.reassembly_settings import COUNTERS, READERS, ReassemblySettings
from zonetrack.shm.reasons import Reason


@pytest.fixture
def bench():
    return Bench(settings=OVS)


def test_a_new_table_is_set_as_open_vswitch(bench):
    told = {"v4": True, "v6": True, "min_v4": 1200, "min_v6": 1280, "max": 1000, "waiting": 0}
    assert ReassemblySettings(bench.table).get() == told


def test_what_is_set_holds_from_the_next_fragment_on(bench):
    settings = ReassemblySettings(bench.table)
    small = cut(udp(1000), 504)
    assert bench.send(small[0]) == [refused(Reason.FRAGMENT_TOO_SMALL)]
    settings.set({"min_v4": 400, "max": 1})
    assert bench.send(small[0], cut(udp(2000), 1480, id=9)[0]) == [HELD, refused(Reason.FRAGMENTS_FULL)]
    assert settings.get()["waiting"] == 1
    settings.set({"max": 5})
    assert bench.send(small[1]) == [NEW]
    settings.set({"v4": False})
    assert bench.send(small[0]) == [refused(Reason.FRAGMENT)]
    assert (settings.get()["v4"], settings.get()["v6"]) == (False, True)
    settings.set({"v4": True, "v6": False})
    assert bench.send(small[0]) == [HELD] and (settings.get()["v4"], settings.get()["v6"]) == (True, False)


@pytest.mark.parametrize(
    ("name", "value"), [("min_v4", 399), ("min_v6", 65536), ("max", 0), ("max", 1025), ("v4", 1), ("max", True)]
)
def test_what_cannot_be_set(name, value):
    with pytest.raises(BadParameterError, match=name):
        READERS[name](name, value)


def test_the_counters_are_those_of_open_vswitch():
    assert list(COUNTERS) == ["accepted", "completed", "expired", "too_small", "overlapped", "purged"]
