"""A router's frames, as scapy would make them: a hop less, next hops, answers for its own addresses, errors."""

import pytest
from ruled import Switch
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPv6,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether

OWN, NEXT, HOST = "02:00:00:00:01:01", "02:00:00:00:02:10", "02:00:00:00:01:10"
FAR = "02:00:00:00:02:01"
TO_ROUTER, FROM_ROUTER = Ether(src=HOST, dst=OWN), Ether(src=OWN, dst=HOST)
US_4, US_6, THEM_4, THEM_6 = "192.0.2.1", "2001:db8:1::1", "198.51.100.10", "2001:db8:2::10"
HOST_4, HOST_6 = "192.0.2.10", "2001:db8:1::10"
ROUTE = f"route(from={FAR},to={NEXT},address={{}},mtu=1400),output:b"
RULES = f"""
    in_port=a,arp actions=answer({OWN},{US_4})
    priority=200,in_port=a,icmp,nw_dst={US_4} actions=answer({OWN},{US_4})
    priority=200,in_port=a,icmp6,icmpv6_type=135 actions=answer({OWN},{US_6})
    priority=200,in_port=a,icmp6,ipv6_dst={US_6} actions=answer({OWN},{US_6})
    priority=100,in_port=a,ip actions={ROUTE.format(US_4)}
    priority=100,in_port=a,ipv6 actions={ROUTE.format(US_6)}
"""


def through(packet):
    """Return what comes back to who sent a packet, and what goes on."""
    with Switch(2, RULES) as switch:
        came = switch.through("a", [bytes(packet)])[1]
    return [[Ether(frame) for frame in came[name]] for name in ("a", "b")]


def are_same(found, wanted):
    """Hold frames against those wanted, byte for byte."""
    assert [bytes(frame) for frame in found] == [bytes(frame) for frame in wanted], [
        frame.show2(True) for frame in found
    ]


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (IP(src=HOST_4, dst=THEM_4, ttl=64), IP(src=HOST_4, dst=THEM_4, ttl=63)),
        (IP(src=HOST_4, dst=THEM_4, ttl=2, proto=17), IP(src=HOST_4, dst=THEM_4, ttl=1, proto=17)),
        (IPv6(src=HOST_6, dst=THEM_6, hlim=64), IPv6(src=HOST_6, dst=THEM_6, hlim=63)),
    ],
)
def test_a_packet_goes_on_with_a_hop_less(before, after, tagged):
    tag = Dot1Q(vlan=5) if tagged else None
    there, on = (ether / tag if tag else ether for ether in (TO_ROUTER, Ether(src=FAR, dst=NEXT)))
    back, out = through(there / before / UDP(sport=1, dport=2) / b"data")
    assert back == []
    are_same(out, [on / after / UDP(sport=1, dport=2) / b"data"])


def test_every_checksum_of_a_header_is_mended():
    for number in range(0, 0x10000, 0x0FFF):
        _, out = through(TO_ROUTER / IP(src=HOST_4, dst=THEM_4, id=number, ttl=7) / UDP(sport=1, dport=2))
        are_same(out, [Ether(src=FAR, dst=NEXT) / IP(src=HOST_4, dst=THEM_4, id=number, ttl=6) / UDP(sport=1, dport=2)])


def test_who_asks_for_an_address_is_told():
    asks = TO_ROUTER.copy()
    asks.dst = "ff:ff:ff:ff:ff:ff"
    back, out = through(asks / ARP(op=1, hwsrc=HOST, psrc=HOST_4, hwdst="00:00:00:00:00:00", pdst=US_4))
    are_same(back, [FROM_ROUTER / ARP(op=2, hwsrc=OWN, psrc=US_4, hwdst=HOST, pdst=HOST_4)])
    assert out == []
    assert through(asks / ARP(op=1, hwsrc=HOST, psrc=HOST_4, pdst="192.0.2.9")) == [[], []]
    assert through(asks / ARP(op=2, hwsrc=HOST, psrc=HOST_4, pdst=US_4)) == [[], []]


@pytest.mark.parametrize("option", [True, False])
def test_a_neighbour_is_answered(option):
    asks = IPv6(src=HOST_6 if option else "::", dst="ff02::1:ff00:1") / ICMPv6ND_NS(tgt=US_6)
    if option:
        asks = asks / ICMPv6NDOptSrcLLAddr(lladdr=HOST)
    back, _ = through(TO_ROUTER / asks)
    says = IPv6(src=US_6, dst=HOST_6 if option else "ff02::1", hlim=255)
    are_same(back, [FROM_ROUTER / says / ICMPv6ND_NA(R=1, S=1, O=1, tgt=US_6) / ICMPv6NDOptDstLLAddr(lladdr=OWN)])
    assert through(TO_ROUTER / IPv6(src=HOST_6, dst=THEM_6, hlim=254) / ICMPv6ND_NS(tgt=US_6)) == [[], []]
    assert through(TO_ROUTER / IPv6(src=HOST_6, dst=THEM_6) / ICMPv6ND_NS(tgt=HOST_6)) == [[], []]


