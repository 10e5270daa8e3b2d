"""Transport headers: ports, lengths and checksums of each protocol, right and wrong."""

import struct

import pytest
from naive_checksum import checksum, pseudo_header
from parsing import NOTHING, Tuple, assert_tuple, parse
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6MLReport2,
    ICMPv6ND_NS,
    ICMPv6ND_Redirect,
    ICMPv6NIQueryNOOP,
    ICMPv6NIReplyNOOP,
    IPv6,
)
from scapy.layers.sctp import SCTP, SCTPChunkInit
from zonetrack.kernels.icmp_types import MESSAGES, Known, Role
from zonetrack.kernels.sctp_states import Chunk
from zonetrack.shm.layout import Link, PacketKind
from zonetrack.shm.reasons import Reason

ADDRESSES = {4: ("192.0.2.1", "198.51.100.1"), 6: ("2001:db8::1", "2001:db8::2")}
FAMILIES = pytest.mark.parametrize("family", [4, 6])
UDP_LITE, DCCP, GRE, ESP, ICMPV4, ICMPV6 = 136, 33, 47, 50, 1, 58


def read(data, **how):
    return parse(data, link=Link.RAW_IP, **how)


def ip(family, protocol=None):
    src, dst = ADDRESSES[family]
    if family == 4:
        return IP(src=src, dst=dst, **({} if protocol is None else {"proto": protocol}))
    return IPv6(src=src, dst=dst, **({} if protocol is None else {"nh": protocol}))


def tuple_of(family, protocol, src_port=0, dst_port=0):
    src, dst = ADDRESSES[family]
    return Tuple(src, src_port, dst, dst_port, protocol)


def packed(family):
    data = bytes(ip(family))
    return (data[12:16], data[16:20]) if family == 4 else (data[8:24], data[24:40])


def summed(family, protocol, segment, offset, covered=None):
    """Return a segment with its checksum at ``offset``, over the pseudo header and the first ``covered`` bytes."""
    segment = segment[:offset] + b"\0\0" + segment[offset + 2 :]
    total = checksum(pseudo_header(*packed(family), protocol, len(segment)) + segment[:covered])
    return segment[:offset] + total.to_bytes(2, "big") + segment[offset + 2 :]


def carried(family, protocol, segment):
    return bytes(ip(family, protocol) / segment)


def header_bytes(family):
    return 20 if family == 4 else 40


# ---------------------------------------------------------------------------------------------------- TCP
@FAMILIES
def test_tcp(family):
    options = [("MSS", 1460), ("SAckOK", b""), ("Timestamp", (1, 0)), ("NOP", None), ("WScale", 7)]
    tcp = TCP(sport=40000, dport=443, seq=0xFEDCBA98, ack=0x01234567, window=0xABCD, flags="SAPUEC", options=options)
    found = read(bytes(ip(family) / tcp / b"hello"))
    assert_tuple(found, tuple_of(family, 6, 40000, 443))
    assert found.kind == PacketKind.TCP
    assert (found.seq, found.ack, found.win, found.tcp_flags) == (0xFEDCBA98, 0x01234567, 0xABCD, 0xFA)
    assert (found.options_bytes, found.payload_bytes, found.l4_bytes) == (20, 5, 45)
    assert (found.l4, found.ip_bytes) == (header_bytes(family), header_bytes(family) + 45)
    assert (found.inner_key, found.icmp_word) == (NOTHING, 0)


@FAMILIES
@pytest.mark.parametrize("words", range(16))
def test_tcp_data_offset(family, words):
    segment = bytes(TCP(sport=1, dport=2))[:12] + bytes([words << 4]) + bytes(7) + bytes(24)  # 44 bytes
    found = read(carried(family, 6, summed(family, 6, segment, 16)))
    assert found.reason == (Reason.NONE if 5 <= words <= 11 else Reason.L4_HEADER)
    if found.reason == Reason.NONE:
        assert (found.options_bytes, found.payload_bytes) == (4 * words - 20, 44 - 4 * words)


