"""Sums equal a naive twin's, read no byte too many, and agree with scapy about what is right."""

import numpy as np
import pytest
from forked import Child
from guard import Guard
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_checksum import checksum as naive_checksum
from naive_checksum import ones_sum, pseudo_header
from parsing import EXAMPLES
from scapy.layers.inet import IP, TCP
from zonetrack.kernels import checksum
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64


@kernel
def _sum(address, size):
    return checksum.sum_bytes(address, size)


@kernel
def _is_good(total):
    return checksum.is_good(total)


@kernel
def _complement(total):
    return checksum.complement(total)


@kernel
def _is_zero(total):
    return checksum.is_zero(total)


@kernel
def _pseudo_header(addresses, protocol, length):
    return checksum.pseudo_header(addresses, protocol, length)


def total_of(data):
    array = np.frombuffer(bytes(data) + b"\0", np.uint8)
    return int(_sum(u64(array.ctypes.data), u64(len(data))))


def folded(total):
    """Return a little-endian sum as the big-endian 16 bits of RFC 1071; 0 only when all that was summed was 0."""
    rest = total % 0xFFFF
    little = rest if rest or not total else 0xFFFF
    return little >> 8 | (little & 0xFF) << 8


@pytest.mark.parametrize("size", [*range(140), 255, 256, 257, 1459, 1460, 1500])
def test_every_size(size):
    data = bytes((7 * i + size) % 256 for i in range(size))
    assert folded(total_of(data)) == ones_sum(data)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 7))
def test_any_bytes_at_any_alignment(data, offset):
    array = np.frombuffer(b"\xff" * offset + data + b"\xff" * 8, np.uint8)
    assert folded(int(_sum(u64(array.ctypes.data + offset), u64(len(data))))) == ones_sum(data)


@pytest.mark.parametrize("byte", [b"\xff", b"\x00"])
def test_the_largest_packet_does_not_overflow(byte):
    data = byte * (1 << 20)
    assert total_of(data) < 2**62
    assert folded(total_of(data)) == ones_sum(data)


def test_no_byte_behind_the_end_is_read():
    guard = Guard()

    def sums(child):
        for size in range(200):
            _sum(u64(guard.place(b"\xa5" * size)), u64(size))

    total_of(b"")  # compiled before the fork
    assert Child(sums).wait() == 0


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(min_size=2, max_size=100))
def test_good_is_a_sum_that_the_checksum_completes(data):
    data += b"\0" * (len(data) % 2)
    right = naive_checksum(data)
    complete = data + right.to_bytes(2, "big")
    assert _is_good(u64(total_of(complete))) == any(
        complete
    )  # RFC 1071: nothing but zeros sums to zero, not to all ones
    for wrong in {right ^ 1, right ^ 0x8000, (right + 1) & 0xFFFF} - {0, 0xFFFF}:
        assert not _is_good(u64(total_of(data + wrong.to_bytes(2, "big"))))


def test_nothing_but_zeros_is_not_good():
    assert not _is_good(u64(total_of(bytes(8))))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, (2**64 - 1) // 65535).map(lambda n: 65535 * n)))
def test_zero_is_a_multiple_of_65535(total):
    assert bool(_is_zero(u64(total))) == (total % 65535 == 0)


@pytest.mark.parametrize("protocol", [6, 17, 58, 136])
@pytest.mark.parametrize(
    ("size", "length"),
    [*((4, n) for n in (0, 1, 20, 255, 256, 0x1234, 65535)), *((16, n) for n in (0, 8, 65535, 70000, 1 << 24))],
)
def test_pseudo_header(size, length, protocol):
    src, dst = bytes(range(1, size + 1)), bytes(range(101, size + 101))
    total = int(_pseudo_header(u64(total_of(src + dst)), u64(protocol), u64(length)))
    assert folded(total) == ones_sum(pseudo_header(src, dst, protocol, length))


@pytest.mark.parametrize("size", range(20))
def test_scapy_agrees(size):
    packet = bytes(IP(src="192.0.2.1", dst="198.51.100.1") / TCP(sport=1, dport=2) / bytes(range(size)))
    assert _is_good(u64(total_of(packet[:20])))
    segment = packet[20:]
    pseudo = _pseudo_header(u64(total_of(packet[12:20])), u64(6), u64(len(segment)))
    assert _is_good(u64(int(pseudo) + total_of(segment)))


@given(st.lists(st.integers(0, 0xFFFFFFFF), max_size=40))
def test_a_complement_is_the_checksum_of_what_was_summed(words):
    data = b"".join(word.to_bytes(4, "big") for word in words)
    assert int(_complement(u64(sum(words)))) == naive_checksum(data)