def test_a_ping_is_answered():
    back, _ = through(TO_ROUTER / IP(src=HOST_4, dst=US_4, ttl=9) / ICMP(type=8, id=5, seq=6) / b"ping")
    are_same(back, [FROM_ROUTER / IP(src=US_4, dst=HOST_4, ttl=64) / ICMP(type=0, id=5, seq=6) / b"ping"])
    back, _ = through(TO_ROUTER / IPv6(src=HOST_6, dst=US_6, hlim=9) / ICMPv6EchoRequest(id=5, seq=6, data=b"ping"))
    are_same(back, [FROM_ROUTER / IPv6(src=US_6, dst=HOST_6, hlim=64) / ICMPv6EchoReply(id=5, seq=6, data=b"ping")])
    assert through(TO_ROUTER / IP(src=HOST_4, dst=US_4) / ICMP(type=0, id=5)) == [[], []]


@pytest.mark.parametrize("ttl", [0, 1])
def test_who_sends_what_has_no_hops_left_is_told(ttl):
    packet = IP(src=HOST_4, dst=THEM_4, ttl=ttl) / UDP(sport=1, dport=2) / (b"data" * 200)
    back, out = through(TO_ROUTER / packet)
    assert out == []
    quoted = bytes(packet)[: 576 - 28]
    are_same(back, [FROM_ROUTER / IP(src=US_4, dst=HOST_4, tos=0xC0, id=0) / ICMP(type=11, code=0) / quoted])
    packet = IPv6(src=HOST_6, dst=THEM_6, hlim=ttl) / UDP(sport=1, dport=2) / (b"data" * 320)
    back, out = through(TO_ROUTER / packet)
    assert out == []
    quoted = bytes(packet)[: 1280 - 48]
    are_same(back, [FROM_ROUTER / IPv6(src=US_6, dst=HOST_6, hlim=64) / ICMPv6TimeExceeded() / quoted])


def test_who_sends_what_is_too_long_is_told():
    packet = IP(src=HOST_4, dst=THEM_4, flags="DF") / TCP(sport=1, dport=2) / bytes(1400)
    back, out = through(TO_ROUTER / packet)
    assert out == []
    quoted = bytes(packet)[: 576 - 28]
    too_big = ICMP(type=3, code=4, nexthopmtu=1400)
    are_same(back, [FROM_ROUTER / IP(src=US_4, dst=HOST_4, tos=0xC0, id=0) / too_big / quoted])
    packet = IPv6(src=HOST_6, dst=THEM_6) / TCP(sport=1, dport=2) / bytes(1400)
    back, out = through(TO_ROUTER / packet)
    assert out == []
    quoted = bytes(packet)[: 1280 - 48]
    are_same(back, [FROM_ROUTER / IPv6(src=US_6, dst=HOST_6, hlim=64) / ICMPv6PacketTooBig(mtu=1400) / quoted])


@pytest.mark.parametrize(
    "packet",
    [
        IP(src=HOST_4, dst=THEM_4, ttl=1) / ICMP(type=3, code=1) / IP(src=THEM_4, dst=HOST_4) / UDP(),
        IP(src=HOST_4, dst=THEM_4, ttl=1, frag=9) / (b"data" * 9),
        IP(src="224.0.0.1", dst=THEM_4, ttl=1) / UDP(),
        IP(src="0.0.0.0", dst=THEM_4, ttl=1) / UDP(),
        IPv6(src=HOST_6, dst=THEM_6, hlim=1) / ICMPv6DestUnreach() / IPv6(src=THEM_6, dst=HOST_6) / UDP(),
        IPv6(src="ff02::5", dst=THEM_6, hlim=1) / UDP(),
        IPv6(src="::", dst=THEM_6, hlim=1) / UDP(),
    ],
    ids=[
        "ICMP error",
        "later fragment",
        "from a group",
        "from nobody",
        "ICMPv6 error",
        "from a group, 6",
        "from nobody, 6",
    ],
)
def test_nothing_is_said_about_some(packet):
    assert through(TO_ROUTER / packet) == [[], []]
