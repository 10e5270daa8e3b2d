"""Packets made from their description: what scapy reads in them is what was said, and their checksums are right."""

import numpy as np
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from zonetrack.clients.port import frames_of
from zonetrack.kernels import flow_fields
from zonetrack.kernels.words import u64
from zonetrack.service import described, rules_compile
from zonetrack.service.rules import Names
from zonetrack.shm.layout import FIELDS

NAMES = Names({"lan": 1, "wan": 2})
V4, V6 = "nw_src=10.0.0.1,nw_dst=10.0.0.2", "ipv6_src=fd00::1,ipv6_dst=2001:db8::2"


@pytest.mark.parametrize(
    "text",
    [
        f"tcp,{V4},tp_src=1000,tp_dst=80",
        f"tcp,{V4},tcp_flags=0x012",
        f"tcp6,{V6},tp_src=1000,tp_dst=80",
        f"udp,{V4},tp_src=1000,tp_dst=53,dl_vlan=7",
        f"udp6,{V6},tp_dst=53",
        f"icmp,{V4},icmp_type=8,icmp_code=0",
        f"icmp6,{V6},icmpv6_type=128,icmpv6_code=0",
        f"ip,{V4},nw_proto=47",
        "arp",
        "dl_type=0x88cc,dl_vlan=9",
    ],
)
def test_workers_read_what_was_said(text):
    packet = described.read(f"in_port=wan,{text}", NAMES)
    frames, kept = frames_of([packet.data])
    fields = np.zeros(1, FIELDS)
    flow_fields.read(frames.view(np.recarray)[0], u64(2), u64(fields.ctypes.data))
    del kept
    assert fields == rules_compile.fields(**packet.fields)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        (f"tcp,{V4},tp_src=1000,tp_dst=80", (Ether, IP, TCP)),
        (f"tcp6,{V6},tp_src=1000,tp_dst=80", (Ether, IPv6, TCP)),
        (f"udp,{V4},tp_src=1000,tp_dst=53,dl_vlan=7", (Ether, Dot1Q, IP, UDP)),
        (f"udp6,{V6},tp_dst=53", (Ether, IPv6, UDP)),
        (f"icmp,{V4},icmp_type=8,icmp_code=0", (Ether, IP, ICMP)),
        (f"tcp,{V4},tp_dst=21,payload=QUIT,dl_vlan=7", (Ether, Dot1Q, IP, TCP)),
        (f"udp6,{V6},tp_dst=5060,payload='INVITE x\\r\\n'", (Ether, IPv6, UDP)),
    ],
)
def test_checksums_are_right(text, layers):
    data = described.read(f"in_port=1,{text}", NAMES).data
    packet = Ether(data)
    for layer in layers:
        assert layer in packet
        for name in ("chksum", "cksum"):
            if name in packet[layer].fields:
                del packet[layer].fields[name]
    assert bytes(Ether(bytes(packet))) == data == bytes(packet)


def test_a_segment_without_flags_opens():
    assert described.read(f"in_port=1,tcp,{V4}", NAMES).fields["tcp_flags"] == 2


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("USER", b"USER"),
        ('"PORT 10,0,0,1,156,65\\r\\n"', b"PORT 10,0,0,1,156,65\r\n"),
        (r"'say \"hi\" \\ \x00\t\''", b'say "hi" \\ \0\t\''),
        ("0x00ff10", b"\0\xff\x10"),
        ("'\u00e9'", b"\xc3\xa9"),
    ],
)
def test_a_payload_is_text_or_bytes(written, meant):
    packet = described.read(f"in_port=1,udp,payload={written} tp_dst=7", NAMES)
    assert (packet.payload, packet.fields["dport"]) == (meant, 7)
    assert bytes(Ether(packet.data)[UDP].payload) == meant == described.payload_of(packet.data, 17)
    again = described.read(f"in_port=1,tcp6,payload={described.told(meant)}", NAMES)
    assert again.payload == meant == described.payload_of(again.data, 6)
    assert again.fields["tcp_flags"] == 0x18


def test_a_segment_may_have_other_numbers():
    data = described.read(f"in_port=1,tcp6,{V6},tcp_flags=+ack,payload=x", NAMES).data
    packet = Ether(described.numbered(data, 1 << 31, 77))
    assert (packet[TCP].seq, packet[TCP].ack, bytes(packet[TCP].payload)) == (1 << 31, 77, b"x")
    told = packet[TCP].chksum
    del packet[TCP].chksum
    assert Ether(bytes(packet))[TCP].chksum == told


def test_what_the_tracker_knows_may_be_said():
    fields = described.read("in_port=1,ip,ct_state=+trk+est,ct_mark=5", NAMES).fields
    assert (fields["ct_state"], fields["mark"]) == (0x22, 5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tcp", "in_port is missing"),
        ("in_port=1,tcp,tp_dst=1-5", "a packet has one dport, not a range of them"),
        ("in_port=1,ip,nw_src=10.0.0.0/8", "a packet has one src"),
        ("in_port=1,ip,ip_frag=first", "a fragment cannot be described by itself"),
        ("in_port=1,sctp", "a packet of SCTP cannot be described"),
        ("in_port=3", "there is no port 3"),
        ("in_port=1,tpc", "unknown field 'tpc'"),
        ("in_port=1,icmp,payload=x", "payload: only tcp and udp carry one here"),
        ("in_port=1,udp,payload=x,payload=y", "payload: a packet has one"),
        ("in_port=1,udp,payload=0x123", "payload: 0x123 is not whole bytes in hexadecimal"),
        ('in_port=1,udp,payload="a\\q"', r"payload: \\q means nothing"),
        ('in_port=1,udp,payload="a', 'payload: write it as "text"'),
        (f"in_port=1,udp,payload={'x' * 1401}", "payload: 1401 bytes, at most 1400 are possible"),
    ],
)
def test_what_is_no_packet_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        described.read(text, NAMES)
