"""What a dead keeper's children have is found by its name in /proc, and taken over under the same numbers."""

import os
import signal
import socket

import numpy as np
import pytest
from forked import Child
from zonetrack.shm import estate
from zonetrack.shm.errors import EstateError
from zonetrack.shm.estate import LIST_BYTES_MAX, NUMBER_MIN, Estate

INSTANCE = f"test-estate-{os.getpid()}"


def founded():
    return Estate.found(INSTANCE, 256)


@pytest.fixture
def left():
    """What a keeper leaves that was killed: its child lives, in place 3, and has what the keeper had kept."""

    def keep(child):
        made = founded()
        reader, writer = os.pipe()
        made.lines(np.dtype("u8"))[0] = 77
        made.keep("reader", reader)
        made.keep("writer", writer)
        made.keep("door", socket.socketpair()[0].detach())
        orphan = Child(lambda one: stay(one, made))
        assert orphan.hear() == "in place"
        child.say(orphan.pid)
        child.hear()

    def stay(child, made):
        made.occupy(3)
        made.drop("door")
        child.say("in place")
        while True:
            signal.pause()

    with Child(keep) as keeper:
        pid = keeper.hear()
        keeper.kill()
        yield pid
    os.kill(pid, signal.SIGKILL)


def test_what_is_told_last_is_found_whole():
    made = founded()
    made.tell({"a": 1})
    made.add(b=[2])
    assert made.told == {"a": 1, "b": [2]}
    with pytest.raises(EstateError):
        made.tell({"a": "x" * LIST_BYTES_MAX})
    assert made.told == {"a": 1, "b": [2]}


def test_a_descriptor_gets_a_number_of_its_own_and_keeps_it():
    made = founded()
    reader, writer = os.pipe()
    number = made.keep("pipe", writer)
    assert number >= NUMBER_MIN and made.number("pipe") == number
    os.write(number, b"x")
    assert os.read(reader, 1) == b"x"
    with pytest.raises(OSError):
        os.fstat(writer)
    made.drop("pipe")
    assert made.number("pipe") is None and made.number("nothing") is None
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, number)  # the number is another's now
    assert made.number("pipe") is None
    for descriptor in (number, null, reader):
        os.close(descriptor)


def test_a_place_has_one_process_until_its_death():
    made = founded()

    def occupy(child):
        made.occupy(5)
        child.say("in place")
        child.hear()

    with Child(occupy) as first:
        first.hear()
        assert (made.holder(5), made.holder(4)) == (first.pid, 0)
        with Child(occupy) as second:  # waits for the death of the first
            first.kill()
            assert second.hear() == "in place"
            assert made.holder(5) == second.pid
    assert made.holder(5) == 0


def test_who_keeps_is_known_while_it_lives():
    made = founded()
    assert made.keeper == os.getpid()
    with Child(lambda child: (made.keep_on(), child.say(0), child.hear())) as child:
        child.hear()
        assert made.keeper == child.pid
    assert made.keeper == 0
    made.keep_on()
    made.leave()
    assert made.keeper == 0


def test_the_next_keeper_takes_over(left):
    (member,) = estate.members(INSTANCE)
    assert member.pid == left
    found = estate.look(INSTANCE, member)
    assert found is not None and found.keeper == 0
    assert found.holder(3) == left
    estate.take_over(found, [left])
    assert found.keeper == os.getpid()
    reader, writer = found.number("reader"), found.number("writer")
    assert reader is not None and writer is not None
    assert [reader, writer] == [found.told["descriptors"][name][0] for name in ("reader", "writer")]
    os.write(writer, b"order")
    assert os.read(reader, 5) == b"order"
    assert found.number("door") is None  # the child had closed it
    assert found.lines(np.dtype("u8"))[0] == 77
    found.drop("reader")
    found.drop("writer")


def test_a_number_that_is_taken_here_is_no_ones(left):
    (member,) = estate.members(INSTANCE)
    found = estate.look(INSTANCE, member)
    taken = found.told["descriptors"]["reader"][0]
    os.dup2(0, taken)
    try:
        with pytest.raises(EstateError, match=f"number {taken}"):
            estate.take_over(found, [left])
    finally:
        os.close(taken)
    assert found.keeper == 0


def test_who_has_gone_has_nothing(left):
    (member,) = estate.members(INSTANCE)
    assert estate.look(INSTANCE, estate.Member(2**22 - 3, member.descriptor)) is None
    assert estate.members("no-such-instance") == []
