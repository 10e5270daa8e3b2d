"""TAP interfaces: what the host sends into one comes, what the service sends the host receives."""

import contextlib

import pytest
from ports import datagrams, udp
from wired import Devices
from wires import Namespace, raw
from zonetrack.service.ports.tap import TapPort
from zonetrack.shm.reasons import Reason

TEXT = "in_port=t0 actions=output:t1\nin_port=t1 actions=ct(commit),output:t0"


@pytest.fixture
def host():
    """Two TAP interfaces as ports, and a socket of the host at each."""
    with contextlib.ExitStack() as house:
        namespace = Namespace()
        house.callback(namespace.close)
        house.enter_context(namespace.entered())
        made = house.enter_context(Devices([TapPort("t0", zone=2), TapPort("t1")], TEXT))
        made.ends = [house.enter_context(raw(name)) for name in ("t0", "t1")]
        yield made


def test_frames_come_and_go_whole_and_in_order(host):
    for frame in datagrams(40):
        host.ends[0].send(frame)
    host.take(40)
    assert [host.ends[1].recv(1 << 16) for _ in range(40)] == datagrams(40)
    first, second = host.queues.records
    assert (first["rx_packets"], second["tx_packets"]) == (40, 40)
    assert first["rx_bytes"] == second["tx_bytes"] == 40 * len(datagrams(1)[0])
    assert first["rx_sizes"].sum() == first["bursts"] and second["batches"] > 0


def test_what_the_host_sends_is_tracked(host):
    for frame in datagrams(3):
        host.ends[1].send(frame)
    host.take(3)
    assert host.worker.counter(Reason.INSERT) == 3


def test_a_frame_that_does_not_fit_is_counted_and_not_sent(host):
    host.run("ip", "link", "set", "t0", "mtu", "4000")
    for size in (2000, 3000):
        host.ends[0].send(udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 5, 53, bytes(size)))
    host.take(2)
    assert len(host.ends[1].recv(1 << 16)) == 2042
    assert host.queues.records["rx_truncated"].tolist() == [1, 0]
    assert host.queues.records["tx_too_long"].tolist() == [0, 1]


def test_an_interface_that_is_down_takes_nothing_and_that_is_counted(host):
    host.run("ip", "link", "set", "t1", "down")
    host.ends[0].send(datagrams(1)[0])
    host.take(1)
    assert host.queues.records["tx_failed"].tolist() == [0, 1]
    assert host.worker.counter(Reason.OUTPUT_FULL) == 1
