"""The socket's path: who says it, in which order, and how long it may be."""

import os
import socket

import pytest
from zonetrack.clients import address
from zonetrack.clients.address import PATH_BYTES_MAX, AddressError

USER = {"XDG_RUNTIME_DIR": "/run/user/1000"}


@pytest.mark.parametrize(
    ("given", "instance", "environment", "uid", "path"),
    [
        (None, None, USER, 1000, "/run/user/1000/zonetrack/default.sock"),
        (None, "lab", USER, 1000, "/run/user/1000/zonetrack/lab.sock"),
        (None, None, USER, 0, "/run/zonetrack/default.sock"),
        (None, None, {}, 0, "/run/zonetrack/default.sock"),
        (None, None, {"ZONETRACK_INSTANCE": "lab"}, 0, "/run/zonetrack/lab.sock"),
        (None, "two", {"ZONETRACK_INSTANCE": "lab"}, 0, "/run/zonetrack/two.sock"),
        (None, None, {"ZONETRACK_SOCKET": "/tmp/a.sock"}, 1000, "/tmp/a.sock"),
        (None, "lab", {"ZONETRACK_SOCKET": "/tmp/a.sock"}, 0, "/tmp/a.sock"),
        ("/tmp/b.sock", "lab", {"ZONETRACK_SOCKET": "/tmp/a.sock"}, 0, "/tmp/b.sock"),
        (
            None,
            None,
            USER | {"ZONETRACK_SOCKET": "", "ZONETRACK_INSTANCE": ""},
            1,
            "/run/user/1000/zonetrack/default.sock",
        ),
    ],
)
def test_who_says_where_the_socket_is(given, instance, environment, uid, path):
    assert address.path(given, instance, environment, uid) == path


def test_without_a_runtime_directory_it_must_be_said():
    with pytest.raises(AddressError, match=r"XDG_RUNTIME_DIR is not set.*--socket"):
        address.path(None, None, {}, 1000)


def test_the_longest_path_is_the_longest_that_a_socket_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    longest = "s" * PATH_BYTES_MAX
    assert address.path(longest) == longest
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(longest)
    os.unlink(longest)
    with pytest.raises(AddressError, match="the path of a socket has 107 bytes at most, this one 108"):
        address.path(longest + "s")
    with pytest.raises(AddressError, match="this one 108"):
        address.path("é" * 54)
