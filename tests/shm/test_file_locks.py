"""Locks on parts of a file: exclusive, by description and not by process, told to who asks, and gone with their holder."""

import os

import pytest
from forked import Child
from zonetrack.shm import file_locks


@pytest.fixture
def file(tmp_path):
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def own(file):
    descriptor = file_locks.reopen(file)
    yield descriptor
    os.close(descriptor)


def test_only_one_has_a_byte(file, own):
    other = file_locks.reopen(file)
    assert file_locks.take(own, 10, 5)
    assert not file_locks.take(other, 14, 1)
    assert file_locks.take(other, 15, 1)
    os.close(other)


def test_it_may_be_taken_again_by_who_has_it(own):
    assert file_locks.take(own, 0, 7) and file_locks.take(own, 0, 7)


def test_how_long_it_is_is_told_to_anybody(file, own):
    assert file_locks.held(file, 0, 0) == 0
    file_locks.take(own, 1 << 32, 4711)
    assert file_locks.held(file, 1 << 32, 1) == file_locks.held(file, 0, 0) == 4711
    assert file_locks.held(file, 0, 1 << 32) == 0


def test_who_asks_takes_nothing_away(file, own):
    file_locks.take(own, 0, 1)
    os.close(file_locks.reopen(file))  # POSIX record locks would be lost here
    assert file_locks.held(file, 0, 1) == 1


def test_it_goes_with_its_holder_and_the_next_waits_for_that(file):
    def hold(child):
        own = file_locks.reopen(file)
        child.say(file_locks.take(own, 0, 1))
        child.hear()

    def follow(child):
        own = file_locks.reopen(file)
        child.say("about to")
        file_locks.wait_for(own, 0, 2)
        child.say("has it")
        child.hear()

    with Child(hold) as first, Child(follow) as second:
        assert first.hear()
        assert second.hear() == "about to"
        first.kill()
        assert second.hear() == "has it"
        assert file_locks.held(file, 0, 0) == 2
    assert file_locks.held(file, 0, 0) == 0
