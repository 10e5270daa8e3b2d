"""Interfaces as the system knows them."""

import pytest
from wires import Wires
from zonetrack.service.ports import interface
from zonetrack.service.ports.errors import PortError


def test_an_interface_is_looked_at():
    with Wires() as wires:
        found = interface.look("afpacket:near0", "near0")
        assert (found.name, found.mtu, found.hardware, found.is_up) == ("near0", 1500, interface.ETHERNET, True)
        assert interface.mtu("near0") == 1500
        wires.namespace.run("ip", "link", "set", "near0", "mtu", "1400", "down")
        found = interface.look("afpacket:near0", "near0")
        assert (found.mtu, found.is_up) == (1400, False)
        assert interface.mtu("none") == 0


def test_offloads_are_seen_and_switched():
    with Wires():
        for on in (True, False):
            interface.set_offload("near0", "gro", on)
            assert ("gro" in interface.look("x", "near0").offloads) == on


def test_one_that_is_not_there_is_refused_with_those_that_are():
    with Wires(), pytest.raises(PortError) as raised:
        interface.look("afpacket:wan", "wan")
    assert str(raised.value) == "port afpacket:wan: there is no interface 'wan'; there are: far0, lo, near0"
