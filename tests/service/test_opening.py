"""A table is made, kept, refused or discarded; who died in it is buried, or left where repair will look for it."""

import contextlib
import os
import signal

import numpy as np
import pytest
import tables
from forked import Child
from zonetrack.service import opening
from zonetrack.service.config import Config
from zonetrack.service.opening import StillRunningError, UnfitTableError
from zonetrack.shm import descriptions, roster, segment
from zonetrack.shm.errors import InUse, Missing
from zonetrack.shm.layout import GLOBAL, Kind, Region, SegmentState, Status, Step

CONFIG = Config(instance=f"test-opening-{os.getpid()}", max_connections=500, zones_in_use_max=5)
FRESH = Config(instance=CONFIG.instance, max_connections=600, zones_in_use_max=5, fresh=True)


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    with contextlib.suppress(Missing):
        segment.discard(CONFIG.instance)


def hold(config):
    held = opening.hold(config)
    assert held.left is None
    return held.instance


def mark(held, value):
    held.table.array(Region.CONTROL, "globals", GLOBAL)["zone_limit_default"] = value


def marked(held):
    return held.table.array(Region.CONTROL, "globals", GLOBAL)["zone_limit_default"][0]


def test_a_table_is_made_kept_and_discarded():
    with hold(CONFIG) as held:
        mark(held, 77)
        held.seal()
    with hold(CONFIG) as held:
        assert (marked(held), held.state) == (77, SegmentState.READY)
    with hold(FRESH) as held:
        assert held.geometry.connections == 600 and marked(held) != 77


def test_connections_of_a_table_that_was_kept_learn_their_windows_again():
    with hold(CONFIG) as held:
        one = tables.Participant(held.table, Kind.TOOL)
        keys = tables.keys(5)
        keys[:, 4] = keys[:, 4] & ~np.uint64(0xFF00) | np.uint64(6 << 8)
        one.made(keys)
        roster.leave(held.table, one.me)
        held.seal()
    with hold(CONFIG) as held:
        assert (tables.entries(held.table)["status"] & Status.TORN != 0).sum() == 5


def test_a_table_of_other_sizes_is_kept():
    with hold(CONFIG):
        pass
    with hold(Config(instance=CONFIG.instance, max_connections=700)) as held:
        assert held.geometry.connections == 500


@pytest.mark.parametrize("config", [CONFIG, FRESH], ids=["kept", "fresh"])
def test_a_second_service_is_refused_with_the_pid_of_the_first(config):
    def first(child):
        with hold(CONFIG):
            child.say("held")
            child.hear()

    with Child(first) as child:
        assert child.hear() == "held"
        with pytest.raises(InUse, match=f"process {child.pid}"):
            hold(config)


def test_what_was_never_finished_is_made_anew():
    with hold(CONFIG) as held:
        held.table.header["state"] = SegmentState.NEW
    with hold(CONFIG) as held:
        assert held.state == SegmentState.READY


def test_a_table_says_where_what_is_in_it_comes_from():
    for config, origin in ((CONFIG, "new"), (CONFIG, "kept"), (FRESH, "new")):
        held = opening.hold(config)
        held.instance.close()
        assert held.origin == {"from": origin}


def test_a_table_of_another_version_that_does_not_say_how_it_is_laid_out_is_not_touched():
    with hold(CONFIG) as held:
        held.table.header["digest"] += 1
        held.table.regions[Region.CONTROL][descriptions.OFFSET] += 1
    with pytest.raises(UnfitTableError, match=r"wrong layout digest.*--fresh, which discards it"):
        hold(CONFIG)
    with hold(FRESH):
        pass


def die_in(step):
    """Return what a participant does who dies in a step, and its place."""

    def participate(child):
        table = segment.attach(CONFIG.instance).table
        me = roster.join(table, Kind.WORKER)
        roster.participants(table)[me - 1]["intent"]["step"] = step
        child.say(me)
        os.kill(os.getpid(), signal.SIGKILL)

    return participate


def test_the_dead_are_repaired_and_buried():
    with hold(CONFIG):
        for step in (Step.NONE, Step.CREATE):
            with Child(die_in(step)) as child:
                child.hear()
                child.wait()
    with hold(CONFIG) as held:
        assert roster.present(held.table) == []
        assert not roster.participants(held.table)["intent"]["step"].any()


def work(child):
    table = segment.attach(CONFIG.instance).table
    me = roster.join(table, Kind.WORKER)
    child.say("joined")
    child.hear()
    roster.leave(table, me)


def test_workers_of_an_earlier_service_are_waited_for(monkeypatch):
    with hold(CONFIG):
        pass
    with Child(work) as child:
        assert child.hear() == "joined"
        monkeypatch.setattr(opening, "WAIT_MS", 0)
        with pytest.raises(StillRunningError, match=f"worker {child.pid} of an earlier service"):
            hold(CONFIG)
        monkeypatch.undo()
        child.say("leave")
        with hold(CONFIG) as held:
            assert roster.present(held.table) == []
