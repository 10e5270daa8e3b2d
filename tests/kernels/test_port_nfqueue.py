"""Queues of the host's firewall: real sockets of a host talk, and every packet goes on or does not, as rules say."""

import contextlib
import os
import socket
from pathlib import Path

import firewalls
import fragmented
import pytest
from eventually import until
from ports import datagrams, receive, send
from wired import Devices
from wires import Namespace
from zonetrack.clients.port import Queue
from zonetrack.kernels import port_nfqueue
from zonetrack.kernels.words import u64
from zonetrack.service.ports import nfqueue
from zonetrack.service.ports.nfqueue import NfqueuePort, listed
from zonetrack.shm import port
from zonetrack.shm.layout import QUEUED
from zonetrack.shm.reasons import Reason

THROUGH = "in_port=nfqueue5 actions=ct(commit),IN_PORT"
ME = "127.0.0.1"
TIMEOUT_S = 30.0


@pytest.fixture(scope="module", autouse=True)
def _needed():
    firewalls.need()


class Host:
    """A namespace whose own packets go through queue 5 and perhaps more, a worker, and sockets that talk over loopback."""

    def __init__(self, text=THROUGH, match="udp", queues=1, shared=(), **options):
        self.house = contextlib.ExitStack()
        self.namespace = Namespace()
        self.house.callback(self.namespace.close)
        self.house.enter_context(self.namespace.entered())
        firewalls.queue("OUTPUT", 5, 5 + queues - 1, match)
        self.made = NfqueuePort(5, queues=queues, **options)
        opened = [self.made, *(port.create(f"host-{os.getpid()}", name, slots=64) for name in shared)]
        self.devices = self.house.enter_context(Devices(opened, text))
        self.near, self.far = self.socket(), self.socket()

    def socket(self):
        """Return a UDP socket of this host."""
        made = self.house.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        made.bind((ME, 0))
        made.settimeout(TIMEOUT_S)
        return made

    def send(self, payloads):
        """Send datagrams from the near socket to the far one: they wait for their verdicts then."""
        for one in payloads:
            self.near.sendto(one, self.far.getsockname())

    def receive(self, count):
        """Return payloads that came to the far socket."""
        return [self.far.recv(1 << 16) for _ in range(count)]

    @property
    def record(self):
        """The first QUEUE."""
        return self.devices.queues.records[0]

    def close(self):
        self.house.close()


@contextlib.contextmanager
def host(*args, **options):
    with contextlib.closing(Host(*args, **options)) as made:
        yield made


def waiting(number=5):
    """Return how many packets wait for a verdict."""
    return listed()[number][2]


def payloads(count, size=20):
    return [bytes([i % 256]) * size for i in range(count)]


# ------------------------------------------------------------------------------------------------ verdicts
def test_packets_are_tracked_and_go_on_as_they_came():
    with host() as one:
        one.send(payloads(40))
        assert waiting() == 40
        one.devices.take(40)
        assert one.receive(40) == payloads(40)
        assert waiting() == 0
        assert one.devices.worker.counter(Reason.INSERT) == 1
        record = one.record
        assert record["rx_packets"] == record["tx_packets"] == 40
        assert record["rx_bytes"] == record["tx_bytes"] == 40 * 48
        assert record["rx_sizes"].sum() == record["bursts"] and record["tx_sizes"].sum() == record["batches"] >= 2
        assert (record["tx_failed"], record["rx"].view(QUEUED)["unanswered"]) == (0, 0)


def test_packets_of_ipv6_go_through_the_same_queue():
    with host() as one:
        Path("/proc/sys/net/ipv6/conf/lo/disable_ipv6").write_text("0")
        firewalls.queue("OUTPUT", 5, match="udp", six=True)
        near, far = (one.house.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) for _ in range(2))
        far.bind(("::1", 0))
        far.settimeout(TIMEOUT_S)
        near.sendto(b"six", far.getsockname())
        one.devices.take(1)
        assert far.recv(100) == b"six"
        assert one.devices.worker.counter(Reason.INSERT) == 1


