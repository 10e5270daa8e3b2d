"""IPv4 and IPv6 headers: lengths that are believed, lengths that lie, and the IPv4 checksum as scapy makes it."""

import struct

import pytest
from naive_checksum import checksum, pseudo_header
from parsing import Tuple, assert_tuple, parse
from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP, IPOption_RR, IPOption_Timestamp
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    IPv6ExtHdrSegmentRouting,
    Jumbo,
    PadN,
)
from scapy.layers.ipsec import AH
from zonetrack.shm.layout import Link
from zonetrack.shm.reasons import Reason

FOUR = Tuple("192.0.2.1", 1000, "198.51.100.1", 80, 6)
SIX = Tuple("2001:db8::1", 1000, "2001:db8::2", 53, 17)
V4 = IP(src=FOUR.src, dst=FOUR.dst) / TCP(sport=1000, dport=80) / b"hello"
V6 = IPv6(src=SIX.src, dst=SIX.dst) / UDP(sport=1000, dport=53) / b"hello"


def read(data, **how):
    return parse(data, link=Link.RAW_IP, **how)


def patched(data, offset, value, *, mend=True):
    """Return an IPv4 packet with other bytes at an offset, and its header checksum right again."""
    data = bytearray(bytes(data))
    data[offset : offset + len(value)] = value
    if mend:
        data[10:12] = b"\0\0"
        data[10:12] = checksum(bytes(data[: max(20, 4 * (data[0] & 15))])).to_bytes(2, "big")
    return bytes(data)


def test_ipv4():
    found = read(bytes(V4))
    assert_tuple(found, FOUR)
    assert (found.ip_bytes, found.l4, found.l4_bytes) == (45, 20, 25)


@pytest.mark.parametrize(
    "options",
    [
        [IPOption_NOP()],
        [IPOption_RR(routers=["0.0.0.0"] * 9)],
        [IPOption_Timestamp(timestamp=7)],
        [IPOption_NOP()] * 40,
    ],
    ids=["one", "record route", "timestamp", "forty"],
)
def test_ipv4_options(options):
    packet = IP(src=FOUR.src, dst=FOUR.dst, options=options) / TCP(sport=1000, dport=80)
    found = read(bytes(packet))
    assert_tuple(found, FOUR)
    header = 4 * IP(bytes(packet)).ihl
    assert (found.l4, found.l4_bytes) == (header, 20)
    broken = bytearray(bytes(packet))
    broken[header - 1] ^= 0x40  # the options are summed, too
    assert read(bytes(broken)).reason == Reason.L3CSUM_ERR


@pytest.mark.parametrize("first", [v << 4 | 5 for v in range(16) if v not in (4, 6)])
def test_raw_frames_of_no_version_are_not_ip(first):
    assert read(patched(V4, 0, bytes([first]))).reason == Reason.NOIP


@pytest.mark.parametrize("version", [0, 1, 3, 5, 6, 15])
def test_a_version_that_the_link_did_not_announce(version):
    ethernet = bytes(12) + b"\x08\0" + patched(V4, 0, bytes([version << 4 | 5]))
    assert parse(ethernet).reason == Reason.L3_HEADER
    ethernet = bytes(12) + b"\x86\xdd" + bytes([(9 - version) % 16 << 4]) + bytes(V6)[1:]
    assert parse(ethernet).reason == (Reason.NONE if version == 3 else Reason.L3_HEADER)


@pytest.mark.parametrize("length", range(5))
def test_ipv4_header_length_below_20(length):
    assert read(patched(V4, 0, bytes([0x40 | length]))).reason == Reason.L3_HEADER


def test_ipv4_header_longer_than_the_packet():
    data = patched(V4, 0, b"\x4f")
    assert read(data).reason == Reason.L3_HEADER
    assert read(data, wire=1500).reason == Reason.L3_HEADER  # 45 bytes in all cannot hold 60
    snapped = patched(IP(bytes(V4) + bytes(100)), 2, struct.pack("!H", 145))
    assert read(patched(snapped, 0, b"\x4f")[:45], wire=145).reason == Reason.TRUNCATED


@pytest.mark.parametrize("total", [0, 1, 19])
def test_ipv4_total_length_below_the_header(total):
    assert read(patched(V4, 2, struct.pack("!H", total))).reason == Reason.L3_HEADER


@pytest.mark.parametrize("total", [46, 1500, 65535])
def test_ipv4_total_length_beyond_the_wire(total):
    data = patched(V4, 2, struct.pack("!H", total))
    assert read(data).reason == Reason.L3_HEADER
    assert read(data, wire=total - 1).reason == Reason.L3_HEADER
    assert read(data, wire=total).reason == Reason.NONE  # snapped


