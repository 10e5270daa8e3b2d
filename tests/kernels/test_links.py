"""Every link layer leads to the IP header or says why not, and a frame cut anywhere is not read beyond the cut."""

import struct

import numpy as np
import pytest
from forked import Child
from guard import Guard
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import EXAMPLES
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import LLC, SNAP, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Dot3, Ether, Loopback
from scapy.layers.ppp import HDLC, PPP, PPPoE
from zonetrack.kernels import links
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.links import LABELS_MAX, OPTIONS_MAX, TAGS_MAX
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import Link
from zonetrack.shm.reasons import Reason

STATIONS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
ETHER, DOT3 = Ether(**STATIONS), Dot3(**STATIONS)  # without addresses scapy asks the network for them
V4 = bytes(IP(src="192.0.2.1", dst="198.51.100.1") / TCP())
V6 = bytes(IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP())
PACKETS = {4: V4, 6: V6}
ETHERTYPE = {4: 0x0800, 6: 0x86DD}
PPP_PROTOCOL = {4: 0x0021, 6: 0x0057}


@kernel
def _find(link, address, captured):
    return links.find(link, address, captured)


def find_at(address, captured, link):
    """Return (family, offset of the IP header) or the Reason."""
    word = int(_find(u64(link), u64(address), u64(captured)))
    return (word & 0xFF, word >> 8) if word & 0xFF else Reason(word >> 8)


def find(data, link):
    array = np.frombuffer(bytes(data) + b"\0", np.uint8)
    return find_at(array.ctypes.data, len(data), link)


def ethernet(*tags):
    """Return what puts an Ethernet header and tags of these EtherTypes before a packet."""

    def wrap(family):
        types = [*tags, ETHERTYPE[family]]
        return bytes(12) + b"".join(
            struct.pack("!H" if i == 0 else "!HH", *([kind] if i == 0 else [100 + i, kind]))
            for i, kind in enumerate(types)
        )

    return wrap


def scapy(header):
    """Return what puts these layers of scapy before a packet; scapy fills in the types."""

    def wrap(family):
        inner = IP(V4) if family == 4 else IPv6(V6)
        return bytes(header / inner)[: -len(PACKETS[family])]

    return wrap


def fixed(before, types, after=b"", order="!"):
    return lambda family: before + struct.pack(order + "H", types[family]) + after


def labels(count):
    stack = b"".join(struct.pack("!I", 1000 + i << 12 | (i == count - 1) << 8 | 64) for i in range(count))
    return lambda family: bytes(12) + b"\x88\x47" + stack


def nflog(order, *options):
    """Return an NFLOG record whose last option is the packet."""

    def wrap(family):
        before = b"".join(
            struct.pack(order + "HH", 4 + len(value), kind) + value + bytes(-len(value) % 4) for kind, value in options
        )
        return bytes((2, 0, 0, 1)) + before + struct.pack(order + "HH", 4 + len(PACKETS[family]), 9)

    return wrap


SNAP_IP = b"\xaa\xaa\x03\0\0\0"
OPTIONS = [(1, b"\0\0\x08\0\0\0\0\0"), (10, b"prefix\0"), (5, b"\0\0\0\x01"), (11, b"\0\0\0\0")]

