"""CRC32c is what its definition says, bit by bit, and what scapy writes into SCTP packets."""

import struct

import numpy as np
import pytest
from guard import Guard
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import EXAMPLES
from scapy.layers.sctp import SCTP, SCTPChunkData, crc32c
from zonetrack.kernels import crc32c as kernels
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64


@kernel
def _is_good(address, size):
    return kernels.is_good(address, size)


def naive(data):
    """Return the remainder by the definition of RFC 9260 appendix A: one bit at a time, the lowest first."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


def of_sctp(data):
    array = np.frombuffer(data, np.uint8)
    return int(kernels.of_sctp(u64(array.ctypes.data), u64(len(data))))


@pytest.mark.parametrize(
    ("data", "right"),
    [
        (b"123456789", 0xE3069283),  # the check value of catalogues
        (bytes(32), 0x8A9136AA),  # RFC 3720 B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_definition(data, right):
    assert naive(data) == right


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(min_size=12, max_size=100))
def test_the_checksum_in_a_packet_counts_as_zeros(data):
    assert of_sctp(data) == naive(data[:8] + bytes(4) + data[12:])


@pytest.mark.parametrize("size", [*range(18), 100, 1452])
def test_packets_by_scapy(size):
    data = bytes(SCTP(sport=1, dport=2, tag=3) / SCTPChunkData(data=bytes(range(256))[:size] + bytes(size)))
    assert struct.unpack("<I", struct.pack("!I", crc32c(data[:8] + bytes(4) + data[12:])))[0] == of_sctp(data)
    array = np.frombuffer(data, np.uint8).copy()
    assert _is_good(u64(array.ctypes.data), u64(len(data)))
    for at in (0, 7, 8, 11, 12, len(data) - 1):
        array[at] ^= 1
        assert not _is_good(u64(array.ctypes.data), u64(len(data)))
        array[at] ^= 1


def test_no_byte_behind_the_end_is_read():
    guard = Guard()
    for size in range(12, 40):
        data = bytes(range(size))
        assert int(kernels.of_sctp(u64(guard.place(data)), u64(size))) == naive(data[:8] + bytes(4) + data[12:])


def test_tables_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        kernels.TABLES[0, 0] = 1
