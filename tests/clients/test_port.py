"""Clients of a port: real workers in other processes, clients that die, queues that are taken, ports that close."""

import itertools
import os
import signal
import threading

import forked
import numpy as np
import pytest
from ports import Lab, datagrams, receive, send, working
from zonetrack.clients.errors import NothingMatchedError, ZonetrackError
from zonetrack.clients.port import PortClosedError, Queue, frames_of
from zonetrack.shm import port
from zonetrack.shm.layout import DESCRIPTOR, HEADER_BYTES, CtState, Link
from zonetrack.shm.port import RX
from zonetrack.shm.queues import Queues
from zonetrack.shm.reasons import Reason


@pytest.fixture
def lab():
    """A port of two queues, which nobody polls yet."""
    with Lab(queues=2, slots=64) as made:
        made.loop.record["sleep_ms"] = 10
        yield made


def through(client, packets, burst=32):
    """Send packets, as many at once as a ring holds, and return their answers in the order in which they came."""
    came, sent, answers = [], 0, np.zeros(client.slots, DESCRIPTOR)
    while len(came) < len(packets):
        under_way = sent - len(came)
        sent += send(client, packets[sent : sent + min(burst, client.slots - under_way)], sent)
        client.wait(60_000)
        came += answers[: client.receive(answers)].copy().tolist()
    return came


# ------------------------------------------------------------------------------------------------ packets
def test_packets_go_to_another_process_and_back(lab):
    packets = datagrams(3)
    with working(lab), lab.client() as client:
        send(client, packets, tag=7)
        came = []
        while len(came) < 3:
            assert client.wait(60_000) > 0
            answers, frames = receive(client)
            came += zip(answers["tag"].tolist(), frames, answers["verdict"]["ct_state"].tolist(), strict=True)
    assert came == [(7 + i, packet, CtState.TRK | CtState.NEW) for i, packet in enumerate(packets)]


def test_every_packet_of_many_comes_back_once_and_in_order(lab):
    packets = datagrams(100) * 100
    with working(lab), lab.client() as client:
        came = through(client, packets)
    assert [answer[0] for answer in came] == list(range(len(packets)))
    queue = lab.queues.records[0]
    assert (queue["rx_packets"], queue["tx_packets"], queue["tx_full"]) == (10_000, 10_000, 0)


def test_client_that_comes_and_goes_with_each_packet_wakes_a_sleeping_worker(lab):
    with working(lab), lab.client() as client:
        for i in range(20):
            assert through(client, datagrams(1, first=i))[0][0] == 0


