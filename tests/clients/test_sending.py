"""Packets through a port: never more than it holds, at a rate, and what is lost is told."""

import time

import numpy as np
import pytest
from ports import Lab, datagrams, working
from zonetrack.clients import sending
from zonetrack.clients.errors import ZonetrackError
from zonetrack.clients.port import PortClosedError, frames_of
from zonetrack.clients.sending import Sending
from zonetrack.shm.layout import CtState
from zonetrack.shm.port import RX

NEW = CtState.TRK | CtState.NEW


@pytest.fixture
def lab():
    with Lab(slots=16) as made:
        made.loop.record["sleep_ms"] = 10
        yield made


def taken(lab, count):
    """Leave the queue as a worker does that takes so many packets, and dies."""
    end = lab.queues.records["rx"][0]
    end["cursor"] = end["peer"] = lab.ring(RX)["consumed"] = count


def test_verdicts_stand_in_the_places_of_their_packets(lab):
    frames, kept = frames_of(datagrams(100))
    with working(lab), lab.client() as client:
        one = Sending(client)
        first, again = one.send(frames), one.send(frames)
    assert set(first["ct_state"].tolist()) == {NEW}
    assert first["record"].tolist() == again["record"].tolist()
    assert (one.tally.sent, one.tally.returned, one.tally.lost) == (200, 200, 0)
    assert lab.queues.records[0]["tx_full"] == 0
    del kept


def test_packets_go_no_faster_than_wished(lab):
    frames, kept = frames_of(datagrams(21))
    with working(lab), lab.client() as client:
        began = time.monotonic()
        Sending(client, rate=200).send(frames)
        assert time.monotonic() - began >= 0.1
    del kept


def test_answers_of_who_had_the_queue_before_are_not_ours(lab):
    frames, kept = frames_of(datagrams(10))
    with lab.client() as dying:
        dying.send(frames, tag=5)
    with lab.client() as client, working(lab):
        assert np.count_nonzero(Sending(client).send(frames)["ct_state"]) == 10
    del kept


def test_what_a_dead_worker_had_taken_is_lost_and_the_rest_is_not(lab, monkeypatch):
    monkeypatch.setattr(sending, "PATIENCE_S", 0.2)
    frames, kept = frames_of(datagrams(8))
    with lab.client() as client:
        client.send(frames[:5])
        taken(lab, 8)
        one = Sending(client)
        with working(lab):
            verdicts = one.send(frames)
    assert verdicts["ct_state"].tolist() == [0, 0, 0] + [NEW] * 5
    assert one.tally.lost == 3
    del kept


def test_last_packets_that_are_lost_are_told_by_time(lab, monkeypatch):
    monkeypatch.setattr(sending, "PATIENCE_S", 0.05)
    frames, kept = frames_of(datagrams(4))
    with lab.client() as client:
        taken(lab, 4)
        assert Sending(client).send(frames)["ct_state"].tolist() == [0] * 4
    del kept


def test_port_of_which_nobody_takes_is_given_up(lab, monkeypatch):
    monkeypatch.setattr(sending, "PATIENCE_S", 0.01)
    monkeypatch.setattr(sending, "GIVE_UP_S", 0.05)
    frames, kept = frames_of(datagrams(4))
    with lab.client() as client, pytest.raises(ZonetrackError, match="port lab has taken no packet for"):
        Sending(client).send(frames)
    del kept


def test_port_that_closes_ends_the_sending(lab):
    frames, kept = frames_of(datagrams(4))
    with lab.client() as client:
        lab.port.close()
        with pytest.raises(PortClosedError):
            Sending(client).send(frames)
    del kept
