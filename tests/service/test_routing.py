"""The router of docs/examples between two hosts in namespaces, which know it by its addresses: pings, transfers, errors."""

import contextlib
import os
import socket
import struct
from pathlib import Path

import checkout
import pytest
from hosts import TIMEOUT_S, at, serve_bytes, transfer
from services import Service
from wires import Namespace, need, run
from zonetrack.clients.sync import connect
from zonetrack.kernels.jit import JIT
from zonetrack.service.ports import interface

RULES = checkout.ROOT / "docs" / "examples" / "router.rules"
BYTES = int(os.environ.get("TRANSFER_BYTES", 20_000_000 if JIT else 200_000))
INSIDE, OUTSIDE = ("192.0.2.10", "2001:db8:1::10"), ("198.51.100.10", "2001:db8:2::10")
NEAR, FAR = ("192.0.2.1", "2001:db8:1::1"), ("198.51.100.1", "2001:db8:2::1")


class Town:
    """Two hosts, each in a network of its own with the router as its gateway."""

    def __init__(self):
        need()
        self.inside, self.gateway, self.outside = Namespace(), Namespace(), Namespace()
        for host, name, port, mac, (four, six), (via, via_6) in (
            (self.inside, "in0", "lan0", "02:00:00:00:01:10", INSIDE, NEAR),
            (self.outside, "out0", "wan0", "02:00:00:00:02:10", OUTSIDE, FAR),
        ):
            with self.gateway.entered():
                run("ip", "link", "add", port, "type", "veth", "peer", "name", name)
                run("ip", "link", "set", port, "up")
                run("ip", "link", "set", name, "netns", f"/proc/{os.getpid()}/fd/{host.descriptor}")
            with host.entered():
                for offload in ("tso", "gso", "gro"):
                    interface.set_offload(name, offload, False)
                Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("0")
                run("ip", "link", "set", name, "address", mac)
                run("ip", "addr", "add", f"{four}/24", "dev", name)
                run("ip", "addr", "add", f"{six}/64", "dev", name, "nodad")
                run("ip", "link", "set", name, "up")
                run("ip", "route", "add", "default", "via", via)
                run("ip", "-6", "route", "add", "default", "via", via_6)

    def close(self):
        """Let go of all of it."""
        for one in (self.inside, self.gateway, self.outside):
            one.close()


@pytest.fixture
def town():
    made = Town()
    yield made
    made.close()


@pytest.fixture
def service(tmp_path, town):
    if not RULES.exists():
        pytest.skip("no docs beside the tests")
    ports = ("--port", "afpacket:lan0,name=lan,ring_mb=4", "--port", "afpacket:wan0,name=wan,ring_mb=4")
    with contextlib.ExitStack() as started:
        with town.gateway.entered():
            made = Service(
                tmp_path, "--max-connections", 2000, "--workers", 2, *ports, environment={"ZONETRACK_RULES": str(RULES)}
            )
        yield started.enter_context(made).until_ready()
        assert made.stop() == 0


def ping(child, ip, hops=64, size=8):
    """Ping an address; return who answers, and the type of ICMP that says so."""
    six = ":" in ip
    family, protocol = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if six else (socket.AF_INET, socket.IPPROTO_ICMP)
    asked = struct.pack("!BBHHH", 128 if six else 8, 0, 0, os.getpid() & 0xFFFF, 1) + bytes(size)
    total = sum(struct.unpack(f"!{len(asked) // 2}H", asked))
    total = (total & 0xFFFF) + (total >> 16)
    asked = asked[:2] + struct.pack("!H", ~total & 0xFFFF) + asked[4:]
    with socket.socket(family, socket.SOCK_RAW, protocol) as raw:
        raw.settimeout(TIMEOUT_S)
        if six:
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
        else:
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
        raw.sendto(asked, (ip, 0))
        while True:
            said, peer = raw.recvfrom(1 << 16)
            kind = said[0] if six else said[(said[0] & 15) * 4]
            if kind not in (8, 128, 133, 134, 135, 136):
                return [peer[0], kind]


@pytest.mark.parametrize("family", [0, 1], ids=["IPv4", "IPv6"])
def test_hosts_reach_each_other_and_the_router(town, service, family):
    reply, exceeded = ((0, 11), (129, 3))[family]
    for ip in (NEAR[family], OUTSIDE[family], FAR[family]):
        with at(town.inside, ping, ip) as asker:
            assert asker.hear() == [ip, reply]
    with at(town.outside, ping, INSIDE[family]) as asker:
        assert asker.hear() == [INSIDE[family], reply]
    with at(town.inside, ping, OUTSIDE[family], 1) as asker:
        assert asker.hear() == [NEAR[family], exceeded]
    with at(town.outside, serve_bytes, OUTSIDE[family], 80) as server:
        assert server.hear() == "listens"
        with at(town.inside, transfer, OUTSIDE[family], 80, BYTES) as client:
            assert client.hear() == BYTES
        assert server.hear() == BYTES
    with connect(socket=service.socket) as ct:
        assert 6 in {int(connection["protocol"]) for connection in ct.dump(zone=1)}