def test_what_no_rule_lets_go_on_is_dropped_and_only_that():
    text = """
    in_port=nfqueue5,udp,tp_src={port} actions=ct(commit),NORMAL
    in_port=nfqueue5,priority=1 actions=drop
    """
    with host() as one:
        other = one.socket()
        one.devices.publish(text.format(port=one.near.getsockname()[1]))
        one.send([b"one"])
        other.sendto(b"not this", one.far.getsockname())
        one.send([b"two"])
        one.devices.take(3)
        assert one.receive(2) == [b"one", b"two"]
        assert waiting() == 0
        assert one.devices.worker.counter(Reason.RULE_DROPPED) == 1
        assert one.record["tx_packets"] == 2


def test_output_to_the_port_that_asks_lets_a_packet_go_on():
    with host("in_port=nfqueue5 actions=output:nfqueue5") as one:
        one.send([b"x"])
        one.devices.take(1)
        assert one.receive(1) == [b"x"]


def test_without_rules_everything_goes_on():
    with host("") as one:
        one.send(payloads(3))
        one.devices.take(3)
        assert one.receive(3) == payloads(3)
        assert one.devices.worker.counter(Reason.INSERT) == 1


def test_what_is_output_elsewhere_does_not_go_on_here():
    with host("in_port=nfqueue5 actions=output:lab", shared=["lab"]) as one:
        client = one.house.enter_context(Queue("lab", 0, f"host-{os.getpid()}"))
        one.send([b"elsewhere"])
        one.devices.take(1)
        assert waiting() == 0
        (frame,) = receive(client)[1]
        assert frame[28:] == b"elsewhere" and frame[0] == 0x45
        assert (one.record["tx_packets"], one.devices.queues.records[1]["tx_packets"]) == (0, 1)


def test_nothing_can_be_output_to_it_that_did_not_come_from_it():
    with host("in_port=lab actions=output:nfqueue5", shared=["lab"]) as one:
        send(one.house.enter_context(Queue("lab", 0, f"host-{os.getpid()}")), datagrams(1))
        one.devices.take(1)
        assert one.devices.worker.counter(Reason.OUTPUT_UNREACHABLE) == 1


def test_a_packet_that_was_translated_goes_on_with_other_bytes_and_right_checksums():
    text = """
    in_port=nfqueue5,udp,nw_dst=127.0.0.9 actions=ct(commit,zone=1,nat(dst=127.0.0.1)),IN_PORT
    in_port=nfqueue5,udp actions=ct(zone=1,nat),IN_PORT
    """
    with host(text) as one:
        one.near.sendto(b"there", ("127.0.0.9", one.far.getsockname()[1]))
        one.devices.take(1)
        data, sender = one.far.recvfrom(100)  # the host has verified its checksums
        assert (data, sender) == (b"there", one.near.getsockname())
        one.far.sendto(b"back", sender)
        one.devices.take(1)
        data, sender = one.near.recvfrom(100)
        assert (data, sender) == (b"back", ("127.0.0.9", one.far.getsockname()[1]))


def test_a_connections_mark_becomes_that_of_its_packets():
    with host("in_port=nfqueue5 actions=ct(commit,exec(set_field:0x2a->ct_mark)),IN_PORT") as one:
        seen = firewalls.count_mark(42)
        one.send(payloads(5))
        one.devices.take(5)
        one.receive(5)
        assert seen() == 5


# ------------------------------------------------------------------------------------------------ long ones, pieces
@pytest.mark.parametrize("text", [THROUGH, ""])
def test_segments_that_were_joined_come_as_one_and_go_on_as_one(text):
    with host(text, match="tcp") as one:
        listener = one.house.enter_context(socket.create_server((ME, 0)))
        client = one.house.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex(listener.getsockname())
        one.devices.take(3)
        server, _ = listener.accept()
        one.house.enter_context(server)
        sent, got = client.send(bytes(30_000)), 0
        server.setblocking(False)

        def all_came():
            nonlocal got
            one.devices.poll()
            with contextlib.suppress(BlockingIOError):
                got += len(server.recv(1 << 16))
            return got == sent

        until(all_came)
        assert one.record["rx_bytes"] / one.record["rx_packets"] > 1500
        assert one.record["rx_truncated"] == one.record["tx_failed"] == 0
        assert one.devices.worker.counter(Reason.INSERT) == 1


