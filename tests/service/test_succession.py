"""A keeper has the house of the one before, where it fits; else nothing is left of that, and it can make another."""

import dataclasses
import os
import socket

import pytest
from forked import Child
from houses import close, configured, made_by_a_keeper, orphaned
from manager import Manager
from outliving import all_ended, ends
from zonetrack.service import house, notify, succession
from zonetrack.shm import estate, roster, segment
from zonetrack.shm.layout import Kind
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def config(tmp_path):
    with configured(tmp_path) as made:
        yield made


@pytest.fixture
def table(config):
    with segment.create(config.instance, Geometry(1000)) as made:
        yield made.table
    segment.discard(config.instance)


@pytest.fixture
def manager(tmp_path, monkeypatch):
    with Manager(tmp_path) as made:
        monkeypatch.setenv("NOTIFY_SOCKET", made.path)
        yield made


def kept(config, manager, before=lambda made: None):
    """Return what a service manager hands over of a service of which nobody lives."""

    def keep(child):
        made = made_by_a_keeper(config)
        before(made)
        notify.store(made.estate.descriptors())
        notify.ready("")
        child.hear()

    with Child(keep):
        manager.until("READY")
    return {name: os.dup(number) for name, number in manager.kept.items()}


def listed():
    """Return the numbers of descriptors that this process has, of those which an estate gives."""
    return {number for number in map(int, os.listdir("/proc/self/fd")) if number >= estate.NUMBER_MIN}


def test_the_house_of_who_was_left_is_inherited(config):
    with orphaned(config) as left, house.ends(lambda: False) as undo:
        taken = succession.inherit(left, config, None, undo)
        assert taken.queues.records["rx"]["cursor"].tolist() == [0, 0, 99]
        assert taken.estate.holder(0) == left.pids[0]
        close(taken)


def test_who_cannot_be_adopted_is_ended_and_the_dead_are_buried(config, table):
    with Child(lambda child: child.say(roster.join(table, Kind.WORKER))) as worker:
        worker.hear()
    (dead,) = roster.present(table)
    assert not dead.alive
    with orphaned(config, before=lambda made: made.estate.drop("rules")) as left, house.ends(lambda: False) as undo:
        pidfds = ends(left.pids)
        assert succession.inherit(left, dataclasses.replace(config, drain_ms=0), table, undo) is None
        assert all_ended(pidfds) and roster.present(table) == []
        close(left)


def test_what_was_kept_is_taken_up(config, manager):
    stored = kept(config, manager)
    with house.ends(lambda: False) as undo:
        taken = succession.take_up(stored, config, undo)
        assert taken.queues.records["rx"]["cursor"].tolist() == [0, 0, 99]
        assert os.read(taken.orders, 64) == b"\1"
        close(taken)


@pytest.mark.parametrize(
    ("change", "before"),
    [
        ({"workers": 1}, lambda made: None),
        ({"fresh": True}, lambda made: None),
        ({}, lambda made: made.estate.drop("rules")),
    ],
    ids=["another shape", "fresh", "not whole"],
)
def test_what_does_not_fit_is_closed_here_and_at_the_managers(config, manager, change, before):
    before_it = listed()
    stored = kept(config, manager, before)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(config.socket)
    with house.ends(lambda: False) as undo:
        assert succession.take_up(stored, dataclasses.replace(config, **change), undo) is None
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(config.socket)
    while manager.kept:
        manager.until("FDSTOREREMOVE")
    assert listed() == before_it


def test_what_was_kept_of_something_else_is_closed(config):
    reader, writer = os.pipe()
    with house.ends(lambda: False) as undo:
        assert succession.take_up({"estate": reader, "queues": writer}, config, undo) is None
    for number in (reader, writer):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)
