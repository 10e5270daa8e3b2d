"""A chain of IPv6 headers is walked as a naive twin walks it, whatever it says, and never beyond its end."""

import struct

import numpy as np
import pytest
from forked import Child
from guard import Guard
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import EXAMPLES
from zonetrack.kernels import extensions
from zonetrack.kernels.extensions import HEADERS_MAX
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import Setting
from zonetrack.shm.reasons import Reason

HOP, ROUTING, FRAGMENT, ESP, AUTH, NONE, DESTINATION = 0, 43, 44, 50, 51, 59, 60
TCP = 6


@kernel
def _walk(address, ip_bytes, captured, settings):
    return extensions.walk(address, ip_bytes, captured, settings)


@kernel
def _unannounced_bytes(address, captured, wire):
    return extensions.unannounced_bytes(address, captured, wire)


def walk_at(address, ip_bytes, captured, ovs=False):
    """Return reason, or protocol, header bytes and fragment."""
    word = int(_walk(u64(address), u64(ip_bytes), u64(captured), u64(Setting.OVS if ovs else 0)))
    if word >> 8 & 0xFF:
        return Reason(word >> 8 & 0xFF)
    return word & 0xFF, word >> 32 & 0xFFFFFF, word >> 16 & 0xFFFF


def walk(data, ip_bytes=None, ovs=False):
    array = np.frombuffer(data, np.uint8)
    return walk_at(array.ctypes.data, len(data) if ip_bytes is None else ip_bytes, len(data), ovs)


def header(kind, next_header, size=8, fill=b""):
    """Return an extension header of ``size`` bytes, its length field right for its kind."""
    length = size // 4 - 2 if kind == AUTH else size // 8 - 1
    return (bytes((next_header, length)) + fill).ljust(size, b"\0")


def fragment(next_header, offset, more):
    return struct.pack("!BBHI", next_header, 0, offset << 3 | more, 7)


def routing(next_header, kind, segments_left, addresses):
    return bytes((next_header, 2 * len(addresses), kind, segments_left, 0, 0, 0, 0)) + b"".join(addresses)


def packet(first, *chain, payload=b"p" * 20):
    body = b"".join(chain) + payload
    return struct.pack("!IHBB", 6 << 28, len(body) & 0xFFFF, first, 64) + bytes(32) + body


def naive(data, ip_bytes):
    """Walk as RFC 8200 4 tells it, byte by byte, with every read checked."""
    captured, protocol, at, fragment_word = len(data), data[6], 40, 0
    for _ in range(HEADERS_MAX):
        if protocol not in (HOP, ROUTING, FRAGMENT, AUTH, DESTINATION):
            break
        if at + 8 > ip_bytes:
            return Reason.EXTENSION_HEADERS
        if at + 4 > captured:
            return Reason.TRUNCATED
        kind, (protocol, length) = protocol, data[at : at + 2]
        if kind == FRAGMENT:
            fragment_word = int.from_bytes(data[at + 2 : at + 4], "big") & 0xFFF9
            if fragment_word and at + 8 > captured:
                return Reason.TRUNCATED
            at += 8
            if fragment_word >> 3:
                break
        else:
            at += 4 * (length + 2) if kind == AUTH else 8 * (length + 1)
    else:
        if protocol in (HOP, ROUTING, FRAGMENT, AUTH, DESTINATION):
            return Reason.EXTENSION_HEADERS
    if (protocol == NONE and not fragment_word >> 3) or at > ip_bytes:
        return Reason.EXTENSION_HEADERS
    return protocol, at, fragment_word


@pytest.mark.parametrize("protocol", [TCP, 17, 58, ESP, 41, 135, 139, 140, 253])
def test_no_chain(protocol):
    assert walk(packet(protocol)) == (protocol, 40, 0)


@pytest.mark.parametrize("kind", [HOP, DESTINATION, ROUTING, AUTH])
@pytest.mark.parametrize("size", [8, 16, 24, 256])
def test_each_header_alone(kind, size):
    assert walk(packet(kind, header(kind, TCP, size))) == (TCP, 40 + size, 0)


