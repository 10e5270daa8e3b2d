"""Whole frames: each kind in each link, cut anywhere, damaged anywhere, and made of noise."""

import struct
from typing import NamedTuple

import numpy as np
import pytest
from forked import Child
from guard import Guard
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_checksum import checksum, pseudo_header
from parsing import EXAMPLES, JIT, Tuple, assert_tuple, key_of, parse, parse_at
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6TimeExceeded, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop
from scapy.layers.l2 import LLC, SNAP, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.ppp import HDLC, PPP, PPPoE
from scapy.layers.sctp import SCTP, SCTPChunkInit
from zonetrack.shm.layout import Link, PacketKind
from zonetrack.shm.reasons import Reason

STATIONS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
ETHER, DOT3 = Ether(**STATIONS), Dot3(**STATIONS)  # without addresses scapy asks the network for them
A4, B4, A6, B6 = "192.0.2.1", "198.51.100.1", "2001:db8::1", "2001:db8::2"
UDP_LITE, DCCP, GRE = 136, 33, 47


class Case(NamedTuple):
    """A packet from A to B, what it must be found to be, and how many of its bytes a snapped one needs."""

    packet: bytes
    tuple_: Tuple
    kind: PacketKind
    needed: int
    payload_bytes: int


def case(packet, ports, kind, needed, payload_bytes=5):
    data = bytes(packet)
    src, dst = (A4, B4) if data[0] >> 4 == 4 else (A6, B6)
    src_port, dst_port, protocol = ports
    return Case(data, Tuple(src, src_port, dst, dst_port, protocol), kind, needed, payload_bytes)


def udp_lite():
    segment = struct.pack("!HHHH", 1000, 53, 8, 0)
    total = checksum(pseudo_header(bytes(IP(src=A4))[12:16], bytes(IP(src=B4))[12:16], UDP_LITE, 13) + segment)
    return segment[:6] + total.to_bytes(2, "big") + b"hello"


V4, V6 = IP(src=A4, dst=B4), IPv6(src=A6, dst=B6)
TIMESTAMP = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]
QUOTE4, QUOTE6 = IP(src=B4, dst="203.0.113.5") / UDP(sport=53, dport=1000), IPv6(src=B6, dst="2001:db8::5") / TCP()
CASES = {
    "tcp": case(V4 / TCP(sport=40000, dport=80) / b"hello", (40000, 80, 6), PacketKind.TCP, 40),
    "tcp with options": case(
        IP(src=A4, dst=B4, options=[b"\x01"] * 4) / TCP(sport=40000, dport=80, options=TIMESTAMP) / b"hello",
        (40000, 80, 6),
        PacketKind.TCP,
        24 + 20,
    ),
    "udp": case(V4 / UDP(sport=1000, dport=53) / b"hello", (1000, 53, 17), PacketKind.FLOW, 28),
    "udp-lite": case(IP(src=A4, dst=B4, proto=UDP_LITE) / udp_lite(), (1000, 53, UDP_LITE), PacketKind.FLOW, 28),
    "sctp": case(
        V4 / SCTP(sport=5000, dport=6000) / SCTPChunkInit(), (5000, 6000, 132), PacketKind.SCTP, 40, payload_bytes=20
    ),
    "dccp": case(
        IP(src=A4, dst=B4, proto=DCCP) / struct.pack("!HHBx", 5000, 6000, 1), (5000, 6000, DCCP), PacketKind.FLOW, 24, 2
    ),
    "pptp": case(
        IP(src=A4, dst=B4, proto=GRE) / struct.pack("!HHHHI", 0x2081, 0x880B, 1, 7, 0),
        (0, 7, GRE),
        PacketKind.FLOW,
        28,
        payload_bytes=12,
    ),
    "gre": case(IP(src=A4, dst=B4, proto=GRE) / b"hello", (0, 0, GRE), PacketKind.FLOW, 25),
    "echo": case(V4 / ICMP(id=7) / b"hello", (7, 8 << 8, 1), PacketKind.ICMP_QUERY, 26),
    "error": case(V4 / ICMP(type=11) / QUOTE4, (0, 0, 1), PacketKind.ICMP_ERROR, 28 + 24, payload_bytes=28),
    "tcp over ipv6": case(
        V6 / TCP(sport=40000, dport=80, options=TIMESTAMP) / b"hello", (40000, 80, 6), PacketKind.TCP, 40 + 20
    ),
    "udp behind extensions": case(
        V6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / UDP(sport=1000, dport=53) / b"hello",
        (1000, 53, 17),
        PacketKind.FLOW,
        40 + 16 + 8,
    ),
    "echo over ipv6": case(V6 / ICMPv6EchoRequest(id=7, data=b"hello"), (7, 128 << 8, 58), PacketKind.ICMP_QUERY, 46),
    "error over ipv6": case(
        V6 / ICMPv6TimeExceeded() / QUOTE6, (0, 0, 58), PacketKind.ICMP_ERROR, 48 + 44, payload_bytes=60
    ),
}


