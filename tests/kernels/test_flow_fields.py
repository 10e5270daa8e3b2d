"""What rules can ask of a frame, against what scapy put in; and nothing is read beyond what was captured."""

import ipaddress

import numpy as np
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP
from zonetrack.kernels import flow_fields
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FIELDS, FRAME, Link

V4 = {"eth_type": 0x800, "src": int(ipaddress.ip_address("10.0.0.1")), "dst": int(ipaddress.ip_address("10.0.0.2"))}
V6 = {"eth_type": 0x86DD, "src": int(ipaddress.ip_address("fd00::1")), "dst": int(ipaddress.ip_address("2001:db8::2"))}
TO4, TO6 = IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="fd00::1", dst="2001:db8::2")
PORTS = {"sport": 1234, "dport": 80}


def read(data, link=Link.ETHERNET, captured=None):
    """Return what is not 0 of a frame's fields, by name."""
    held = np.frombuffer(bytes(data), "u1").copy()
    frame = np.zeros(1, FRAME)
    frame["address"], frame["link"] = held.ctypes.data, link
    frame["captured_bytes"] = frame["wire_bytes"] = len(held) if captured is None else captured
    fields = np.frombuffer(bytearray(b"\xff" * FIELDS.itemsize), FIELDS)
    flow_fields.read(frame.view(np.recarray)[0], u64(3), u64(fields.ctypes.data))
    found = {}
    for name in FIELDS.names:
        value = fields[name][0]
        if name == "reserved":
            assert not value.any()
        elif name in ("src", "dst", "label"):
            found[name] = int(value[0]) << 64 | int(value[1])
        else:
            found[name] = int(value)
    assert found.pop("in_port") == 3
    return {name: value for name, value in found.items() if value}


@pytest.mark.parametrize(
    ("packet", "fields"),
    [
        (Ether() / TO4 / TCP(sport=1234, dport=80, flags="SA"), V4 | PORTS | {"protocol": 6, "tcp_flags": 0x12}),
        (Ether() / TO4 / UDP(sport=1234, dport=80), V4 | PORTS | {"protocol": 17}),
        (Ether() / TO4 / SCTP(sport=1234, dport=80), V4 | PORTS | {"protocol": 132}),
        (Ether() / TO4 / ICMP(type=3, code=4), V4 | {"protocol": 1, "sport": 3, "dport": 4}),
        (Ether() / IP(src="10.0.0.1", dst="10.0.0.2", proto=47), V4 | {"protocol": 47}),
        (Ether() / IP(src="10.0.0.1", dst="10.0.0.2", options=b"\x01\x01\x01\x01") / UDP(sport=1234, dport=80),
         V4 | PORTS | {"protocol": 17}),
        (Ether() / IP(src="10.0.0.1", dst="10.0.0.2", flags="MF") / UDP(sport=1234, dport=80),
         V4 | PORTS | {"protocol": 17, "frag": 1}),
        (Ether() / IP(src="10.0.0.1", dst="10.0.0.2", frag=5, proto=17) / b"12345678", V4 | {"protocol": 17, "frag": 3}),
        (Ether() / TO6 / TCP(sport=1234, dport=80, flags="S"), V6 | PORTS | {"protocol": 6, "tcp_flags": 2}),
        (Ether() / TO6 / ICMPv6EchoRequest(), V6 | {"protocol": 58, "sport": 128}),
        (Ether() / TO6 / IPv6ExtHdrDestOpt() / UDP(sport=1234, dport=80), V6 | PORTS | {"protocol": 17}),
        (Ether() / TO6 / IPv6ExtHdrFragment(offset=0, m=1) / UDP(sport=1234, dport=80),
         V6 | PORTS | {"protocol": 17, "frag": 1}),
        (Ether() / TO6 / IPv6ExtHdrFragment(offset=9, nh=17) / b"12345678", V6 | {"protocol": 17, "frag": 3}),
        (Ether() / Dot1Q(vlan=7, prio=5) / TO4 / UDP(sport=1234, dport=80),
         V4 | PORTS | {"protocol": 17, "vlan": 0x1007}),
        (Ether() / Dot1Q(vlan=0) / ARP(), {"eth_type": 0x806, "vlan": 0x1000}),
        (Ether() / ARP(), {"eth_type": 0x806}),
        (Ether(type=0x88CC) / b"more", {"eth_type": 0x88CC}),
    ],
)  # fmt: skip
def test_fields_are_what_was_put_in(packet, fields):
    assert read(packet) == fields


def test_raw_packets_have_no_tag():
    assert read(TO4 / UDP(sport=1234, dport=80), Link.RAW_IP) == V4 | PORTS | {"protocol": 17}


@pytest.mark.parametrize("packet", [Ether() / Dot1Q(vlan=7) / TO4 / TCP(sport=1234, dport=80), Ether() / TO6 / UDP()])
def test_what_was_cut_off_is_not_there(packet):
    """Whatever is behind the end, the fields are those of what was captured."""
    data = bytes(packet)
    for captured in range(len(data)):
        assert read(data, captured=captured) == read(data[:captured] + b"\xaa" * 64, captured=captured)
