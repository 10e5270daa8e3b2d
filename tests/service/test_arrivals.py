"""Packets are written down as an engineer would: addresses, ports, flags and numbers, or what could be read of them."""

import numpy as np
import pytest
import tables
from associations import raw
from bursts import CLIENT, ROUTER, SERVER, Bench, frames_of, tcp, udp
from scapy.all import ARP, ICMP, IP, TCP, Ether, ICMPv6EchoReply, IPerror, IPv6, Raw, UDPerror
from zonetrack.kernels import replay
from zonetrack.service import arrivals
from zonetrack.service.samples import Samples
from zonetrack.shm.layout import PARSED
from zonetrack.shm.reasons import Reason


@pytest.fixture
def bench():
    return Bench(tables.small(300))


def sampled(bench, sent):
    bench.track(sent, zone=4)
    return arrivals.of_sample(Samples(bench.table).of(bench.me)[-1])


def accepted(bench, sent):
    """Return the arrival of a packet without a reason."""
    verdict = bench.track(sent, zone=4)[0]
    frames, _buffers = frames_of([sent], 4)
    parsed = np.zeros(1, PARSED)
    replay.read(*map(np.uint64, (frames.ctypes.data, 4, 0, parsed.ctypes.data)))
    return arrivals.of_packet(parsed[0], verdict, 0)


def test_a_segment(bench):
    arrival = sampled(bench, tcp("FPA", 2**32 - 1, 77, reply=True) / Raw(b"abc"))
    assert arrivals.line(arrival) == f"{SERVER}:80 > {CLIENT}:40000 tcp FPA seq 4294967295..3 ack 77 win 8192"
    assert arrivals.segment(arrival) == {
        "flags": "FPA",
        "seq": 2**32 - 1,
        "end": 3,
        "win": 8192,
        "ack": 77,
        "length": 3,
    }
    assert arrivals.tuple_of(arrival) == {"src": SERVER, "dst": CLIENT, "sport": 80, "dport": 40000}
    assert arrivals.state_name(arrival) is None and (arrival.zone, arrival.id) == (4, None)


def test_a_segment_that_passes(bench):
    arrival = accepted(bench, tcp("S", 1))
    assert arrivals.line(arrival) == f"{CLIENT}:40000 > {SERVER}:80 tcp S seq 1..2 win 8192"
    assert (arrivals.state_name(arrival), arrival.reason) == ("SYN_SENT", Reason.NONE)
    assert arrivals.line(accepted(bench, udp())) == f"{CLIENT}:1234 > {SERVER}:53 udp length 8"


def test_ipv6_and_icmp(bench):
    sent = Ether() / IPv6(src="2001:db8::2", dst="2001:db8::1") / ICMPv6EchoReply(id=9)
    assert arrivals.line(sampled(bench, sent)) == "2001:db8::2 > 2001:db8::1 icmpv6 type 129 code 0 id 9"


def test_an_association(bench):
    arrival = accepted(bench, Ether() / IP(raw("c", "INIT")))
    assert arrivals.line(arrival) == "192.0.2.1:40000 > 198.51.100.1:3868 sctp INIT tag 0x00000000"
    assert arrivals.state_name(arrival) == "CLOSED"
    arrival = sampled(bench, Ether() / IP(raw("c", ("SACK", "DATA"), 7)))
    assert arrivals.line(arrival) == "192.0.2.1:40000 > 198.51.100.1:3868 sctp OTHER, DATA tag 0x00000007"
    assert arrivals.chunks_of(arrival) == ["OTHER", "DATA"] and arrivals.chunks_of(accepted(bench, udp())) == []


def test_an_error_and_what_it_quotes(bench):
    quoted = IPerror(src=CLIENT, dst=SERVER) / UDPerror(sport=9, dport=53) / b"12345678"
    sent = Ether() / IP(src=ROUTER, dst=CLIENT) / ICMP(type=3, code=1) / quoted
    line = f"icmp error type 3 code 1 about {CLIENT}:9 > {SERVER}:53 udp"
    assert arrivals.line(sampled(bench, sent)) == f"{ROUTER} > {CLIENT} {line}"
    bench.track(udp(sport=9), zone=4)
    arrival = accepted(bench, sent)
    assert arrivals.line(arrival) == line and arrival.id is not None


def test_what_cannot_be_read_is_told_as_far_as_it_was(bench):
    cut = Ether(bytes(tcp("S", 1))[: 14 + 20 + 8])
    assert arrivals.line(sampled(bench, cut)).startswith(f"{CLIENT} > {SERVER} tcp, ")
    broken = Ether() / IPv6(src="2001:db8::2", dst="2001:db8::1", nh=0) / Raw(b"\x06\xff")
    assert "2001:db8::2 > 2001:db8::1" in arrivals.line(sampled(bench, broken))
    arrival = accepted(bench, Ether() / ARP())
    assert arrivals.line(arrival) == "no IP header" and arrivals.tuple_of(arrival) == {}


@pytest.mark.parametrize(("flags", "letters"), [(0, "none"), (0x12, "SA"), (0xFF, "FSRPAUEC")])
def test_flags(flags, letters):
    assert arrivals.flags_of(flags) == letters


def test_names():
    assert (arrivals.protocol_name(132), arrivals.protocol_name(200)) == ("sctp", "protocol 200")


def test_both_sides_have_a_state_in_the_other_profile(bench):
    tables.zones(bench.table)["settings"][4] |= 1 << 6
    bench.track(tcp("S", 1000), tcp("SA", 5000, 1001, reply=True), zone=4)
    late = tcp("A", 1_000_000, 5001)
    late[TCP].payload = Raw(b"x")
    arrival = sampled(bench, late)
    assert arrival.is_ovs and " / " in arrivals.state_name(arrival)
