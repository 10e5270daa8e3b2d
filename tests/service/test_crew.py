"""Members do their job and are gone; who does not is named."""

import os
import signal

import numpy as np
import pytest
from zonetrack.clients.errors import ZonetrackError
from zonetrack.service.crew import FAILED, INTERRUPTED, Crew, shared


class Stop(Exception):
    """What interrupts a crew here."""


def wait_for_ever():
    signal.pause()


def test_every_member_does_its_part():
    done = shared(np.dtype("u8"), 3)

    def job(number):
        done[number] = number + 10

    crew = Crew(3, job)
    crew.run()
    assert (done.tolist(), crew.deaths) == ([10, 11, 12], [])


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("end", "code", "words", "told"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL, "was killed by SIGKILL", ""),
        (lambda: fail(ZonetrackError("no such thing")), FAILED, "failed with exit code 1", "worker 1: no such thing"),
        (lambda: fail(ValueError("a mistake")), FAILED, "failed with exit code 1", "ValueError: a mistake"),
        (lambda: fail(KeyboardInterrupt()), INTERRUPTED, "failed with exit code 130", ""),
    ],
)
def test_who_fails_is_named_and_the_others_go_on(end, code, words, told, capfd):
    done = shared(np.dtype("u8"), 3)

    def job(number):
        if number == 1:
            end()
        done[number] = 1

    crew = Crew(3, job)
    crew.run()
    assert done.tolist() == [1, 0, 1]
    (death,) = crew.deaths
    assert (death.number, death.code) == (1, code)
    assert str(death) == f"worker 1 (pid {death.pid}) {words}"
    assert told in capfd.readouterr().err


def test_members_are_looked_at_while_they_run():
    go, looks = shared(np.dtype("u8"), 1), []

    def job(number):
        while not go[0]:
            os.sched_yield()

    def look():
        looks.append(1)
        go[0] = 1

    crew = Crew(1, job)
    crew.run(look)
    assert looks and crew.deaths == []


def test_an_interrupted_crew_is_dismissed():
    pids = shared(np.dtype("u8"), 2)

    def job(number):
        pids[number] = os.getpid()
        if number:
            wait_for_ever()

    def look():
        raise Stop

    crew = Crew(2, job)
    with pytest.raises(Stop):
        crew.run(look)
    for pid in pids[pids > 0].tolist():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_members_go_with_their_parent():
    """A parent that is killed cannot dismiss anybody."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:

        def job(number):
            os.write(writer, b"up")
            wait_for_ever()

        Crew(1, job).run()
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 2) == b"up"
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert os.read(reader, 1) == b""  # the member held the other end, and is gone
    os.close(reader)


def test_shared_records_may_be_none():
    assert len(shared(np.dtype("u8"), 0)) == 0
