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


@pytest.mark.parametrize("path", ["", "relative", "/nowhere/to/be/found"])
def test_nobody_listens(path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    notify.ready("x")
