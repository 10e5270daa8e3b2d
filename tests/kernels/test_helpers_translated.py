"""Control channels through a gateway: what a message says is true where it goes, and what it foretells arrives there."""

import re
import struct

import pytest
import tables
from gateway import (
    CLIENT,
    CLIENT2,
    CLIENT6,
    DNAT,
    INV,
    NEW,
    PUBLIC,
    PUBLIC6,
    REL,
    RPL,
    SERVER,
    SERVER6,
    SNAT,
    TRANSLATE,
    VIRTUAL,
    VIRTUAL6,
    Gateway,
    Talk,
    ip,
    rule,
    syn,
    udp,
)
from scapy.layers.inet import IP, TCP
from zonetrack.kernels.helper_pptp import ROWS, Message
from zonetrack.shm.layout import Nat, Setting
from zonetrack.shm.reasons import Reason

TO_PUBLIC, TO_PUBLIC6 = rule(Nat.SOURCE, PUBLIC), rule(Nat.SOURCE, PUBLIC6)
TO_SERVER, TO_SERVER6 = rule(Nat.DESTINATION, SERVER), rule(Nat.DESTINATION, SERVER6)


@pytest.fixture
def gateway():
    made = Gateway()
    yield made
    made.settle()


def ftp(gateway, client=CLIENT, server=SERVER, action=TO_PUBLIC, sport=40000):
    """Return a control connection on which both sides have said something."""
    talk = Talk(gateway, client, server, action, sport)
    talk.say(1, b"220 welcome\r\n")
    talk.say(0, b"USER somebody\r\n")
    assert talk.agree()
    return talk


# ------------------------------------------------------------------------------------------------ FTP
@pytest.mark.parametrize(
    ("ends", "action", "line", "says", "comes", "goes"),
    [
        (
            *((CLIENT, SERVER), TO_PUBLIC, b"PORT 10,0,0,1,156,65\r\n", b"PORT 203,0,113,200,156,65\r\n"),
            *((SERVER, 20, PUBLIC, 40001), (SERVER, 20, CLIENT, 40001)),
        ),
        (
            *((CLIENT, SERVER), TO_PUBLIC, b"EPRT |1|10.0.0.1|40001|\r\n", b"EPRT |1|203.0.113.200|40001|\r\n"),
            *((SERVER, 20, PUBLIC, 40001), (SERVER, 20, CLIENT, 40001)),
        ),
        (
            *((CLIENT6, SERVER6), TO_PUBLIC6, b"EPRT !2!fd00::1!40001!\r\n", b"EPRT !2!2001:db8:ffff::100!40001!\r\n"),
            *((SERVER6, 20, PUBLIC6, 40001), (SERVER6, 20, CLIENT6, 40001)),
        ),
        (
            *((CLIENT, VIRTUAL), TO_SERVER, b"PORT 10,0,0,1,156,65\r\n", b"PORT 10,0,0,1,156,65\r\n"),
            *((SERVER, 20, CLIENT, 40001), (VIRTUAL, 20, CLIENT, 40001)),
        ),
    ],
)
def test_ftp_active(gateway, ends, action, line, says, comes, goes):
    talk = ftp(gateway, *ends, action)
    assert talk.say(0, line).payload == says
    assert talk.agree()
    opened = gateway.send(syn(*comes))
    assert opened.ends == goes and opened.ct_state & ~(SNAT | DNAT) == NEW | REL
    back = gateway.send(ip(goes[2], goes[0]) / TCP(sport=goes[3], dport=goes[1], flags="SA", seq=1, ack=6))
    assert back.ends == (comes[2], comes[3], comes[0], comes[1]) and back.ct_state & RPL
    assert talk.say(1, b"200 fine\r\n").packet[TCP].ack == talk.sent[0]


