"""Network interfaces: frames are tracked where they stand, go out as they are, and what cannot be is counted."""

import socket
import struct

import features
import numpy as np
import pytest
from eventually import until
from ports import datagrams, udp
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from wired import Gateway
from wires import raw
from zonetrack.kernels import port_packet
from zonetrack.kernels.words import u64
from zonetrack.service.ports import interface
from zonetrack.shm.layout import BLOCKS, PLACE_HEAD_BYTES, PLACES
from zonetrack.shm.reasons import Reason

THROUGH = """
in_port=near0 actions=output:near1
in_port=near1 actions=output:near0
"""


@pytest.fixture
def gateway():
    with Gateway(2, THROUGH) as made:
        yield made


def tagged(frame, vlan, kind=0x8100):
    """Return a frame with a VLAN tag."""
    return frame[:12] + struct.pack("!HH", kind, vlan) + frame[12:]


def long(size):
    """Return a frame of so many bytes."""
    return udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 5, 53, bytes(size - 42))


def record(gateway, number=0):
    """Return a QUEUE."""
    return gateway.queues.records[number]


# ------------------------------------------------------------------------------------------------ in
def test_packets_are_tracked_and_counted():
    with Gateway(1, zone=9) as gateway:
        gateway.wires.send(datagrams(5))
        gateway.take(5)
        assert gateway.worker.counter(Reason.INSERT) == 5
        assert (record(gateway)["rx_packets"], record(gateway)["rx_bytes"]) == (5, 5 * len(datagrams(1)[0]))
        assert record(gateway)["rx_sizes"].sum() == record(gateway)["bursts"] > 0


def test_more_packets_than_a_block_holds_come_in_order(gateway):
    frames = [long(900 + turn % 7) for turn in range(700)]  # two blocks and more
    came = []
    for first in range(0, 700, 100):
        gateway.wires.send(frames[first : first + 100])
        gateway.take(100)
        came += gateway.wires.receive(100, 1)
    assert came == frames
    assert int(record(gateway)["rx"].view(BLOCKS)["position"]) >> 32 >= 2


def test_a_ring_that_is_full_loses_what_comes_and_says_so():
    with Gateway(1, ring_mb=1) as gateway:
        gateway.wires.send([long(1400)] * 1000)
        taken = 0

        def all_told():
            nonlocal taken
            taken += gateway.poll()
            gateway.loop.look()
            return taken + record(gateway)["rx_dropped"] == 1000

        until(all_told)
        assert 0 < taken < 1000
        gateway.wires.send(datagrams(3))
        assert gateway.take(3) == 3


@pytest.mark.parametrize("kind", [0x8100, 0x88A8])
def test_a_tag_that_the_system_took_out_is_put_back(kind):
    text = "dl_vlan=7 actions=ct(commit,zone=vlan),output:near1"
    with Gateway(2, text) as gateway:
        frames = [tagged(one, 7, kind) for one in datagrams(3)]
        gateway.wires.send([*frames, tagged(datagrams(1)[0], 8), datagrams(1)[0]])
        gateway.take(5)
        assert gateway.worker.counter(Reason.INSERT) == 3
        assert record(gateway, 1)["tx_bytes"] == sum(map(len, frames))
        assert gateway.worker.counter(Reason.RULE_MISSED) == 2


def test_nothing_that_goes_out_of_it_is_received(gateway):
    gateway.wires.send(datagrams(2))
    gateway.take(2)
    assert gateway.wires.receive(2, 1) == datagrams(2)
    assert gateway.poll() == 0


def test_what_the_host_sends_is_received_where_that_is_asked_for():
    with Gateway(1, outgoing=True) as gateway, raw("near0") as host:
        host.send(datagrams(1)[0])
        assert gateway.take(1) == 1


# ------------------------------------------------------------------------------------------------ out
def test_frames_go_out_together_and_a_full_batch_at_once(gateway):
    gateway.wires.send(datagrams(40))
    gateway.take(40)
    assert gateway.wires.receive(40, 1) == datagrams(40)
    there = record(gateway, 1)
    assert (there["tx_packets"], there["tx_bytes"]) == (40, 40 * len(datagrams(1)[0]))
    assert there["batches"] == there["tx_sizes"].sum() >= 2
    assert there["pending"] == there["touched"] == 0


