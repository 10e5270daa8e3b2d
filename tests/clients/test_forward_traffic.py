"""Frames that say when they were sent: valid, one flow each, and their ages add up."""

import time

import numpy as np
import pytest
from eventually import until
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from wires import Wires
from zonetrack.clients import forward_traffic
from zonetrack.clients.forward_traffic import COUNTS
from zonetrack.kernels import ports
from zonetrack.kernels.words import u64
from zonetrack.service.ports.packet import PacketPort
from zonetrack.shm.layout import FRAME_SLOT_BYTES, POLL_BURST_PACKETS, TIMESPEC
from zonetrack.shm.loop import Loop
from zonetrack.shm.queues import Queues


@pytest.mark.parametrize("size", [60, 1514])
def test_each_flow_is_a_datagram_of_its_own(size):
    frames, block = forward_traffic.flows_of(300, size)
    assert set(frames["captured_bytes"].tolist()) == {size}
    seen = set()
    for row in block:
        packet = Ether(row[:size].tobytes())
        checksum = packet[IP].chksum
        del packet[IP].chksum
        assert IP(bytes(packet[IP])).chksum == checksum and packet[IP].len == size - 14
        assert packet[UDP].len == size - 34
        seen.add((packet[IP].src, packet[UDP].sport))
    assert len(seen) == 300


def test_ages_are_counted_and_told():
    spec, counts = np.zeros(1, TIMESPEC), np.zeros(1, COUNTS)
    counts["min_ns"] = 1 << 62
    frames, block = forward_traffic.flows_of(3, 60)
    forward_traffic.note(u64(block.ctypes.data), u64(0), u64(counts.ctypes.data), u64(spec.ctypes.data))  # compiled
    forward_traffic.stamp(u64(frames.ctypes.data), u64(3), u64(spec.ctypes.data))
    sent_ns = block[0, 42:50].view("u8")[0]
    assert 0 <= time.monotonic_ns() - int(sent_ns) < 60e9
    block[1, 42:50].view("u8")[0] = sent_ns - np.uint64(5_000_000)
    block[2, 42:50].view("u8")[0] = sent_ns - np.uint64(90_000_000)
    forward_traffic.note(u64(block.ctypes.data), u64(3), u64(counts.ctypes.data), u64(spec.ctypes.data))
    told = forward_traffic.ages_of(counts[0])
    assert counts["packets"][0] == 3 and counts["ages"].sum() == 3
    assert told["min_us"] < told["avg_us"] < told["max_us"] >= 90_000
    assert 5_000 <= told["p50_us"] < told["p99_us"] == 65_535
    assert block.shape[1] == FRAME_SLOT_BYTES


def test_a_receiver_takes_more_than_a_burst_at_once():
    """A block of the ring holds 90 frames and some, which is no whole number of bursts."""
    with Wires(1) as made, PacketPort("near0", retire_ms=60_000) as port:
        queues = Queues([port])
        loop, counts, spec = Loop(queues, [0]), np.zeros(1, COUNTS), np.zeros(1, TIMESPEC)
        made.send([bytes(1400)] * 100)
        address = u64(queues.records.ctypes.data)
        until(lambda: ports.is_ready(address))
        at = u64(counts.ctypes.data)
        came = forward_traffic.collect(loop.record, address, at, u64(spec.ctypes.data))
        assert 2 * POLL_BURST_PACKETS < came == counts["packets"][0] < 100
        assert came % POLL_BURST_PACKETS


def test_nothing_has_no_ages():
    assert forward_traffic.ages_of(np.zeros(1, COUNTS)[0]) == {}
