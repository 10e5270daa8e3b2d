"""A gateway between two hosts, as its users have it: real processes, interfaces, and programs that know nothing of it."""

import contextlib
import os
import signal
import socket

import checkout
import pytest
from hosts import TIMEOUT_S, ask, at, echo, ports_of, refused, serve_bytes, transfer
from services import Service
from town import INSIDE, OUTSIDE, Town
from zonetrack.clients.sync import connect
from zonetrack.kernels.jit import JIT
from zonetrack.service.ports import packet

RULES = checkout.ROOT / "docs" / "examples" / "stateful-firewall.rules"
PACKET_SOCKETS = ("afpacket:lan0,name=lan,ring_mb=4", "afpacket:wan0,name=wan,ring_mb=4")
PROMPT_SOCKETS = ("afpacket:lan0,name=lan,latency=low", "afpacket:wan0,name=wan,latency=low,ring_mb=4")
UDP_SEGMENT = 103
PROMPT = ("xdp:lan0,name=lan,ring=1024", "afpacket:wan0,name=wan,latency=low,ring_mb=4")
BYTES = int(os.environ.get("TRANSFER_BYTES", 20_000_000 if JIT else 200_000))


@pytest.fixture
def town():
    made = Town()
    yield made
    made.close()


@pytest.fixture
def serve(tmp_path, town):
    """Return a function that starts a gateway, which is taken away after the test."""
    if not RULES.exists():
        pytest.skip("no docs beside the tests")
    with contextlib.ExitStack() as started:

        def start(*flags, rules=RULES, ports=PACKET_SOCKETS):
            ports = [word for port in ports for word in ("--port", port)]
            with town.gateway.entered():
                service = Service(
                    tmp_path, "--max-connections", 2000, *ports, *flags, environment={"ZONETRACK_RULES": str(rules)}
                )
            return started.enter_context(service).until_ready()

        yield start


def test_a_transfer_goes_through_and_nobody_gets_in_unasked(town, serve):
    service = serve()
    with at(town.outside, serve_bytes, OUTSIDE, 80) as server:
        assert server.hear() == "listens"
        with at(town.inside, transfer, OUTSIDE, 80, BYTES) as client:
            assert client.hear() == BYTES
        assert server.hear() == BYTES
    with at(town.inside, serve_bytes, INSIDE, 80) as server:
        assert server.hear() == "listens"
        with at(town.outside, refused, INSIDE, 80) as client:
            assert client.hear() == "TimeoutError"
        server.kill()
    with connect(socket=service.socket) as ct:
        (connection,) = ct.dump(zone=1)
        assert connection["mark"] == 1
    queues = ports_of(service)
    assert queues["wan"]["tx_bytes"] > BYTES
    assert queues["lan"]["rx_dropped"] == queues["wan"]["rx_dropped"] == 0
    assert service.stop() == 0


def test_segments_that_are_longer_than_the_wire_takes_are_cut(town, serve):
    town.leave_cutting_to_devices()
    service = serve()
    with at(town.outside, serve_bytes, OUTSIDE, 80) as server:
        assert server.hear() == "listens"
        with at(town.inside, transfer, OUTSIDE, 80, BYTES) as client:
            assert client.hear() == BYTES
        assert server.hear() == BYTES
    queues = ports_of(service)
    assert queues["lan"]["rx_bytes"] > BYTES
    # each frame that came has gone in one part or more, and none was too long
    assert queues["wan"]["tx_packets"] > 1.5 * queues["lan"]["rx_packets"]
    assert queues["wan"]["tx_too_long"] == 0
    assert service.stop() == 0


def send_joined(child, ip, port, size, count):
    """Send datagrams of one size, many at once, as QUIC does: the device is to cut them (udp(7), UDP_SEGMENT)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        try:
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
        except OSError:
            return 0
        sender.sendto(os.urandom(size * count), (ip, port))
    return count


def take_datagrams(child, ip, port, count):
    """Return the sizes of so many datagrams."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taker:
        taker.settimeout(TIMEOUT_S)
        taker.bind((ip, port))
        child.say("listens")
        return [len(taker.recv(1 << 16)) for _ in range(count)]


