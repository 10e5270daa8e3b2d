"""Capture files as ports: opened, told, closed; what cannot be is one line."""

import os

import capture_files
import pytest
from ports import datagrams
from zonetrack.service.ports.errors import PortError
from zonetrack.service.ports.pcap import HEADER, PcapPort
from zonetrack.shm.queues import Queues


@pytest.fixture
def file(tmp_path):
    data, _ = capture_files.pcap([capture_files.Packet(one) for one in datagrams(2)])
    (tmp_path / "in.pcap").write_bytes(data)
    return str(tmp_path / "in.pcap")


def test_each_worker_has_a_buffer_and_one_the_file_that_is_read(file, tmp_path):
    with PcapPort(file, "p", zone=3, workers=2, out=str(tmp_path / "out.pcap")) as made:
        queues = Queues([made], workers=2)
        assert queues.records["receives"].tolist() == [1, 0]
        assert len(set(queues.records["tx"]["ring"].tolist())) == 2
        assert made.about() == {"device": file, "out": str(tmp_path / "out.pcap"), "ended": False}
        made.close()
        assert made.about()["ended"]
    assert (tmp_path / "out.pcap").read_bytes() == HEADER
    assert (tmp_path / "out.pcap").stat().st_mode & 0o777 == 0o600  # it may hold anybody's packets


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "empty"),
        (b"what is this thing here?", "byte 0"),
        (capture_files.pcap([])[0] + b"x", "byte 24"),
    ],
)
def test_a_file_that_is_no_capture_is_refused(tmp_path, content, words):
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(PortError) as raised:
        PcapPort(str(tmp_path / "x"), "p")
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_another_process_goes_on_with_it(file, tmp_path):
    out = str(tmp_path / "out.pcap")
    made = PcapPort(file, "p", out=out)
    os.write(made.descriptors()[0], b"x")
    with PcapPort(file, "p", out=out, descriptors=[os.dup(made.descriptors()[0])]) as other:
        made.unlink()
        os.write(other.descriptors()[0], b"y")
    assert (tmp_path / "out.pcap").read_bytes() == HEADER + b"xy"


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(PortError, match="writing"):
        PcapPort("-", "p", out=str(tmp_path / "no" / "out.pcap"))
