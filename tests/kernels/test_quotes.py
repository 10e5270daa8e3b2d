"""An ICMP error names the connection of the packet it quotes, however little of it there is."""

import pytest
from parsing import NOTHING, Tuple, key_of, parse
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6NIQueryNOOP,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.sctp import SCTP, SCTPChunkInit
from zonetrack.shm.layout import Link, PacketKind
from zonetrack.shm.reasons import Reason

CLIENT, SERVER, ROUTER = (
    {4: "192.0.2.1", 6: "2001:db8::1"},
    {4: "198.51.100.1", 6: "2001:db8::2"},
    {4: "203.0.113.1", 6: "2001:db8::9"},
)
FAMILIES = pytest.mark.parametrize("family", [4, 6])
ERRORS = {
    4: [ICMP(type=3, code=1), ICMP(type=4), ICMP(type=5), ICMP(type=11), ICMP(type=12)],
    6: [ICMPv6DestUnreach(), ICMPv6PacketTooBig(), ICMPv6TimeExceeded(), ICMPv6ParamProblem()],
}


def read(data, **how):
    return parse(data, link=Link.RAW_IP, **how)


def ip(family, src, dst, **fields):
    return (IP if family == 4 else IPv6)(src=src[family], dst=dst[family], **fields)


def error(family, quote, message=None, src=ROUTER, dst=CLIENT):
    """Return an error about the first bytes of a packet, as raw as they are given."""
    message = (message or ERRORS[family][0]).copy()
    return bytes(ip(family, src, dst, **({"proto": 1} if family == 4 else {"nh": 58})) / message / bytes(quote))


QUOTED = {
    "tcp": (lambda f: ip(f, CLIENT, SERVER) / TCP(sport=40000, dport=80), (40000, 80, 6), 4),
    "udp": (lambda f: ip(f, CLIENT, SERVER) / UDP(sport=1000, dport=53) / b"hello", (1000, 53, 17), 4),
    "sctp": (lambda f: ip(f, CLIENT, SERVER) / SCTP(sport=5000, dport=6000) / SCTPChunkInit(), (5000, 6000, 132), 4),
    "pptp": (
        lambda f: ip(f, CLIENT, SERVER, **{"proto" if f == 4 else "nh": 47}) / b"\x30\x81\x88\x0b\0\1\0\7payload",
        (0, 7, 47),
        8,
    ),
    "gre": (lambda f: ip(f, CLIENT, SERVER, **{"proto" if f == 4 else "nh": 47}) / bytes(20), (0, 0, 47), 0),
    "echo request": (
        lambda f: ip(f, CLIENT, SERVER) / (ICMP(type=8, id=7) if f == 4 else ICMPv6EchoRequest(id=7)) / b"hello",
        None,
        8,
    ),
    "echo reply": (
        lambda f: ip(f, CLIENT, SERVER) / (ICMP(type=0, id=7) if f == 4 else ICMPv6EchoReply(id=7)) / b"hello",
        None,
        8,
    ),
}


@FAMILIES
@pytest.mark.parametrize(("make", "ports", "least"), QUOTED.values(), ids=QUOTED)
def test_the_key_is_that_of_the_quoted_packet(family, make, ports, least):
    packet = bytes(make(family))
    direct = read(packet, zone=9)
    assert direct.reason == Reason.NONE
    header = 20 if family == 4 else 40
    for size in range(len(packet) + 1):
        found = read(error(family, packet[:size]), zone=9)
        assert found.kind == PacketKind.ICMP_ERROR
        if found.reason == Reason.NONE and size < header + least and found.inner_key[4] >> 8 & 0xFF == 47:
            continue  # without its call it is GRE without any
        if size < header + least:
            assert (found.reason, found.inner_key) == (Reason.ICMP_INNER, NOTHING)
            continue
        assert found.reason == Reason.NONE
        assert (found.inner_key, found.inner_high_is_source) == (direct.key, direct.high_is_source)
        if ports:
            tuple_ = Tuple(CLIENT[family], ports[0], SERVER[family], ports[1], ports[2])
            assert (found.inner_key, found.inner_high_is_source) == key_of(tuple_, 9)


