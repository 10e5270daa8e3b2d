"""Packet sockets: opened with their rings, counted, closed; what the system refuses is one line."""

import os

import forked
import pytest
from ports import datagrams
from wires import Wires
from zonetrack.service.ports.errors import PortError
from zonetrack.service.ports.packet import PLACES_COUNT, PacketPort
from zonetrack.shm.layout import BLOCKS, PLACES, PortKind
from zonetrack.shm.queues import Queues


def test_places_are_laid_out_and_those_beyond_the_queues_only_send():
    with Wires(), PacketPort("near0", queues=1, zone=4, workers=3, ring_mb=2) as made:
        queues = Queues([made], workers=3)
        assert queues.records["receives"].tolist() == [1, 0, 0]
        assert set(queues.records["kind"].tolist()) == {PortKind.PACKET}
        assert set(queues.records["zone"].tolist()) == {4}
        assert made.total_bytes == (2 << 20) + 3 * PLACES_COUNT * 2048
        blocks = queues.records["rx"].view(BLOCKS)
        assert (blocks["count"].tolist(), blocks["block_bytes"].tolist()) == ([16, 0, 0], [1 << 17, 0, 0])
        assert len(set(queues.records["tx"].view(PLACES)["places"].tolist())) == 3
        assert made.descriptors() == [*queues.records["rx_descriptor"][:1], *queues.records["tx_descriptor"]]


def test_places_are_as_long_as_the_interface_may_send():
    with Wires() as wires:
        wires.namespace.run("ip", "link", "set", "near0", "mtu", "9000")
        with PacketPort("near0") as made:
            queues = Queues([made])
            assert int(queues.records["tx"].view(PLACES)["place_bytes"][0]) == 16384
            assert int(queues.records["tx"].view(PLACES)["length_max"][0]) == 9014


def test_a_port_that_is_closed_receives_no_more():
    with Wires() as wires, PacketPort("near0") as made:
        queue = Queues([made]).records[0]
        made.close()
        wires.send(datagrams(5))
        made.look(queue)
        with Wires() as others, PacketPort("near0") as other:
            others.send(datagrams(5))
            assert other.interface.is_up
        assert made._rx[0].getsockopt(263, 6, 12)[:4] == bytes(4)


def test_an_interface_that_is_not_there_is_one_line():
    with Wires(), pytest.raises(PortError, match="there is no interface 'wan0'; there are: far0, lo, near0"):
        PacketPort("wan0")


def test_an_interface_without_ethernet_is_refused():
    with Wires() as wires:
        wires.namespace.run("ip", "tuntap", "add", "l3", "mode", "tun")
        with pytest.raises(PortError, match="not an Ethernet interface"):
            PacketPort("l3")


def test_who_lacks_the_right_is_told_which():
    with Wires():

        def be_nobody(child):
            os.setuid(65534)
            try:
                PacketPort("near0")
            except PortError as error:
                child.say(str(error))

        with forked.Child(be_nobody) as child:
            assert "CAP_NET_RAW" in child.hear()
            assert child.wait() == 0


def test_a_process_that_dies_leaves_the_group_as_it_is():
    """What it received with is the keeper's, so nobody else's flows go elsewhere."""
    with Wires() as wires, PacketPort("near0", queues=2) as made:
        with forked.Child(lambda child: child.say(len(made.descriptors()))) as child:
            assert child.hear() == 4
            child.kill()
        wires.send(datagrams(20))
        assert sum(int.from_bytes(one.getsockopt(263, 6, 12)[:4], "little") for one in made._rx) == 20


def test_the_next_keeper_goes_on_with_the_same_sockets():
    """Rings, group and counters are those of the sockets, whoever has them."""
    with Wires() as wires, PacketPort("near0", queues=2, zone=4, ring_mb=2) as made:
        made.close()
        inherited = [os.dup(one) for one in made.descriptors()]
        with PacketPort("near0", queues=2, zone=4, ring_mb=2, descriptors=inherited) as again:
            assert again.descriptors() == inherited and again.total_bytes == made.total_bytes
            records = Queues([again]).records
            assert records["rx_descriptor"].tolist() == inherited[:2]
            made.unlink()
            wires.send(datagrams(20))
            assert sum(int.from_bytes(one.getsockopt(263, 6, 12)[:4], "little") for one in again._rx) == 20


def test_sockets_of_another_shape_are_not_gone_on_with():
    with Wires(), PacketPort("near0", ring_mb=2) as made:
        inherited = [os.dup(one) for one in made.descriptors()]
        with pytest.raises(PortError, match="as another process made them"):
            PacketPort("near0", ring_mb=4, descriptors=inherited)
