"""The same packets through the kernel and through here: what conntrack prints of one, `zonetrack` prints of the other.

Lines are compared to the byte, but for the seconds that are left, of which both began with as many, and for the order of
a list.
"""

import re
import select
import shutil
import subprocess
import time

import bursts
import kernel_nat
import numpy as np
import pytest
import tables
from desk import run
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from served import Service
from zonetrack.clients import lines
from zonetrack.clients.connections import TCP_STATES
from zonetrack.clients.sync import connect
from zonetrack.shm.events import Events
from zonetrack.shm.layout import POLICY, Region
from zonetrack.shm.seats import Seats

MISSING = kernel_nat.missing() or (None if shutil.which("conntrack") else "conntrack is not installed")
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

CLIENT, SERVER, ROUTER = "10.0.0.1", "198.51.100.1", "203.0.113.1"
RULES = """
table ip watch {
  chain forwarded {
    type filter hook forward priority 0; policy accept;
    ct state new accept
  }
}
"""
LIVES_S = 3000
"""Every timeout, on both sides: nothing ends while a machine is slow."""
SECONDS = re.compile(r"^( *(?:\[\w+\] )?\w+ +\d+ )(\d+)")
IN, OUT = 0, 1


def tcp(flags, seq, ack=0, port=40000, back=False, data=b""):
    ends = {"sport": 80, "dport": port} if back else {"sport": port, "dport": 80}
    return OUT if back else IN, addressed(TCP(flags=flags, seq=seq, ack=ack, window=8192, **ends) / Raw(data), back)


def udp(port, back=False):
    ends = {"sport": 53, "dport": port} if back else {"sport": port, "dport": 53}
    return OUT if back else IN, addressed(UDP(**ends) / Raw(b"asked"), back)


def ping(kind, id):
    return (OUT, addressed(ICMP(type=0, id=id), True)) if kind == "answer" else (IN, addressed(ICMP(id=id), False))


def addressed(payload, back):
    """Return a packet as the kernel has it, with all checksums."""
    src, dst = (SERVER, CLIENT) if back else (CLIENT, SERVER)
    return IP(bytes(IP(src=src, dst=dst) / payload))


TALK = (
    *(tcp("S", 100), tcp("SA", 900, 101, back=True), tcp("A", 101, 901), tcp("PA", 101, 901, data=b"question")),
    *(tcp("PA", 901, 109, back=True, data=b"a long answer"), tcp("A", 109, 914)),
    tcp("S", 5, port=40001),
    *(tcp("S", 7, port=40002), tcp("SA", 70, 8, port=40002, back=True), tcp("A", 8, 71, port=40002)),
    *(tcp("FA", 8, 71, port=40002), tcp("FA", 71, 9, port=40002, back=True), tcp("A", 9, 72, port=40002)),
    *(tcp("S", 7, port=40003), tcp("RA", 0, 8, port=40003, back=True)),
    *(udp(5353), udp(5353, back=True), udp(5354)),
    *(ping("request", 77), ping("answer", 77), ping("request", 78)),
    (IN, IP(bytes(IP(src=CLIENT, dst=SERVER, proto=89) / Raw(b"hello")))),
)


def steady(lines):
    """Return lines without the seconds that are left, which are as many as they can be."""
    found = []
    for line in lines:
        match = SECONDS.match(line)
        if match:
            assert LIVES_S // 2 < int(match[2]) <= LIVES_S, line
            line = f"{match[1]}SECONDS{line[match.end() :]}"
        found.append(line.rstrip())
    return found


@pytest.fixture(scope="module")
def kernel():
    """Return what conntrack lists and tells of the talk through the kernel."""
    router = kernel_nat.Router([CLIENT], [SERVER], ROUTER, RULES)
    inside = ("ip", "netns", "exec", router.names[1])
    try:
        names = subprocess.run(
            [*inside, "sysctl", "-aN", "-r", "nf_conntrack.*timeout"], capture_output=True, text=True
        )
        lives = [f"{name}={LIVES_S}" for name in names.stdout.split() if not name.endswith("acct")]
        settings = ["net.netfilter.nf_conntrack_acct=1", "net.netfilter.nf_conntrack_checksum=1", *lives]
        subprocess.run([*inside, "sysctl", "-qw", *settings], check=True)
        command = ["stdbuf", "-oL", "conntrack", "-E"]
        with subprocess.Popen([*inside, *command], stdout=subprocess.PIPE, text=True) as watch:
            try:
                # until it hears: connections of another kind, which are no part of the talk
                told, port = [], 1000
                while not told:
                    router.send(IN, IP(src=CLIENT, dst=SERVER) / UDP(sport=port, dport=9) / Raw(b"x"))
                    port += 1
                    subprocess.run([*inside, "conntrack", "-D", "-p", "udp", "--dport", "9"], capture_output=True)
                    told = _available(watch.stdout)
                subprocess.run([*inside, "conntrack", "-F"], capture_output=True)
                for side, packet in TALK:
                    router.send(side, packet)
                listed = subprocess.run([*inside, "conntrack", "-L"], capture_output=True, text=True, check=True).stdout
                router.send(IN, IP(src=CLIENT, dst=SERVER) / UDP(sport=9, dport=10) / Raw(b"last"))
                for line in watch.stdout:
                    if "dport=10 " in line:
                        break
                    told.append(line)
            finally:
                watch.terminate()
    finally:
        router.close()
    return listed.splitlines(), [line.rstrip() for line in told if "dport=9 " not in line]


def _available(stream):
    return [stream.readline()] if select.select([stream], [], [], 0.2)[0] else []


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Return what `zonetrack` lists and tells of the same talk."""
    table = tables.small(200, zones=4)
    table.events, table.seats = Events(), Seats()
    table.array(Region.CONTROL, "policies", POLICY)["timeout_ms"][0] = np.uint32(LIVES_S * 1000)
    with Service(tmp_path_factory.mktemp("run") / "x.sock", table) as service:
        bench = bursts.Bench(table)
        with connect(service.path) as ct:
            batches = ct.event_batches()
            begun = next(batches).sequence
            for _, packet in TALK:
                bench.track(Ether() / packet, now_ms=time.monotonic_ns() // 1_000_000)
            told, wanted = [], table.events.sequence
            while begun < wanted:
                batch = next(batches)
                begun = batch.sequence
                told += lines.conntrack_events(batch, TCP_STATES)
            batches.close()
        outcome = run("list", "--format", "conntrack", "--socket", service.path)
    return outcome.out.splitlines(), [line.rstrip("\n") for line in told]


def test_lists_are_the_same(kernel, here):
    assert sorted(steady(here[0])) == sorted(steady(kernel[0]))


def test_events_are_the_same(kernel, here):
    assert any("[DESTROY]" in line and " [UNREPLIED]" in line for line in kernel[1])  # one is refused by a reset
    assert steady(here[1]) == steady(kernel[1])