@FAMILIES
def test_the_error_itself(family):
    message = bytes(error(family, bytes(ip(family, CLIENT, SERVER) / TCP())))
    found = read(message, zone=3)
    protocol, number = (1, 3) if family == 4 else (58, 1)
    assert (found.key, found.high_is_source) == key_of(Tuple(ROUTER[family], 0, CLIENT[family], 0, protocol), 3)
    assert found.icmp_word >> 24 == number
    assert found.payload_bytes == found.l4_bytes - 8


@pytest.mark.parametrize(("family", "message"), [(f, m) for f, messages in ERRORS.items() for m in messages])
def test_every_kind_of_error(family, message):
    packet = bytes(ip(family, CLIENT, SERVER) / TCP(sport=1, dport=2))
    found = read(error(family, packet, message))
    assert (found.reason, found.kind) == (Reason.NONE, PacketKind.ICMP_ERROR)
    assert found.inner_key == read(packet).key


@FAMILIES
def test_the_error_must_go_to_who_sent_the_packet(family):
    packet = bytes(ip(family, CLIENT, SERVER) / TCP())
    for dst in (SERVER, ROUTER):
        assert read(error(family, packet, dst=dst)).reason == Reason.ICMP_INNER
    assert read(error(family, packet, src=SERVER)).reason == Reason.NONE  # hosts send errors, too


@FAMILIES
def test_a_quote_with_a_wrong_checksum_or_length_is_read(family):
    packet = bytearray(bytes(ip(family, CLIENT, SERVER) / UDP(sport=1000, dport=53) / b"hello"))
    direct = read(bytes(packet))
    packet[2 if family == 4 else 4] ^= 0x10
    packet[-6] ^= 1
    assert read(error(family, packet)).inner_key == direct.key


@FAMILIES
def test_an_error_about_an_error_is_unreadable(family):
    packet = error(family, bytes(ip(family, SERVER, CLIENT) / TCP()), src=CLIENT, dst=SERVER)
    assert read(error(family, packet)).reason == Reason.ICMP_INNER


@FAMILIES
def test_a_quote_of_the_other_family_is_unreadable(family):
    other = 10 - family
    assert read(error(family, bytes(ip(other, CLIENT, SERVER) / TCP()) + bytes(40))).reason == Reason.ICMP_INNER
    icmp = {"proto": 58} if family == 4 else {"nh": 1}
    assert (
        read(error(family, bytes(ip(family, CLIENT, SERVER, **icmp)) + b"\x08" + bytes(7))).reason == Reason.ICMP_INNER
    )


def test_ipv4_options_in_a_quote():
    packet = bytes(IP(src=CLIENT[4], dst=SERVER[4], options=[b"\x01"] * 8) / TCP(sport=1, dport=2))
    assert read(error(4, packet)).inner_key == read(packet).key
    for length in (0, 4, 15):
        broken = bytes([0x40 | length]) + packet[1:]
        assert read(error(4, broken[:48])).reason == Reason.ICMP_INNER


@pytest.mark.parametrize(("fields", "reason"), [({"flags": "MF"}, Reason.NONE), ({"frag": 5}, Reason.ICMP_INNER)])
def test_only_a_first_ipv4_fragment_names_ports(fields, reason):
    packet = IP(src=CLIENT[4], dst=SERVER[4], proto=17, **fields) / bytes(UDP(sport=1000, dport=53)) / b"hello"
    assert read(error(4, packet)).reason == reason