@pytest.mark.parametrize(
    ("ends", "action", "line", "says", "comes", "goes"),
    [
        (
            *((CLIENT, SERVER), TO_PUBLIC, b"227 Passive (198,51,100,1,100,10)\r\n", None),
            *((CLIENT, 3333, SERVER, 25610), (PUBLIC, 3333, SERVER, 25610)),
        ),
        (
            *((CLIENT, VIRTUAL), TO_SERVER, b"227 Passive (198,51,100,1,100,10).\r\n"),
            b"227 Passive (203,0,113,80,100,10).\r\n",
            *((CLIENT, 3333, VIRTUAL, 25610), (CLIENT, 3333, SERVER, 25610)),
        ),
        (
            *((CLIENT, VIRTUAL), TO_SERVER, b"229 Extended Passive (|||25610|)\r\n", None),
            *((CLIENT, 3333, VIRTUAL, 25610), (CLIENT, 3333, SERVER, 25610)),
        ),
        (
            *((CLIENT6, VIRTUAL6), TO_SERVER6, b"229 Extended Passive (|||25610|)\r\n", None),
            *((CLIENT6, 3333, VIRTUAL6, 25610), (CLIENT6, 3333, SERVER6, 25610)),
        ),
        (
            *((CLIENT6, SERVER6), TO_PUBLIC6, b"229 Extended Passive (|||25610|)\r\n", None),
            *((CLIENT6, 3333, SERVER6, 25610), (PUBLIC6, 3333, SERVER6, 25610)),
        ),
    ],
)
def test_ftp_passive(gateway, ends, action, line, says, comes, goes):
    talk = ftp(gateway, *ends, action)
    talk.say(0, b"PASV\r\n")
    assert talk.say(1, line).payload == (says or line)
    assert talk.agree()
    opened = gateway.send(syn(*comes))
    assert opened.ends == goes and opened.ct_state & ~(SNAT | DNAT) == NEW | REL
    assert len(gateway.foretold) == 0


def test_ftp_counts_on_in_both_directions(gateway):
    """Lines get longer one way and shorter the other, again and again, and one is sent twice."""
    talk = ftp(gateway, CLIENT, SERVER, TO_PUBLIC)
    for _ in range(3):
        assert talk.say(0, b"PORT 10,0,0,1,156,65\r\n").payload == b"PORT 203,0,113,200,156,65\r\n"
        again = talk.say(0, b"PORT 10,0,0,1,156,65\r\n", seq=talk.sent[0] - 22)
        assert again.payload == b"PORT 203,0,113,200,156,65\r\n" and not again.ct_state & INV
        assert again.packet[TCP].seq + len(again.payload) == talk.arrived[1]
        assert talk.agree()
        assert talk.say(1, b"200 fine\r\n").packet[TCP].ack == talk.sent[0] and talk.agree()
    assert gateway.offsets(talk.record)[0][1:] == [10, 15]
    assert talk.say(0, flags="FA").packet[TCP].seq == talk.sent[0] - 1 + 15
    assert gateway.counter(Reason.HELPER_REWRITTEN) == 6


def test_ftp_shrinks(gateway):
    talk = ftp(gateway, "10.100.100.100", VIRTUAL, rule(Nat.SOURCE, "9.9.9.9"))
    assert talk.say(0, b"PORT 10,100,100,100,156,65\r\n").payload == b"PORT 9,9,9,9,156,65\r\n"
    assert talk.agree() and talk.say(0, b"NOOP\r\n").packet[TCP].seq == talk.sent[0] - 6 - 7
    assert talk.agree()


def test_ftp_selective_acknowledgment_is_of_what_was_sent(gateway):
    talk = ftp(gateway)
    talk.say(0, b"PORT 10,0,0,1,156,65\r\n")
    start = talk.sent[0]
    lost = talk.segment(0, "PA", b"NOOP\r\n")
    gateway.send(lost, TO_PUBLIC)  # it goes on, and does not arrive
    talk.sent[0] += 6
    arrived = gateway.send(talk.segment(0, "PA", b"NOOP\r\n"), TO_PUBLIC).packet[TCP].seq
    sack = [("NOP", None), ("NOP", None), ("SAck", (arrived, arrived + 6))]
    went = talk.say(1, flags="A", options=sack)
    assert dict(went.packet[TCP].options)["SAck"] == (start + 6, start + 12) and went.packet[TCP].ack == start


def test_ftp_two_clients_with_one_port(gateway):
    one, other = ftp(gateway), ftp(gateway, CLIENT2, sport=40001)
    assert one.say(0, b"PORT 10,0,0,1,156,65\r\n").payload == b"PORT 203,0,113,200,156,65\r\n"
    assert other.say(0, b"PORT 10,0,0,2,156,65\r\n").payload == b"PORT 203,0,113,200,156,66\r\n"
    assert gateway.send(syn(SERVER, 20, PUBLIC, 40002)).ends == (SERVER, 20, CLIENT2, 40001)
    assert gateway.send(syn(SERVER, 20, PUBLIC, 40001)).ends == (SERVER, 20, CLIENT, 40001)


def test_ftp_line_in_two_pieces_is_to_be_sent_again(gateway):
    talk = ftp(gateway)
    went = talk.say(0, b"PORT 10,0,0,1,")
    assert (went.reason, went.ct_state) == (Reason.HELPER_SPLIT, INV)
    talk.sent[0] -= 14
    assert talk.say(0, b"PORT 10,0,0,1,156,65\r\n").payload == b"PORT 203,0,113,200,156,65\r\n" and talk.agree()


