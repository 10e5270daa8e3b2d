"""Namespaces without a name, and wires between them."""

import os
import socket

import pytest
import wires
from zonetrack.clients import namespaces
from zonetrack.clients.namespaces import Namespace, NamespaceError


@pytest.fixture(autouse=True)
def rights():
    wires.need()


def inside():
    """Return the namespace that this thread is in."""
    return os.readlink(namespaces.OWN)


def test_one_is_entered_and_left():
    home = inside()
    made = Namespace()
    with made.entered():
        assert inside() != home
        assert [name for _, name in socket.if_nameindex()] == ["lo"]
    assert inside() == home
    made.close()


def test_a_wire_joins_two():
    one, other = Namespace(), Namespace()
    namespaces.wire(one, "left", other, "right")
    with one.entered():
        left = wires.raw("left")
    with other.entered():
        right = wires.raw("right")
    wires.prove(left, right)
    for made in (left, right, one, other):
        made.close()


def test_interfaces_tell_what_they_have_counted_wherever_one_is():
    space = Namespace()
    namespaces.add_void(space, "void")
    with space.entered():
        sender = wires.raw("void")
    with namespaces.Interfaces(space) as interfaces:
        assert interfaces.received("void") == 0
        for _ in range(3):
            sender.send(bytes(60))
        assert interfaces.received("void") == 3
        with pytest.raises(NamespaceError, match="there is no interface none"):
            interfaces.received("none")
    sender.close()
    space.close()


def test_what_ip_says_against_something_is_told():
    with pytest.raises(NamespaceError, match="ip link set none up: Cannot find device"):
        namespaces.run("link", "set", "none", "up")


def test_without_ip_nothing_can_be_done(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NamespaceError, match="iproute2"):
        namespaces.run("link")