@FAMILIES
@pytest.mark.parametrize("size", range(20))
def test_tcp_without_room_for_its_header(family, size):
    found = read(carried(family, 6, bytes(size)))
    assert (found.reason, found.kind, found.protocol) == (Reason.L4_HEADER, PacketKind.TCP, 6)


@FAMILIES
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 63, 64, 65, 1460])
def test_a_wrong_bit_anywhere_in_a_segment_is_seen(family, size):
    data = bytes(ip(family) / TCP(sport=1, dport=2) / bytes(range(256))[:size].ljust(size, b"x"))
    assert read(data).reason == Reason.NONE
    for at in {0, 3, 4, 11, 14, 17, 19, 19 + size, 19 + size // 2}:
        wrong = bytearray(data)
        wrong[header_bytes(family) + at] ^= 1
        assert read(bytes(wrong)).reason == Reason.L4CSUM_ERR
        assert read(bytes(wrong), verify=False).reason == Reason.NONE
        assert read(bytes(wrong), trusted=True).reason == Reason.NONE


@FAMILIES
def test_padding_is_no_part_of_a_segment(family):
    data = bytes(ip(family) / TCP(sport=1, dport=2) / b"hello")
    assert read(data + b"padding").reason == Reason.NONE
    assert read(data[:-1] + b"x" + b"padding").reason == Reason.L4CSUM_ERR
    for protocol, size in ((6, 19), (17, 7), (132, 11), (DCCP, 3), (UDP_LITE, 7)):
        assert read(carried(family, protocol, bytes(size)) + b"x" * 40).reason == Reason.L4_HEADER


@FAMILIES
def test_a_snapped_segment(family):
    data = bytes(ip(family) / TCP(sport=1, dport=2, options=[("NOP", None)] * 12) / bytes(1000))
    whole = read(data)
    fixed = header_bytes(family) + 20
    for cut in (*range(header_bytes(family), fixed + 52), len(data) - 1):
        wrong = data[: cut - 1] + bytes([data[cut - 1] ^ (cut > fixed + 12)])  # its checksum cannot be known
        found = read(wrong, wire=len(data))
        if cut < fixed:
            assert found.reason == Reason.TRUNCATED
        else:
            assert found == whole._replace(options_bytes=min(cut - fixed, 12))


@FAMILIES
@pytest.mark.parametrize(("src_port", "dst_port"), [(0, 80), (80, 0), (0, 0), (80, 256), (256, 80)])
def test_port_0_is_refused_in_ovs(family, src_port, dst_port):
    reason = Reason.NONE if src_port and dst_port else Reason.PORT_ZERO
    for protocol, l4 in (
        (6, TCP(sport=src_port, dport=dst_port)),
        (17, UDP(sport=src_port, dport=dst_port)),
        (132, SCTP(sport=src_port, dport=dst_port) / SCTPChunkInit()),
    ):
        data = bytes(ip(family) / l4)
        assert_tuple(read(data), tuple_of(family, protocol, src_port, dst_port))
        assert read(data, ovs=True).reason == reason


# ---------------------------------------------------------------------------------------------------- UDP
@FAMILIES
def test_udp(family):
    found = read(bytes(ip(family) / UDP(sport=1000, dport=53) / b"hello"))
    assert_tuple(found, tuple_of(family, 17, 1000, 53))
    assert (found.kind, found.l4_bytes, found.payload_bytes) == (PacketKind.FLOW, 13, 5)
    assert (found.seq, found.ack, found.win, found.tcp_flags, found.options_bytes) == NOTHING


@FAMILIES
@pytest.mark.parametrize("length", [0, 1, 7, 8, 12, 13, 14, 65535])
def test_udp_length(family, length):
    segment = struct.pack("!HHHH", 1000, 53, length, 0) + b"hello"
    found = read(carried(family, 17, segment), verify=False)
    assert found.reason == (Reason.NONE if 8 <= length <= 13 else Reason.L4_HEADER)
    if found.reason == Reason.NONE:
        assert (found.payload_bytes, found.l4_bytes) == (length - 8, 13)


@FAMILIES
def test_udp_checksum_covers_the_udp_length(family):
    inner = summed(family, 17, struct.pack("!HHHH", 1000, 53, 13, 0) + b"hello", 6)
    assert read(carried(family, 17, inner + b"more")).reason == Reason.NONE
    wrong = inner[:-1] + b"x"
    assert read(carried(family, 17, wrong + b"more")).reason == Reason.L4CSUM_ERR
    for segment, reason in ((inner, Reason.NONE), (wrong, Reason.L4CSUM_ERR)):
        snapped = carried(family, 17, segment + b"more")[:-3]  # what the checksum covers was captured
        assert read(snapped, wire=len(snapped) + 3).reason == reason
    assert read(carried(family, 17, wrong)[:-1], wire=1000).reason == Reason.NONE


@FAMILIES
def test_udp_checksum_covers_the_whole_packet_in_the_ovs_profile(family):
    whole = summed(family, 17, struct.pack("!HHHH", 1000, 53, 13, 0) + b"hellomore", 6)
    for ovs, reason in ((True, Reason.NONE), (False, Reason.L4CSUM_ERR)):
        found = read(carried(family, 17, whole), ovs=ovs)
        assert found.reason == reason
    assert read(carried(family, 17, whole[:-1] + b"x"), ovs=True).reason == Reason.L4CSUM_ERR


def test_udp_without_a_checksum():
    segment = struct.pack("!HHHH", 1000, 53, 13, 0) + b"hello"
    assert read(carried(4, 17, segment)).reason == Reason.NONE
    assert read(carried(6, 17, segment)).reason == Reason.L4CSUM_ERR
    assert read(carried(6, 17, segment), verify=False).reason == Reason.NONE


@pytest.mark.parametrize("size", range(8))
def test_udp_without_room_for_its_header(size):
    assert read(carried(4, 17, bytes(size))).reason == Reason.L4_HEADER
    assert read(carried(4, 17, bytes(8))[: 20 + size], wire=28).reason == Reason.TRUNCATED


# ---------------------------------------------------------------------------------------------------- UDP-Lite
@FAMILIES
@pytest.mark.parametrize("coverage", [0, 1, 7, 8, 12, 13, 14, 65535])
def test_udp_lite_coverage(family, coverage):
    segment = struct.pack("!HHHH", 1000, 53, coverage, 0) + b"hello"
    segment = summed(family, UDP_LITE, segment, 6, coverage or None)
    found = read(carried(family, UDP_LITE, segment))
    if coverage and not 8 <= coverage <= 13:
        assert found.reason == Reason.L4_HEADER
        return
    assert_tuple(found, tuple_of(family, UDP_LITE, 1000, 53))
    assert found.payload_bytes == 5
    reach = coverage or 13
    for at in range(8, 13):
        wrong = segment[:at] + b"\xee" + segment[at + 1 :]
        reason = Reason.L4CSUM_ERR if at < reach else Reason.NONE
        assert read(carried(family, UDP_LITE, wrong)).reason == reason
        snapped = carried(family, UDP_LITE, wrong)[:-1]
        assert read(snapped, wire=1000).reason == (reason if reach < 13 else Reason.NONE)


@FAMILIES
def test_udp_lite_must_have_a_checksum(family):
    segment = struct.pack("!HHHH", 1000, 53, 0, 0) + b"hello"
    assert read(carried(family, UDP_LITE, segment), verify=False).reason == Reason.L4CSUM_ERR
    assert read(carried(family, UDP_LITE, bytes(8))).reason == Reason.L4CSUM_ERR
    assert read(carried(family, UDP_LITE, bytes(7))).reason == Reason.L4_HEADER


# ---------------------------------------------------------------------------------------------------- SCTP, DCCP, others
@FAMILIES
def test_sctp(family):
    found = read(bytes(ip(family) / SCTP(sport=5000, dport=6000, tag=7) / SCTPChunkInit(init_tag=9)))
    assert_tuple(found, tuple_of(family, 132, 5000, 6000))
    assert (found.kind, found.seq, found.ack) == (PacketKind.SCTP, 7, 9)
    assert found.payload_bytes == found.options_bytes == found.l4_bytes - 12 == 20
    assert found.tcp_flags == 1 << Chunk.INIT
    for size in range(12):
        assert read(carried(family, 132, bytes(size))).reason == Reason.L4_HEADER


@FAMILIES
def test_sctp_checksum(family):
    data = bytes(ip(family) / SCTP(sport=5000, dport=6000, tag=7) / SCTPChunkInit(init_tag=9))
    header = header_bytes(family)
    for at in (0, 5, 8, 11, 25, 31):
        wrong = bytearray(data)
        wrong[header + at] ^= 4
        for ovs in (False, True):
            assert read(bytes(wrong), ovs=ovs).reason == Reason.L4CSUM_ERR
            assert read(bytes(wrong), ovs=ovs, verify=False).reason == Reason.NONE
            assert read(bytes(wrong), ovs=ovs, trusted=True).reason == Reason.NONE
        assert read(bytes(wrong[:-1]), wire=len(data)).reason == Reason.NONE  # it cannot be known


@FAMILIES
def test_a_snapped_sctp_packet(family):
    data = bytes(ip(family) / SCTP(sport=5000, dport=6000, tag=7) / SCTPChunkInit(init_tag=9))
    whole, header = read(data), header_bytes(family)
    for size in range(32):
        found = read(data[: header + size], wire=len(data))
        if size < 20:
            assert found.reason == Reason.TRUNCATED
        else:
            assert found == whole._replace(options_bytes=size - 12)


# ---------------------------------------------------------------------------------------------------- GRE
@FAMILIES
@pytest.mark.parametrize("ovs", [False, True])
def test_a_call_of_pptp_stands_for_the_destination_port(family, ovs):
    found = read(carried(family, GRE, struct.pack("!HHHH", 0x3081, 0x880B, 4, 0x1234) + bytes(12)), ovs=ovs)
    assert_tuple(found, tuple_of(family, GRE, 0, 0 if ovs else 0x1234))


@FAMILIES
def test_pptp_carries_nothing_but_ppp(family):
    data = carried(family, GRE, struct.pack("!HHHH", 0x3081, 0x0800, 4, 0x1234))
    assert read(data).reason == Reason.L4_HEADER
    assert_tuple(read(data, ovs=True), tuple_of(family, GRE))


@FAMILIES
def test_gre_of_another_version_has_no_call(family):
    for version in (0, 2, 7):
        found = read(carried(family, GRE, struct.pack("!HHHH", 0x2000 | version, 0x0800, 4, 0x1234)))
        assert_tuple(found, tuple_of(family, GRE))


@FAMILIES
def test_gre_that_ends_before_its_call(family):
    data = carried(family, GRE, struct.pack("!HHHH", 0x3001, 0x880B, 4, 0x1234))
    for size in range(8):
        assert_tuple(read(carried(family, GRE, data[-8:][:size])), tuple_of(family, GRE))
        assert read(data[: header_bytes(family) + size], wire=len(data)).reason == Reason.TRUNCATED


# ---------------------------------------------------------------------------------------------------- DCCP, others
@FAMILIES
def test_dccp(family):
    found = read(carried(family, DCCP, struct.pack("!HHII", 5000, 6000, 0, 0)))
    assert_tuple(found, tuple_of(family, DCCP, 5000, 6000))
    for size in range(4):
        assert read(carried(family, DCCP, bytes(size))).reason == Reason.L4_HEADER


@FAMILIES
@pytest.mark.parametrize("protocol", [2, GRE, ESP, 89, 103, 112, 253, 255])
@pytest.mark.parametrize("size", [0, 1, 20])
def test_what_has_no_ports_is_known_by_its_addresses(family, protocol, size):
    found = read(carried(family, protocol, b"\xff" * size))
    assert_tuple(found, tuple_of(family, protocol))
    assert (found.kind, found.l4_bytes, found.payload_bytes) == (PacketKind.FLOW, size, size)


@pytest.mark.parametrize("protocol", [p for p in range(256) if p not in (1, 6, 17, 33, 58, 132, 136)])
def test_every_other_protocol_number_in_ipv4(protocol):
    assert_tuple(read(carried(4, protocol, b"\xff" * 8)), tuple_of(4, protocol))


@FAMILIES
@pytest.mark.parametrize("protocol", [GRE, DCCP, UDP_LITE, ESP])
@pytest.mark.parametrize("size", [0, 3, 20])
def test_what_open_vswitch_does_not_read(family, protocol, size):
    assert_tuple(read(carried(family, protocol, b"\0\1" * size), ovs=True), tuple_of(family, protocol))


# ---------------------------------------------------------------------------------------------------- ICMP
def icmp(family, number, code=0, identifier=0x1234, rest=b"payload"):
    """Return a packet with an ICMP message whose checksum is right."""
    message = struct.pack("!BBHHH", number, code, 0, identifier, 1) + rest
    if family == 4:
        return carried(4, ICMPV4, message[:2] + checksum(message).to_bytes(2, "big") + message[4:])
    return carried(6, ICMPV6, summed(6, ICMPV6, message, 2))


QUERIES = [message for message in MESSAGES if message.role in (Role.REQUEST, Role.ANSWER)]


@pytest.mark.parametrize("message", QUERIES, ids=lambda message: f"icmp{message.family}-{message.type}")
@pytest.mark.parametrize("code", [0, 5])
def test_icmp_queries(message, code):
    found = read(icmp(message.family, message.type, code))
    protocol = ICMPV4 if message.family == 4 else ICMPV6
    tuple_ = tuple_of(message.family, protocol, 0x1234, message.request << 8 | code)
    if message.role == Role.ANSWER:
        tuple_ = Tuple(tuple_.src, tuple_.dst_port, tuple_.dst, tuple_.src_port, protocol)
    assert_tuple(found, tuple_)
    assert found.kind == PacketKind.ICMP_QUERY
    assert found.icmp_word == message.type << 24 | code << 16 | 0x1234
    assert found.payload_bytes == found.l4_bytes - 8 == 7


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (ip(4) / ICMP(type=8, id=7), IP(src=ADDRESSES[4][1], dst=ADDRESSES[4][0]) / ICMP(type=0, id=7)),
        (ip(4) / ICMP(type=13, id=7), IP(src=ADDRESSES[4][1], dst=ADDRESSES[4][0]) / ICMP(type=14, id=7)),
        (ip(6) / ICMPv6EchoRequest(id=7), IPv6(src=ADDRESSES[6][1], dst=ADDRESSES[6][0]) / ICMPv6EchoReply(id=7)),
        (ip(6) / ICMPv6NIQueryNOOP(code=0), IPv6(src=ADDRESSES[6][1], dst=ADDRESSES[6][0]) / ICMPv6NIReplyNOOP()),
    ],
)
def test_request_and_answer_have_one_key(request_, answer):
    there, back = read(bytes(request_)), read(bytes(answer))
    assert there.reason == back.reason == Reason.NONE
    assert there.key == back.key
    assert there.high_is_source != back.high_is_source