def test_what_follows_the_packet_is_padding():
    for packet, tuple_ in ((V4, FOUR), (V6, SIX)):
        plain = read(bytes(packet))
        assert read(bytes(packet) + b"\xff" * 30) == plain
        assert_tuple(plain, tuple_)


def test_a_wire_length_below_the_captured_one_is_a_mistake_of_the_capture():
    assert_tuple(read(bytes(V4), wire=0), FOUR)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (0x4000, Reason.NONE),  # don't fragment
        (0x8000, Reason.NONE),  # reserved, RFC 3514
        (0x2000, Reason.FRAGMENT),
        (0x0001, Reason.FRAGMENT),
        (0x3FFF, Reason.FRAGMENT),
    ],
)
def test_ipv4_fragments(word, reason):
    assert read(patched(V4, 6, struct.pack("!H", word))).reason == reason


def test_every_wrong_bit_of_an_ipv4_header_is_seen():
    data = bytes(V4)
    for bit in range(8 * 20):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        assert read(bytes(wrong)).reason != Reason.NONE
    wrong = patched(V4, 10, b"\x12\x34", mend=False)
    assert read(wrong).reason == Reason.L3CSUM_ERR
    assert_tuple(read(wrong, verify=False), FOUR)
    assert_tuple(read(wrong, trusted=True), FOUR)


def test_ipv4_cut_anywhere():
    for cut in range(20):
        assert read(bytes(V4)[:cut]).reason == Reason.TRUNCATED
        assert read(bytes(V4)[:cut], wire=45).reason == Reason.TRUNCATED
    for cut in range(20, 45):
        assert read(bytes(V4)[:cut]).reason == Reason.L3_HEADER


def test_what_is_known_of_a_refused_packet():
    found = read(patched(V4, 6, b"\x20\0"), zone=3)
    assert (found.reason, found.family, found.protocol, found.ip_bytes) == (Reason.FRAGMENT, 4, 6, 45)
    assert found.key == found.inner_key == (0, 0, 0, 0, 0)
    found = read(b"")
    assert (found.reason, found.family, found.protocol, found.ip_bytes) == (Reason.TRUNCATED, 0, 0, 0)


# ---------------------------------------------------------------------------------------------------- IPv6
def test_ipv6():
    found = read(bytes(V6))
    assert_tuple(found, SIX)
    assert (found.ip_bytes, found.l4, found.l4_bytes, found.payload_bytes) == (53, 40, 13, 5)


def test_ipv6_cut_anywhere():
    for cut in range(40):
        assert read(bytes(V6)[:cut], wire=53).reason == Reason.TRUNCATED
    for cut in range(40, 53):
        assert read(bytes(V6)[:cut]).reason == Reason.L3_HEADER


def test_ipv6_payload_length_beyond_the_wire():
    data = bytearray(bytes(V6))
    data[4:6] = b"\xff\xff"
    assert read(bytes(data)).reason == Reason.L3_HEADER
    assert read(bytes(data), wire=40 + 65534).reason == Reason.L3_HEADER
    assert_tuple(read(bytes(data), wire=40 + 65535), SIX)


ROUTE = ["2001:db8::9", SIX.dst]
EXTENSIONS = {
    "hop-by-hop": (IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 12)]), 16),
    "destination options": (IPv6ExtHdrDestOpt(), 8),
    "routing, arrived": (IPv6ExtHdrRouting(addresses=ROUTE, segleft=0), 40),
    "atomic fragment": (IPv6ExtHdrFragment(offset=0, m=0), 8),
    "authentication": (AH(payloadlen=4, icv=b"\0" * 12), 24),
    "all": (
        IPv6ExtHdrHopByHop()
        / IPv6ExtHdrDestOpt()
        / IPv6ExtHdrFragment()
        / AH(payloadlen=4, icv=b"\0" * 12)
        / IPv6ExtHdrDestOpt(),
        8 + 8 + 8 + 24 + 8,
    ),
}


def last_of(packet):
    """Return the last layer of a scapy packet that is not payload."""
    while packet.payload:
        packet = packet.payload
    return packet


def with_extensions(extensions, payload_bytes=b"hello", final=SIX.dst):
    """Return an IPv6 packet whose UDP checksum is that of its final destination."""
    udp = bytes(IPv6(src=SIX.src, dst=final) / UDP(sport=1000, dport=53) / payload_bytes)[40:]
    last_of(extensions).nh = 17
    return bytes(IPv6(src=SIX.src, dst=SIX.dst) / extensions / udp)


