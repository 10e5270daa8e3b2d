"""A rewritten packet is the packet that scapy builds with the other tuple, to the last byte."""

from ipaddress import ip_address

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_checksum import checksum
from parsing import EXAMPLES
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6PacketTooBig,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData
from zonetrack.kernels import memory, packet, rewrite
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FRAME, PARSED, FrameFlag, Link, PacketKind
from zonetrack.shm.reasons import Reason

frame_at, parsed_at = memory.record_at(FRAME), memory.record_at(PARSED)
OLD = {4: ("192.0.2.1", 40000, "198.51.100.1", 80), 6: ("2001:db8::1", 40000, "2001:db8::2", 80)}
NEW = {4: ("203.0.113.7", 1024, "198.51.100.200", 8080), 6: ("2001:db8:f::7", 1024, "2001:db8:f::200", 8080)}
FAMILIES = pytest.mark.parametrize("family", [4, 6])
SIDES = pytest.mark.parametrize("high", [False, True])


@kernel
def _run(frame, parsed, key, high, ovs):
    packet.parse(frame_at(frame), u64(0), ovs, parsed_at(parsed))
    if parsed_at(parsed).reason != u64(0):
        return
    if u64(parsed_at(parsed).kind) == u64(PacketKind.ICMP_ERROR):
        rewrite.translate_error(frame_at(frame), parsed_at(parsed), key, high)
    else:
        rewrite.translate(frame_at(frame), parsed_at(parsed), key, high)


def key_of(family, src, sport, dst, dport, high):
    """Return a key of which the source is the second endpoint when ``high``; the order is the caller's to choose."""
    ends = [(int(ip_address(src)), sport), (int(ip_address(dst)), dport)]
    if high:
        ends.reverse()
    words = [half for address, _ in ends for half in divmod(address, 1 << 64)]
    return np.array([*words, ends[0][1] << 48 | ends[1][1] << 32 | family], "u8")


def rewritten(data, tuple_, high=False, link=Link.RAW_IP, flags=0, captured=None):
    """Return the bytes of a frame after translation to (src, sport, dst, dport)."""
    family = ip_address(tuple_[0]).version
    bytes_ = np.frombuffer(bytes(data), "u1").copy()
    frame, parsed = np.zeros(1, FRAME), np.zeros(1, PARSED)
    frame["address"], frame["link"], frame["flags"] = bytes_.ctypes.data, link, flags
    frame["wire_bytes"] = len(bytes_)
    frame["captured_bytes"] = len(bytes_) if captured is None else captured
    key = key_of(family, *tuple_, high)
    at = (np.uint64(each.ctypes.data) for each in (frame, parsed, key))
    _run(*at, high, np.uint64(0))
    assert parsed["reason"][0] == Reason.NONE
    return bytes_.tobytes()


def ip(family, tuple_, **fields):
    src, _, dst, _ = tuple_
    return IP(src=src, dst=dst, **fields) if family == 4 else IPv6(src=src, dst=dst, **fields)


def transport(name, tuple_):
    _, sport, _, dport = tuple_
    return {"tcp": TCP(sport=sport, dport=dport, seq=5, options=[("MSS", 1460)]), "udp": UDP(sport=sport, dport=dport)}[
        name
    ]


def mirrored(tuple_):
    return (*tuple_[2:], *tuple_[:2])


# ------------------------------------------------------------------------------------------------ ports
@FAMILIES
@SIDES
@pytest.mark.parametrize("name", ["tcp", "udp"])
@pytest.mark.parametrize("payload", [b"", b"odd", b"\xff" * 1400])
def test_ports_and_addresses(name, family, high, payload):
    before, after = (ip(family, each) / transport(name, each) / payload for each in (OLD[family], NEW[family]))
    assert rewritten(before, NEW[family], high) == bytes(after)
    assert rewritten(bytes(after), OLD[family], high) == bytes(before)


@FAMILIES
def test_the_frame_around_it_stays(family):
    frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / Dot1Q(vlan=7)
    before, after = (frame / ip(family, each) / transport("tcp", each) for each in (OLD[family], NEW[family]))
    assert rewritten(bytes(before) + b"\0\0padding", NEW[family], link=Link.ETHERNET) == bytes(after) + b"\0\0padding"


def test_ip_options_are_left_alone():
    before, after = (
        ip(4, each, options=[IPOption_NOP()] * 8) / transport("tcp", each) / b"x" for each in (OLD[4], NEW[4])
    )
    assert rewritten(before, NEW[4]) == bytes(after)


