"""System calls from inside a kernel: sleeping until a descriptor has something, and what a packet socket is told to send."""

import os
import socket

import numpy as np
from wires import Wires
from zonetrack.kernels import sockets
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.service.ports.packet import PacketPort
from zonetrack.shm.layout import POLLED

POLLIN, POLLHUP = 1, 0x10


@kernel
def wait(polled, count, timeout_ms):
    """Sleep."""
    sockets.wait(polled, count, timeout_ms)


def test_a_sleep_ends_with_what_comes_and_says_what_it_was():
    reader, writer = os.pipe()
    other, ended = os.pipe()
    polled = np.zeros(2, POLLED)
    polled["descriptor"], polled["events"] = (reader, other), POLLIN
    wait(u64(polled.ctypes.data), u64(2), u64(1))
    assert polled["came"].tolist() == [0, 0]
    os.write(writer, b"x")
    os.close(ended)
    wait(u64(polled.ctypes.data), u64(2), u64(60_000))
    assert polled["came"].tolist() == [POLLIN, POLLHUP]
    for descriptor in (reader, writer, other):
        os.close(descriptor)


@kernel
def receive_many(descriptor, headers, count):
    """Receive."""
    return sockets.receive_many(descriptor, headers, count)


def test_messages_are_received_together_each_by_its_header():
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for message in (b"one", b"three", b"five", b"seven"):
        far.send(message)
    buffers, vectors, headers = np.zeros((3, 16), "u1"), np.zeros((3, 2), "u8"), np.zeros((3, 8), "u8")
    vectors[:, 0], vectors[:, 1] = [one.ctypes.data for one in buffers], 16
    headers[:, 2], headers[:, 3] = [one.ctypes.data for one in vectors], 1
    at = u64(near.fileno()), u64(headers.ctypes.data), u64(3)
    assert receive_many(*at) == 3
    assert (headers[:, 7] & 0xFFFFFFFF).tolist() == [3, 5, 4]
    assert [bytes(one).rstrip(b"\0") for one in buffers] == [b"one", b"three", b"five"]
    assert receive_many(*at) == 1 and bytes(buffers[0][:5]) == b"seven"
    assert receive_many(*at) == 0
    near.close()
    far.close()


def test_sending_says_whether_the_system_took_it():
    with Wires() as wires, PacketPort("near0") as made:
        assert sockets.send_ring(u64(made._tx[0].fileno()))
        wires.namespace.run("ip", "link", "set", "near0", "down")
        assert not sockets.send_ring(u64(made._tx[0].fileno()))
