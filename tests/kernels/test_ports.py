"""Ports of unlike kinds in one loop: what comes from one goes out of another, and what has to wait is not forgotten."""

import contextlib

import fragmented
import pytest
from ports import Lab, datagrams, receive, send, udp
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from wired import Devices, Gateway
from wires import Wires, run
from zonetrack.kernels import ports
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.service.ports.packet import PacketPort
from zonetrack.service.ports.prompt import PromptPort
from zonetrack.service.ports.xdp import XdpPort
from zonetrack.shm.layout import NO_TAG, FrameFlag
from zonetrack.shm.reasons import Reason

PIECES = [piece.frame for piece in fragmented.cut(fragmented.udp(3200), 1480, 2960)]
ACROSS = """
in_port=near0 actions=output:lab
in_port=lab actions=output:near0
"""


@kernel
def is_ready(address):
    """Look at a QUEUE."""
    return ports.is_ready(address)


def test_frames_go_from_a_wire_to_a_client_and_back():
    with Gateway(1, ACROSS, shared=["lab"]) as gateway:
        client = gateway.client("lab")
        gateway.wires.send(datagrams(5))
        gateway.take(5)
        descriptors, frames = receive(client)
        assert frames == datagrams(5)
        assert set(descriptors["tag"].tolist()) == {NO_TAG}
        assert set(descriptors["flags"].tolist()) == {FrameFlag.FORWARDED}
        send(client, datagrams(3, first=50))
        gateway.take(3)
        assert gateway.wires.receive(3) == datagrams(3, first=50)
        assert receive(client)[0]["tag"].tolist() == [0, 1, 2]  # what became of them


def test_a_frame_too_long_for_a_client_is_counted():
    with Gateway(1, ACROSS, shared=["lab"], mtu=4000) as gateway:
        client = gateway.client("lab")
        gateway.wires.send([udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 1, 2, bytes(size)) for size in (2070, 2071)])
        gateway.take(2)
        assert [len(frame) for frame in receive(client)[1]] == [2112]
        assert gateway.queues.records["tx_too_long"].tolist() == [0, 1]
        assert gateway.worker.counter(Reason.OUTPUT_TOO_LONG) == 1


def test_readiness_is_asked_of_each_kind():
    with Gateway(1, shared=["lab"]) as gateway:
        first, second = (u64(gateway.queues.records.ctypes.data + 512 * place) for place in range(2))
        assert not is_ready(first) and not is_ready(second)
        send(gateway.client("lab"), datagrams(1))
        assert is_ready(second) and not is_ready(first)
        gateway.wires.send(datagrams(1))
        while not is_ready(first):
            pass


def test_fragments_from_a_wire_wait_for_the_rest_and_go_on_through_the_rules():
    text = "in_port=near0,ip actions=ct(commit,zone=5),output:near1"
    with Gateway(2, text) as gateway:
        gateway.wires.send([PIECES[0], PIECES[2]])
        gateway.take(2)
        assert gateway.wires.quiet(1)
        gateway.wires.send([PIECES[1]])
        gateway.take(1)
        gateway.poll()
        assert sorted(gateway.wires.receive(3, 1)) == sorted(PIECES)
        assert gateway.worker.counter(Reason.INSERT) == 1


def test_fragments_from_a_wire_without_rules_are_answered_to_nobody():
    with Gateway(1) as gateway:
        gateway.wires.send(PIECES)
        gateway.take(3)
        gateway.poll()
        assert gateway.worker.counter(Reason.FRAGMENTS_COMPLETED) == 3
        assert gateway.queues.records["tx_packets"].tolist() == [0]


def test_what_may_grow_has_a_place_of_its_own_and_a_super_frame_has_not():
    text = "in_port=near0,ip actions=ct(commit,zone=1,nat(src=192.0.2.9)),output:near1"
    with Gateway(2, text, mtu=4000) as gateway:
        short, long = (udp(b"\x0a\0\0\1", b"\x0a\0\0\2", size, 2, bytes(size)) for size in (100, 3000))
        gateway.wires.send([short, long])
        gateway.take(2)
        came = gateway.wires.receive(2, 1)
        assert came == [bytes(_from(frame, "192.0.2.9")) for frame in (short, long)]


def _from(frame, source):
    packet = Ether(frame)
    packet[IP].src = source
    del packet[IP].chksum
    packet[UDP].chksum = 0
    return packet


def test_a_port_of_clients_needs_no_release():
    with Lab() as lab, lab.client() as client:
        send(client, datagrams(2))
        assert lab.poll() == 2
        assert lab.ring(0)["consumed"] == 2


@pytest.mark.parametrize("kind", [PacketPort, PromptPort, XdpPort])
def test_a_worker_outlives_its_interfaces_and_what_cannot_go_is_counted(kind):
    with contextlib.ExitStack() as house:
        wires = house.enter_context(Wires(2))
        made = [kind(f"near{number}") for number in range(2)]
        gateway = house.enter_context(Devices(made, "in_port=near0 actions=output:near1"))
        run("ip", "link", "del", "near1")
        for _ in range(2):
            wires.send(datagrams(30))
            gateway.take(30)
            gateway.loop.look()
        there = gateway.queues.records[1]
        assert there["tx_failed"] > 0 and there["tx_packets"] + there["pending"] + there["tx_full"] == 60
        run("ip", "link", "del", "near0")
        gateway.poll()
        gateway.take_over()
        gateway.loop.look()
        assert gateway.poll() == 0