@pytest.mark.parametrize(("extensions", "size"), EXTENSIONS.values(), ids=EXTENSIONS)
def test_ipv6_extensions(extensions, size):
    found = read(with_extensions(extensions.copy()))
    assert_tuple(found, SIX)
    counted = size - 8 * extensions.haslayer(IPv6ExtHdrFragment)  # Linux takes the header off a lone fragment
    assert (found.l4, found.l4_bytes, found.ip_bytes) == (40 + size, 13, 53 + counted)


@pytest.mark.parametrize(
    "extension",
    [
        IPv6ExtHdrRouting(addresses=["2001:db8::7", "2001:db8::9"], segleft=2),
        IPv6ExtHdrSegmentRouting(addresses=["2001:db8::9", "2001:db8::7"], segleft=1, lastentry=1),
        IPv6ExtHdrRouting(type=3, addresses=["2001:db8::9"], segleft=1),
    ],
    ids=["source route", "segment routing", "another"],
)
@pytest.mark.parametrize("ovs", [False, True])
def test_a_checksum_for_a_later_destination_is_wrong_before_it_is_reached(extension, ovs):
    assert read(with_extensions(extension.copy(), final="2001:db8::9"), ovs=ovs).reason == Reason.L4CSUM_ERR
    assert_tuple(read(with_extensions(extension.copy(), final=SIX.dst), ovs=ovs), SIX)


def test_a_header_whose_end_was_not_captured():
    data = with_extensions(IPv6ExtHdrFragment(offset=0, m=0))
    for cut in range(44, 48):
        assert read(data[:cut], wire=len(data)).reason == Reason.TRUNCATED  # for the ports were not either
    data = bytes(IPv6(src=SIX.src, dst=SIX.dst) / IPv6ExtHdrFragment(offset=0, m=0, nh=11) / b"hello")
    for cut in range(44, 48):
        assert_tuple(read(data[:cut], wire=len(data)), SIX._replace(src_port=0, dst_port=0, protocol=11))


@pytest.mark.parametrize(("offset", "more"), [(0, 1), (5, 1), (5, 0)])
def test_ipv6_fragments(offset, more):
    data = with_extensions(IPv6ExtHdrFragment(offset=offset, m=more))
    assert read(data).reason == Reason.FRAGMENT


def test_a_broken_chain():
    data = bytes(IPv6(nh=60) / (bytes([60, 0, 0, 0, 0, 0, 0, 0]) * 40))
    found = read(data)
    assert (found.reason, found.family, found.ip_bytes) == (Reason.EXTENSION_HEADERS, 6, len(data))
    assert read(bytes(IPv6(nh=59))).reason == Reason.EXTENSION_HEADERS
    assert read(bytes(IPv6(nh=59)), ovs=True).protocol == 59


def summed_udp(segment):
    """Return a UDP segment of SIX with its checksum."""
    data = bytes(IPv6(src=SIX.src, dst=SIX.dst))
    total = checksum(pseudo_header(data[8:24], data[24:40], 17, len(segment)) + segment)
    return segment[:6] + total.to_bytes(2, "big") + segment[8:]


def test_jumbo():
    size = 70000
    udp = summed_udp(struct.pack("!HHHH", 1000, 53, 8, 0))
    options = bytes(IPv6ExtHdrHopByHop(nh=6, options=[Jumbo(jumboplen=size)]))
    header = bytes(IPv6(src=SIX.src, dst=SIX.dst, nh=0, plen=0))
    tcp = struct.pack("!HHIIBBHHH", 1000, 53, 1, 2, 0x50, 0x10, 3, 0, 0)
    data = (header + options + tcp).ljust(200, b"\0")
    found = read(data, wire=40 + size)
    assert_tuple(found, SIX._replace(protocol=6))
    assert (found.ip_bytes, found.payload_bytes) == (40 + size, size - 8 - 20)
    assert read(data, wire=40 + size - 1).reason == Reason.L3_HEADER
    without = bytes(IPv6ExtHdrHopByHop(nh=17, options=[PadN(optdata=b"\0" * 4)]))
    found = read(header + without + udp)  # all that came, as Linux has it
    assert_tuple(found, SIX)
    assert (found.ip_bytes, found.l4_bytes) == (56, 8)
    assert read(header + without + udp, ovs=True).reason == Reason.L3_HEADER
    assert read(data, wire=40 + size, ovs=True).reason == Reason.L3_HEADER
    below = bytes(IPv6ExtHdrHopByHop(nh=17, options=[Jumbo(jumboplen=65535)]))
    assert read(header + below + udp, wire=70000).reason == Reason.L3_HEADER


def test_payload_length_0_without_hop_by_hop_is_an_empty_packet():
    data = bytes(IPv6(src=SIX.src, dst=SIX.dst, nh=6, plen=0)) + bytes(40)
    assert read(data).reason == Reason.L4_HEADER
