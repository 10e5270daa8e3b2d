"""What the system tells beside a frame: its bits are Linux's, and a tag that it took out is put back once."""

import struct

import numpy as np
import pytest
from zonetrack.kernels import frame_status
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FrameFlag

USER, NOT_READY, TAGGED, KIND_VALID, VERIFIED = 1, 8, 0x10, 0x40, 0x80
LEFT, TRUSTED = FrameFlag.CHECKSUM_TRUSTED | FrameFlag.CHECKSUM_PARTIAL, FrameFlag.CHECKSUM_TRUSTED
FRAME = bytes(range(1, 13)) + b"\x08\x00" + b"payload"


@pytest.mark.parametrize(
    ("status", "flags"),
    [
        (USER, 0),
        (USER | TAGGED | KIND_VALID, 0),
        (USER | VERIFIED, TRUSTED),
        (USER | NOT_READY, LEFT),
        (USER | NOT_READY | VERIFIED, LEFT),
    ],
)
def test_what_is_told_of_a_checksum(status, flags):
    assert frame_status.checksum_flags(u64(status)) == flags


@pytest.mark.parametrize(("told", "kind"), [(KIND_VALID, 0x88A8), (0, 0x8100)])
@pytest.mark.parametrize("places", [(20, 12, 24), (0, 4, 12)])  # of TPACKET_V3 and of TPACKET_V2
def test_a_tag_is_put_back_and_the_header_says_so(places, told, kind):
    status_at, lengths_at, start_at = places
    room = np.zeros(128, "u1")
    before = bytearray(64)
    struct.pack_into("<I", before, status_at, USER | TAGGED | VERIFIED | told)
    struct.pack_into("<II", before, lengths_at, len(FRAME), 1000)
    struct.pack_into("<H", before, start_at, 64)
    room[:64] = before
    room[64 : 64 + len(FRAME)] = np.frombuffer(FRAME, "u1")
    frame_status.put_tag_back(
        u64(room.ctypes.data), u64(status_at), u64(lengths_at), u64(start_at), u64(0x88A8), u64(0x2007)
    )
    after = room.tobytes()
    expected = bytearray(before)
    struct.pack_into("<I", expected, status_at, USER | VERIFIED | told)
    struct.pack_into("<II", expected, lengths_at, len(FRAME) + 4, 1004)
    struct.pack_into("<H", expected, start_at, 60)
    assert after[:60] == expected[:60]
    assert after[60 : 64 + len(FRAME)] == FRAME[:12] + struct.pack("!HH", kind, 0x2007) + FRAME[12:]
    assert not frame_status.has_tag(u64(struct.unpack_from("<I", after, status_at)[0]))


def test_how_a_frame_is_to_be_cut_is_told_with_a_tag_and_without():
    room = np.zeros(128, "u1")
    start = room.ctypes.data + 64
    room[54:64] = np.frombuffer(struct.pack("<BBHHHH", 1, 5, 42, 700, 34, 6), "u1")  # VIRTIO_NET_HDR_GSO_UDP_L4
    room[:32].view("<u4")[5] = USER | TAGGED
    room[24:26].view("<u2")[0] = 64
    assert frame_status.segment_bytes(u64(start)) == 700
    frame_status.put_tag_back(u64(room.ctypes.data), u64(20), u64(12), u64(24), u64(0x8100), u64(7))
    assert frame_status.segment_bytes(u64(start - 4)) == 700
    room[51] = 0  # the kind of its segments: none
    assert frame_status.segment_bytes(u64(start - 4)) == 0
