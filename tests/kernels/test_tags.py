"""Tags of VLANs: known by their kinds, put in where they belong, and not held against a frame that leaves."""

import numpy as np
import pytest
from zonetrack.kernels import memory, tags
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FRAME, Link

frame_at = memory.record_at(FRAME)
ADDRESSES = bytes(range(12))


@kernel
def longest_at(address, length_max, room_bytes):
    """Ask of a FRAME."""
    return tags.longest(frame_at(address), length_max, room_bytes)


def longest(data, length_max, room_bytes, captured=None):
    """Return how long a frame of these bytes may be."""
    room, frames = np.frombuffer(data, "u1").copy(), np.zeros(1, FRAME)
    frames["address"], frames["link"] = room.ctypes.data, Link.ETHERNET
    frames["captured_bytes"] = len(data) if captured is None else captured
    return int(longest_at(u64(frames.ctypes.data), u64(length_max), u64(room_bytes)))


@pytest.mark.parametrize(
    ("ethertype", "known"), [(0x8100, True), (0x88A8, True), (0x9100, False), (0x0800, False), (0x0081, False)]
)
def test_kinds_of_tags(ethertype, known):
    assert bool(tags.is_tag(u64(ethertype))) is known


@pytest.mark.parametrize("kind", [0x8100, 0x88A8, 0x9100])
def test_a_tag_stands_behind_the_addresses(kind):
    room = np.frombuffer(b"\xee" * 6 + ADDRESSES + b"\x08\x00" + b"payload", "u1").copy()
    tags.insert(u64(room.ctypes.data + 6), u64(kind), u64(0xE007))
    assert room.tobytes() == b"\xee\xee" + ADDRESSES + kind.to_bytes(2, "big") + b"\xe0\x07" + b"\x08\x00payload"


@pytest.mark.parametrize("kind", [b"\x81\x00", b"\x88\xa8"])
def test_a_tag_does_not_count(kind):
    assert longest(ADDRESSES + kind + bytes(50), 1514, 2048) == 1518


def test_other_frames_may_be_as_long_as_the_mtu_says():
    assert longest(ADDRESSES + b"\x08\x00" + bytes(50), 1514, 2048) == 1514


@pytest.mark.parametrize("kind", [b"\x81\x00", b"\x08\x00"])
def test_no_frame_may_be_longer_than_its_place(kind):
    assert longest(ADDRESSES + kind + bytes(50), 2047, 2040) == 2040


def test_a_tag_that_is_not_all_there_is_none():
    data = ADDRESSES + b"\x81\x00\x00\x07"
    assert (longest(data, 1514, 2048, captured=15), longest(data, 1514, 2048, captured=16)) == (1514, 1518)
