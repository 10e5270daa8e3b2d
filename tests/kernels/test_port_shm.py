"""Ports of clients: whatever is written into a ring, its neighbours are served, and the next client too."""

import numpy as np
import pytest
import tables
from ports import Lab, datagrams, receive, send
from ruled import Switch
from zonetrack.shm.layout import FRAME_SLOT_BYTES, Life
from zonetrack.shm.port import RX, TX
from zonetrack.shm.reasons import Reason


@pytest.fixture
def lab():
    with Lab() as made:
        yield made


@pytest.fixture
def pair():
    """A port of two queues, and a client of each."""
    with Lab(queues=2, slots=64) as made, made.client(0) as one, made.client(1) as other:
        yield made, one, other


def total(lab):
    """Return the number of connections in the table."""
    return int(np.count_nonzero(tables.entries(lab.table)["life"] & 0xFF == Life.LIVE))


# ------------------------------------------------------------------------------------------------ nonsense
@pytest.mark.parametrize(
    ("field", "value", "counter"),
    [
        ("slot", 8, "bad_slots"),
        ("slot", 0xFFFFFFFF, "bad_slots"),
        ("captured_bytes", FRAME_SLOT_BYTES + 1, "bad_lengths"),
        ("captured_bytes", 0xFFFFFFFF, "bad_lengths"),
        ("wire_bytes", 3, "bad_lengths"),
    ],
)
def test_nonsense_in_a_descriptor_is_counted_and_answered_and_its_neighbours_are_tracked(lab, field, value, counter):
    with lab.client() as client:
        send(client, datagrams(3), tag=5)
        lab.descriptors(RX)[field][1] = value
        assert lab.poll() == 3
        answers, frames = receive(client)
    assert answers["tag"].tolist() == [5, 6, 7]
    assert answers["verdict"]["reason"].tolist() == [Reason.NONE, Reason.TRUNCATED, Reason.NONE]
    assert [len(frame) > 0 for frame in frames] == [True, False, True]
    assert {name: int(lab.queues.records[0][name]) for name in ("bad_slots", "bad_lengths")} == {
        "bad_slots": 0,
        "bad_lengths": 0,
    } | {counter: 1}


def test_any_link_is_survived(lab):
    with lab.client() as client:
        for first in range(0, 256, 8):
            send(client, datagrams(8), tag=first)
            lab.descriptors(RX)["link"] = range(first, first + 8)
            lab.poll()
            assert receive(client)[0]["tag"].tolist() == list(range(first, first + 8))


@pytest.mark.parametrize("produced", [65, 1 << 33, (1 << 64) - 1])
def test_cursor_that_cannot_be_stops_its_ring_alone(pair, produced):
    lab, _, other = pair
    lab.ring(RX, 0)["produced"] = produced
    send(other, datagrams(4))
    assert lab.poll() == 4
    assert len(receive(other)[0]) == 4
    for _ in range(5):
        assert lab.poll() == 0
    assert lab.queues.records["rx"]["bad_cursors"].tolist() == [1, 0]


def test_cursor_that_says_there_are_packets_where_none_were_written_gives_empty_answers(lab):
    lab.ring(RX)["produced"] = 8
    assert lab.poll() == 8
    assert lab.queues.records[0]["rx_packets"] == 8
    assert lab.worker.counter(Reason.TRUNCATED) == 8
    assert total(lab) == 0


def test_consumer_that_lies_gets_nothing_more_than_there_is_room_for(lab):
    with lab.client() as client:
        lab.ring(TX)["consumed"] = (1 << 64) - 5
        send(client, datagrams(8))
        lab.poll()
        send(client, datagrams(8))
        lab.poll()
        queue = lab.queues.records[0]
        assert (queue["tx_packets"], queue["tx_full"]) == (8, 8)
        assert queue["tx"]["bad_cursors"] == 1


def test_service_goes_on_at_its_own_cursors_whatever_is_written_over_them(lab):
    with lab.client() as client:
        send(client, datagrams(3))
        lab.poll()
        lab.ring(RX)["consumed"], lab.ring(TX)["produced"] = 1 << 40, 1 << 50
        send(client, datagrams(2))
        lab.ring(RX)["produced"] = 5
        assert lab.poll() == 2
        assert (lab.ring(RX)["consumed"], lab.ring(TX)["produced"]) == (5, 5)


def test_everything_at_once_from_a_seed(pair):
    """A client that writes anything anywhere in its queue, while its neighbour's packets are tracked one and all."""
    lab, _, other = pair
    rng = np.random.default_rng(1)
    begin, end = lab.port.extent.ring(0, RX)[0], lab.port.extent.ring(0, RX)[2]
    area, sent = lab.port.memory[begin:end], 0
    for turn in range(60):
        at = rng.integers(0, len(area), 200)
        area[at] = rng.integers(0, 256, 200)
        lab.ring(RX)["produced"] = lab.queues.records[0]["rx"]["cursor"] + rng.integers(0, 65, dtype="u8")
        sent += send(other, datagrams(3, first=3 * turn))
        lab.poll()
        assert (receive(other)[0]["verdict"]["reason"] == Reason.NONE).all()
    assert sent == 180
    assert lab.queues.records[1]["tx_packets"] == 180
    assert lab.queues.records[0]["bad_slots"] > 0
    assert lab.queues.records[0]["bad_lengths"] > 0


# ------------------------------------------------------------------------------------------------ sizes
def test_bursts_and_batches_are_counted_by_their_size(lab):
    with lab.client() as client:
        for count in (1, 3, 8):
            send(client, datagrams(count))
            lab.poll()
            receive(client)
    assert (
        lab.queues.records[0]["rx_sizes"].tolist() == lab.queues.records[0]["tx_sizes"].tolist() == [1, 1, 0, 1, 0, 0]
    )
    assert (lab.queues.records[0]["bursts"], lab.queues.records[0]["batches"]) == (3, 3)


def test_a_batch_that_is_full_leaves_before_the_round_ends():
    with Switch(3, "actions=output:c", slots=64) as switch:
        switch.client("c")
        switch.send("a", datagrams(20))
        switch.send("b", datagrams(20, first=50))
        switch.poll()
        assert switch.came("c")[1] == [*datagrams(20), *datagrams(20, first=50)]
        assert switch.queues.records["tx_sizes"][2].tolist() == [0, 0, 0, 1, 0, 1]