@pytest.mark.parametrize(
    ("extensions", "reason"),
    [
        (IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt(), Reason.NONE),
        (IPv6ExtHdrFragment(m=1), Reason.NONE),
        (IPv6ExtHdrFragment(offset=4), Reason.ICMP_INNER),
    ],
)
def test_ipv6_extensions_in_a_quote(extensions, reason):
    packet = bytes(ip(6, CLIENT, SERVER) / extensions / UDP(sport=1000, dport=53) / b"hello")
    found = read(error(6, packet))
    assert found.reason == reason
    if reason == Reason.NONE:
        assert (found.inner_key, found.inner_high_is_source) == key_of(Tuple(CLIENT[6], 1000, SERVER[6], 53, 17))
    for size in range(40, len(packet) - 9):
        assert read(error(6, packet[:size])).reason == Reason.ICMP_INNER


@FAMILIES
def test_padding_is_no_part_of_a_quote(family):
    packet = bytes(ip(family, CLIENT, SERVER) / UDP(sport=1000, dport=53))
    data = error(family, packet[:-6])
    assert read(data + packet[-6:]).reason == Reason.ICMP_INNER


@FAMILIES
def test_a_snapped_error(family):
    packet = bytes(ip(family, CLIENT, SERVER) / TCP(sport=1, dport=2) / bytes(500))
    data = error(family, packet)
    header = 20 if family == 4 else 40
    found = read(data[: 2 * header + 8 + 4], wire=len(data))
    assert (found.reason, found.inner_key) == (Reason.NONE, read(packet).key)
    assert read(data[: 2 * header + 8 + 3], wire=len(data)).reason == Reason.ICMP_INNER


# ---------------------------------------------------------------------------------------------------- ovs
OVS_LEAST = {
    # bytes of its transport header that a quote must have, in IPv4 and IPv6
    "tcp": (8, 20),
    "udp": (8, 8),
    "sctp": (8, 12),
    "echo request": (8, 8),
    "echo reply": (8, 8),
}


@FAMILIES
@pytest.mark.parametrize("name", OVS_LEAST)
def test_what_open_vswitch_wants_of_a_quote(family, name):
    packet = bytes(QUOTED[name][0](family))
    direct = read(packet, ovs=True)
    least = (20 if family == 4 else 40) + OVS_LEAST[name][family == 6]
    for size in range(len(packet) + 1):
        found = read(error(family, packet[:size]), ovs=True)
        assert found.reason == (Reason.ICMP_INNER if size < least else Reason.NONE)
        if size >= least:
            assert (found.inner_key, found.inner_high_is_source) == (direct.key, direct.high_is_source)


@FAMILIES
def test_quotes_that_open_vswitch_does_not_take(family):
    def reason(packet):
        return read(error(family, bytes(packet)), ovs=True).reason

    echo = ICMP(type=8, code=1, id=7) if family == 4 else ICMPv6EchoRequest(code=1, id=7)
    refused = [
        ip(family, CLIENT, SERVER) / UDP(sport=0, dport=53),
        ip(family, CLIENT, SERVER) / TCP(sport=1, dport=0),
        ip(family, CLIENT, SERVER) / echo,
        ip(family, CLIENT, SERVER) / (ICMP(type=17) if family == 4 else ICMPv6NIQueryNOOP()),
        ip(family, CLIENT, SERVER, flags="MF") / UDP(sport=1, dport=53)
        if family == 4
        else ip(family, CLIENT, SERVER) / IPv6ExtHdrFragment(m=1) / UDP(sport=1, dport=53),
    ]
    for packet in refused:
        assert reason(packet) == Reason.ICMP_INNER
        assert read(error(family, bytes(packet))).reason == Reason.NONE
    atomic = IPv6(src=CLIENT[6], dst=SERVER[6]) / IPv6ExtHdrFragment() / UDP(sport=1, dport=53)
    assert family == 4 or reason(atomic) == Reason.NONE


@FAMILIES
def test_a_quote_of_a_protocol_without_ports_in_ovs(family):
    for protocol in (33, 47, 136, 253):
        packet = ip(family, CLIENT, SERVER, **{"proto" if family == 4 else "nh": protocol})
        found = read(error(family, bytes(packet)), ovs=True)
        assert (found.inner_key, found.inner_high_is_source) == key_of(
            Tuple(CLIENT[family], 0, SERVER[family], 0, protocol)
        )
