"""Capture files are mapped and walked; what is wrong with one names the file and the byte."""

import ctypes
import os

import pytest
from capture_files import Packet, pcap
from zonetrack.service.captures import Capture, CaptureError
from zonetrack.shm.layout import FrameFlag

PACKETS = [Packet(bytes([i]) * 20, i * 1000) for i in range(9)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap(PACKETS)[0])
    return path


def datas(capture):
    return [
        (ctypes.string_at(int(frame["address"]), int(frame["captured_bytes"])), int(time))
        for frames, times in capture.slices()
        for frame, time in zip(frames, times, strict=True)
    ]


def test_a_capture_is_walked_again_after_rewind(path):
    with Capture(str(path), zone=5, flags=FrameFlag.COMMIT) as capture:
        first = datas(capture)
        assert first == [(packet.data, packet.time_ns) for packet in PACKETS]
        assert capture.ended
        capture.check()
        assert datas(capture) == []
        capture.rewind()
        assert not capture.ended
        (frames, _), *_ = capture.slices()
        assert set(zip(frames["zone"].tolist(), frames["flags"].tolist(), strict=True)) == {(5, FrameFlag.COMMIT)}


def test_slices_hold_so_many_packets(path, monkeypatch):
    monkeypatch.setattr("zonetrack.service.captures.SLICE_PACKETS", 4)
    with Capture(str(path)) as capture:
        assert [len(times) for _, times in capture.slices()] == [4, 4, 1]


def test_a_fault_names_file_and_byte(path):
    os.truncate(path, path.stat().st_size - 1)
    with Capture(str(path)) as capture:
        assert len(datas(capture)) == 8
        with pytest.raises(CaptureError) as caught:
            capture.check()
    assert (caught.value.path, caught.value.offset) == (str(path), 24 + 8 * 36)
    assert str(caught.value) == f"{path}: byte 312: the file ends inside a record"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "byte 0: the file is empty"), (b"hello, world", "byte 0: not a pcap or pcapng file")],
)
def test_what_is_no_capture_is_not_opened(tmp_path, content, words):
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=words):
        Capture(str(path))


def test_what_is_no_file_is_not_opened(tmp_path):
    with pytest.raises(CaptureError, match="No such file"):
        Capture(str(tmp_path / "nothing"))
    with pytest.raises(CaptureError, match="not a regular file"):
        Capture(str(tmp_path))
    with pytest.raises(CaptureError, match="not a regular file"):
        Capture(os.devnull)


def test_a_file_is_mapped_not_read_and_no_descriptor_stays(path):
    os.truncate(path, 1 << 40)  # a terabyte, all hole
    before = len(os.listdir("/proc/self/fd"))
    with Capture(str(path)) as capture:
        (frames, _) = next(capture.slices())
        assert len(frames) > len(PACKETS)  # zeros are empty packets
    assert len(os.listdir("/proc/self/fd")) == before
