"""A service manager is told what it waits for, on either kind of socket; where there is none nothing happens."""

import os
import socket

import pytest
from zonetrack.service import notify


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path, monkeypatch):
    """A service manager's socket, named in the environment."""
    path = str(tmp_path / "notify") if request.param == "path" else f"@zonetrack-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path if request.param == "path" else f"\0{path[1:]}")
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        yield listener


def test_each_word(manager):
    notify.ready("2 workers")
    notify.reloading()
    notify.stopping("draining")
    ready, reloading, stopping = (manager.recv(4096).decode().splitlines() for _ in range(3))
    assert ready == ["READY=1", "STATUS=2 workers", f"MAINPID={os.getpid()}"]
    assert reloading[0] == "RELOADING=1" and int(reloading[1].removeprefix("MONOTONIC_USEC=")) > 0
    assert stopping == ["STOPPING=1", "STATUS=draining"]


def test_descriptors_are_given_to_be_kept_and_forgotten(manager):
    reader, writer = os.pipe()
    notify.store({"orders": reader, "order": writer})
    got = {}
    for _ in range(2):
        text, numbers, _, _ = socket.recv_fds(manager, 4096, 4)
        assert text.startswith(b"FDSTORE=1\nFDNAME=") and text.endswith(b"\nFDPOLL=0")
        (got[text.split(b"\n")[1].removeprefix(b"FDNAME=").decode()],) = numbers
    os.write(got["order"], b"x")
    assert os.read(reader, 1) == b"x" and got.keys() == {"orders", "order"}
    notify.forget(["order"])
    assert manager.recv(4096) == b"FDSTOREREMOVE=1\nFDNAME=order"
    for number in (reader, writer, *got.values()):
        os.close(number)


@pytest.mark.parametrize(
    "environment",
    [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}, {"LISTEN_PID": str(os.getpid())}],
)
def test_what_is_not_ours_is_not_taken(environment):
    assert notify.stored(environment) == {}
    assert environment == {}  # whoever we start shall not take it for his


def test_the_watchdog_is_told_twice_in_its_time(manager):
    watchdog = notify.Watchdog({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())})
    watchdog.beat(100.0)
    assert (manager.recv(4096), watchdog.due_s) == (b"WATCHDOG=1", 101.5)
    watchdog.beat(101.0)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)
    watchdog.beat(101.5)
    assert manager.recv(4096) == b"WATCHDOG=1"


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}]
)
def test_a_watchdog_that_is_not_ours_is_told_nothing(manager, environment):
    watchdog = notify.Watchdog(environment)
    watchdog.beat(100.0)
    assert watchdog.due_s == 0.0
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


@pytest.mark.parametrize("path", ["", "relative", "/nowhere/to/be/found"])
def test_nobody_listens(path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    notify.ready("x")