def test_two_clients_have_a_queue_each(lab):
    came = {}
    with working(lab), lab.client(0) as one, lab.client(1) as other:

        def use(client, first):
            came[client.index] = through(client, datagrams(50, first=first) * 10)

        threads = [threading.Thread(target=use, args=(client, 100 * client.index)) for client in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {index: [answer[0] for answer in answers] for index, answers in came.items()} == {
        0: list(range(500)),
        1: list(range(500)),
    }


def test_frames_of_packets():
    frames, kept = frames_of([b"abc", b"", b"de"], Link.RAW_IP)
    assert frames["captured_bytes"].tolist() == frames["wire_bytes"].tolist() == [3, 0, 2]
    assert (frames["address"] - kept.ctypes.data).tolist() == [0, 3, 3]
    assert set(frames["link"].tolist()) == {Link.RAW_IP}


def test_nothing_to_send_is_nothing_sent(lab):
    with lab.client() as client:
        assert client.send(frames_of([])[0]) == 0


# ------------------------------------------------------------------------------------------------ taken, missing, closed
def test_port_that_there_is_not(lab):
    with pytest.raises(
        NothingMatchedError, match=r"there is no port lob of instance .*; did you mean lab\?; it has lab"
    ):
        Queue("lob", instance=lab.instance)


def test_queue_that_there_is_not(lab):
    with pytest.raises(NothingMatchedError, match="queues 0 to 1, not 2"):
        lab.client(2)


def test_queue_that_has_a_client(lab):
    with lab.client(1):
        with pytest.raises(ZonetrackError, match="lab, queue 1: in use"):
            lab.client(1)
        lab.client(0).close()
    lab.client(1).close()


def test_port_of_another_version(lab):
    lab.port.memory[16:24] ^= 0xFF
    with pytest.raises(ZonetrackError, match="wrong layout digest"):
        lab.client()


def test_waiting_at_a_closed_port_is_an_error(lab):
    with lab.client() as client:
        assert client.wait(1) == 0
        lab.port.close()
        with pytest.raises(PortClosedError, match="port lab of instance"):
            client.wait(60_000)


def test_client_of_a_port_that_was_replaced_sees_it(lab):
    with lab.client() as client, port.create(lab.instance, "lab", slots=4), pytest.raises(PortClosedError):
        client.wait(60_000)


# ------------------------------------------------------------------------------------------------ deaths
@pytest.mark.parametrize("published", [False, True])
def test_client_that_dies_in_the_middle_harms_nobody(lab, published):
    """It has half written a descriptor, and may have said that there are more than it wrote."""

    def die(child):
        with lab.client(0) as client:
            send(client, datagrams(10))
            descriptors, ring = lab.descriptors(RX), lab.ring(RX)
            descriptors["captured_bytes"][10], descriptors["slot"][10] = 1 << 20, 10
            if published:
                ring["produced"] = ring["produced"] + 2
            child.say("there")
            child.hear()

    with working(lab), lab.client(1) as other:
        with forked.Child(die) as dying:
            assert dying.hear() == "there"
            assert len(through(other, datagrams(40, first=200))) == 40
        with lab.client(0) as heir:
            came = through(heir, datagrams(30, first=400))
        assert len(through(other, datagrams(40, first=200))) == 40
    assert [answer[0] for answer in came[-30:]] == list(range(30))
    assert [Reason(answer[-1][1]) for answer in came[-30:]] == [Reason.NONE] * 30
    assert lab.queues.records[1]["tx_packets"] == 80


@pytest.mark.parametrize("size", [0, HEADER_BYTES])
def test_client_that_makes_the_segment_shorter_costs_its_own_port(lab, size):
    """Who may write it may do that; the worker sees zeros from then on, and goes on with all others."""
    with port.create(lab.instance, "other", slots=64) as other:
        lab.queues = Queues([lab.port, other])
        with working(lab) as worker, Queue("other", instance=lab.instance) as neighbour, lab.client() as client:
            assert len(through(neighbour, datagrams(10))) == 10
            assert len(through(client, datagrams(10))) == 10
            os.ftruncate(lab.port.descriptor, size)
            assert len(through(neighbour, datagrams(10))) == 10
            lab.loop.look()
            worker.kill()
            with working(lab):  # a successor leaves the port alone
                assert len(through(neighbour, datagrams(10))) == 10
            assert worker.status == -signal.SIGKILL
        assert lab.port.about() == {"slots": 64, "is_whole": False}
        with pytest.raises(ZonetrackError, match="lab"):
            lab.client()


def test_worker_that_dies_is_followed_by_one_that_goes_on(lab):
    packets = datagrams(60)
    with lab.client() as client:
        for turn in range(3):
            with working(lab):
                assert [answer[0] for answer in through(client, packets)] == list(range(60)), turn
    assert lab.queues.records[0]["rx_packets"] == 180


def test_worker_killed_at_any_time_loses_only_what_was_under_way(lab):
    """Tags that come back are in order, none twice; those between are lost."""
    tags, counter = [], itertools.count()
    with lab.client() as client:
        for turn in range(10):
            with working(lab) as worker:
                looks = 0
                while looks < 20 or len(tags) <= 17 * turn:  # each comes to something, whenever it has its turn
                    send(client, datagrams(16), 16 * next(counter))
                    client.wait(1)
                    tags += receive(client)[0]["tag"].tolist()
                    looks += 1
                worker.kill()
        tags += receive(client)[0]["tag"].tolist()
    assert tags == sorted(set(tags))
    assert len(tags) > 150
    assert lab.queues.records["rx"]["bad_cursors"].tolist() == [0, 0]
