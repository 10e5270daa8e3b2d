"""Capture files as ports: packets come out of one, through the rules, into another."""

import ctypes

import capture_files
import pytest
from ports import datagrams
from wired import Devices
from zonetrack.service.captures import Capture
from zonetrack.service.ports.pcap import BUFFER_BYTES, PcapPort
from zonetrack.shm.layout import PLACES
from zonetrack.shm.reasons import Reason


def packets_of(path):
    """Return the packets of a capture."""
    with Capture(str(path)) as capture:
        found = [
            ctypes.string_at(int(frame["address"]), int(frame["captured_bytes"]))
            for frames, _ in capture.slices()
            for frame in frames
        ]
        capture.check()
    return found


@pytest.fixture
def through(tmp_path):
    """Return a function that has packets go through rules from one capture into another."""

    def go(packets, text="actions=output:out", **more):
        file, _ = capture_files.pcap([capture_files.Packet(one) for one in packets])
        (tmp_path / "in.pcap").write_bytes(file)
        ports = [
            PcapPort(str(tmp_path / "in.pcap"), "in", zone=4),
            PcapPort("-", "out", out=str(tmp_path / "out.pcap"), **more),
        ]
        devices = Devices(ports, text)
        devices.loop.record["sleep_ms"] = 0
        with devices:
            while devices.poll():
                pass
        return devices, packets_of(tmp_path / "out.pcap")

    return go


def test_packets_go_from_one_capture_to_another(through):
    devices, came = through(datagrams(100))
    assert came == datagrams(100)
    first, second = devices.queues.records
    assert (first["rx_packets"], first["bursts"], first["rx_sizes"].tolist()) == (100, 4, [0, 0, 1, 0, 0, 3])
    assert (second["tx_packets"], second["tx_bytes"]) == (100, 100 * len(datagrams(1)[0]))
    assert devices.ports[0].about()["ended"]


def test_what_is_translated_is_written_and_the_file_that_is_read_stays(through, tmp_path):
    _, came = through(datagrams(2), "ip actions=ct(commit,nat(src=192.0.2.9)),output:out")
    assert [frame[26:30] for frame in came] == [b"\xc0\0\2\x09"] * 2
    assert packets_of(tmp_path / "in.pcap") == datagrams(2)


def test_a_buffer_that_is_full_is_written_before_the_batch_is(through):
    long = [frame + bytes(60_000) for frame in datagrams(9)]
    devices, came = through(long)
    assert came == long and BUFFER_BYTES < 9 * 60_000
    assert devices.queues.records["tx"].view(PLACES)["cursor"].tolist()[1] == 0


def test_a_frame_longer_than_a_buffer_is_counted(through):
    devices, came = through([datagrams(1)[0] + bytes(BUFFER_BYTES - 50), *datagrams(1)])
    assert came == datagrams(1)
    assert devices.queues.records["tx_too_long"].tolist() == [0, 1]
    assert devices.worker.counter(Reason.OUTPUT_TOO_LONG) == 1


def test_a_port_that_writes_no_file_has_room_for_nothing(through):
    devices, came = through(datagrams(3), "actions=IN_PORT")
    assert came == [] and devices.queues.records["tx_full"].tolist() == [3, 0]