def test_extension_headers_are_left_alone():
    before, after = (ip(6, each) / IPv6ExtHdrDestOpt() / transport("udp", each) / b"x" for each in (OLD[6], NEW[6]))
    assert rewritten(before, NEW[6]) == bytes(after)


def test_on_the_way_to_a_further_destination_the_checksum_does_not_cover_the_present_one():
    route = IPv6ExtHdrRouting(addresses=["2001:db8::99"], segleft=1)
    before, after = (ip(6, each) / route / transport("udp", each) / b"x" for each in (OLD[6], NEW[6]))
    assert rewritten(before, NEW[6]) == bytes(after)


@FAMILIES
@pytest.mark.parametrize("protocol", [47, 50, 112])
def test_a_protocol_without_ports_gets_addresses(family, protocol):
    field = {"proto": protocol} if family == 4 else {"nh": protocol}
    before, after = (ip(family, each, **field) / b"\0\0\x08\0 any payload" for each in (OLD[family], NEW[family]))
    assert rewritten(before, NEW[family]) == bytes(after)


@FAMILIES
def test_a_checksum_that_was_wrong_stays_as_wrong(family):
    data = bytearray(bytes(ip(family, OLD[family]) / transport("tcp", OLD[family]) / b"data"))
    data[-1] ^= 0x10
    there = bytes(ip(family, NEW[family]) / transport("tcp", NEW[family]) / b"data")
    assert rewritten(data, NEW[family])[:-1] == there[:-1]


def test_udp_without_a_checksum_stays_without():
    before, after = (ip(4, each) / UDP(sport=each[1], dport=each[3], chksum=0) / b"x" for each in (OLD[4], NEW[4]))
    assert rewritten(before, NEW[4]) == bytes(after)


@FAMILIES
def test_a_checksum_of_udp_that_becomes_zero_is_written_as_ones(family):
    blank = bytes(ip(family, NEW[family]) / transport("udp", NEW[family]) / b"\0\0")
    payload = blank[-4:-2]  # its own checksum makes up the rest to all ones
    after = bytes(ip(family, NEW[family]) / transport("udp", NEW[family]) / payload)
    assert after[-4:-2] == b"\xff\xff"
    before = ip(family, OLD[family]) / transport("udp", OLD[family]) / payload
    assert rewritten(before, NEW[family]) == after


@FAMILIES
@pytest.mark.parametrize("name", ["tcp", "udp"])
def test_a_checksum_yet_to_be_completed_is_the_pseudo_headers_sum(name, family):
    """What a device would make of it is what scapy makes of the whole."""
    at = {"tcp": 16, "udp": 6}[name] + (20 if family == 4 else 40)

    def partial(tuple_):
        data = bytearray(bytes(ip(family, tuple_) / transport(name, tuple_) / b"payload"))
        l4 = 20 if family == 4 else 40
        whole = int.from_bytes(data[at : at + 2], "big")
        data[at : at + 2] = b"\0\0"
        segment = bytes(data[l4:])
        # sum of the pseudo header: what the whole sum is less the segment's
        total = (0xFFFF - whole) - (0xFFFF - checksum(segment))
        data[at : at + 2] = (total % 0xFFFF).to_bytes(2, "big")
        return bytes(data)

    flags = FrameFlag.CHECKSUM_TRUSTED | FrameFlag.CHECKSUM_PARTIAL
    assert rewritten(partial(OLD[family]), NEW[family], flags=flags) == partial(NEW[family])


@FAMILIES
def test_sctp_has_its_crc_anew(family):
    def data(tuple_):
        sctp = SCTP(sport=tuple_[1], dport=tuple_[3], tag=7) / SCTPChunkData(data=b"payload!")
        return bytes(ip(family, tuple_) / sctp)

    assert rewritten(data(OLD[family]), NEW[family]) == data(NEW[family])
    wrong = bytearray(data(OLD[family]))
    wrong[-1] ^= 1
    found = rewritten(wrong, NEW[family])
    crc = slice(28, 32) if family == 4 else slice(48, 52)
    assert found[crc] == data(OLD[family])[crc] and found[-1] == wrong[-1]


def test_a_snapped_packet_is_changed_as_far_as_it_is_there():
    before, after = (bytes(ip(4, each) / transport("tcp", each) / bytes(500)) for each in (OLD[4], NEW[4]))
    assert rewritten(before, NEW[4], captured=44)[:44] == after[:44]
    assert rewritten(before, NEW[4], captured=44)[44:] == before[44:]