def test_each_frame_leaves_by_itself_where_batching_is_off(gateway):
    gateway.loop.pipe["batch_max"] = 1
    gateway.wires.send(datagrams(20))
    gateway.take(20)
    assert gateway.wires.receive(20, 1) == datagrams(20)
    assert record(gateway, 1)["batches"] == record(gateway, 1)["tx_sizes"][0] == 20


def test_a_frame_longer_than_the_mtu_is_not_sent_and_a_tag_does_not_count(gateway):
    gateway.wires.namespace.run("ip", "link", "set", "far0", "mtu", "4000")
    gateway.wires.namespace.run("ip", "link", "set", "near0", "mtu", "4000")
    frames = [long(1514), long(1515), tagged(long(1514), 5), tagged(long(1515), 5), long(3000)]
    gateway.wires.send(frames)
    gateway.take(5)
    assert [len(one) for one in gateway.wires.receive(1, 1)] == [1514]
    there = record(gateway, 1)
    assert (there["tx_packets"], there["tx_too_long"]) == (2, 3)
    assert gateway.worker.counter(Reason.OUTPUT_TOO_LONG) == 3
    gateway.wires.namespace.run("ip", "link", "set", "near1", "mtu", "1600")
    gateway.loop.look()
    assert there["tx"].view(PLACES)["length_max"] == 1614


def test_a_ring_that_is_full_refuses_frames_and_counts_them(gateway):
    """Nobody takes frames out of it while the interface is down; when it is up again, those that wait go by themselves."""
    gateway.wires.namespace.run("ip", "link", "set", "near1", "down")
    for _ in range(11):
        gateway.wires.send(datagrams(100))
        gateway.take(100)
    there = record(gateway, 1)
    assert (there["tx_packets"], there["pending"], there["tx_full"]) == (0, 1024, 76)
    assert there["tx_failed"] > 0
    assert gateway.worker.counter(Reason.OUTPUT_FULL) == 76
    gateway.loop.look()
    gateway.wires.namespace.run("ip", "link", "set", "near1", "up")

    def have_left():
        gateway.poll()
        return there["pending"] == 0

    until(have_left)
    assert (there["tx_packets"], gateway.loop.pipe["touched_count"][0]) == (1024, 0)
    assert len(gateway.wires.receive(900, 1)) == 900