def test_an_authentication_header_counts_in_fours():
    assert walk(packet(AUTH, header(AUTH, TCP, 12))) == (TCP, 52, 0)
    assert walk(packet(AUTH, header(AUTH, TCP, 28))) == (TCP, 68, 0)


def test_all_of_them():
    chain = (header(HOP, DESTINATION), header(DESTINATION, ROUTING, 16), header(ROUTING, AUTH), header(AUTH, ESP, 24))
    assert walk(packet(HOP, *chain)) == (ESP, 40 + 8 + 16 + 8 + 24, 0)


def test_no_next_header_is_broken():
    assert walk(packet(NONE)) == Reason.EXTENSION_HEADERS
    assert walk(packet(DESTINATION, header(DESTINATION, NONE))) == Reason.EXTENSION_HEADERS


def test_no_next_header_is_a_protocol_in_ovs():
    assert walk(packet(NONE), ovs=True) == (NONE, 40, 0)
    assert walk(packet(DESTINATION, header(DESTINATION, NONE)), ovs=True) == (NONE, 48, 0)


def test_the_packet_may_end_with_its_headers():
    assert walk(packet(DESTINATION, header(DESTINATION, 253), payload=b"")) == (253, 48, 0)


@pytest.mark.parametrize(
    ("offset", "more", "found"),
    [
        (0, 0, (TCP, 48, 0)),  # an atomic fragment is whole
        (0, 1, (TCP, 48, 1)),
        (5, 1, (TCP, 48, 5 << 3 | 1)),
        (5, 0, (TCP, 48, 5 << 3)),
    ],
)
def test_fragments(offset, more, found):
    assert walk(packet(FRAGMENT, fragment(TCP, offset, more))) == found


def test_reserved_bits_of_a_fragment_are_no_fragment():
    data = bytearray(packet(FRAGMENT, fragment(TCP, 0, 0)))
    data[43] |= 0b110
    assert walk(bytes(data)) == (TCP, 48, 0)


def test_behind_a_later_fragment_nothing_is_a_header():
    assert walk(packet(FRAGMENT, fragment(DESTINATION, 9, 0)))[0] == DESTINATION


@pytest.mark.parametrize("count", [HEADERS_MAX - 1, HEADERS_MAX])
def test_the_longest_chain(count):
    chain = [header(DESTINATION, DESTINATION)] * (count - 1) + [header(DESTINATION, TCP)]
    assert walk(packet(DESTINATION, *chain)) == (TCP, 40 + 8 * count, 0)


def test_a_longer_chain_and_one_without_end():
    chain = [header(DESTINATION, DESTINATION)] * HEADERS_MAX
    assert walk(packet(DESTINATION, *chain, header(DESTINATION, TCP))) == Reason.EXTENSION_HEADERS
    assert walk(packet(DESTINATION, *chain * 20)) == Reason.EXTENSION_HEADERS
    assert (
        walk(packet(HOP, bytes(8 * HEADERS_MAX))) == Reason.EXTENSION_HEADERS
    )  # hop-by-hop is 0: zeros go on for ever


def test_a_header_that_claims_more_than_the_packet_has():
    data = packet(DESTINATION, header(DESTINATION, TCP, 8, fill=b""), payload=b"")
    for length in range(1, 256):
        lying = data[:41] + bytes([length]) + data[42:]
        assert walk(lying) == Reason.EXTENSION_HEADERS


def test_whose_fault_a_short_chain_is():
    data = packet(HOP, header(HOP, DESTINATION), header(DESTINATION, TCP, 24))
    for cut in range(40, 72):
        assert walk(data[:cut]) == Reason.EXTENSION_HEADERS
        if cut < 52:
            assert walk(data[:cut], ip_bytes=len(data)) == Reason.TRUNCATED
    for cut in range(52, 72):  # what the last header holds is of no interest
        assert walk(data[:cut], ip_bytes=len(data)) == (TCP, 72, 0)


