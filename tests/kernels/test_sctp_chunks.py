"""Which chunks may stand together, by profile, and that the walk over them ends."""

import struct

import associations
import numpy as np
import pytest
from associations import chunk, init
from guard import Guard
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import EXAMPLES, parse, parsed_at
from zonetrack.kernels import sctp_chunks
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.sctp_states import Chunk
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import PARSED, Link, Setting
from zonetrack.shm.reasons import Reason


@kernel
def _read(l4, l4_bytes, captured, settings_, parsed):
    return sctp_chunks.read(l4, l4_bytes, captured, settings_, parsed_at(parsed))


def read(*chunks, ovs=False, short=0):
    """Return Reason and Chunks of a packet; ``short`` bytes of it were not captured."""
    found = parse(b"".join([associations.raw("c", chunks, 5)]), link=Link.RAW_IP, ovs=ovs, verify=False)
    if short:
        data = associations.raw("c", chunks, 5)
        found = parse(data[:-short], wire=len(data), link=Link.RAW_IP, ovs=ovs)
    return found.reason, {one for one in Chunk if found.tcp_flags >> one & 1}


@pytest.mark.parametrize("name", associations.TYPES)
@pytest.mark.parametrize("ovs", [False, True])
def test_each_chunk_alone(name, ovs):
    assert read(name, ovs=ovs) == (Reason.NONE, {getattr(Chunk, name, Chunk.OTHER)})


@pytest.mark.parametrize(
    "chunks",
    [
        ("SACK", "DATA", "DATA"),
        ("COOKIE_ECHO", "DATA"),
        ("COOKIE_ACK", "SACK", "DATA"),
        ("HEARTBEAT", "DATA"),
        ("ERROR", "ABORT"),
        ("SHUTDOWN_ACK", "SACK"),
    ],
)
def test_what_may_stand_together(chunks):
    found = {getattr(Chunk, name, Chunk.OTHER) for name in chunks}
    assert read(*chunks) == read(*chunks, ovs=True) == (Reason.NONE, found)


@pytest.mark.parametrize("alone", ["INIT", "INIT_ACK", "SHUTDOWN_COMPLETE"])
@pytest.mark.parametrize("other", ["DATA", "SACK", "ABORT", "INIT", "COOKIE_ECHO"])
def test_what_must_stand_alone(alone, other):
    for chunks in ((alone, other), (other, alone), ("SACK", other, alone)):
        assert read(*chunks)[0] == Reason.SCTP_CHUNK
        assert read(*chunks, ovs=True)[0] == Reason.NONE


@pytest.mark.parametrize("first", ["COOKIE_ECHO", "COOKIE_ACK"])
def test_what_must_come_first(first):
    assert read("SACK", first)[0] == Reason.SCTP_CHUNK
    assert read("SACK", first, ovs=True)[0] == Reason.NONE


def test_no_chunk():
    assert read() == (Reason.SCTP_CHUNK, set())
    assert read(ovs=True) == (Reason.NONE, set())
    assert read(b"\0\0\0")[0] == Reason.SCTP_CHUNK  # less than the header of one
    assert read(b"\0\0\0", ovs=True) == (Reason.NONE, set())


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8, 9, 100, 65535])
def test_lengths(length):
    chunks = ("SACK", chunk(0, b"data", length=length))
    netfilter, ovs = read(*chunks)[0], read(*chunks, ovs=True)[0]
    assert netfilter == (Reason.NONE if length >= 4 else Reason.SCTP_CHUNK)
    assert ovs == (Reason.NONE if 5 <= length <= 8 else Reason.SCTP_CHUNK)  # behind 4 bytes "data" is none


def test_padding_at_the_end_may_be_absent():
    for size in range(1, 4):
        data = chunk(3, bytes(size))[: 4 + size]
        assert read("DATA", data) == read("DATA", data, ovs=True) == (Reason.NONE, {Chunk.DATA, Chunk.OTHER})


def test_an_init_must_be_whole():
    for size in range(20):
        assert read(init(7)[:2] + struct.pack("!H", max(size, 4)) + init(7)[4:size])[0] == Reason.SCTP_CHUNK
    assert read(init(7)) == (Reason.NONE, {Chunk.INIT})


def test_a_chunk_that_was_not_captured_is_not_missed():
    whole = len(associations.raw("c", ("SACK", "DATA"), 5)) - 20
    for short in range(1, whole):
        reason, found = read("SACK", "DATA", short=short)
        left = whole - short
        if left < 16:
            assert reason == Reason.TRUNCATED
        else:
            assert (reason, found) == (Reason.NONE, {Chunk.OTHER} | ({Chunk.DATA} if left >= 12 + 16 + 4 else set()))


def test_the_most_chunks():
    data = chunk(3) * (16383 - 8)
    assert read(data) == (Reason.NONE, {Chunk.OTHER})


def naive(body, ovs):
    """Walk over the chunks behind a common header in plain words; return Reason and their types."""
    kinds = []
    at = 0
    while at + 4 <= len(body):
        number, _, length = struct.unpack_from("!BBH", body, at)
        if length < 4 or (ovs and at + length > len(body)):
            return Reason.SCTP_CHUNK, None
        kinds.append((number, len(body) - at))
        at += (length + 3) // 4 * 4
    numbers = [number for number, _ in kinds]
    if not ovs:
        together = len(numbers) > 1 and {1, 2, 14} & set(numbers)
        late = {10, 11} & set(numbers[1:])
        cut = any(number in (1, 2) and left < 20 for number, left in kinds)
        if together or late or cut or not numbers:
            return Reason.SCTP_CHUNK, None
    return Reason.NONE, set(numbers)


CHUNKS = st.builds(
    lambda number, body, lie: chunk(number, body, length=lie if lie < 30 else None),
    st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 64, 192]),
    st.binary(max_size=24),
    st.integers(0, 200),
)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(st.lists(CHUNKS, max_size=5).map(b"".join), st.booleans())
def test_the_naive_twin_agrees(body, ovs):
    reason, numbers = naive(body, ovs)
    if numbers is not None:
        numbers = {
            getattr(Chunk, name) for name, n in associations.TYPES.items() if n in numbers and hasattr(Chunk, name)
        }
        found = read(body, ovs=ovs)
        assert found[0] == reason and found[1] - {Chunk.OTHER} == numbers
    else:
        assert read(body, ovs=ovs)[0] == reason


def test_no_byte_behind_the_end_is_read():
    guard = Guard()
    parsed = np.zeros(1, PARSED)
    packet = associations.raw("c", ("COOKIE_ECHO", "SACK", "DATA"), 5)[20:]
    for setting in (0, Setting.OVS):
        for data in (packet, associations.raw("c", "INIT")[20:]):
            for cut in range(12, len(data) + 1):
                for size in (cut, len(data)):
                    where = u64(guard.place(data[:cut]))
                    _read(where, u64(size), u64(cut), u64(setting), u64(parsed.ctypes.data))
