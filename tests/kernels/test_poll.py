"""The worker's loop: packets come back tracked and in order; a client that lies harms its own ring and nothing else."""

import time

import fragmented
import numpy as np
import pytest
import tables
from ports import Lab, datagrams, receive, send, udp
from zonetrack.shm.layout import POLL_BURST_PACKETS, CtState, FrameFlag, Life, Status, Way
from zonetrack.shm.loop import Loop
from zonetrack.shm.port import RX, TX
from zonetrack.shm.reasons import Reason

NEW, EST = CtState.TRK | CtState.NEW, CtState.TRK | CtState.EST


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


# ------------------------------------------------------------------------------------------------ packets
def test_packets_come_back_in_order_with_tags_frames_and_verdicts(lab):
    packets = datagrams(5)
    with lab.client() as client:
        assert send(client, packets, tag=100) == 5
        assert lab.poll() == 5
        answers, frames = receive(client)
    assert answers["tag"].tolist() == [100, 101, 102, 103, 104]
    assert frames == packets
    assert answers["wire_bytes"].tolist() == [len(packet) for packet in packets]
    assert set(answers["verdict"]["ct_state"].tolist()) == {NEW}
    assert len(set(answers["verdict"]["record"].tolist())) == 5
    assert total(lab) == 5


def test_both_directions_are_one_connection():
    with Lab(zone=7) as lab, lab.client() as client:
        there, back = udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 5, 53), udp(b"\x0a\0\0\2", b"\x0a\0\0\1", 53, 5)
        send(client, [there, back, there])
        lab.poll()
        verdicts = receive(client)[0]["verdict"]
    assert verdicts["ct_state"].tolist() == [NEW, EST | CtState.RPL, EST]
    assert verdicts["direction"].tolist() == [Way.ORIG, Way.REPLY, Way.ORIG]
    assert verdicts["zone"].tolist() == [7, 7, 7]
    assert len(set(verdicts["record"].tolist())) == 1
    assert tables.entries(lab.table)["status"][verdicts["record"][0]] & Status.SEEN_REPLY


def test_more_than_a_ring_holds_goes_through_in_turns(lab):
    packets, came = datagrams(50), []
    with lab.client() as client:
        sent = 0
        while len(came) < len(packets):
            sent += send(client, packets[sent : sent + 7], sent)
            lab.poll()
            came += receive(client)[0]["tag"].tolist()
    assert came == list(range(50))
    queue = lab.queues.records[0]
    assert (queue["rx_packets"], queue["tx_packets"], queue["tx_full"]) == (50, 50, 0)
    assert queue["rx_bytes"] == queue["tx_bytes"] == sum(map(len, packets))


def test_rounds_bound_a_call(pair):
    lab, one, _ = pair
    send(one, datagrams(60))
    assert lab.poll(rounds=1) == POLL_BURST_PACKETS
    assert lab.poll(rounds=1) == 60 - POLL_BURST_PACKETS


def test_queues_take_turns(pair):
    lab, one, other = pair
    send(one, datagrams(60))
    send(other, datagrams(3, first=100), tag=9)
    assert lab.poll(rounds=1) == POLL_BURST_PACKETS + 3
    assert receive(other)[0]["tag"].tolist() == [9, 10, 11]


def test_answers_that_find_no_room_are_counted_and_packets_tracked_all_the_same(lab):
    with lab.client() as client:
        for turn in range(3):
            assert send(client, datagrams(8, first=8 * turn), 8 * turn) == 8
            lab.poll()
        assert receive(client)[0]["tag"].tolist() == list(range(8))
    queue = lab.queues.records[0]
    assert (queue["tx_packets"], queue["tx_full"]) == (8, 16)
    assert total(lab) == 24


def test_zone_is_the_ports_and_commits_are_the_services(lab):
    with lab.client() as client:
        send(client, datagrams(1))
        lab.descriptors(RX)["verdict"]["zone"] = 99  # a client's verdict is nobody's
        lab.poll()
        assert receive(client)[0]["verdict"]["zone"].tolist() == [0]


@pytest.mark.parametrize("flags", [0, 0xFE, 0xFF])
def test_client_may_ask_not_to_commit_and_nothing_else(lab, flags):
    """A checksum that a client says is right is verified all the same."""
    wrong = datagrams(1)[0][:-1] + b"?"
    with lab.client() as client:
        send(client, [wrong[:40] + b"\1\1" + wrong[42:], *datagrams(1)])
        lab.descriptors(RX)["flags"] = flags
        lab.poll()
        verdicts = receive(client)[0]["verdict"]
    assert verdicts["reason"].tolist() == [Reason.L4CSUM_ERR, Reason.NONE]
    assert total(lab) == flags & FrameFlag.COMMIT


# ------------------------------------------------------------------------------------------------ who comes after
def test_next_client_of_a_ring_full_of_nonsense_works(lab):
    with lab.client() as dying:
        send(dying, datagrams(8))
    for side in (RX, TX):
        lab.ring(side)["produced"], lab.ring(side)["consumed"], lab.ring(side)["waiting"] = 1 << 60, 5, 7
    with lab.client() as client:
        came = []
        for turn in range(8):
            send(client, datagrams(1, first=turn), tag=1000 + turn)
            lab.poll()
            came += receive(client)[0]["tag"].tolist()
    assert came[-3:] == [1005, 1006, 1007]


def test_next_client_gets_no_answers_that_were_there_before(lab):
    with lab.client() as dying:
        send(dying, datagrams(3))
        lab.poll()
    with lab.client() as client:
        send(client, datagrams(2), tag=50)
        lab.poll()
        assert receive(client)[0]["tag"].tolist() == [50, 51]