@pytest.mark.parametrize("feature", ["rx-udp-gro-forwarding", "rx-gro-list"])
def test_datagrams_that_the_system_has_joined_leave_as_they_came(gateway, feature):
    with gateway.wires.namespace.entered():
        interface.set_offload("near0", "gro", True)
        features.switch_on("near0", feature)
        features.have_frames_wait("near0")
    sent, heads = 0, [Ether(dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2", id=one) for one in range(5)]
    frames = [bytes(head / UDP(sport=1000, dport=53) / bytes([one] * 500)) for one, head in enumerate(heads)]
    there = record(gateway, 1)

    def have_left():
        gateway.poll()
        return there["tx_packets"] == sent

    def were_joined():
        nonlocal sent
        gateway.wires.send(frames)
        sent += len(frames)
        until(have_left)
        assert gateway.wires.receive(len(frames), 1) == frames
        return record(gateway)["rx_packets"] < sent

    until(were_joined)
    assert there["tx_too_long"] == record(gateway)["rx_dropped"] == 0


def test_a_queue_is_given_up_while_an_interface_is_down_and_what_waits_for_that_leaves_later(gateway):
    there, records = record(gateway, 1), gateway.queues.records
    records["holder"] = records["wanted"] = 1
    gateway.wires.namespace.run("ip", "link", "set", "near1", "down")
    gateway.wires.send(datagrams(3))
    gateway.take(3)
    records["wanted"][0] = 2

    def have_settled():
        done = gateway.loop.settle()
        gateway.poll()
        return done

    until(have_settled)
    assert (records["holder"].tolist(), gateway.loop.polls) == ([0, 1], [1])
    gateway.wires.namespace.run("ip", "link", "set", "near1", "up")

    def have_left():
        gateway.poll()
        return there["pending"] == 0

    until(have_left)
    assert gateway.wires.receive(3, 1) == datagrams(3)


def test_what_is_translated_is_taken_along():
    text = """
    in_port=near0,ip actions=ct(commit,zone=1,nat(src=192.0.2.9)),output:near1
    in_port=near1,ip actions=ct(zone=1,nat),output:near0
    """
    with Gateway(2, text) as gateway:
        there = udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 1000, 53, b"x")
        gateway.wires.send([there])
        gateway.take(1)
        assert gateway.wires.receive(1, 1) == [udp(b"\xc0\0\2\x09", b"\x0a\0\0\2", 1000, 53, b"x")]
        gateway.wires.send([udp(b"\x0a\0\0\2", b"\xc0\0\2\x09", 53, 1000, b"y")], 1)
        gateway.take(1)
        assert gateway.wires.receive(1) == [udp(b"\x0a\0\0\2", b"\x0a\0\0\1", 53, 1000, b"y")]


# ------------------------------------------------------------------------------------------------ who comes after
@pytest.mark.parametrize("taken", [0, 1, 10])
def test_the_next_worker_goes_on_in_the_block_in_hand(gateway, taken):
    gateway.wires.send(datagrams(40))
    gateway.take(40)
    gateway.wires.receive(40, 1)
    blocks = record(gateway)["rx"].view(BLOCKS)
    gateway.wires.send(datagrams(10, first=100))
    while not port_packet.is_ready(u64(gateway.queues.records.ctypes.data)):
        pass
    if taken:
        start = int(blocks["position"] >> 32) % int(blocks["count"]) * int(blocks["block_bytes"])
        memory = np.frombuffer(gateway.ports[0]._memory[0], "u1")
        taken = min(taken, int(memory[start + 12 : start + 16].view("u4")[0]))  # all that there are in the block
        blocks["sequence"] = memory[start + 24 : start + 32].view("u8")[0]
        blocks["position"] = int(blocks["position"]) + taken
    gateway.take_over()
    gateway.wires.send(datagrams(2, first=200))
    assert gateway.take(12 - taken) == 12 - taken
    assert gateway.wires.receive(12 - taken, 1) == [*datagrams(10, first=100)[taken:], *datagrams(2, first=200)]


def test_the_next_worker_goes_on_behind_a_block_that_was_given_back(gateway):
    gateway.wires.send(datagrams(5))
    gateway.take(5)
    gateway.wires.receive(5, 1)
    blocks = record(gateway)["rx"].view(BLOCKS)
    blocks["position"] = ((int(blocks["position"]) >> 32) - 1 << 32) + 5  # it died before it had noted that
    gateway.take_over()
    gateway.wires.send(datagrams(3))
    assert gateway.take(3) == 3


def test_the_next_worker_sends_what_the_last_had_put(gateway):
    places = record(gateway, 1)["tx"].view(PLACES)
    memory = np.frombuffer(gateway.ports[1]._memory[1], "u1")
    frames = datagrams(2)
    for place, frame in enumerate(frames):
        start = place * int(places["place_bytes"])
        begin = start + PLACE_HEAD_BYTES
        memory[begin : begin + len(frame)] = np.frombuffer(frame, "u1")
        memory[start + 4 : start + 8].view("u4")[0] = len(frame) + 10  # and a struct virtio_net_hdr
        memory[start : start + 4].view("u4")[0] = 1
    places["cursor"], places["putting"] = 1, 2  # it died between its last frame and the count of it
    gateway.take_over()
    assert gateway.wires.receive(2, 1) == frames
    gateway.wires.send(datagrams(1, first=9))
    gateway.take(1)
    assert gateway.wires.receive(1, 1) == datagrams(1, first=9)


# ------------------------------------------------------------------------------------------------ flags
def test_a_checksum_left_to_the_device_is_told_and_filled_in(gateway):
    """A datagram of a real socket of the far end, whose interface would fill in the checksum."""
    run = gateway.wires.namespace.run
    run("ip", "addr", "add", "192.0.2.1/24", "dev", "far0")
    run("ip", "neigh", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "far0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello!", ("192.0.2.2", 9))
    gateway.take(1)
    (frame,) = gateway.wires.receive(1, 1)
    total = sum(struct.unpack("!10H", frame[14:34])) % 0xFFFF
    assert total == 0
    pseudo = frame[26:34] + struct.pack("!HH", 17, 14) + frame[34:48]
    assert sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo)) % 0xFFFF == 0
    assert frame[40:42] != b"\0\0"
