"""TAP interfaces: made, switched on, gone with the service; what the system refuses is one line."""

import contextlib
import os

import numpy as np
import pytest
from wires import Namespace, raw
from zonetrack.service.ports import interface
from zonetrack.service.ports.errors import PortError
from zonetrack.service.ports.tap import TapPort
from zonetrack.shm.layout import PortKind
from zonetrack.shm.queues import Queues


@pytest.fixture(autouse=True)
def namespace():
    made = Namespace()
    with made.entered():
        yield made
    made.close()


def test_it_is_there_and_up_as_long_as_the_port_is_open():
    with TapPort("t0", queues=2) as made:
        assert interface.look("t", "t0").is_up
        queues = Queues([made], workers=3)
        assert queues.records["receives"].tolist() == [1, 1, 0]
        assert queues.records["kind"].tolist() == [PortKind.TAP] * 3
        first, second = made.descriptors()
        assert queues.records["tx_descriptor"].tolist() == [first, second, first]
    assert "t0" not in interface.names()


def test_another_process_goes_on_with_it():
    made = TapPort("t0", queues=2)
    other = TapPort("t0", queues=2, descriptors=[os.dup(one) for one in made.descriptors()])
    made.unlink()
    assert other.queues == 2 and "t0" in interface.names()
    other.unlink()
    assert "t0" not in interface.names()


def test_one_that_another_has_is_refused():
    with TapPort("t0"), pytest.raises(PortError, match="port tap:t0: it is there already, and is in use"):
        TapPort("t0")


def test_what_found_no_room_is_counted():
    with TapPort("t0") as made, contextlib.closing(raw("t0")) as host:
        for _ in range(10_050):
            host.send(bytes(60))
        queue = Queues([made]).records[0]
        made.look(queue)
        assert 0 < queue["rx_dropped"] <= 50
        assert queue["rx_dropped"].dtype == np.uint64


def test_one_that_is_closed_takes_no_more():
    with TapPort("t0") as made, contextlib.closing(raw("t0")) as host:
        made.close()
        host.send(bytes(60))
        made.look(queue := Queues([made]).records[0])
        assert queue["rx_dropped"] == 1
