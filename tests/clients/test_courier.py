"""A driver whose packets a service tracks: it gets the verdicts, and touches nothing in the table."""

import numpy as np
import pytest
from ports import Lab, working
from zonetrack.clients.courier import Courier
from zonetrack.clients.driver import CheckFailed, now_ms
from zonetrack.clients.errors import ZonetrackError
from zonetrack.clients.traffic import Packet
from zonetrack.shm import roster


@pytest.fixture
def lab():
    with Lab(slots=256) as made:
        made.loop.record["sleep_ms"] = 10
        yield made


def test_conversations_go_through_the_service(lab):
    before = len(roster.present(lab.table))
    with working(lab):
        courier = Courier(lab.client(), lab.table, 1, 256)
        courier.sender.set(count=500, end=500)
        courier.sender.send(Packet.SYN, Packet.ACK)
        courier.run()
        assert courier.sender.complaint() is None
        assert courier.sender.stream["finished"] == courier.connections == 500
        looked_up = courier.look_up(np.arange(100, dtype="u8"), Packet.ACK, now_ms())
        assert len(set(looked_up["record"].tolist())) == 100
        assert courier.sweep(1 << 20) == 0
        courier.leave()
    assert len(roster.present(lab.table)) == before
    lab.client().close()


def test_what_is_not_there_is_not_made_by_looking(lab):
    with working(lab):
        courier = Courier(lab.client(), lab.table, 1, 32)
        with pytest.raises(CheckFailed):
            courier.look_up(np.arange(5, dtype="u8"), Packet.ACK, now_ms())
        assert courier.connections == 0


def test_packets_that_are_lost_are_errors(lab):
    courier = Courier(lab.client(), lab.table, 1, 32, patience_ms=10)
    courier.sender.set(count=3, end=3)
    courier.sender.send(Packet.SYN, Packet.SYN)
    courier.run()
    assert "3 packets with a wrong verdict" in courier.sender.complaint()
    assert "found nothing" in courier.sender.complaint()


def test_rings_that_are_too_short_are_refused():
    with Lab(slots=64) as lab, pytest.raises(ZonetrackError, match="the rings of port lab hold 64 packets"):
        Courier(lab.client(), lab.table, 1, 32)