def layered(header):
    """Return a function: case -> what scapy puts before it."""

    def before(case_):
        inner = (IP if case_.packet[0] >> 4 == 4 else IPv6)(case_.packet)
        return bytes(header(case_) / inner)[: -len(case_.packet)]

    return before


def ethertype(case_):
    return 0x0800 if case_.packet[0] >> 4 == 4 else 0x86DD


def ppp_protocol(case_):
    return 0x0021 if case_.packet[0] >> 4 == 4 else 0x0057


LINKS = {
    "ethernet": (Link.ETHERNET, layered(lambda c: ETHER)),
    "qinq": (Link.ETHERNET, layered(lambda c: ETHER / Dot1AD(vlan=5) / Dot1Q(vlan=6))),
    "mpls": (Link.ETHERNET, layered(lambda c: ETHER / MPLS(label=16, s=0) / MPLS(label=17, s=1))),
    "pppoe": (Link.ETHERNET, layered(lambda c: ETHER / PPPoE() / PPP(proto=ppp_protocol(c)))),
    "snap": (Link.ETHERNET, layered(lambda c: DOT3 / LLC() / SNAP(code=ethertype(c)))),
    "raw": (Link.RAW_IP, lambda c: b""),
    "cooked": (Link.COOKED, layered(lambda c: CookedLinux(proto=ethertype(c)))),
    "cooked 2": (Link.COOKED2, layered(lambda c: CookedLinuxV2(proto=ethertype(c)))),
    "null": (Link.NULL, lambda c: struct.pack("=I", 2 if c.packet[0] >> 4 == 4 else 10)),
    "ppp": (Link.PPP, layered(lambda c: HDLC() / PPP(proto=ppp_protocol(c)))),
    "cisco hdlc": (Link.CISCO_HDLC, lambda c: struct.pack("!HH", 0x0F00, ethertype(c))),
    "nflog": (Link.NFLOG, lambda c: b"\x02\0\0\x01" + struct.pack("=HH", 4 + len(c.packet), 9)),
}
EVERYWHERE = pytest.mark.parametrize(
    ("link", "before", "case_"),
    [
        pytest.param(link, before, case_, id=f"{case_name} in {link_name}")
        for link_name, (link, before) in LINKS.items()
        for case_name, case_ in CASES.items()
    ],
)


@EVERYWHERE
def test_every_packet_in_every_link(link, before, case_):
    skipped = len(before(case_))
    found = parse(before(case_) + case_.packet, link=link, zone=4096)
    assert_tuple(found, case_.tuple_, zone=4096)
    assert found.kind == case_.kind
    assert found.ip_bytes == len(case_.packet)
    assert found.l4 + found.l4_bytes == skipped + len(case_.packet)
    assert found.payload_bytes == case_.payload_bytes


