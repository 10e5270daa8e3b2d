"""Checksums are what scapy makes of them, whatever was in their place."""

import pytest
from scapy.all import ICMP, IP, TCP, UDP, ICMPv6EchoRequest, IPv6, IPv6ExtHdrHopByHop, Raw
from zonetrack.service import checksums
from zonetrack.service.checksums import of_ipv4, of_transport

V4, V6 = IP(src="192.0.2.1", dst="198.51.100.1"), IPv6(src="2001:db8::1", dst="2001:db8::2")
PACKETS = {
    "tcp": V4 / TCP(sport=7, dport=9, options=[("MSS", 1460)]) / Raw(b"odd"),
    "udp": V4 / UDP(sport=7, dport=9) / Raw(b"abc"),
    "icmp": V4 / ICMP(id=5) / Raw(b"abcde"),
    "tcp6": V6 / TCP(sport=7, dport=9),
    "udp6": V6 / UDP(sport=7, dport=9) / Raw(b"abcd"),
    "icmp6": V6 / ICMPv6EchoRequest(id=5),
}


@pytest.mark.parametrize("name", PACKETS)
def test_a_right_one_is_found_right_and_a_wrong_one_is_corrected(name):
    packet = bytes(PACKETS[name])
    sums = of_transport(packet)
    assert sums.found == sums.expected != 0
    begin = 20 if packet[0] >> 4 == 4 else 40
    protocol = packet[9] if begin == 20 else packet[6]
    at = begin + checksums.AT[protocol]
    wrong = packet[:at] + b"\x12\x34" + packet[at + 2 :]
    assert of_transport(wrong) == (0x1234, sums.expected)
    assert of_transport(wrong + b"trailer of the link") == (0x1234, sums.expected)
    assert of_transport(packet[:-1]) is None


def test_the_header_of_ipv4():
    packet = bytes(PACKETS["udp"])
    assert len(set(of_ipv4(packet))) == 1
    assert of_ipv4(packet[:10] + b"\0\1" + packet[12:]) == (1, of_ipv4(packet).expected)
    assert of_ipv4(packet[:19]) is None and of_ipv4(b"") is None


def test_what_has_none_that_we_know():
    assert of_transport(b"") is None and of_transport(bytes(60)) is None
    assert of_transport(bytes(V4 / Raw(b"x" * 40))) is None
    assert of_transport(bytes(V6 / IPv6ExtHdrHopByHop() / UDP())) is None


def test_a_datagram_never_says_that_it_has_no_checksum():
    first = bytes(V4 / UDP(sport=7, dport=9) / Raw(b"\0\0"))
    expected = of_transport(first).expected
    datagram = first[:-2] + expected.to_bytes(2, "big")  # which makes the sum 0xffff
    assert of_transport(datagram).expected == 0xFFFF
