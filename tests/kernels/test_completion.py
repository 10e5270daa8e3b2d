"""A checksum that was left to a device: filled in as the device would, and as scapy does."""

import struct

import numpy as np
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import Dot1Q, Ether
from zonetrack.kernels import completion, memory
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FRAME, FrameFlag, Link

PARTIAL = FrameFlag.CHECKSUM_PARTIAL | FrameFlag.CHECKSUM_TRUSTED
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
frame_at = memory.record_at(FRAME)
FOUR, SIX = IP(src="192.0.2.1", dst="198.51.100.7"), IPv6(src="2001:db8::1", dst="2001:db8::2")


@kernel
def complete_at(address):
    """Complete a FRAME."""
    return completion.complete(frame_at(address))


def left_to_a_device(packet):
    """Return a frame as scapy makes it, and with the sum of the pseudo header in place of the checksum."""
    frame = bytes(packet)
    whole = packet.__class__(frame)
    layer = whole[TCP] if TCP in whole else whole[UDP]
    size, protocol = len(bytes(layer)), 6 if TCP in whole else 17
    network = whole[IP] if IP in whole else whole[IPv6]
    start = len(frame) - size
    ends = bytes(network)[12:20] if IP in whole else bytes(network)[8:40]
    total = sum(struct.unpack(f"!{len(ends) // 2}H", ends)) + protocol + size
    at = start + (16 if protocol == 6 else 6)
    return frame, frame[:at] + (total % 0xFFFF).to_bytes(2, "big") + frame[at + 2 :]


def complete(data, link=Link.ETHERNET, cut=0):
    """Return whether a frame could be completed, its bytes and its flags."""
    room = np.frombuffer(data, "u1").copy()
    frames = np.zeros(1, FRAME)
    frames["address"], frames["captured_bytes"] = room.ctypes.data, len(data) - cut
    frames["wire_bytes"], frames["flags"], frames["link"] = len(data), PARTIAL, link
    done = complete_at(u64(frames.ctypes.data))
    return bool(done), room.tobytes(), int(frames["flags"][0])


@pytest.mark.parametrize(
    "packet",
    [
        ETHERNET / FOUR / TCP(sport=1, dport=2) / b"hello",
        ETHERNET / FOUR / UDP(sport=1, dport=2) / b"odd",
        ETHERNET / Dot1Q(vlan=3) / FOUR / TCP(options=[("MSS", 1460)]) / bytes(range(200)),
        ETHERNET / SIX / TCP() / (b"x" * 1400),
        ETHERNET / SIX / IPv6ExtHdrDestOpt() / UDP() / b"y",
    ],
)
def test_a_checksum_is_filled_in(packet):
    frame, partial = left_to_a_device(packet)
    assert frame != partial
    assert complete(partial) == (True, frame, FrameFlag.CHECKSUM_TRUSTED)


def test_a_udp_checksum_of_zero_is_sent_as_all_ones():
    frame, partial = left_to_a_device(ETHERNET / FOUR / UDP(sport=1, dport=2) / b"\0\0")
    word = int.from_bytes(frame[40:42], "big")  # as data it makes the sum all ones
    done, came, _ = complete(partial[:42] + word.to_bytes(2, "big"))
    assert done and came[40:42] == b"\xff\xff"


@pytest.mark.parametrize(
    ("packet", "link", "cut"),
    [
        (ETHERNET / FOUR / ICMP(), Link.ETHERNET, 0),
        (ETHERNET / FOUR / TCP() / b"hello", Link.ETHERNET, 3),
        (ETHERNET / b"what is this", Link.ETHERNET, 0),
        (ETHERNET / FOUR / TCP(), Link.UNKNOWN, 0),
        (ETHERNET / IP(src="192.0.2.1", dst="198.51.100.7", len=22) / TCP(), Link.ETHERNET, 0),
    ],
)
def test_what_cannot_be_completed_stays_as_it_is(packet, link, cut):
    assert complete(bytes(packet), link, cut) == (False, bytes(packet), PARTIAL)
