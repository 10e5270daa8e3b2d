"""A house is made, or taken over from a process that has all of it; what is missing is said."""

import os

import pytest
from forked import Child
from houses import close, configured, orphaned
from zonetrack.service import house, orphans
from zonetrack.service.config import Config
from zonetrack.shm import estate, port
from zonetrack.shm.errors import EstateError
from zonetrack.shm.layout import PAGE_BYTES


@pytest.fixture
def config(tmp_path):
    with configured(tmp_path) as made:
        yield made


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
        close(left)
    os.unlink(config.socket)


def test_what_nobody_has_is_said(config):
    with orphaned(config, before=lambda made: made.estate.drop("rules")) as left, house.ends(lambda: False) as undo:
        with pytest.raises(EstateError, match="a process that has rules"):
            house.take_over(left, config, undo)
        close(left)
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