def test_ftp_what_cannot_grow_does_not_go_on(gateway):
    talk = ftp(gateway)
    went = talk.say(0, b"PORT 10,0,0,1,156,65\r\n", room=False)
    assert (went.reason, went.ct_state) == (Reason.HELPER_NO_ROOM, INV) and gateway.offsets(talk.record) != [[5]]
    assert gateway.counter(Reason.HELPER_NO_ROOM) == 1 and gateway.counter(Reason.HELPER_REWRITTEN) == 0
    longest = b"PORT 10,0,0,1,156,65\r\n".ljust(2112 - 54, b"x")
    assert talk.say(0, longest, seq=talk.sent[0] - 22).reason == Reason.HELPER_NO_ROOM


def test_ftp_another_length_needs_room_and_the_same_does_not(gateway):
    talk = ftp(gateway, CLIENT, SERVER, rule(Nat.SOURCE, "20.0.0.9"))
    assert talk.say(0, b"PORT 10,0,0,1,156,65\r\n", room=False).payload == b"PORT 20,0,0,9,156,65\r\n"
    assert talk.agree() and gateway.counter(Reason.HELPER_REWRITTEN) == 1


def test_ftp_without_a_rule_that_translates_it_stays_as_it_is(gateway):
    talk = ftp(gateway)
    went = gateway.send(talk.segment(0, "PA", b"PORT 10,0,0,1,156,65\r\n"), None)
    assert went.payload == b"PORT 10,0,0,1,156,65\r\n" and went.packet.src == CLIENT


def test_ftp_as_open_vswitch(gateway):
    settings = tables.zones(gateway.table)["settings"]
    settings[0] |= Setting.OVS
    talk = ftp(gateway)
    assert talk.say(0, b"PORT 10,0,0,1,156,65\r\n").payload == b"PORT 203,0,113,200,156,65\r\n"
    assert talk.agree()
    for sport in (20, 21):  # it is not used up
        opened = gateway.send(syn(SERVER, sport, PUBLIC, 40001))
        assert opened.ends == (SERVER, sport, CLIENT, 40001) and opened.ct_state == NEW | REL | DNAT


# ------------------------------------------------------------------------------------------------ TFTP
def test_tftp(gateway):
    gateway.send(udp(CLIENT2, 2000, SERVER, 69, b"\0\1b\0octet\0"), rule(Nat.SOURCE, PUBLIC, ports=(5000, 5000)))
    asked = gateway.send(
        udp(CLIENT, 2000, SERVER, 69, b"\0\1file\0octet\0"), rule(Nat.SOURCE, PUBLIC, ports=(6000, 6000))
    )
    assert asked.ends == (PUBLIC, 6000, SERVER, 69)
    answer = gateway.send(udp(SERVER, 3000, PUBLIC, 6000, b"\0\3\0\1"))
    assert (answer.ends, answer.ct_state) == ((SERVER, 3000, CLIENT, 2000), NEW | REL | DNAT)
    more = gateway.send(udp(CLIENT, 2000, SERVER, 3000, b"\0\4\0\1"))
    assert more.ends == (PUBLIC, 6000, SERVER, 3000) and more.ct_state & RPL


# ------------------------------------------------------------------------------------------------ IRC
def test_irc(gateway):
    talk = Talk(gateway, CLIENT, SERVER, TO_PUBLIC, dport=6667)
    said = talk.say(0, b"PRIVMSG friend :\1DCC SEND file 167772161 5000 12345\1\r\n")
    assert said.payload == b"PRIVMSG friend :\1DCC SEND file 3405803976 5000 12345\1\r\n"
    assert talk.agree()
    opened = gateway.send(syn("192.0.2.77", 999, PUBLIC, 5000))
    assert (opened.ends, opened.ct_state) == (("192.0.2.77", 999, CLIENT, 5000), NEW | REL | DNAT)


# ------------------------------------------------------------------------------------------------ SIP
BODY = (
    b"v=0\r\no=x 1 1 IN IP4 %(own)s\r\ns=-\r\nc=IN IP4 %(own)s\r\nt=0 0\r\n"
    b"m=audio %(port)d RTP/AVP 0 8\r\na=rtpmap:0 PCMU/8000\r\n"
)