def swapped(packet):
    """Return the packet as its receiver would send it: addresses and ports exchanged; sums stay right."""
    data = bytearray(packet)
    if data[0] >> 4 == 4:
        data[12:20] = data[16:20] + data[12:16]
        l4 = 4 * (data[0] & 15)
    else:
        data[8:40] = data[24:40] + data[8:24]
        l4 = 40
    data[l4 : l4 + 4] = data[l4 + 2 : l4 + 4] + data[l4 : l4 + 2]
    return bytes(data)


@pytest.mark.parametrize("name", ["tcp", "tcp with options", "udp", "udp-lite", "sctp", "dccp", "tcp over ipv6"])
def test_both_directions_have_one_key(name):
    case_, raw = CASES[name], {"link": Link.RAW_IP, "verify": name != "sctp"}  # a CRC minds the order
    there, back = parse(case_.packet, **raw), parse(swapped(case_.packet), **raw)
    assert_tuple(there, case_.tuple_)
    assert_tuple(back, case_.tuple_.reversed())
    assert there.key == back.key
    assert there.high_is_source != back.high_is_source
    assert there.can_reply == back.can_reply == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_packet_between_equal_endpoints_has_no_reply(address):
    ip = IP(src=address, dst=address) if "." in address else IPv6(src=address, dst=address)
    same = parse(bytes(ip / UDP(sport=5, dport=5)), link=Link.RAW_IP)
    assert (same.reason, same.can_reply, same.high_is_source) == (Reason.NONE, 0, 0)
    for ports in ((5, 6), (6, 5)):
        other = parse(bytes(ip / UDP(sport=ports[0], dport=ports[1])), link=Link.RAW_IP)
        assert_tuple(other, Tuple(address, ports[0], address, ports[1], 17))
        assert other.can_reply == 1


def test_zones_do_not_share_keys():
    keys = {parse(CASES["tcp"].packet, link=Link.RAW_IP, zone=zone).key for zone in (0, 1, 256, 65535)}
    assert len(keys) == 4


def test_a_trunk_of_padding():
    frame = bytes(12) + b"\x08\0" + CASES["tcp"].packet + b"\xff" * 400
    found = parse(frame)
    assert_tuple(found, CASES["tcp"].tuple_)
    assert (found.l4_bytes, found.payload_bytes) == (25, 5)


# ---------------------------------------------------------------------------------------------------- cut anywhere
SHORT = {
    Reason.TRUNCATED, Reason.NOIP, Reason.L3_HEADER, Reason.EXTENSION_HEADERS, Reason.L4_HEADER, Reason.ICMP_INNER
}  # fmt: skip
LINKS_CUT = LINKS if JIT else {"ethernet": LINKS["ethernet"]}


def test_frames_cut_anywhere_have_a_reason_and_are_not_read_beyond_the_cut():
    guard = Guard()

    def cuts(child):
        seen = 0
        for link, before in LINKS_CUT.values():
            for case_ in CASES.values():
                frame = before(case_) + case_.packet
                for cut in range(len(frame) + 1):
                    address = guard.place(frame[:cut])
                    found = parse_at(address, cut, link=link)  # the frame was that short
                    assert found.reason in SHORT if cut < len(frame) else found.reason == Reason.NONE
                    found = parse_at(address, cut, wire=len(frame), link=link)  # it was snapped
                    if cut < len(frame) - len(case_.packet) + case_.needed:
                        assert found.reason in (Reason.TRUNCATED, Reason.ICMP_INNER)
                    else:
                        assert_tuple(found, case_.tuple_)
                    seen += 1
        child.say(seen)

    parse(b"")  # compiled before the fork
    with Child(cuts) as child:
        seen = child.hear()
        assert child.wait() == 0
    assert seen > 90 * len(LINKS_CUT)