def test_another_identifier_code_or_kind_of_query_is_another_key():
    keys = {
        read(icmp(4, number, code, identifier)).key
        for number in (8, 13, 15, 17)
        for code in (0, 1)
        for identifier in (0, 1)
    }
    assert len(keys) == 16


@pytest.mark.parametrize("number", [n for n in range(256) if n not in {m.type for m in MESSAGES if m.family == 4}])
def test_icmp_types_of_no_use(number):
    found = read(icmp(4, number))
    assert (found.reason, found.kind) == (Reason.ICMP_TYPE, PacketKind.ICMP_QUERY)


@pytest.mark.parametrize("number", [n for n in range(256) if n not in {m.type for m in MESSAGES if m.family == 6}])
def test_icmpv6_types_of_no_use(number):
    found = read(icmp(6, number))
    assert (found.reason, found.kind) == (Reason.ICMP_TYPE, PacketKind.ICMP_QUERY)


@pytest.mark.parametrize("number", [130, 131, 132, 133, 134, 135, 136, 143, 151, 152])
def test_neighbours_are_not_tracked(number):
    found = read(icmp(6, number))
    assert (found.reason, found.kind) == (Reason.NOT_TRACKED, PacketKind.UNTRACKED)


def test_neighbours_by_scapy():
    for message in (ICMPv6ND_NS(tgt="2001:db8::2"), ICMPv6MLReport2()):
        assert read(bytes(ip(6) / message)).reason == Reason.NOT_TRACKED
    assert read(bytes(ip(6) / ICMPv6ND_Redirect())).reason == Reason.ICMP_TYPE  # redirects, as in Linux


