"""What is measured: one burst of so many of a queue, all of its parts, and what rules, trackers and ports do in them."""

import numpy as np
import pytest
from ports import Lab, datagrams, receive, send
from ruled import Switch
from zonetrack.kernels import perf
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import MEASURED_EVERY, PERF, QUEUE, Part


@pytest.fixture
def lab():
    with Lab() as made:
        yield made


def measured_next(queues):
    """Let the next burst of the first queue be one that is measured."""
    queues.records["bursts"][0] = MEASURED_EVERY - 1


def test_one_burst_of_so_many_is_measured(lab):
    client = lab.client()
    for turn in range(3):
        send(client, datagrams(2), turn)
        lab.poll()
        receive(client)
    assert lab.queues.perf["bursts"].tolist() == [0]
    measured_next(lab.queues)
    for turn in range(3):
        send(client, datagrams(4), turn)
        lab.poll()
        receive(client)
    (line,) = lab.queues.perf
    assert (line["bursts"], line["packets"], line["on"]) == (1, 4, 0)
    record = lab.queues.records[0]
    assert record["measured"] == 1
    assert record["busy_ns"] == line["parts_ns"].sum()
    for part in (Part.RECEIVE, Part.PARSE, Part.LOOKUP, Part.TRACK, Part.TX):
        assert line["parts_ns"][part] > 0
    assert line["parts_ns"][[Part.NAT, Part.RULES]].tolist() == [0, 0]
    assert line["latencies"].sum() == 1


def test_a_queue_that_waits_for_its_turn_is_not_looked_at_by_the_clock(lab):
    measured_next(lab.queues)
    assert lab.poll() == 0
    (line,) = lab.queues.perf
    assert (line["began_ns"], line["on"]) == (0, 0)


def test_what_is_off_neither_counts_nor_measures(lab):
    measured_next(lab.queues)
    lab.queues.measure(False)
    lab.loop.measure()
    client = lab.client()
    send(client, datagrams(3))
    lab.poll()
    assert len(receive(client)[0]) == 3
    record = lab.queues.records[0]
    assert [int(record[name]) for name in ("rx_packets", "rx_bytes", "tx_packets", "batches")] == [0] * 4
    assert lab.queues.perf["bursts"].tolist() == [0]
    lab.queues.measure(True)
    lab.loop.measure()
    send(client, datagrams(3))
    lab.poll()
    assert (record["rx_packets"], record["tx_packets"], lab.queues.perf["bursts"][0]) == (3, 3, 1)


def test_where_rules_hold_they_are_a_part():
    with Switch(2, "actions=ct(commit),IN_PORT") as switch:
        measured_next(switch.queues)
        switch.through("a", datagrams(3))
        (line,) = switch.queues.perf
        assert line["parts_ns"][Part.RULES] > 0 and line["parts_ns"][Part.TRACK] > 0
        assert (line["packets"], line["latencies"].sum()) == (3, 1)


def test_what_is_handed_over_is_shared_by_the_bursts_of_a_round():
    line, queue = np.zeros(1, PERF), np.zeros(1, QUEUE)
    line["queue"], line["round_packets"] = queue.ctypes.data, 8
    at = u64(line.ctypes.data)
    now = int(perf._now_ns(at))
    line["began_ns"] = now - 1_000_000
    perf.hand_over(at, u64(now - 1_000_000), u64(32))
    share = int(queue["busy_ns"][0])
    assert 250_000 <= share == line["parts_ns"][0][Part.TX]
    assert line["latencies"][0][19:].sum() == 1  # 2**19 ns and more
    assert line["round_packets"] == 0