# ------------------------------------------------------------------------------------------------ ICMP
@pytest.mark.parametrize("high", [False, True])
def test_an_echo_has_its_identifier_on_the_side_that_asks(high):
    request, reply = 8 << 8, 8 << 8
    asked = ("203.0.113.7", 77, "198.51.100.200", request)
    before, after = (
        ip(4, each) / ICMP(type=8, id=number, seq=3) / b"ping" for each, number in ((OLD[4], 5), (asked, 77))
    )
    assert rewritten(before, asked, high) == bytes(after)
    answered = ("203.0.113.7", reply, "198.51.100.200", 77)
    before, after = (
        ip(4, each) / ICMP(type=0, id=number, seq=3) / b"ping" for each, number in ((OLD[4], 5), (answered, 77))
    )
    assert rewritten(before, answered, high) == bytes(after)


def test_an_echo_of_ipv6_covers_its_addresses():
    asked = ("2001:db8:f::7", 77, "2001:db8:f::200", 128 << 8)
    before, after = (
        ip(6, each) / ICMPv6EchoRequest(id=number, seq=3, data=b"ping") for each, number in ((OLD[6], 5), (asked, 77))
    )
    assert rewritten(before, asked) == bytes(after)
    answered = mirrored(asked)
    before, after = (
        ip(6, each) / ICMPv6EchoReply(id=number, seq=3, data=b"ping") for each, number in ((OLD[6], 5), (answered, 77))
    )
    assert rewritten(before, answered) == bytes(after)


def error(family, speaker, tuple_, name, quoted):
    """Return an error about a packet of ``tuple_``, sent to its source, with so many bytes of the transport header."""
    header = 20 if family == 4 else 40
    inner = bytes(ip(family, tuple_) / transport(name, tuple_) / b"payload")[: header + quoted]
    if family == 4:
        return bytes(IP(src=speaker, dst=tuple_[0]) / ICMP(type=3, code=1) / inner)
    return bytes(IPv6(src=speaker, dst=tuple_[0]) / ICMPv6PacketTooBig(mtu=1280) / inner)


@FAMILIES
@SIDES
@pytest.mark.parametrize("name", ["tcp", "udp"])
@pytest.mark.parametrize("quoted", [8, 15, 24])
@pytest.mark.parametrize("speaker", ["router", "host"])
def test_an_error_is_about_the_packet_that_its_receiver_sent(speaker, quoted, name, family, high):
    router = {4: "10.9.9.9", 6: "2001:db8:9::9"}[family]
    was, is_ = ((router if speaker == "router" else each[family][2]) for each in (OLD, NEW))
    before, after = error(family, was, OLD[family], name, quoted), error(family, is_, NEW[family], name, quoted)
    found = rewritten(before, NEW[family], high)
    assert found == after


def test_an_error_about_an_echo():
    asked = ("203.0.113.7", 77, "198.51.100.200", 8 << 8)

    def about(tuple_, number):
        inner = bytes(ip(4, tuple_) / ICMP(type=8, id=number, seq=3) / b"ping")
        return bytes(IP(src="10.9.9.9", dst=tuple_[0]) / ICMP(type=11) / inner)

    assert rewritten(about(OLD[4], 5), asked) == about(asked, 77)


# ------------------------------------------------------------------------------------------------ anything
ports = st.integers(0, 0xFFFF)
V4, V6 = st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)
tuples = st.one_of(
    *(
        st.tuples(st.just(v), st.tuples(a, ports, a, ports), st.tuples(a, ports, a, ports))
        for v, a in ((4, V4), (6, V6))
    )
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(tuples, st.sampled_from(["tcp", "udp"]), st.binary(max_size=40), st.booleans())
def test_any_packet_to_any_tuple(drawn, name, payload, high):
    family, old, new = drawn
    before, after = (ip(family, each) / transport(name, each) / payload for each in (old, new))
    assert rewritten(before, new, high) == bytes(after)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(min_size=1, max_size=200), tuples, st.booleans())
def test_no_packet_grows_or_writes_beyond_its_end(data, drawn, high):
    """Whatever parses is rewritten inside of what was captured: the bytes behind stay."""
    family, _, new = drawn
    guard = b"\xa5" * 64
    bytes_ = np.frombuffer(data + guard, "u1").copy()
    frame, parsed = np.zeros(1, FRAME), np.zeros(1, PARSED)
    frame["address"], frame["link"] = bytes_.ctypes.data, Link.RAW_IP
    frame["wire_bytes"] = frame["captured_bytes"] = len(data)
    key = key_of(family, *new, high)
    at = (np.uint64(each.ctypes.data) for each in (frame, parsed, key))
    _run(*at, high, np.uint64(0))
    assert bytes_[len(data) :].tobytes() == guard