FRAMES = {
    "ethernet": (Link.ETHERNET, ethernet()),
    "ethernet by scapy": (Link.ETHERNET, scapy(ETHER)),
    "802.1Q": (Link.ETHERNET, scapy(ETHER / Dot1Q(vlan=7))),
    "802.1ad": (Link.ETHERNET, scapy(ETHER / Dot1AD(vlan=7) / Dot1Q(vlan=8))),
    "QinQ 9100": (Link.ETHERNET, ethernet(0x9100, 0x8100)),
    "QinQ 9200": (Link.ETHERNET, ethernet(0x9200, 0x8100)),
    "QinQ 9300": (Link.ETHERNET, ethernet(0x9300, 0x8100)),
    "as many tags as there may be": (Link.ETHERNET, ethernet(*[0x8100] * (TAGS_MAX - 1))),
    "MPLS": (Link.ETHERNET, labels(1)),
    "MPLS stack": (Link.ETHERNET, labels(5)),
    "as many labels as there may be": (Link.ETHERNET, labels(LABELS_MAX)),
    "MPLS by scapy": (Link.ETHERNET, scapy(ETHER / MPLS(label=3, s=0) / MPLS(label=4, s=1))),
    "MPLS multicast": (Link.ETHERNET, lambda family: bytes(12) + b"\x88\x48\x00\x01\x01\x40"),
    "MPLS in a VLAN": (Link.ETHERNET, scapy(ETHER / Dot1Q(vlan=7) / MPLS(label=3, s=1))),
    "PPPoE": (Link.ETHERNET, lambda f: scapy(ETHER / PPPoE(sessionid=9) / PPP(proto=PPP_PROTOCOL[f]))(f)),
    "PPPoE in QinQ": (
        Link.ETHERNET,
        lambda f: scapy(ETHER / Dot1AD() / Dot1Q() / PPPoE() / PPP(proto=PPP_PROTOCOL[f]))(f),
    ),
    "SNAP": (Link.ETHERNET, lambda f: scapy(DOT3 / LLC() / SNAP(code=ETHERTYPE[f]))(f)),
    "SNAP of 802.1H": (Link.ETHERNET, fixed(bytes(12) + b"\0\x40\xaa\xaa\x03\0\0\xf8", ETHERTYPE)),
    "SNAP in a VLAN": (Link.ETHERNET, fixed(bytes(12) + b"\x81\0\0\x07\0\x40" + SNAP_IP, ETHERTYPE)),
    "VLAN in SNAP": (Link.ETHERNET, fixed(bytes(12) + b"\0\x40" + SNAP_IP + b"\x81\0\0\x07", ETHERTYPE)),
    "cooked": (Link.COOKED, lambda f: scapy(CookedLinux(proto=ETHERTYPE[f]))(f)),
    "cooked with a VLAN": (Link.COOKED, scapy(CookedLinux(proto=0x8100) / Dot1Q(vlan=7))),
    "cooked 802.2": (Link.COOKED, fixed(bytes(14) + b"\0\x04" + SNAP_IP, ETHERTYPE)),
    "cooked 2": (Link.COOKED2, lambda f: scapy(CookedLinuxV2(proto=ETHERTYPE[f]))(f)),
    "cooked 2 with a VLAN": (Link.COOKED2, scapy(CookedLinuxV2(proto=0x8100) / Dot1Q(vlan=7))),
    "raw": (Link.RAW_IP, lambda family: b""),
    "null, big-endian": (Link.NULL, lambda f: struct.pack(">I", {4: 2, 6: 24}[f])),
    "null, little-endian": (Link.NULL, lambda f: struct.pack("<I", {4: 2, 6: 30}[f])),
    "null, FreeBSD": (Link.NULL, lambda f: struct.pack("<I", {4: 2, 6: 28}[f])),
    "null, Linux": (Link.NULL, lambda f: struct.pack("<I", {4: 2, 6: 10}[f])),
    "null with an EtherType": (Link.NULL, lambda f: struct.pack(">HH", 0x0F00, ETHERTYPE[f])),
    "null by scapy": (Link.NULL, lambda f: scapy(Loopback(type={4: 2, 6: 30}[f]))(f)),
    "loop": (Link.LOOP, lambda f: struct.pack(">I", {4: 2, 6: 24}[f])),
    "PPP": (Link.PPP, fixed(b"", PPP_PROTOCOL)),
    "PPP with address and control": (Link.PPP, lambda f: scapy(HDLC() / PPP(proto=PPP_PROTOCOL[f]))(f)),
    "PPP, protocol compressed": (Link.PPP, lambda f: bytes([PPP_PROTOCOL[f]])),
    "PPP, both": (Link.PPP, lambda f: bytes([0xFF, 0x03, PPP_PROTOCOL[f]])),
    "PPP with MPLS": (Link.PPP, lambda family: b"\xff\x03\x02\x81\x00\x01\x01\x40"),
    "PPP with MPLS multicast": (Link.PPP, lambda family: b"\x02\x83\x00\x01\x01\x40"),
    "PPP that is Cisco's": (Link.PPP, fixed(b"\x0f\0", ETHERTYPE)),
    "PPP with direction": (Link.PPP_WITH_DIRECTION, fixed(b"\x01\xff\x03", PPP_PROTOCOL)),
    "PPP with direction, short": (Link.PPP_WITH_DIRECTION, fixed(b"\0", PPP_PROTOCOL)),
    "PPPoE alone": (Link.PPPOE, fixed(b"\x11\0\0\x09\0\x2a", PPP_PROTOCOL)),
    "Cisco HDLC": (Link.CISCO_HDLC, fixed(b"\x0f\0", ETHERTYPE)),
    "Cisco HDLC, multicast": (Link.CISCO_HDLC, fixed(b"\x8f\0", ETHERTYPE)),
    "Cisco HDLC with MPLS": (Link.CISCO_HDLC, lambda family: b"\x0f\0\x88\x47\0\x01\x01\x40"),
    "NFLOG": (Link.NFLOG, nflog("<")),
    "NFLOG with options": (Link.NFLOG, nflog("<", *OPTIONS)),
    "NFLOG, big-endian": (Link.NFLOG, nflog(">", *OPTIONS)),
    "as many options as there may be": (Link.NFLOG, nflog("<", *[(5, b"mark")] * (OPTIONS_MAX - 1))),
}
CASES = [
    pytest.param(link, wrap, family, id=f"{name}-{family}")
    for name, (link, wrap) in FRAMES.items()
    for family in PACKETS
]


