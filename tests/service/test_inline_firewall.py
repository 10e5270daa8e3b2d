"""A router whose firewall asks the service: real processes, namespaces, and programs that know nothing of it."""

import contextlib
import os
import signal

import checkout
import firewalls
import pytest
from hosts import ask, at, echo, ports_of, refused, serve_bytes, transfer
from services import Service
from wires import Namespace, run
from zonetrack.clients.sync import connect
from zonetrack.kernels.jit import JIT

INSIDE, OUTSIDE = "192.0.2.1", "198.51.100.1"
RULES = checkout.ROOT / "docs" / "examples" / "host-firewall.rules"
BYTES = 20_000_000 if JIT else 300_000


class Router:
    """A host inside and one outside, and between them a router whose firewall puts all it forwards into two queues."""

    def __init__(self):
        firewalls.need()
        self.inside, self.router, self.outside = Namespace(), Namespace(), Namespace()
        for host, name, ip in ((self.inside, "in0", INSIDE), (self.outside, "out0", OUTSIDE)):
            near, gateway = f"r{name}", f"{ip.rpartition('.')[0]}.254"
            with self.router.entered():
                run("ip", "link", "add", near, "type", "veth", "peer", "name", name)
                run("ip", "addr", "add", f"{gateway}/24", "dev", near)
                run("ip", "link", "set", near, "up")
                run("ip", "link", "set", name, "netns", f"/proc/{os.getpid()}/fd/{host.descriptor}")
            with host.entered():
                run("ip", "addr", "add", f"{ip}/24", "dev", name)
                run("ip", "link", "set", name, "up")
                run("ip", "route", "add", "default", "via", gateway)
        with self.router.entered():
            run("sysctl", "-qw", "net.ipv4.ip_forward=1")
            firewalls.queue("FORWARD", 5, 6)

    def close(self):
        """Let go of all of it."""
        for one in (self.inside, self.router, self.outside):
            one.close()


@pytest.fixture
def router():
    with contextlib.closing(Router()) as made:
        yield made


@pytest.fixture
def service(tmp_path, router):
    if not RULES.exists():
        pytest.skip("no docs beside the tests")
    flags = ("--max-connections", 2000, "--workers", 2, "--port", "nfqueue:5,queues=2,name=host")
    with router.router.entered():
        made = Service(tmp_path, *flags, environment={"ZONETRACK_RULES": str(RULES)})
    with made:
        yield made.until_ready()


def test_the_host_routes_what_was_asked_for_and_nothing_else(router, service):
    with at(router.outside, serve_bytes, OUTSIDE, 80) as server:
        assert server.hear() == "listens"
        with at(router.inside, transfer, OUTSIDE, 80, BYTES) as client:
            assert client.hear() == BYTES
        assert server.hear() == BYTES
    sizes = [1, 1472, 1473, 9000]
    with at(router.outside, echo, OUTSIDE, 53, len(sizes)) as server:
        assert server.hear() == "listens"
        with at(router.inside, ask, OUTSIDE, 53, sizes) as client:
            assert client.hear() == sizes
    with at(router.inside, serve_bytes, INSIDE, 80) as server:
        assert server.hear() == "listens"
        with at(router.outside, refused, INSIDE, 80) as client:
            assert client.hear() == "TimeoutError"
        server.kill()
    with connect(socket=service.socket) as ct:
        assert sorted((one["protocol"], one["mark"]) for one in ct.dump(zone=1)) == [(6, 7), (17, 7)]
        (port,) = ct.ports()
    assert (port["kind"], port["device"]) == ("nfqueue", "5:6")
    assert all(queue["rx_dropped"] == queue["tx_failed"] == queue["rx_truncated"] == 0 for queue in port["queues"])
    assert sum(queue["tx_bytes"] for queue in port["queues"]) > BYTES
    assert service.stop() == 0


def test_a_transfer_outlives_workers_interfaces_that_go_down_and_the_configuration(router, service):
    with at(router.outside, serve_bytes, OUTSIDE, 80) as server:
        assert server.hear() == "listens"
        with at(router.inside, transfer, OUTSIDE, 80, BYTES, True) as client:
            assert client.hear() == "half"
            with connect(socket=service.socket) as ct:
                for worker in ct.workers():
                    os.kill(worker["pid"], signal.SIGKILL)
                    service.hear("it is started again")
                for queue, worker in ((0, 1), (1, 0), (0, 0), (1, 1), (0, 1)):
                    assert ct.queues.assign("host", queue, worker) == {"settled": True}
            router.router.run("ip", "link", "set", "rout0", "down")
            router.router.run("ip", "link", "set", "rout0", "mtu", "1400")
            router.router.run("ip", "link", "set", "rout0", "mtu", "1500", "up")
            os.kill(service.pid, signal.SIGHUP)
            service.hear("the configuration was read again")
            client.say("go on")
            assert client.hear() == BYTES
        assert server.hear() == BYTES
    assert ports_of(service)["host"]["rx_packets"] > 0
    assert service.stop() == 0