def test_damaged_frames_are_not_read_beyond_their_end():
    guard = Guard()
    random = np.random.default_rng(20261130)
    rounds = 40 if JIT else 2

    def damages(child):
        for link, before in LINKS.values():
            for case_ in CASES.values():
                frame = np.frombuffer(before(case_) + case_.packet, np.uint8)
                for _ in range(rounds):
                    damaged = frame.copy()
                    hits = random.integers(0, len(damaged), random.integers(1, 4))
                    damaged[hits] = random.integers(0, 256, len(hits))
                    cut = int(random.integers(len(damaged) // 2, len(damaged) + 1))
                    wire = int(random.choice([cut, len(damaged), 70000]))
                    address = guard.place(damaged[:cut].tobytes())
                    for verify in (True, False):
                        for ovs in (True, False):
                            found = parse_at(address, cut, wire=wire, link=link, verify=verify, ovs=ovs)
                            assert_sound(found, cut, wire)

    parse(b"")
    assert Child(damages).wait() == 0


REFUSED = (Reason.ICMP_TYPE, Reason.ICMP_INNER, Reason.SCTP_CHUNK, Reason.PORT_ZERO)


def assert_sound(found, captured, wire):
    """Fail if what was found contradicts the frame's length or itself."""
    assert Reason.NONE <= found.reason <= Reason.NOT_TRACKED or found.reason in REFUSED
    if found.reason != Reason.NONE:
        assert found.key == found.inner_key == (0, 0, 0, 0, 0)
        return
    assert found.kind != PacketKind.UNTRACKED
    assert found.family in (4, 6) and found.key[4] & 0xFF == found.family
    assert found.key[4] >> 8 & 0xFF == found.protocol
    assert found.ip_bytes <= max(captured, wire)
    assert found.payload_bytes <= found.l4_bytes <= found.ip_bytes - (20 if found.family == 4 else 40)
    assert found.l4 <= max(captured, wire)
    assert found.key[:2] <= found.key[2:4]
    if found.kind == PacketKind.TCP:
        assert found.l4 + 20 + found.options_bytes <= captured
        options = found.l4_bytes - 20 - found.payload_bytes
        assert found.options_bytes in (options, min(options, captured - found.l4 - 20))
    assert any(found.inner_key) == (found.kind == PacketKind.ICMP_ERROR)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(Link), st.binary(max_size=200), st.integers(0, 100_000), st.booleans(), st.booleans())
def test_noise(link, data, wire, verify, ovs):
    assert_sound(parse(data, link=link, wire=wire, verify=verify, ovs=ovs), len(data), wire)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 255), st.binary(max_size=120), st.booleans(), st.booleans())
def test_noise_behind_an_ip_header(protocol, data, six, ovs):
    ip = bytes(IPv6(src=A6, dst=B6, nh=protocol) / data) if six else bytes(IP(src=A4, dst=B4, proto=protocol) / data)
    found = parse(ip, link=Link.RAW_IP, verify=False, ovs=ovs)
    assert_sound(found, len(ip), len(ip))
    assert found.ip_bytes == len(ip)


# ---------------------------------------------------------------------------------------------------- what stays behind
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", [{}, {"wire": 9999, "verify": False}])
def test_nothing_of_the_packet_before_stays_behind(name, how):
    for data in (CASES[name].packet, CASES[name].packet[:30]):
        assert parse(data, link=Link.RAW_IP, poison=0x00, **how) == parse(data, link=Link.RAW_IP, poison=0xFF, **how)


def test_the_key_of_a_refused_frame_is_nothing():
    found = parse(bytes(12) + b"\x08\x06" + bytes(28))
    assert (found.reason, found.family, found.key) == (Reason.NOIP, 0, (0, 0, 0, 0, 0))


def test_inner_and_outer_key_of_an_error():
    found = parse(CASES["error"].packet, link=Link.RAW_IP, zone=5)
    inner = Tuple(B4, 53, "203.0.113.5", 1000, 17)
    assert (found.inner_key, found.inner_high_is_source) == key_of(inner, zone=5)