@FAMILIES
@pytest.mark.parametrize("number", [3, 8, 128, 135])
def test_icmp_of_the_other_family(family, number):
    message = struct.pack("!BBHHH", number, 0, 0, 7, 1)
    protocol = ICMPV6 if family == 4 else ICMPV4
    found = read(carried(family, protocol, message), verify=False)
    assert (found.reason, found.kind) == (Reason.ICMP_TYPE, PacketKind.ICMP_QUERY)
    assert_tuple(read(carried(family, protocol, message), ovs=True), tuple_of(family, protocol))


@pytest.mark.parametrize(("family", "number"), [(4, 8), (6, 128), (6, 135)])
def test_icmp_checksum(family, number):
    data = icmp(family, number)
    for at in (2, 4, 7, 14):
        wrong = bytearray(data)
        wrong[header_bytes(family) + at] ^= 4
        assert read(bytes(wrong)).reason == Reason.L4CSUM_ERR
        assert read(bytes(wrong), verify=False).reason != Reason.L4CSUM_ERR
    cut = data[:-1]
    assert read(cut, wire=len(data)).reason == read(data).reason


def test_icmp_of_nothing_but_zeros_has_no_checksum():
    assert read(carried(4, ICMPV4, bytes(8))).reason == Reason.L4CSUM_ERR


