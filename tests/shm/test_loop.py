"""A worker's loop: its queues as they stand, its sleep, and its own memory."""

import os

import pytest
from zonetrack.shm import header, loop, port
from zonetrack.shm.layout import POLL_BURST_PACKETS, QUEUE_BYTES, RING, WAITS_MAX, SegmentState
from zonetrack.shm.loop import Loop
from zonetrack.shm.port import RX, TX
from zonetrack.shm.queues import Queues


def ring(of, queue, side):
    """Return a RING of a port."""
    place = of.extent.ring(queue, side)[0]
    return of.memory[place : place + RING.itemsize].view(RING)[0]


def test_without_ports_there_is_nothing_to_poll():
    assert Loop(Queues([]), []).record["queue_count"] == 0


def test_worker_takes_its_queues_and_says_where_they_stand(ports):
    made = Queues(ports)
    made.records["rx"]["cursor"][2], made.records["tx"]["cursor"][2] = 11, 22
    loop = Loop(made, [2, 0], owner=9)
    assert made.records["owner"].tolist() == [9, 0, 9]
    assert (ring(ports[1], 0, RX)["consumed"], ring(ports[1], 0, TX)["produced"]) == (11, 22)
    listed = loop._arrays["queues"].tolist()
    assert listed == [made.records.ctypes.data + 2 * QUEUE_BYTES, made.records.ctypes.data]


def test_queues_of_a_port_that_was_made_shorter_are_left_out_and_it_is_closed(ports):
    made = Queues(ports)
    os.ftruncate(ports[0].descriptor, 4096)
    loop = Loop(made, [0, 1, 2], owner=9)
    assert loop.numbers == [2]
    assert loop.record["queue_count"] == 1
    assert made.records["owner"].tolist() == [0, 0, 9]
    assert header.read(ports[0].descriptor)["state"] == SegmentState.SEALED


def test_worker_sleeps_on_the_words_of_its_queues(ports):
    made = Queues(ports)
    waits = Loop(made, [0, 2])._arrays["waits"]
    places = [int(address) - of.memory.ctypes.data for address, of in zip(waits["address"], ports, strict=True)]
    assert places == [of.extent.ring(0, RX)[0] + 256 for of in ports]
    assert waits["value"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("count", "words", "sleep_ms"), [(1, 1, 10), (WAITS_MAX, WAITS_MAX, 10), (WAITS_MAX + 1, 1, 1)]
)
def test_worker_that_cannot_sleep_on_all_words_sleeps_less(instance, count, words, sleep_ms):
    with port.create(instance, "many", WAITS_MAX + 1, slots=4) as many:
        loop = Loop(Queues([many]), range(count))
        assert (loop.record["wait_count"], loop.record["sleep_ms"]) == (words, sleep_ms)


def test_worker_on_a_kernel_without_futex_waitv_sleeps_less(ports, monkeypatch):
    monkeypatch.setattr(loop, "_can_wait_for_many", lambda: False)
    assert Loop(Queues(ports), [0, 1]).record["sleep_ms"] == 1
    assert Loop(Queues(ports), [0]).record["sleep_ms"] == 10


def test_more_queues_are_looked_at_less_often(ports):
    made = Queues(ports)
    assert Loop(made, [0, 1]).record["spins_max"] * 2 == Loop(made, [0]).record["spins_max"]


def test_frames_have_places_of_their_own(ports):
    loop = Loop(Queues(ports), [0])
    assert len(loop._arrays["bytes"]) >= POLL_BURST_PACKETS * 2112
    assert loop.record["bytes"] % 64 == 0
