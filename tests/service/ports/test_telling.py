"""What is told of ports: each kind its own causes of loss, and who has which queue."""

import firewalls
import instances
import pytest
from ports import datagrams
from wired import Gateway
from wires import Namespace
from zonetrack.service.ports import telling
from zonetrack.service.ports.nfqueue import NfqueuePort
from zonetrack.shm import port
from zonetrack.shm.queues import Queues


@pytest.fixture
def instance():
    with instances.named() as name:
        yield name


def test_a_port_of_clients_is_told_with_its_queues(instance):
    with port.create(instance, "lab", 2, zone=7, slots=8) as made:
        queues = Queues([made], workers=2)
        queues.records["rx_packets"] = 5, 6
        queues.records["rx_sizes"][1][3] = 2
        (told,) = telling.tell(queues, queues.deal())
    assert {key: told[key] for key in ("name", "kind", "zone", "slots")} == {
        "name": "lab",
        "kind": "shm",
        "zone": 7,
        "slots": 8,
    }
    assert [(row["queue"], row["worker"], row["rx_packets"]) for row in told["queues"]] == [(0, 0, 5), (1, 1, 6)]
    assert told["queues"][1]["rx_sizes"] == [0, 0, 0, 2, 0, 0]
    assert {"bad_slots", "bad_lengths", "bad_cursors", "wakes"} <= told["queues"][0].keys()


def test_an_interface_is_told_with_what_it_lost():
    with Gateway(1) as gateway:
        gateway.wires.send(datagrams(4))
        gateway.take(4)
        (told,) = telling.tell(gateway.queues, [[0]])
    assert (told["kind"], told["device"]) == ("afpacket", "near0")
    (row,) = told["queues"]
    assert (row["rx_packets"], row["rx_dropped"], row["rx_truncated"], row["tx_failed"]) == (4, 0, 0, 0)


def test_losses_are_told_by_cause_where_those_are_known():
    firewalls.need()
    namespace = Namespace()
    with namespace.entered(), NfqueuePort(5) as made:
        queues = Queues([made])
        queues.records["causes"] = [[1, 2, 3, 0]]
        (told,) = telling.tell(queues, [[0]])
    namespace.close()
    assert (told["kind"], told["device"]) == ("nfqueue", "5")
    (row,) = told["queues"]
    assert [row[name] for name in ("rx_queue_full", "rx_buffer_full", "rx_abandoned")] == [1, 2, 3]
