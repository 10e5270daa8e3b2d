"""Frames that are right, from which wrong ones are made: every protocol, link and helper that the tracker knows."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from helping import CLIENT, CLIENT6, SERVER, SERVER6, Stream, datagram
from scapy.all import ICMP, IP, TCP, UDP, Dot1Q, Ether, ICMPv6EchoRequest, IPv6, Raw, fragment
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6ND_NS,
    ICMPv6PacketTooBig,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    fragment6,
)
from scapy.layers.l2 import GRE
from scapy.layers.ppp import PPPoE
from scapy.layers.sctp import (
    SCTP,
    SCTPChunkCookieAck,
    SCTPChunkCookieEcho,
    SCTPChunkData,
    SCTPChunkInit,
    SCTPChunkInitAck,
    SCTPChunkShutdown,
)
from zonetrack.shm.layout import Link

FRAME_BYTES_MAX = 2048
FTP = (
    (True, b"220 ready\r\n"),
    (False, b"PORT 192,0,2,1,19,137\r\n"),
    (False, b"EPRT |1|192.0.2.1|5002|\r\n"),
    (False, b"EPSV\r\n"),
    (True, b"229 Entering Extended Passive Mode (|||5003|)\r\n"),
    (False, b"PASV\r\n"),
    (True, b"227 Entering Passive Mode (198,51,100,1,19,140)\r\n"),
)
IRC = ((False, b"PRIVMSG bob :\x01DCC SEND a.txt 3221225985 5005 100\x01\r\n"),)
MEDIA = b"v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 49170 RTP/AVP 0\r\n"
SIP = (
    b"%s sip:bob@198.51.100.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK1\r\n"
    b"From: <sip:a@192.0.2.1>;tag=1\r\nTo: <sip:bob@198.51.100.1>\r\nCall-ID: 1@192.0.2.1\r\nCSeq: 1 %s\r\n"
    b"Contact: <sip:a@192.0.2.1:5060>\r\nExpires: 60\r\n"
    b"Content-Type: application/sdp\r\nContent-Length: %d\r\n\r\n%s"
)
OK = SIP.replace(b"%s sip:bob@198.51.100.1 SIP/2.0", b"SIP/2.0 200 OK")


class Seed(NamedTuple):
    """A frame, how it begins, and where its network and transport headers stand."""

    data: bytes
    link: int
    l3: int
    l4: int


def _pptp(kind, *words):
    body = (1).to_bytes(2, "big") + bytes.fromhex("1a2b3c4d") + kind.to_bytes(2, "big") + bytes(2)
    body += b"".join(word.to_bytes(2, "big") for word in words)
    return (len(body) + 2).to_bytes(2, "big") + body


def _tcp(sport=40000, dport=80, client=CLIENT, server=SERVER, said=((False, b"hello"), (True, b"answer"))):
    stream = Stream(sport, dport, client, server)
    yield from stream.opened()
    for reply, payload in said:
        yield stream.say(payload, reply)
    yield stream.segment(flags="FA")
    yield stream.segment(True, "FA")
    yield stream.segment()
    yield stream.segment(flags="R")


def _both(packet, answer=None):
    yield packet
    yield packet if answer is None else answer


def _errors():
    quoted = IP(src=CLIENT, dst=SERVER) / UDP(sport=5000, dport=53) / b"question"
    for type_, code in ((3, 1), (3, 3), (3, 4), (5, 1), (11, 0), (12, 0)):
        yield Ether() / IP(src=SERVER, dst=CLIENT) / ICMP(type=type_, code=code) / quoted
    quoted = IPv6(src=CLIENT6, dst=SERVER6) / UDP(sport=5000, dport=53) / b"question"
    for error in (ICMPv6DestUnreach(code=1), ICMPv6PacketTooBig(mtu=1280)):
        yield Ether() / IPv6(src=SERVER6, dst=CLIENT6) / error / quoted


def _sctp():
    def chunk(body, reply=False, tag=7):
        ends = (SERVER, CLIENT, 80, 6000) if reply else (CLIENT, SERVER, 6000, 80)
        return Ether() / IP(src=ends[0], dst=ends[1]) / SCTP(sport=ends[2], dport=ends[3], tag=tag) / body

    yield chunk(SCTPChunkInit(init_tag=9, a_rwnd=9000, n_out_streams=1, n_in_streams=1, init_tsn=1), tag=0)
    yield chunk(SCTPChunkInitAck(init_tag=7, a_rwnd=9000, n_out_streams=1, n_in_streams=1, init_tsn=1), True, 9)
    yield chunk(SCTPChunkCookieEcho(cookie=b"abcd"))
    yield chunk(SCTPChunkCookieAck(), True, 9)
    yield chunk(SCTPChunkData(stream_id=0, tsn=1, data=b"data"))
    yield chunk(SCTPChunkShutdown(cumul_tsn_ack=1))


def _fragments():
    yield from fragment(IP(src=CLIENT, dst=SERVER, id=77) / UDP(sport=5000, dport=53) / (b"f" * 900), 400)
    whole = IPv6(src=CLIENT6, dst=SERVER6) / IPv6ExtHdrFragment(id=78) / UDP(sport=5000, dport=53) / (b"g" * 1600)
    yield from fragment6(whole, 700)


def _extended():
    for header in (IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(), IPv6ExtHdrRouting(addresses=[SERVER6])):
        yield Ether() / IPv6(src=CLIENT6, dst=SERVER6) / header / UDP(sport=5001, dport=53) / b"x"
    yield Ether() / IPv6(src="fe80::1", dst="ff02::1") / ICMPv6ND_NS(tgt="fe80::2")


def _helped():
    yield from _tcp(41000, 21, said=FTP)
    yield from _tcp(41001, 6667, said=IRC)
    calls = ((False, _pptp(1, 256, 0, 0, 3, 0, 3, 0, 0)), (False, _pptp(7, 5, 1, 0, 300, 1, 0, 0, 3, 0, 3, 64, 0)))
    yield from _tcp(41002, 1723, said=(*calls, (True, _pptp(8, 6, 5, 256, 0, 0, 64, 0, 0, 0))))
    yield datagram(CLIENT, 2000, SERVER, 69, b"\x00\x01file\x00octet\x00")
    for method in (b"INVITE", b"REGISTER", b"BYE"):
        yield datagram(CLIENT, 5060, SERVER, 5060, SIP % (method, method, len(MEDIA), MEDIA))
        yield datagram(SERVER, 5060, CLIENT, 5060, OK % (method, len(MEDIA), MEDIA))
    for port in (5001, 5002, 5003, 5004, 5005, 49170, 49171):
        yield Ether() / IP(src=SERVER, dst=CLIENT) / TCP(sport=20, dport=port, flags="S", seq=1)
        yield datagram(SERVER, 50000, CLIENT, port)
    yield Ether() / IP(src=CLIENT, dst=SERVER, proto=47) / Raw(bytes.fromhex("3001880b000400060000000000000000abcd"))


def _linked():
    """Bytes of one datagram behind every kind of link header."""
    packet = bytes(IP(src=CLIENT, dst=SERVER) / UDP(sport=5002, dport=53) / b"question")
    heads = {
        Link.RAW_IP: "",
        Link.COOKED: "00000001000600000000000100000800",
        Link.COOKED2: "0800000000000001000100060000000000010000",
        Link.NULL: "02000000",
        Link.LOOP: "00000002",
        Link.PPP: "ff030021",
        Link.CISCO_HDLC: "0f000800",
        Link.NFLOG: "020000000800010008000000" + (4 + len(packet)).to_bytes(2, "little").hex() + "0900",
        Link.PPP_WITH_DIRECTION: "00ff030021",
        Link.PPPOE: "11000001" + (len(packet) + 2).to_bytes(2, "big").hex() + "0021",
        Link.UNKNOWN: "",
    }
    for link, head in heads.items():
        begin = bytes.fromhex(head)
        yield Seed(begin + packet, int(link), len(begin), len(begin) + 20)


@cache
def frames() -> tuple[Seed, ...]:
    """Return all of them, each conversation in its order."""
    made = [
        *_tcp(),
        *_tcp(40001, 80, CLIENT6, SERVER6),
        *_both(datagram(CLIENT, 5000, SERVER, 53), datagram(SERVER, 53, CLIENT, 5000)),
        *_both(datagram(CLIENT6, 5000, SERVER6, 53), datagram(SERVER6, 53, CLIENT6, 5000)),
        Ether() / IP(src=CLIENT, dst=SERVER) / ICMP(type=8, id=3, seq=1) / b"ping",
        Ether() / IP(src=SERVER, dst=CLIENT) / ICMP(type=0, id=3, seq=1) / b"ping",
        Ether() / IPv6(src=CLIENT6, dst=SERVER6) / ICMPv6EchoRequest(id=3, seq=1, data=b"ping"),
        Ether() / IPv6(src=SERVER6, dst=CLIENT6) / ICMPv6EchoReply(id=3, seq=1, data=b"ping"),
        *_errors(),
        *_sctp(),
        *(packet if Ether in packet else Ether() / packet for packet in _fragments()),
        *_extended(),
        Ether() / IP(src=CLIENT, dst=SERVER) / GRE(proto=0x880B) / b"1234",
        Ether() / IP(src=CLIENT, dst=SERVER, proto=33) / Raw(bytes(16)),
        Ether() / IP(src=CLIENT, dst=SERVER, proto=136) / UDP(sport=9, dport=10) / b"lite",
        Ether() / Dot1Q(vlan=5) / Dot1Q(vlan=6) / IP(src=CLIENT, dst=SERVER) / UDP(sport=5003, dport=53) / b"tagged",
        Ether() / PPPoE(sessionid=1) / b"\x00\x21" / bytes(IP(src=CLIENT, dst=SERVER) / UDP(sport=5004, dport=53)),
        Ether(type=0x0806) / Raw(bytes(28)),
        Ether() / IP(src=CLIENT, dst=SERVER, options=[b"\x07\x07\x04" + bytes(4)]) / UDP(sport=5005, dport=53),
        *_helped(),
    ]
    return (*map(_seed, made), *_linked())


def _seed(packet) -> Seed:
    packet.src, packet.dst = "02:00:00:00:00:01", "02:00:00:00:00:02"  # or scapy asks the neighbours
    data = bytes(packet)
    assert len(data) <= FRAME_BYTES_MAX
    kind = int.from_bytes(data[12:14], "big")
    return Seed(data, int(Link.ETHERNET), 14, 54 if kind == 0x86DD else 14 + 4 * (data[14] & 15))