ADDRESSES = [bytes([i]) * 16 for i in (1, 2, 3)]


@st.composite
def chains(draw):
    kinds = draw(st.lists(st.sampled_from([HOP, ROUTING, FRAGMENT, AUTH, DESTINATION]), max_size=HEADERS_MAX + 2))
    last = draw(st.sampled_from([TCP, 17, 58, ESP, NONE, HOP]))
    parts = []
    for kind, following in zip(kinds, [*kinds, last][1:], strict=True):
        if kind == FRAGMENT:
            parts.append(fragment(following, draw(st.sampled_from([0, 0, 0, 1])), draw(st.integers(0, 1))))
        else:
            parts.append(header(kind, following, 8 * draw(st.integers(1, 3))))
    data = bytearray(packet([*kinds, last][0], *parts, payload=b"x" * draw(st.integers(0, 20))))
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(6, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(chains(), st.data())
def test_the_naive_twin_agrees(data, draw):
    ip_bytes = len(data) + draw.draw(st.sampled_from([0, 0, 4, 100]))
    data = data[: draw.draw(st.integers(40, len(data)))]
    found = walk(data, ip_bytes)
    assert found == naive(data, ip_bytes)


def test_no_byte_behind_the_end_is_read():
    guard = Guard()
    data = packet(
        HOP, header(HOP, ROUTING, 16), routing(FRAGMENT, 0, 1, ADDRESSES), fragment(AUTH, 0, 0), header(AUTH, TCP, 12)
    )
    assert walk(data) == (TCP, len(data) - 20, 0)

    def walks(child):
        for cut in range(40, len(data)):
            for ip_bytes in (cut, len(data)):
                walk_at(guard.place(data[:cut]), ip_bytes, cut)

    assert Child(walks).wait() == 0


JUMBO = b"\xc2\x04"
WIRE = 70_100


@pytest.mark.parametrize(
    ("options", "size", "found"),
    [
        (JUMBO + (70000).to_bytes(4, "big"), 8, 70000),
        (b"\0\0\0" + JUMBO + (1 << 31).to_bytes(4, "big"), 16, 1 << 31),  # behind Pad1
        (b"\x01\x02ab" + JUMBO + (70000).to_bytes(4, "big"), 16, 70000),  # behind PadN
        (JUMBO + (65535).to_bytes(4, "big"), 8, 0),  # RFC 2675 3: must not be used
        (b"\x01\x00" + JUMBO + (70000).to_bytes(4, "big"), 8, WIRE - 40),  # its end is beyond the header
        (b"\x05\x02\0\0", 8, WIRE - 40),
        (b"\x05\xff", 8, WIRE - 40),
        (b"", 8, WIRE - 40),
        (b"", 2048, WIRE - 40),
    ],
)
def test_the_jumbo_option_or_what_came(options, size, found):
    data = bytearray(packet(HOP, header(HOP, TCP, size, options)))
    data[4:6] = b"\0\0"
    array = np.frombuffer(bytes(data), np.uint8)
    assert _unannounced_bytes(u64(array.ctypes.data), u64(len(data)), u64(WIRE)) == found


def test_no_option_behind_the_end_is_read():
    guard = Guard()
    data = packet(HOP, header(HOP, TCP, 2048, b"\x05\x03abc" * 400))

    def looks(child):
        for cut in range(40, 200):
            found = _unannounced_bytes(u64(guard.place(data[:cut])), u64(cut), u64(WIRE))
            assert found == (WIRE - 40 if cut >= 48 else 0)

    looks(None)
    assert Child(looks).wait() == 0


def test_a_fragment_header_is_captured_whole_or_the_capture_is_too_short():
    data = packet(FRAGMENT, fragment(TCP, 0, 1))
    for cut in range(41, 48):
        assert walk(data[:cut], ip_bytes=len(data)) == Reason.TRUNCATED
    assert walk(data[:48], ip_bytes=len(data)) == (TCP, 48, 1)
