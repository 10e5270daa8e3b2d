"""Queues as the service keeps them: numbered through, shared with children, dealt out to workers."""

import os

import forked
import numpy as np
import pytest
from zonetrack.shm.layout import QUEUES_MAX, FrameFlag
from zonetrack.shm.port import RX, TX, Extent, Port
from zonetrack.shm.queues import Queues


def test_queues_are_numbered_port_by_port(ports):
    made = Queues(ports)
    assert made.records[["port", "index", "zone"]].tolist() == [(0, 0, 3), (0, 1, 3), (1, 0, 5)]
    assert [made.number(0, 1), made.number(1, 0), len(made)] == [1, 2, 3]
    assert set(made.records["frame_flags"].tolist()) == {FrameFlag.COMMIT}


def test_ends_point_at_their_rings(ports):
    made = Queues(ports)
    for record in made.records:
        of = ports[record["port"]]
        for side, name in ((RX, "rx"), (TX, "tx")):
            places = [int(record[name][part]) - of.memory.ctypes.data for part in ("ring", "descriptors", "frames")]
            assert places == list(of.extent.ring(int(record["index"]), side))
            assert record[name]["slots"] == of.slots


def test_what_a_worker_counts_the_keeper_reads(ports):
    made = Queues(ports)

    def count(child):
        made.records["rx_packets"][1] = 77

    with forked.Child(count) as child:
        assert child.wait() == 0
    assert made.records["rx_packets"].tolist() == [0, 77, 0]


def test_service_without_ports_has_no_queues():
    assert len(Queues([])) == 0


def test_more_queues_than_there_may_be_are_refused():
    one = Port("x", "x", Extent(QUEUES_MAX, 4), 0, np.zeros(0, "u1"), os.open(os.devnull, os.O_RDONLY))
    with pytest.raises(ValueError, match="2048 queues, at most 1024 are possible"):
        Queues([one, one])


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_queues_are_dealt_out_evenly_and_each_to_one_worker(ports, workers):
    dealt = Queues(ports, workers=workers).deal()
    assert sorted(number for own in dealt for number in own) == [0, 1, 2]
    assert len(dealt) == workers and max(map(len, dealt)) - min(map(len, dealt)) <= 1