@pytest.mark.parametrize(("family", "number"), [(4, 8), (6, 128)])
def test_icmp_without_room_for_its_header(family, number):
    data = icmp(family, number)
    for size in range(8):
        assert read(carried(family, ICMPV4 if family == 4 else ICMPV6, bytes(size))).reason == Reason.L4_HEADER
        snapped = read(data[: header_bytes(family) + size], wire=len(data))
        assert snapped == read(data) if size >= 6 else snapped.reason == Reason.TRUNCATED


@pytest.mark.parametrize("message", QUERIES, ids=lambda message: f"icmp{message.family}-{message.type}")
@pytest.mark.parametrize("code", [0, 1])
def test_icmp_queries_in_ovs(message, code):
    found = read(icmp(message.family, message.type, code), ovs=True)
    known = message.known == Known.EVERYWHERE and code == 0
    assert found.reason == (Reason.NONE if known else Reason.ICMP_TYPE)
    if known:
        assert found == read(icmp(message.family, message.type, code))


@pytest.mark.parametrize("number", [130, 131, 132, 133, 134, 135, 136, 143, 151, 152])
def test_neighbours_are_invalid_in_ovs(number):
    found = read(icmp(6, number), ovs=True)
    assert (found.reason, found.kind) == (Reason.ICMP_TYPE, PacketKind.ICMP_QUERY)


@pytest.mark.parametrize(("family", "number"), [(4, 8), (6, 128)])
def test_no_device_verifies_icmp_for_ovs(family, number):
    wrong = icmp(family, number)[:-1] + b"?"
    assert read(wrong, trusted=True).reason == Reason.NONE
    assert read(wrong, trusted=True, ovs=True).reason == Reason.L4CSUM_ERR
    assert read(wrong, trusted=True, ovs=True, verify=False).reason == Reason.NONE
