"""Children are real processes here: they say that they are ready, end when asked, and go on when their parent dies."""

import os
import select
import signal
import time

import pytest
from zonetrack.clients.errors import Exit, ZonetrackError
from zonetrack.service import children, log
from zonetrack.service.children import Child
from zonetrack.service.crew import FAILED
from zonetrack.service.lives import Life


class Stopped(BaseException):
    """What the handler of a child here does."""


def stop(*_):
    raise Stopped


def wait(descriptor):
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    assert poller.poll(60_000)


def until_ready(child):
    wait(child.ready)
    assert child.hear(time.monotonic())


def end_of(child):
    wait(child.pidfd)
    return child.bury(time.monotonic())


def started(job, **more):
    child = Child("worker", 0, job, **more)
    child.fork(time.monotonic())
    return child


def sleep_until_stopped(ready):
    try:
        ready()
        while True:
            signal.pause()
    except Stopped:
        return


def test_a_life():
    child = started(sleep_until_stopped, on_stop=stop)
    assert child.lives and child.course.life is Life.STARTING
    until_ready(child)
    assert child.course.life is Life.RUNNING
    os.kill(child.pid, signal.SIGINT)  # a terminal's: not for the child
    os.kill(child.pid, signal.SIGHUP)
    child.ask_to_stop(0.0)
    assert end_of(child) == Exit.OK
    assert (child.course.life, child.lives, child.pidfd, child.ready) == (Life.GONE, False, -1, -1)


def test_who_does_not_end_in_time_is_killed():
    child = started(sleep_until_stopped, on_stop=lambda *_: None)
    until_ready(child)
    child.ask_to_stop(0.0)
    child.kill(0.0)
    assert end_of(child) == -signal.SIGKILL
    assert child.course.life is Life.GONE


def test_who_is_hurried_leaves_what_it_is_at():
    child = started(sleep_until_stopped, on_stop=lambda *_: None, on_hurry=stop)
    until_ready(child)
    child.ask_to_stop(0.0)
    child.hurry(0.0)
    assert end_of(child) == Exit.OK
    assert child.course.life is Life.GONE


def test_a_successor_takes_the_place():
    child = started(sleep_until_stopped, on_stop=stop)
    first = child.pid
    until_ready(child)
    os.kill(child.pid, signal.SIGKILL)
    assert end_of(child) == -signal.SIGKILL
    assert child.course.life is Life.WAITING
    child.fork(time.monotonic())
    until_ready(child)
    assert child.pid != first and child.course.starts == 2
    child.ask_to_stop(0.0)
    assert end_of(child) == Exit.OK


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("error", "trace"), [(ZonetrackError("no such thing"), False), (ValueError("a mistake"), True)]
)
def test_who_fails_says_why(error, trace, capfd):
    log.configure(level="info", as_json=False)
    child = started(lambda ready: fail(error))
    wait(child.ready)
    assert not child.hear(0.0)
    assert end_of(child) == FAILED
    told = capfd.readouterr().err
    assert f"worker 0: {error}" in told
    assert ("Traceback" in told) is trace


def test_a_child_outlives_its_parent_and_is_adopted():
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        child = started(sleep_until_stopped, on_stop=stop)
        until_ready(child)
        os.write(writer, child.pid.to_bytes(4, "little"))
        signal.pause()
    os.close(writer)
    pid = int.from_bytes(os.read(reader, 4), "little")
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    child = Child("worker", 0, sleep_until_stopped, on_stop=stop)
    child.adopt(pid, time.monotonic())
    assert (child.course.life, child.inherited, child.course.starts) == (Life.RUNNING, True, 1)
    os.kill(pid, signal.SIGTERM)
    assert end_of(child) is None  # how it ended is known to its parent alone
    assert child.course.life is Life.WAITING
    child.fork(time.monotonic())
    until_ready(child)
    assert not child.inherited
    child.ask_to_stop(0.0)
    assert end_of(child) == Exit.OK
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_who_has_gone_is_not_adopted():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    child = Child("worker", 0, fail)
    with pytest.raises(ProcessLookupError):
        child.adopt(pid, 0.0)
    assert child.course.life is Life.WAITING and not child.lives


def test_a_child_whose_keeper_has_died_before_it_was_ready_goes_on():
    reader, writer = os.pipe()

    def job(ready):
        assert os.read(reader, 1) == b"x"  # until nobody listens any more
        ready()

    child = started(job)
    os.close(child.ready)
    child.ready = -1
    os.write(writer, b"x")
    assert end_of(child) == Exit.OK
    os.close(reader)
    os.close(writer)


def test_who_is_replaced_is_hurried():
    child = started(sleep_until_stopped, on_stop=lambda *_: None, on_hurry=stop)
    until_ready(child)
    child.replace(0.0)
    assert end_of(child) == Exit.OK
    assert child.course.life is Life.WAITING


def test_a_child_is_in_haste_until_it_is_ready():
    before = os.getpriority(os.PRIO_PROCESS, 0)
    seen, wrote = os.pipe()

    def job(ready):
        os.write(wrote, bytes([os.getpriority(os.PRIO_PROCESS, 0) + 40]))
        ready()
        os.write(wrote, bytes([os.getpriority(os.PRIO_PROCESS, 0) + 40]))

    with children.hastened():
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert own == before - children.URGENCY or os.geteuid() != 0
        assert end_of(started(job)) == Exit.OK
    assert os.read(seen, 2) == bytes([own + 40, before + 40])
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
    os.close(seen)
    os.close(wrote)


def test_names():
    assert [Child("worker", 3, fail).name, Child("control", 0, fail).name] == ["worker 3", "control"]
