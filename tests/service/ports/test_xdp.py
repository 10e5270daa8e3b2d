"""Sockets of AF_XDP: opened and closed, handed on to another process; what the system refuses is one line."""

import os

import forked
import pytest
from eventually import until
from ports import datagrams
from wires import Wires, prove, raw, run
from zonetrack.service.ports import redirect
from zonetrack.service.ports.errors import PortError
from zonetrack.service.ports.xdp import TX_COUNT, XdpPort
from zonetrack.service.ports.xdp_rings import words
from zonetrack.shm.layout import DIVERTED, INJECTED, XSK, PortKind
from zonetrack.shm.queues import Queues


def came(port, index=0):
    """Return how many frames an rx queue was given."""
    return int(words(int(port._own[index]["rx_producer"]))[0])


def test_each_queue_is_a_place_and_workers_beyond_send_by_packet_sockets():
    with Wires(), XdpPort("near0", queues=1, zone=4, workers=3, ring=128) as made:
        queues = Queues([made], workers=3)
        assert queues.records["receives"].tolist() == [1, 0, 0]
        assert queues.records["kind"].tolist() == [PortKind.XDP, PortKind.PACKET, PortKind.PACKET]
        xsk = made._own[0]
        assert queues.records["rx"].view(DIVERTED)["rings"][0] == xsk.__array_interface__["data"][0]
        assert queues.records["tx"].view(INJECTED)["length_max"][0] == 1514
        assert (xsk["rx_count"], xsk["tx_count"], xsk["place_bytes"]) == (128, TX_COUNT, 2048)
        assert all(xsk[name] for name in XSK.names or ())
        assert made.total_bytes > (128 + TX_COUNT) * 2048
        assert made.about()["mode"] == "copy"


def test_several_queues_share_what_comes():
    """Which sender's queue a frame leaves by says which of ours it comes to: a hash of its flow."""
    queues = ("numtxqueues", "2", "numrxqueues", "2")
    with Wires():
        run("ip", "link", "add", "many0", *queues, "type", "veth", "peer", "name", "many1", *queues)
        for name in ("many0", "many1"):
            run("ip", "link", "set", name, "up")
        with XdpPort("many0", queues=2, ring=128) as made, raw("many1") as far, raw("many0") as near:
            assert Queues([made]).records["receives"].tolist() == [1, 1]
            made.close()
            prove(far, near)
            for index, one in enumerate(made._sockets):
                redirect.lead(made._sockets_map, index, one.fileno())
            for frame in datagrams(50):
                far.send(frame)
            until(lambda: came(made, 0) + came(made, 1) == 50)
            assert 5 < came(made, 0) < 45


def test_longer_frames_have_longer_places_and_there_is_a_longest():
    with Wires() as wires:
        wires.namespace.run("ip", "link", "set", "near0", "mtu", "3000")
        with XdpPort("near0") as made:
            assert made._own[0]["place_bytes"] == 4096
        wires.namespace.run("ip", "link", "set", "near0", "mtu", "9000")
        with pytest.raises(PortError, match="port xdp:near0: its MTU is 9,000, at most 3,822 is possible"):
            XdpPort("near0")


def test_one_that_is_closed_takes_no_more_and_another_process_goes_on_with_it():
    with Wires() as wires, raw("near0") as system:
        made = XdpPort("near0", workers=2, ring=128)
        wires.send(datagrams(1))
        until(lambda: came(made) == 1)
        made.close()
        wires.send(datagrams(1, first=1))
        assert system.recv(2000) == datagrams(1, first=1)[0]
        other = XdpPort("near0", workers=2, ring=128, descriptors=[os.dup(one) for one in made.descriptors()])
        made.unlink()
        wires.send(datagrams(2))
        until(lambda: came(other) == 3)
        queues = Queues([other], workers=2)
        other.resume(queues.records[0])
        other.resume(queues.records[1])
        other.unlink()
        wires.send(datagrams(1))
        assert system.recv(2000) == datagrams(1)[0]


def test_what_cannot_be_had_is_one_line():
    with Wires():
        for options, told in (
            ({"queues": 2}, "port xdp:near0: near0 has no rx queue 1: ask for queues=1"),
            ({"mode": "zerocopy"}, "port xdp:near0: the driver of near0 has no zero copy: say mode=copy"),
        ):
            with pytest.raises(PortError) as raised:
                XdpPort("near0", ring=128, **options)
            assert str(raised.value) == told
        with XdpPort("near0", ring=128), pytest.raises(PortError) as raised:
            XdpPort("near0", ring=128)
        assert "port xdp:near0: another program" in str(raised.value)
        with pytest.raises(PortError, match="port xdp:eth7: there is no interface 'eth7'; there are: far0, lo, near0"):
            XdpPort("eth7")
        run("ip", "tuntap", "add", "l3", "mode", "tun")
        with pytest.raises(PortError, match="not an Ethernet interface"):
            XdpPort("l3")


def test_who_lacks_the_right_is_told_which():
    with Wires():

        def be_nobody(child):
            os.setuid(65534)
            try:
                XdpPort("near0", ring=128)
            except PortError as error:
                child.say(str(error))

        with forked.Child(be_nobody) as child:
            assert "the right to do that is missing" in child.hear()
            assert child.wait() == 0