def test_next_worker_goes_on_where_the_last_one_stood(lab):
    with lab.client() as client:
        send(client, datagrams(5))
        lab.poll()
        # it died after it had moved its own cursor, and before it said so
        lab.ring(RX)["consumed"], lab.ring(TX)["produced"] = 3, 4
        lab.loop = Loop(lab.queues, [0], 9)
        lab.loop.record["sleep_ms"] = 0
        send(client, datagrams(3), 5)
        assert lab.poll() == 3
        assert receive(client)[0]["tag"].tolist() == list(range(8))
    assert lab.queues.records[0]["owner"] == 9


# ------------------------------------------------------------------------------------------------ nothing to do
def test_idle_call_sweeps(lab):
    with lab.client() as client:
        send(client, datagrams(4))
        lab.poll(now_ms=1_000)
    assert total(lab) == 4
    lab.poll(sweep_slots=1 << 20, now_ms=40_000)
    assert total(lab) == 0


def test_busy_call_sweeps_too(lab):
    with lab.client() as client:
        send(client, datagrams(4))
        lab.poll(now_ms=1_000)
        send(client, datagrams(2, first=10))
        assert lab.poll(sweep_slots=1 << 20, now_ms=40_000) == 2
    assert total(lab) == 2


def test_heart_beats_once_a_call(lab):
    before = int(lab.worker.place["heartbeat"])
    lab.poll()
    lab.poll()
    assert lab.worker.place["heartbeat"] == before + 2


@pytest.mark.parametrize("numbers", [[], [0], [0, 1]])
def test_sleep_ends_with_its_moment(pair, numbers):
    lab, *_ = pair
    lab.loop = Loop(lab.queues, numbers, lab.worker.me)
    began = time.monotonic()
    assert lab.poll() == 0
    assert lab.loop.record["sleeps"] == 1
    assert time.monotonic() - began < 60  # it came back
    assert [int(lab.ring(RX, queue)["waiting"]) for queue in range(2)] == [0, 0]


def test_no_sleep_where_there_is_something(lab):
    lab.loop.record["sleep_ms"] = 1
    with lab.client() as client:
        send(client, datagrams(1))
        lab.poll()
        assert lab.loop.record["sleeps"] == 0
        assert lab.loop.record["busy"] == 1
        lab.poll()
        assert lab.loop.record["sleeps"] == 1
        assert lab.loop.record["busy"] == 0
        lab.loop.record["sleep_ms"] = 0  # it does not sleep at all
        lab.poll()
        assert lab.loop.record["sleeps"] == 1


def test_sleeping_client_is_woken_by_its_answer(lab):
    with lab.client() as client:
        lab.ring(TX)["waiting"] = 1
        send(client, datagrams(1))
        lab.poll()
    assert lab.ring(TX)["waiting"] == 0
    assert lab.queues.records[0]["wakes"] == 1


# ------------------------------------------------------------------------------------------------ fragments
PIECES = [piece.frame for piece in fragmented.cut(fragmented.udp(3200), 1480, 2960)]


def test_fragments_come_back_as_they_came_when_their_datagram_is_whole(lab):
    first, middle, last = PIECES
    with lab.client() as client:
        send(client, [first, *datagrams(2), last], tag=7)
        assert lab.poll() == 4
        answers, frames = receive(client)
        assert answers["tag"].tolist() == [8, 9] and frames == datagrams(2)
        send(client, [middle], tag=50)
        lab.poll()
        answers, frames = receive(client)
    assert dict(zip(answers["tag"].tolist(), frames, strict=True)) == {50: middle, 7: first, 10: last}
    assert set(answers["verdict"]["ct_state"].tolist()) == {NEW}
    assert len(set(answers["verdict"]["record"].tolist())) == 1 and total(lab) == 3
    assert answers["wire_bytes"].tolist() == [len(frame) for frame in frames]
    queue = lab.queues.records[0]
    assert queue["tx_packets"] == queue["rx_packets"] == 5 and queue["rx_bytes"] == queue["tx_bytes"]


def test_fragments_come_back_to_the_queues_that_they_came_from(pair):
    lab, one, other = pair
    send(one, [PIECES[0]], tag=1)
    send(other, [PIECES[2]], tag=2)
    lab.poll()
    assert len(receive(one)[0]) == len(receive(other)[0]) == 0
    send(one, [PIECES[1]], tag=3)
    lab.poll()
    assert sorted(receive(one)[0]["tag"].tolist()) == [1, 3] and receive(other)[0]["tag"].tolist() == [2]


def test_fragments_whose_datagram_expires_come_back_refused(lab):
    with lab.client() as client:
        send(client, [PIECES[0]], tag=5)
        lab.poll(now_ms=1000)
        lab.poll(now_ms=30_999)
        assert len(receive(client)[0]) == 0
        lab.poll(now_ms=31_000)
        answers, frames = receive(client)
    assert answers["tag"].tolist() == [5] and frames == [PIECES[0]]
    assert answers["verdict"]["reason"].tolist() == [Reason.FRAGMENT_EXPIRED]


def test_a_late_answer_that_finds_no_room_is_counted():
    with Lab(slots=4) as lab, lab.client() as client:
        send(client, [PIECES[0]])
        lab.poll()
        send(client, datagrams(4))
        lab.poll()
        send(client, PIECES[1:])
        lab.poll()
        assert len(receive(client)[0]) == 4
        assert (lab.queues.records[0]["tx_packets"], lab.queues.records[0]["tx_full"]) == (4, 3)