@pytest.mark.parametrize(
    ("ports", "sent"),
    [(PACKET_SOCKETS, ((1000, 20), (300, 2))), (PROMPT_SOCKETS, ((300, 2), (500, 3)))],
    ids=["blocks", "prompt"],
)
def test_datagrams_that_were_sent_together_arrive_each_by_itself(town, serve, ports, sent):
    """Some that are longer together than the wire takes, and some that are not."""
    if not packet.tells_segments():
        pytest.skip("this system tells nobody how datagrams are to be cut")
    town.leave_cutting_to_devices()
    service = serve(ports=ports)
    for size, count in sent:
        with at(town.outside, take_datagrams, OUTSIDE, 443, count) as taker:
            assert taker.hear() == "listens"
            with at(town.inside, send_joined, OUTSIDE, 443, size, count) as sender:
                if sender.hear() == 0:
                    pytest.skip("this system joins no datagrams")
            assert taker.hear() == [size] * count
    queues = ports_of(service)
    assert queues["wan"]["tx_too_long"] == queues["lan"]["rx_truncated"] == 0
    assert service.stop() == 0


def test_datagrams_and_their_fragments_go_through(town, serve):
    """Of two workers: fragments that one has are put together with those of the other."""
    sizes = [1, 100, 1472, 1473, 4000, 9000] * 3
    service = serve("--workers", "2")
    with at(town.outside, echo, OUTSIDE, 53, len(sizes)) as server:
        assert server.hear() == "listens"
        with at(town.inside, ask, OUTSIDE, 53, sizes) as client:
            assert client.hear() == sizes
        assert server.hear() == len(sizes)
    with connect(socket=service.socket) as ct:
        (connection,) = ct.dump(zone=1)
        assert connection["protocol"] == 17
    assert service.stop() == 0


@pytest.mark.parametrize("ports", [PACKET_SOCKETS, PROMPT], ids=["blocks", "prompt"])
def test_a_transfer_outlives_workers_interfaces_that_go_down_and_the_configuration(town, serve, ports):
    if ports is PROMPT:
        town.fill_in_checksums()
    service = serve("--workers", "2", ports=ports)
    with at(town.outside, serve_bytes, OUTSIDE, 80) as server:
        assert server.hear() == "listens"
        with at(town.inside, transfer, OUTSIDE, 80, BYTES, True) as client:
            assert client.hear() == "half"
            with connect(socket=service.socket) as ct:
                for worker in ct.workers():
                    os.kill(worker["pid"], signal.SIGKILL)
                    service.hear("it is started again")
                for name, worker in (("lan", 1), ("wan", 0), ("lan", 0), ("wan", 1), ("lan", 1)):
                    assert ct.queues.assign(name, 0, worker) == {"settled": True}
            for name in ("lan0", "wan0"):
                town.gateway.run("ip", "link", "set", name, "down")
                town.gateway.run("ip", "link", "set", name, "mtu", "1400")
                town.gateway.run("ip", "link", "set", name, "mtu", "1500", "up")
            os.kill(service.pid, signal.SIGHUP)
            service.hear("the configuration was read again")
            client.say("go on")
            assert client.hear() == BYTES
        assert server.hear() == BYTES
    assert service.stop() == 0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("afpacket:eth7", "port afpacket:eth7: there is no interface 'eth7'; there are: lan0, lo, wan0"),
        ("afpacket:lan0,queues=0", "expected a whole number from 1 to 1,024, found '0'"),
        ("tap:lan0", "port tap:lan0: it is there already"),
    ],
)
def test_what_cannot_be_opened_is_one_line(town, tmp_path, spec, words):
    with town.gateway.entered():
        service = Service(tmp_path, "--max-connections", 2000, "--port", spec)
    _, said = service.process.communicate()
    assert service.process.returncode in (1, 2)
    assert words in said.decode() and "Traceback" not in said.decode()