@pytest.mark.parametrize(("link", "wrap", "family"), CASES)
def test_the_ip_header_is_found(link, wrap, family):
    before = wrap(family)
    assert find(before + PACKETS[family], link) == (family, len(before))


def test_ip_without_snap():
    frame = bytes(12) + struct.pack("!H", 3 + len(V4)) + b"\x06\x06\x03" + V4
    assert find(frame, Link.ETHERNET) == (4, 17)


@pytest.mark.parametrize(("link", "wrap", "family"), CASES)
def test_a_frame_cut_inside_its_headers_is_truncated(link, wrap, family):
    before = wrap(family)
    for cut in range(len(before)):
        assert find(before[:cut], link) == Reason.TRUNCATED


def test_no_byte_behind_the_end_is_read():
    guard = Guard()

    def cuts(child):
        for link, wrap in FRAMES.values():
            for family, packet in PACKETS.items():
                frame = wrap(family) + packet
                for cut in range(len(frame) + 1):
                    find_at(guard.place(frame[:cut]), cut, link)

    find(V4, Link.RAW_IP)
    assert Child(cuts).wait() == 0


NOIP = {
    "ARP": (Link.ETHERNET, bytes(12) + b"\x08\x06" + bytes(28)),
    "ARP in a VLAN": (Link.ETHERNET, bytes(12) + b"\x81\0\0\x07\x08\x06" + bytes(28)),
    "LLDP": (Link.ETHERNET, bytes(12) + b"\x88\xcc" + bytes(46)),
    "PPPoE discovery": (Link.ETHERNET, bytes(12) + b"\x88\x63\x11\x09" + bytes(18)),
    "PPPoE of another version": (Link.ETHERNET, bytes(12) + b"\x88\x64\x22\0\0\x09\0\x2a\0\x21" + V4),
    "PPPoE with LCP": (Link.ETHERNET, bytes(12) + b"\x88\x64\x11\0\0\x09\0\x2a\xc0\x21" + bytes(8)),
    "MPLS pseudowire": (Link.ETHERNET, bytes(12) + b"\x88\x47\0\x01\x01\x40" + bytes(4) + bytes(14) + V4),
    "MPLS without bottom": (Link.ETHERNET, bytes(12) + b"\x88\x47" + b"\0\x01\0\x40" * (LABELS_MAX + 1) + V4),
    "tags without end": (Link.ETHERNET, ethernet(*[0x8100] * TAGS_MAX)(4) + V4),
    "spanning tree": (Link.ETHERNET, bytes(12) + b"\0\x26\x42\x42\x03" + bytes(35)),
    "LLC that is numbered": (Link.ETHERNET, bytes(12) + b"\0\x40\xaa\xaa\x13\0\0\0\x08\0" + V4),
    "SNAP of Cisco": (Link.ETHERNET, bytes(12) + b"\0\x40\xaa\xaa\x03\0\0\x0c\x08\0" + V4),
    "SNAP without end": (Link.ETHERNET, bytes(12) + b"\0\x40" + (SNAP_IP + b"\0\x40") * TAGS_MAX + V4),
    "raw of no version": (Link.RAW_IP, b"\x50" + bytes(39)),
    "NetBEUI on cooked": (Link.COOKED, bytes(14) + b"\0\x04\xf0\xf0\x03" + bytes(20)),
    "null with another family": (Link.NULL, struct.pack("<I", 16) + V4),
    "null with neither family nor type": (Link.NULL, struct.pack(">HH", 0x0F00, 4) + V4),
    "loop in the wrong order": (Link.LOOP, struct.pack("<I", 2) + V4),
    "PPP with LCP": (Link.PPP, b"\xff\x03\xc0\x21" + bytes(8)),
    "Cisco keep-alive": (Link.CISCO_HDLC, b"\x8f\0\x80\x35" + bytes(18)),
    "NFLOG option without size": (Link.NFLOG, b"\x02\0\0\x01" + bytes(8)),
    "NFLOG without a packet": (Link.NFLOG, b"\x02\0\0\x01" + b"\x08\0\x05\0mark" * (OPTIONS_MAX + 1)),
    "NFLOG with another packet": (Link.NFLOG, nflog("<")(4) + b"\x15" + V4[1:]),
    "unknown": (Link.UNKNOWN, bytes(12) + b"\x08\0" + V4),
    "unknown and empty": (Link.UNKNOWN, b""),
}


@pytest.mark.parametrize(("link", "frame"), NOIP.values(), ids=NOIP)
def test_what_is_not_ip(link, frame):
    assert find(frame, link) == Reason.NOIP


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(Link), st.binary(max_size=80))
def test_any_bytes_lead_somewhere_inside_or_nowhere(link, data):
    found = find(data, link)
    if isinstance(found, Reason):
        assert found in (Reason.NOIP, Reason.TRUNCATED)
    else:
        family, offset = found
        assert family in (4, 6) and offset <= len(data)
