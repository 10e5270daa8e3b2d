"""A burst carried to a service and back: the verdicts are those that the kernel would have given."""

import concurrent.futures
import os

import forked
import numpy as np
import pytest
from ports import Lab, datagrams, working
from zonetrack.clients.port import frames_of
from zonetrack.kernels import carry
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import CARRIER, DESCRIPTOR, POLL_BURST_PACKETS, TIMESPEC, VERDICT, CtState
from zonetrack.shm.loop import Loop
from zonetrack.shm.port import RX, TX

PATIENT_MS = 60_000
"""A busy machine may take its time, but not for ever."""
SHORT_MS = 10
NEW = CtState.TRK | CtState.NEW


class Carrier:
    """A client with a CARRIER."""

    def __init__(self, lab):
        self.record = np.zeros(1, CARRIER)
        self.descriptors, self.timeout = np.zeros(POLL_BURST_PACKETS, DESCRIPTOR), np.zeros(1, TIMESPEC)
        self.record["outward"], self.record["inward"] = (lab.port.end(0, side)[0] for side in (RX, TX))
        self.record["descriptors"], self.record["timeout"] = self.descriptors.ctypes.data, self.timeout.ctypes.data

    def carry(self, packets, patience_ms=PATIENT_MS):
        """Carry packets; returns how many are settled, and the verdicts."""
        self.record["patience_ms"] = patience_ms
        frames, kept = frames_of(packets)
        verdicts = np.zeros(len(packets), VERDICT)
        settled = carry.carry_burst(
            *(u64(each.ctypes.data) for each in (self.record, frames)),
            u64(len(packets)),
            u64(verdicts.ctypes.data),
        )
        del kept
        return int(settled), verdicts


@pytest.fixture
def lab():
    with Lab(slots=256) as made:
        made.loop.record["sleep_ms"] = 10
        yield made


@pytest.mark.parametrize("count", [1, 32, 33, 250])
def test_every_packet_of_a_burst_gets_its_verdict(lab, count):
    one = Carrier(lab)
    with working(lab):
        first = [one.carry(datagrams(count)) for _ in range(3)]
    assert [settled for settled, _ in first] == [count] * 3
    records = [verdicts["record"].tolist() for _, verdicts in first]
    assert len(set(records[0])) == count
    assert records[0] == records[1] == records[2]
    assert {tuple(verdicts["ct_state"].tolist()) for _, verdicts in first} == {(NEW,) * count}


def test_burst_that_nobody_takes_ends_with_the_patience(lab):
    assert Carrier(lab).carry(datagrams(3), SHORT_MS)[0] == 0
    assert lab.ring(RX)["produced"] == 3


def test_answer_that_takes_its_time_is_waited_for(lab):
    def work(child):
        while lab.ring(TX)["waiting"] == 0:  # until the client has looked in vain, and sleeps
            os.sched_yield()
        child.say("it sleeps")
        child.hear()
        lab.loop = Loop(lab.queues, range(len(lab.queues)), lab.worker.me)
        while True:
            lab.poll()

    one = Carrier(lab)
    with forked.Child(work) as worker, concurrent.futures.ThreadPoolExecutor(1) as pool:
        carried = pool.submit(one.carry, datagrams(3))
        assert worker.hear() == "it sleeps"
        worker.say("work")
        assert carried.result()[0] == 3


def test_answers_to_another_burst_are_not_taken_for_this_ones(lab):
    one = Carrier(lab)
    one.carry(datagrams(3), SHORT_MS)
    with working(lab):
        settled, verdicts = one.carry(datagrams(5, first=100))
    assert settled == 5
    assert (verdicts["ct_state"] == NEW).all()
    assert lab.queues.records[0]["rx_packets"] == 8
