"""The sample conversation is what it says: scapy reads every frame, and finds every checksum right."""

import io
import subprocess
import sys

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader
from zonetrack.clients import conversation
from zonetrack.clients.errors import Exit


@pytest.fixture(scope="module")
def frames():
    """Every frame of the capture, as scapy reads it."""
    return [Ether(data) for data, _ in RawPcapReader(io.BytesIO(conversation.capture()))]


def test_every_frame_is_ip_with_right_checksums(frames):
    assert len(frames) == len(list(conversation.packets()))
    for frame in frames:
        rebuilt = frame.copy()
        for layer in (IP, TCP, UDP, ICMP, ICMPv6EchoRequest):
            part = rebuilt.getlayer(layer)
            if part is not None and layer in (IP, TCP, UDP, ICMP):
                del part.chksum
            elif part is not None:
                del part.cksum
        assert rebuilt.build() == frame.original


def test_it_has_one_of_each_kind(frames):
    assert {IP, IPv6, TCP, UDP, ICMP, ICMPv6EchoRequest} <= {kind for frame in frames for kind in frame.layers()}
    flags = {str(frame[TCP].flags) for frame in frames if TCP in frame}
    assert flags == {"S", "SA", "A", "PA", "FA"}


def test_checksum_of_an_odd_number_of_bytes():
    # RFC 1071 3, its example, and a byte more
    assert conversation.checksum(bytes.fromhex("0001f203f4f5f6f7")) == ~0xDDF2 & 0xFFFF
    assert conversation.checksum(b"\x01") == 0xFEFF


def test_command_writes_the_capture(tmp_path):
    path = tmp_path / "some.pcap"
    command = [sys.executable, "-m", "zonetrack.clients.conversation"]
    subprocess.run([*command, str(path)], check=True)
    assert path.read_bytes() == conversation.capture()
    wrong = subprocess.run(command, capture_output=True, text=True, check=False)
    assert wrong.returncode == Exit.USAGE and "Usage" in wrong.stderr