def sip(first, own, peer, port=30000, body=BODY, number=b"1 INVITE", extra=b""):
    """Return a message whose sender, or the one it answers, believes to be ``own``."""
    body = body % {b"own": own, b"port": port}
    header = (
        b'%s\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK1%s\r\nFrom: <sip:a@%s>;tag=1\r\nTo: "B" <sip:b@%s>\r\n'
        b"Call-ID: 17@%s\r\nCSeq: %s\r\nContact: <sip:a@%s>\r\nContent-Length: %d\r\n\r\n"
    )
    return header % (first, own, extra, own, peer, own, number, own, len(body)) + body


def length_is_right(message):
    """Return whether a message says how long its body is."""
    header, _, body = message.partition(b"\r\n\r\n")
    return int(re.search(rb"Content-Length: (\d+)", header)[1]) == len(body)


def test_sip_a_call_out(gateway):
    invite = sip(b"INVITE sip:b@198.51.100.1 SIP/2.0", b"10.0.0.1:5060", b"198.51.100.1", extra=b";rport")
    invite = invite.replace(b"IP4 10.0.0.1:5060", b"IP4 10.0.0.1")
    went = gateway.send(udp(CLIENT, 5060, SERVER, 5060, invite), TO_PUBLIC)
    header, _, body = went.payload.partition(b"\r\n\r\n")
    assert header.count(b"203.0.113.200:5060") == 3 and b"Call-ID: 17@10.0.0.1" in header
    assert (
        b"o=x 1 1 IN IP4 203.0.113.200\r\n" in body
        and b"c=IN IP4 203.0.113.200\r\n" in body
        and b"m=audio 30000 " in body
    )
    assert b"10.0.0.1" not in body and re.search(rb"sip:b@198.51.100.1 ", header)
    rtp = gateway.send(udp(SERVER, 7000, PUBLIC, 30000))
    assert (rtp.ends, rtp.ct_state) == ((SERVER, 7000, CLIENT, 30000), NEW | REL | DNAT)
    rtcp = gateway.send(udp(SERVER, 7001, PUBLIC, 30001))
    assert rtcp.ends == (SERVER, 7001, CLIENT, 30001)


def test_sip_content_length_has_more_digits(gateway):
    body = BODY.replace(b"rtpmap:0 PCMU/8000", b"x")
    invite = sip(b"INVITE sip:b@198.51.100.1 SIP/2.0", b"10.0.0.1", b"198.51.100.1", body=body)
    assert b"Content-Length: 93" in invite and length_is_right(invite)
    went = gateway.send(udp(CLIENT, 5060, SERVER, 5060, invite), TO_PUBLIC).payload
    assert b"Content-Length: 103\r\n" in went and length_is_right(went)


def test_sip_an_answer_names_whom_it_goes_to(gateway):
    gateway.send(
        udp(CLIENT, 5060, SERVER, 5060, sip(b"REGISTER sip:x SIP/2.0", b"10.0.0.1", b"10.0.0.1", number=b"1 REGISTER")),
        TO_PUBLIC,
    )
    ok = sip(
        b"SIP/2.0 200 OK",
        b"203.0.113.200",
        b"198.51.100.1",
        number=b"1 REGISTER",
        body=b"",
        extra=b";rport=5060;received=203.0.113.200",
    )
    ok = ok.replace(b"Contact: <sip:a@203.0.113.200>", b"Contact: <sip:a@203.0.113.200>;expires=60")
    went = gateway.send(udp(SERVER, 5060, PUBLIC, 5060, ok)).payload
    assert b"Via: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK1;rport=5060;received=10.0.0.1\r\n" in went
    assert b"<sip:a@10.0.0.1>;expires=60" in went and length_is_right(went)
    [registered] = gateway.foretold
    assert int(registered["destination"][1]) == 0xCB0071C8


def test_sip_two_phones_with_one_port(gateway):
    first = sip(b"INVITE sip:b@198.51.100.1 SIP/2.0", b"10.0.0.1", b"198.51.100.1")
    gateway.send(udp(CLIENT, 5060, SERVER, 5060, first), TO_PUBLIC)
    second = sip(b"INVITE sip:b@198.51.100.1 SIP/2.0", b"10.0.0.2", b"198.51.100.1")
    went = gateway.send(udp(CLIENT2, 5060, SERVER, 5060, second), TO_PUBLIC)
    assert b"m=audio 30002 " in went.payload and length_is_right(went.payload)
    assert went.ends[1] != 5060 and b"Contact: <sip:a@203.0.113.200:%d>" % went.ends[1] in went.payload
    assert gateway.send(udp(SERVER, 7000, PUBLIC, 30002)).ends == (SERVER, 7000, CLIENT2, 30000)
    assert gateway.send(udp(SERVER, 7001, PUBLIC, 30003)).ends == (SERVER, 7001, CLIENT2, 30001)
    assert gateway.send(udp(SERVER, 7000, PUBLIC, 30000)).ends == (SERVER, 7000, CLIENT, 30000)


