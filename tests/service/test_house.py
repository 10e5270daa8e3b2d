"""A house is made, or taken over from a process that has all of it; what is missing is said."""

import contextlib
import itertools
import os
import signal

import pytest
from forked import Child
from zonetrack.service import house, orphans
from zonetrack.service.config import Config
from zonetrack.service.ports.specs import PortSpec
from zonetrack.shm import estate, port
from zonetrack.shm.errors import EstateError
from zonetrack.shm.layout import PAGE_BYTES

_numbers = itertools.count(1)


@pytest.fixture
def config(tmp_path):
    made = Config(
        instance=f"test-house-{os.getpid()}-{next(_numbers)}",
        socket=str(tmp_path / "x.sock"),
        workers=2,
        ports=(PortSpec("shm", "lab", queues=3, zone=7),),
    )
    yield made
    for name in port.names(made.instance):
        port.remove(made.instance, name)


def left_by_a_keeper(config, before=lambda made: None):
    """Let a keeper make a house, have it killed, and return the pid of its child, in place 0."""

    def keep(child):
        made = house.make(config, lambda act: None)
        before(made)
        made.queues.records["rx"]["cursor"][2] = 99
        made.board.lines["calls"][1] = 5
        os.write(made.order, b"\1")
        orphan = Child(lambda one: stay(one, made))
        orphan.hear()
        child.say(orphan.pid)
        child.hear()

    def stay(child, made):
        made.enter(0)
        child.say("in place")
        while True:
            signal.pause()

    with Child(keep) as keeper:
        return keeper.hear()


@contextlib.contextmanager
def orphaned(config, **more):
    pid = left_by_a_keeper(config, **more)
    try:
        left = orphans.of(config.instance)
        assert left is not None and left.pids == [pid]
        yield left
    finally:
        os.kill(pid, signal.SIGKILL)


def close(taken):
    for name in taken.estate.told["descriptors"]:
        taken.estate.drop(name)


def test_a_house_is_taken_over_as_it_stands(config):
    with orphaned(config) as left, house.ends(lambda: False) as undo:
        assert orphans.differences(left, config) == []
        taken = house.take_over(left, config, undo)
        assert taken.queues.records["rx"]["cursor"].tolist() == [0, 0, 99]
        assert taken.board.lines["calls"].tolist() == [0, 5]
        assert [list(taken.board.queues(worker)) for worker in (0, 1)] == [[("lab", 0), ("lab", 2)], [("lab", 1)]]
        assert os.read(taken.orders, 1) == b"\1"
        assert taken.estate.holder(0) == left.pids[0]
        assert taken.queues.ports[0].is_open and os.path.exists(config.socket)
        close(taken)
    assert not os.path.exists(config.socket) and port.names(config.instance) == []


def test_what_is_left_to_the_next_is_not_undone(config):
    with house.ends(lambda: True) as undo:
        made = house.make(config, undo)
        close(made)
    assert os.path.exists(config.socket) and port.names(config.instance) == ["lab"]
    os.unlink(config.socket)


def test_other_shapes_are_told(config):
    with orphaned(config) as left:
        other = Config(instance=config.instance, socket=config.socket, workers=3, hang_ms=5_000)
        assert orphans.differences(left, other) == ["workers", "ports"]
        left.estate.add(format="another")
        assert orphans.differences(left, config) == ["the layout of the table"]


def test_a_port_that_a_client_has_broken_cannot_be_taken_over(config):
    def shorten(made):
        os.ftruncate(made.queues.ports[0].descriptor, PAGE_BYTES)

    with orphaned(config, before=shorten) as left, house.ends(lambda: False) as undo:
        with pytest.raises(EstateError, match="ports as they were opened"):
            house.take_over(left, config, undo)
        for name in left.estate.told["descriptors"]:
            left.estate.drop(name)
    os.unlink(config.socket)


def test_what_nobody_has_is_said(config):
    with orphaned(config, before=lambda made: made.estate.drop("rules")) as left, house.ends(lambda: False) as undo:
        with pytest.raises(EstateError, match="a process that has rules"):
            house.take_over(left, config, undo)
        for name in left.estate.told["descriptors"]:
            left.estate.drop(name)
    os.unlink(config.socket)


def test_a_worker_leaves_the_door_to_control(config):
    def look(child, place):
        made.enter(place)
        child.say(made.estate.number("door") is not None)

    with house.ends(lambda: False) as undo:
        made = house.make(config, undo)
        for place, has in ((0, False), (estate.CONTROL, True)):
            with Child(lambda child, place=place: look(child, place)) as child:
                assert child.hear() is has
                child.wait()
        close(made)
