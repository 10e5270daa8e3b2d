"""A text that takes a payload's place: how addresses are written, and what becomes of lengths and checksums."""

import ctypes
from ipaddress import IPv4Address, IPv6Address

import gateway
import numpy as np
import pytest
import tables
from bursts import frames_of
from hypothesis import given
from hypothesis import strategies as st
from parsing import parsed_of
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import Ether
from zonetrack.kernels import memory, messages
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FRAME, FRAME_SLOT_BYTES, MESSAGE, PARSED, FrameFlag
from zonetrack.shm.reasons import Reason

frame_at, parsed_at = memory.record_at(FRAME), memory.record_at(PARSED)
VIEWS = tables.Participant(tables.small()).views
MEMORY = np.frombuffer((ctypes.c_uint8 * MESSAGE.itemsize).from_address(int(VIEWS["message"])), MESSAGE)


@kernel
def _replace(views, frame, parsed, payload, text, size, end):
    messages.begin(views, payload)
    for i in range(size):
        messages.put(views, memory.byte(text + u64(i)))
    return messages.replace(views, frame_at(frame), parsed_at(parsed), end)


def text():
    """Return the text that stands in private memory."""
    return bytes(MEMORY["text"][0][: int(MEMORY["length"][0])])


def written(kernel, *arguments):
    messages.begin(VIEWS, u64(0))
    kernel(VIEWS, *(u64(int(one)) for one in arguments))
    return text()


@given(st.integers(0, 2**32 - 1))
def test_numbers(value):
    assert written(messages.number, value) == b"%d" % value


@given(st.integers(0, 2**32 - 1))
def test_ipv4(value):
    assert written(messages.ipv4, value, ord(".")).decode() == str(IPv4Address(value))


@given(st.lists(st.one_of(st.just(0), st.integers(0, 0xFFFF)), min_size=8, max_size=8))
def test_ipv6(groups):
    value = int.from_bytes(b"".join(group.to_bytes(2, "big") for group in groups), "big")
    assert written(messages.ipv6, value >> 64, value & 2**64 - 1).decode() == IPv6Address(value).compressed


@pytest.mark.parametrize(
    "value", ["::", "::1", "1::", "1:0:0:2::3", "fe80::1:0:0:1", "1:2:3:4:5:6:7:8", "1:0:3:4:5:6:7:8"]
)
def test_ipv6_of_note(value):
    assert written(messages.address, 6, *divmod(int(IPv6Address(value)), 1 << 64)).decode() == str(IPv6Address(value))


BEFORE = b"what it said before"


def said(packet, text_, *, room=True, flags=0, whole=True):
    """Put a text into the place of a packet's payload; returns the Reason and the frame."""
    octets = bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet)
    slot = np.zeros(FRAME_SLOT_BYTES, "u1")
    slot[: len(octets)] = np.frombuffer(octets, "u1")
    frames, _ = frames_of([b""])
    frames["address"], frames["captured_bytes"], frames["wire_bytes"] = slot.ctypes.data, len(octets), len(octets)
    frames["flags"] = flags | (FrameFlag.ROOM if room else 0)
    parsed = parsed_of(octets[14:], verify=False)
    parsed["l4"] = slot.ctypes.data + 14 + int(parsed["l4"][0]) - parsed.header.ctypes.data
    payload = slot.ctypes.data + len(octets) - len(BEFORE)
    copy = np.frombuffer(text_ + b"\0", "u1").copy()
    end = payload + len(BEFORE) if whole else 0
    at = (frames.ctypes.data, parsed.ctypes.data, payload, copy.ctypes.data, len(text_), end)
    reason = _replace(VIEWS, *map(u64, at))
    assert frames["wire_bytes"] == frames["captured_bytes"]
    return Reason(int(reason)), slot[: int(frames["captured_bytes"][0])].tobytes(), octets


PACKETS = [
    IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2) / BEFORE,
    IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / BEFORE,
    IPv6(src="fd00::1", dst="fd00::2") / TCP(sport=1, dport=2) / BEFORE,
    IPv6(src="fd00::1", dst="fd00::2") / IPv6ExtHdrDestOpt() / UDP(sport=1, dport=2) / BEFORE,
]


@pytest.mark.parametrize("packet", PACKETS)
@pytest.mark.parametrize("text_", [b"", b"x", b"odd", b"as long as it was..", BEFORE + b"!", BEFORE * 90])
def test_lengths_and_checksums_are_what_that_makes_of_them(packet, text_):
    reason, frame, octets = said(packet, text_)
    assert reason == Reason.NONE and frame.endswith(text_) and len(frame) == len(octets) + len(text_) - len(BEFORE)
    assert gateway.is_right(Ether(frame))


def test_a_datagram_without_a_checksum_gets_none():
    reason, frame, _ = said(IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2, chksum=0) / BEFORE, b"other")
    assert reason == Reason.NONE and Ether(frame)[UDP].chksum == 0 and Ether(frame)[UDP].len == 13


@pytest.mark.parametrize("protocol", [TCP, UDP])
def test_a_sum_of_a_pseudo_header_gets_the_other_length(protocol):
    reason, frame, octets = said(
        IP(src="10.0.0.1", dst="10.0.0.2") / protocol(sport=1, dport=2, chksum=1000) / BEFORE,
        BEFORE + b"more",
        flags=FrameFlag.CHECKSUM_PARTIAL,
    )
    assert reason == Reason.NONE and Ether(frame)[protocol].chksum == 1004 and octets != frame


def test_a_wrong_checksum_stays_wrong():
    right = Ether(bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / PACKETS[0]))[TCP].chksum
    _, frame, _ = said(IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2, chksum=right ^ 0x100) / BEFORE, b"x")
    assert not gateway.is_right(Ether(frame))


@pytest.mark.parametrize(
    ("text_", "how"),
    [
        (BEFORE + b"!", {"room": False}),
        (b"short", {"room": False}),
        (b"as long as it was..", {"whole": False}),
        (bytes(FRAME_SLOT_BYTES - 53), {}),
        (bytes(FRAME_SLOT_BYTES + 1), {}),
    ],
)
def test_what_has_no_room_is_left_as_it_was(text_, how):
    reason, frame, octets = said(PACKETS[0], text_, **how)
    assert reason == Reason.HELPER_NO_ROOM and frame == octets


def test_what_just_fits():
    reason, frame, _ = said(PACKETS[0], bytes(FRAME_SLOT_BYTES - 54))
    assert reason == Reason.NONE and len(frame) == FRAME_SLOT_BYTES and gateway.is_right(Ether(frame))


def test_a_text_is_made_of_what_stays_and_what_is_put():
    payload = np.frombuffer(b"abcdef", "u1").copy()
    at = u64(payload.ctypes.data)
    messages.begin(VIEWS, at)
    messages.copy_to(VIEWS, at + u64(2))
    messages.number(VIEWS, u64(77))
    messages.leave_out(VIEWS, at + u64(4))
    messages.copy_to(VIEWS, at + u64(6))
    assert text() == b"ab77ef" and not messages.says_the_same(VIEWS, u64(6))
    messages.begin(VIEWS, at)
    messages.copy_to(VIEWS, at + u64(6))
    assert messages.says_the_same(VIEWS, u64(6)) and not messages.says_the_same(VIEWS, u64(5))
