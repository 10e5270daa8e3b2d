"""Control over a table that a load test has made: it answers, ends when told to, and its end is no failure of who asks."""

import os
import signal

import numpy as np
import pytest
from zonetrack.clients import answered
from zonetrack.clients.driver import CheckFailed, Driver
from zonetrack.clients.errors import NoServiceError
from zonetrack.clients.sync import connect
from zonetrack.clients.trial import together
from zonetrack.service import crew


def note():
    return crew.shared(answered.NOTE, 1).view(np.recarray)


def test_connections_that_are_made_are_those_that_control_tells_of(tmp_path):
    table, between, found = answered.new_table(50, 5), note(), np.zeros(1)
    driver = Driver(table, 1, 32)
    answered.fill(driver, 50, 5)
    driver.leave()
    answered.warm()
    path, counted = tmp_path / "control.sock", crew.shared(np.dtype("u8"), 2)

    def ask(meet):
        meet()
        try:
            with connect(str(path)) as ct:
                counted[:] = ct.count(), ct.count(zone=3, state="ESTABLISHED")
        finally:
            answered.end(between)

    jobs = (lambda meet: answered.answer(table, path, between, meet, {}), ask)
    together(2, lambda index, meet: jobs[index](meet), lambda: None)
    assert counted.tolist() == [50, 10] and not found.any()
    assert not path.exists()


def test_one_that_cannot_be_made_is_a_failure():
    table = answered.new_table(10)
    table.header  # noqa: B018 - the table is there
    driver = Driver(table, 1, 32)
    driver.sender.set(seed=1)
    answered.fill(driver, 10)
    with pytest.raises(CheckFailed):
        answered.fill(driver, 10)  # their SYNs come a second time
    driver.leave()


def test_the_end_of_control_is_no_failure_when_all_is_over():
    between = note()
    with pytest.raises(NoServiceError), answered.to_the_end(between):
        raise NoServiceError("gone")
    between["over"] = 1
    with answered.to_the_end(between):
        raise NoServiceError("gone")


def test_threads_stay_where_they_are_put():
    allowed = os.sched_getaffinity(0)
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        answered.stay_on(min(allowed), (pid,))
        assert os.sched_getaffinity(pid) == {min(allowed)} and os.sched_getaffinity(0) == allowed
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_what_never_comes_is_a_failure(monkeypatch):
    monkeypatch.setattr(answered, "PATIENCE_S", 0.0)
    with pytest.raises(CheckFailed, match="the sun rises: not in 0 s"):
        answered.until("the sun rises", lambda: False)
    answered.until("it is so", lambda: True)
