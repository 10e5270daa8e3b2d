"""Frames that are too long are cut as scapy would have made the parts: in place in the stream, lengths, flags, checksums."""

import numpy as np
import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import Dot1Q, Ether
from zonetrack.kernels import completion, memory, superframes
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FRAME, FRAME_SLOT_BYTES, FrameFlag, Link

ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
FOUR, SIX = IP(src="192.0.2.1", dst="198.51.100.7", id=0xFFFF), IPv6(src="2001:db8::1", dst="2001:db8::2")
frame_at = memory.record_at(FRAME)


@kernel
def look_at(frame):
    """Look at a FRAME."""
    return superframes.look(frame_at(frame))


@kernel
def part_bytes(frame, most, told):
    """Look at a FRAME, and say how large its parts are."""
    return superframes.part_bytes(superframes.look(frame_at(frame)), most, told)


@kernel
def write_at(frame, part, number, first, size, shape):
    """Write a part into a FRAME, and complete it."""
    superframes.write(frame_at(frame), frame_at(part), number, first, size, shape)
    return completion.complete(frame_at(part))


def described(octets):
    """Return FRAME[1] of some bytes, and these."""
    kept = np.frombuffer(octets, "u1").copy()
    frame = np.zeros(1, FRAME)
    frame["address"], frame["link"], frame["flags"] = kept.ctypes.data, Link.ETHERNET, FrameFlag.CHECKSUM_TRUSTED
    frame["captured_bytes"] = frame["wire_bytes"] = len(octets)
    return frame, kept


def cut(packet, size):
    """Return the parts of a frame, each with so many bytes of data at most."""
    frame, kept = described(bytes(packet))
    at = u64(frame.ctypes.data)
    shape = int(look_at(at))
    data, end = shape >> 24 & 0xFFF, shape >> 36 & 0xFFFFFF
    parts = []
    for number, first in enumerate(range(0, end - data, size)):
        slot = np.zeros(FRAME_SLOT_BYTES, "u1")
        part = np.zeros(1, FRAME)
        part["address"] = slot.ctypes.data
        given = (u64(number), u64(first), u64(min(size, end - data - first)), u64(shape))
        assert write_at(at, u64(part.ctypes.data), *given)
        assert part["captured_bytes"] == part["wire_bytes"]
        parts.append(slot[: int(part["captured_bytes"][0])].tobytes())
    del kept
    return parts


@pytest.mark.parametrize("network", [FOUR, SIX], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("ethernet", [ETHERNET, ETHERNET / Dot1Q(vlan=7)], ids=["untagged", "tagged"])
@pytest.mark.parametrize("options", [[], [("Timestamp", (1, 2))]], ids=["no options", "timestamps"])
def test_parts_are_what_the_sender_would_have_sent(network, ethernet, options):
    data = bytes(n % 251 for n in range(4001))
    seq = 0xFFFFFF00
    tcp = TCP(sport=1, dport=2, seq=seq, ack=9, flags="FPAC", window=100, options=options)
    wanted = []
    for number, first in enumerate(range(0, len(data), 1400)):
        last = first + 1400 >= len(data)
        own = tcp.copy()
        own.seq = (seq + first) % 2**32
        own.flags = ("FP" if last else "") + "A" + ("C" if not first else "")
        ip = network.copy()
        if ip.version == 4:
            ip.id = (0xFFFF + number) % 2**16
        wanted.append(bytes(ethernet / ip / own / data[first : first + 1400]))
    assert cut(ethernet / network / tcp / data, 1400) == wanted


@pytest.mark.parametrize("network", [FOUR, SIX], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("ethernet", [ETHERNET, ETHERNET / Dot1Q(vlan=7)], ids=["untagged", "tagged"])
def test_datagrams_are_what_the_sender_would_have_sent(network, ethernet):
    data = bytes(n % 251 for n in range(2345))
    wanted = []
    for number, first in enumerate(range(0, len(data), 700)):
        ip = network.copy()
        if ip.version == 4:
            ip.id = (0xFFFF + number) % 2**16
        wanted.append(bytes(ethernet / ip / UDP(sport=1, dport=2) / data[first : first + 700]))
    assert cut(ethernet / network / UDP(sport=1, dport=2) / data, 700) == wanted


@pytest.mark.parametrize(
    ("packet", "most", "told", "size"),
    [
        (ETHERNET / FOUR / TCP() / bytes(3000), 1514, 0, 1460),
        (ETHERNET / FOUR / TCP() / bytes(3000), 1514, 1400, 1400),
        (ETHERNET / FOUR / TCP() / bytes(3000), 1514, 9000, 1460),
        (ETHERNET / FOUR / TCP() / bytes(3000), 54, 0, 0),
        (ETHERNET / FOUR / UDP() / bytes(3000), 1514, 1472, 1472),
        (ETHERNET / FOUR / UDP() / bytes(3000), 1514, 1473, 0),
        (ETHERNET / FOUR / UDP() / bytes(3000), 1514, 0, 0),
    ],
    ids=["a stream", "as it was sent", "shorter", "no room", "datagrams", "longer than may be", "not told"],
)
def test_parts_are_as_their_sender_had_them_where_that_may_be(packet, most, told, size):
    frame, _kept = described(bytes(packet))
    assert part_bytes(u64(frame.ctypes.data), u64(most), u64(told)) == size


@pytest.mark.parametrize(
    "packet",
    [
        ETHERNET / FOUR / UDP(sport=1, dport=2),
        ETHERNET / FOUR.__class__(src="192.0.2.1", dst="198.51.100.7", flags="MF") / TCP() / bytes(3000),
        ETHERNET / SIX / IPv6ExtHdrDestOpt() / TCP() / bytes(3000),
        ETHERNET / FOUR / TCP(dataofs=4) / bytes(3000),
        Ether(type=0x88B5) / bytes(3000),
    ],
    ids=["nothing in it", "fragment", "extension header", "short header", "no IP"],
)
def test_what_cannot_be_cut_is_left(packet):
    frame, _kept = described(bytes(packet))
    assert look_at(u64(frame.ctypes.data)) == 0


def test_what_is_not_all_there_is_left():
    octets = bytes(ETHERNET / FOUR / TCP() / bytes(3000))
    frame, _kept = described(octets[:2000])
    assert look_at(u64(frame.ctypes.data)) == 0  # shorter than it says
    frame, _kept = described(octets)
    frame["captured_bytes"] = len(octets) - 1
    assert look_at(u64(frame.ctypes.data)) == 0