def test_a_long_packet_that_is_translated_has_right_checksums():
    text = """
    in_port=nfqueue5,udp,nw_dst=127.0.0.9 actions=ct(commit,zone=1,nat(dst=127.0.0.1)),IN_PORT
    """
    with host(text) as one:
        one.near.sendto(bytes(9000), ("127.0.0.9", one.far.getsockname()[1]))
        one.devices.take(1)
        assert one.far.recv(1 << 16) == bytes(9000)


@pytest.mark.parametrize("text", [THROUGH, ""])
def test_fragments_wait_for_the_rest_and_all_go_on(text):
    """As a host sends them that cuts its datagrams itself; with connections of its own it would have put them together."""
    pieces = [piece.frame[14:] for piece in fragmented.cut(fragmented.udp(3200), 1480, 2960)]
    with host(text) as one:
        firewalls.queue("OUTPUT", 5)
        sender = one.house.enter_context(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
        receiver = one.house.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0))
        receiver.settimeout(TIMEOUT_S)
        for piece in (pieces[0], pieces[2]):
            sender.sendto(piece, ("127.0.0.7", 0))
        one.devices.take(2)
        assert waiting() == 2
        sender.sendto(pieces[1], ("127.0.0.7", 0))
        one.devices.take(1)
        one.devices.poll()
        assert waiting() == 0
        assert one.record["tx_packets"] == 3


# ------------------------------------------------------------------------------------------------ losses
def test_a_queue_that_is_full_loses_what_comes_and_says_so():
    with host(length=10) as one:
        one.send(payloads(25))
        one.devices.take(10)
        one.devices.loop.look()
        assert one.receive(10) == payloads(10)
        assert one.record["rx_dropped"] == 15 and one.record["causes"].tolist()[:3] == [15, 0, 0]


def test_one_that_fails_open_lets_them_go_on_without_us():
    with host(length=10, fail_open=True) as one:
        one.send(payloads(25))
        assert one.receive(15) == payloads(25)[10:]
        one.devices.take(10)
        assert one.receive(10) == payloads(10)
        one.devices.loop.look()
        assert one.record["rx_dropped"] == 0


def test_what_a_worker_had_in_hand_when_it_died_is_dropped_and_counted():
    with host() as one:
        one.send(payloads(50))
        taken = int(port_nfqueue.rx_burst(one.devices.loop.record, u64(one.devices.queues.records.ctypes.data)))
        assert taken == 32 and waiting() == 50
        one.devices.take_over()
        assert waiting() == 18
        one.devices.take(18)
        assert one.receive(18) == payloads(50)[32:]
        one.devices.loop.look()
        assert one.record["rx_dropped"] == one.record["causes"][2] == 32
        assert (one.record["rx_packets"], one.record["tx_packets"], one.record["tx_failed"]) == (50, 18, 0)


def test_a_verdict_on_a_packet_that_is_gone_is_counted():
    with host() as one:
        one.send(payloads(1))
        one.made._sockets[0].send(_drop(1))
        one.devices.take(1)
        one.send(payloads(1))
        one.devices.take(1)
        assert one.record["tx_failed"] == 1


def _drop(number):
    content = nfqueue.attribute(nfqueue.VERDICT_HEADER, bytes(4) + number.to_bytes(4, "big"))
    return nfqueue.message(nfqueue.VERDICT, 5, content, 0)


def test_several_queues_share_what_comes_and_each_answers_for_itself():
    with host(queues=3) as one:
        senders = [one.socket() for _ in range(30)]
        for number, sender in enumerate(senders):
            sender.sendto(bytes([number]), one.far.getsockname())
        one.devices.take(30)
        assert sorted(one.receive(30)) == [bytes([number]) for number in range(30)]
        taken = one.devices.queues.records["rx_packets"].tolist()
        assert taken == one.devices.queues.records["tx_packets"].tolist() and sum(taken) == 30