def test_sip_ipv6(gateway):
    body = BODY.replace(b"IP4", b"IP6")
    invite = sip(b"INVITE sip:b@[2001:db8:1::1] SIP/2.0", b"[fd00::1]", b"[2001:db8:1::1]", body=body)
    invite = invite.replace(b"IP6 [fd00::1]", b"IP6 fd00::1")
    header, _, description = invite.partition(b"\r\n\r\n")
    invite = (
        re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(description), header) + b"\r\n\r\n" + description
    )
    went = gateway.send(udp(CLIENT6, 5060, SERVER6, 5060, invite), TO_PUBLIC6).payload
    assert went.count(b"[2001:db8:ffff::100]") == 3 and went.count(b"IN IP6 2001:db8:ffff::100\r\n") == 2
    assert length_is_right(went)


def test_sip_what_cannot_grow_does_not_go_on(gateway):
    invite = sip(b"INVITE sip:b@198.51.100.1 SIP/2.0", b"10.0.0.1", b"198.51.100.1")
    went = gateway.send(udp(CLIENT, 5060, SERVER, 5060, invite), TO_PUBLIC, room=False)
    assert (went.reason, went.ct_state) == (Reason.HELPER_NO_ROOM, INV)


def test_sip_what_was_not_captured_does_not_go_on(gateway):
    packet = udp(CLIENT, 5060, SERVER, 5060, sip(b"INVITE sip:b@198.51.100.1 SIP/2.0", b"10.0.0.1", b"198.51.100.1"))
    went = gateway.send(packet, TO_PUBLIC, captured=14 + len(packet) - 20)
    assert (went.reason, went.ct_state) == (Reason.HELPER_NO_ROOM, INV)


# ------------------------------------------------------------------------------------------------ PPTP
SIZES = {row.message: row.size for row in ROWS}
HERS, HIS = 100, 200


def control(kind, *words):
    """Return a control message whose body begins with these 16-bit numbers."""
    body = b"".join(struct.pack(">H", word) for word in words).ljust(SIZES[kind], b"\0")
    return struct.pack(">HHIHH", 12 + len(body), 1, 0x1A2B3C4D, kind, 0) + body


def tunnel(source, destination, call):
    """Return a packet of the tunnel, which names the call of its receiver."""
    return IP(src=source, dst=destination, proto=47) / (
        b"\x30\x81\x88\x0b\x00\x04" + struct.pack(">H", call) + bytes(8)
    )


def call_of(went):
    return struct.unpack(">H", bytes(went.packet.payload)[6:8])[0]


def words(went):
    return struct.unpack(">HH", went.payload[12:16])


def test_pptp_two_clients_with_one_number(gateway):
    """Each client's number is the server's port of his control connection, there and in the tunnel."""
    for client, sport in ((CLIENT, 3000), (CLIENT2, 4000)):
        talk = Talk(gateway, client, SERVER, TO_PUBLIC, sport, 1723)
        talk.say(0, control(Message.START_REQUEST))
        talk.say(1, control(Message.START_REPLY, 0x0100, 1 << 8))
        assert words(talk.say(0, control(Message.OUT_REQUEST, HERS)))[0] == sport
        assert words(talk.say(1, control(Message.OUT_REPLY, HIS + sport, sport, 1 << 8))) == (HIS + sport, HERS)
        assert talk.agree()
    out = gateway.send(tunnel(CLIENT, SERVER, HIS + 3000))
    assert (out.packet.src, out.packet.dst, call_of(out)) == (PUBLIC, SERVER, HIS + 3000)
    assert out.ct_state == NEW | REL | SNAT
    back = gateway.send(tunnel(SERVER, PUBLIC, 3000))
    assert (back.packet.src, back.packet.dst, call_of(back)) == (SERVER, CLIENT, HERS) and back.ct_state & RPL
    first_of_server = gateway.send(tunnel(SERVER, PUBLIC, 4000))
    assert (first_of_server.packet.dst, call_of(first_of_server)) == (CLIENT2, HERS)
    assert first_of_server.ct_state == NEW | REL | DNAT
    answer = gateway.send(tunnel(CLIENT2, SERVER, HIS + 4000))
    assert (answer.packet.src, call_of(answer)) == (PUBLIC, HIS + 4000) and answer.ct_state & RPL
    ended = talk.say(0, control(Message.CLEAR_REQUEST, HERS))
    assert words(ended)[0] == 4000 and gateway.send(tunnel(CLIENT, SERVER, HIS + 3000), TRANSLATE).packet.src == PUBLIC
