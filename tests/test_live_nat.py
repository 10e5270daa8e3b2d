"""The kernel's translation beside this one: the same packets in, the same packets out, but for the ports that are chosen.

Hosts talk through either router, each by what arrives at it.  Where root, network namespaces or nft are missing, there is
nothing to compare with.
"""

import struct

import kernel_nat
import pytest
from gateway import rule
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, UDPerror
from side_by_side import (
    CLIENT,
    GRE,
    ON_THE_WAY,
    OTHER_CLIENT,
    PUBLIC,
    ROUTER,
    SERVER,
    VIRTUAL,
    Own,
    Talk,
    both,
)
from zonetrack.kernels.helper_pptp import ROWS, Message
from zonetrack.shm.layout import Nat

MISSING = kernel_nat.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

SOURCES = {
    "snat": (f"ip saddr 10.0.0.0/24 snat to {PUBLIC}", rule(Nat.SOURCE, PUBLIC)),
    "ports": (
        f"ip saddr 10.0.0.0/24 ip protocol {{ tcp, udp }} snat to {PUBLIC}:5000-5099; ip saddr 10.0.0.0/24 snat to {PUBLIC}",
        rule(Nat.SOURCE, PUBLIC, ports=(5000, 5099)),
    ),
    "masquerade": ("oifname r1 masquerade", rule(Nat.SOURCE, ROUTER)),
    "masquerade to ports": (
        "oifname r1 ip protocol { tcp, udp } masquerade to :5000-5099; oifname r1 masquerade",
        rule(Nat.SOURCE, ROUTER, ports=(5000, 5099)),
    ),
}
TO_SERVER = (f"ip daddr {VIRTUAL} dnat to {SERVER}", rule(Nat.DESTINATION, SERVER))
TO_PORT = (f"ip daddr {VIRTUAL} tcp dport 80 dnat to {SERVER}:8080", rule(Nat.DESTINATION, SERVER, ports=(8080, 8080)))


# ------------------------------------------------------------------------------------------------ conversations
def conversations(trace):
    """Two clients with the same ports; data both ways, and a datagram and a ping of each."""
    talks = [Talk(trace, client) for client in (CLIENT, OTHER_CLIENT)]
    for talk in talks:
        talk.say(0, b"question")
        talk.say(1, b"answer")
    for client in (CLIENT, OTHER_CLIENT):
        went = trace.send(0, IP(src=client, dst=SERVER) / UDP(sport=4000, dport=53) / b"question", {4000, 53})
        answer = IP(src=went.dst, dst=went.src) / UDP(sport=53, dport=went[UDP].sport) / b"answer"
        assert trace.send(1, answer, {4000, 53})[UDP].dport == 4000
        went = trace.send(0, IP(src=client, dst=SERVER) / ICMP(id=77) / b"ping", {77})
        answer = IP(src=went.dst, dst=went.src) / ICMP(type=0, id=went[ICMP].id) / b"ping"
        assert trace.send(1, answer, {77})[ICMP].id == 77
    for talk in talks:
        talk.part()


@pytest.mark.parametrize("name", SOURCES)
def test_source(name):
    post, action = SOURCES[name]
    if name.endswith("ports"):  # here an identifier is no port of the rule's
        for chosen in both(lambda trace: [Talk(trace, one).part() for one in (CLIENT, OTHER_CLIENT)], "", post, action):
            assert len(chosen) == 2 and all(5000 <= port <= 5099 for port in chosen)
        return
    both(conversations, "", post, action)


@pytest.mark.parametrize(("rule_", "port"), [(TO_SERVER, 80), (TO_PORT, 8080)])
def test_destination(rule_, port):
    def service(trace):
        for client in (CLIENT, OTHER_CLIENT):
            talk = Talk(trace, client, VIRTUAL, plain={8080})
            assert talk.ends[1] == (SERVER, port)
            talk.say(0, b"question")
            talk.say(1, b"answer")
            talk.part()

    both(service, rule_[0], "", rule_[1])


def test_a_server_by_two_addresses_from_one_port():
    def scenario(trace):
        named, direct = Talk(trace, CLIENT, VIRTUAL), Talk(trace, CLIENT, SERVER)
        for talk in (named, direct, named):
            talk.say(0, b"question")
            talk.say(1, b"answer")
        named.part()
        direct.say(1, b"more")
        direct.part()

    for chosen in both(scenario, TO_SERVER[0], "", TO_SERVER[1]):
        assert len(chosen) == 1


# ------------------------------------------------------------------------------------------------ errors
def test_errors_about_what_has_another_source():
    def errors(trace):
        for source, kind, code in ((SERVER, 3, 3), (ON_THE_WAY, 11, 0), (ON_THE_WAY, 3, 4)):
            for l4, over in ((UDP(sport=4000, dport=53) / (b"x" * 30), {4000, 53}), (ICMP(id=77) / (b"x" * 30), {77})):
                went = trace.send(0, IP(src=CLIENT, dst=SERVER) / l4, over)
                error = IP(src=source, dst=went.src) / ICMP(type=kind, code=code) / bytes(went)[:48]
                back = trace.send(1, error, over)
                assert (back.src, back.dst, back[IPerror].src) == (source, CLIENT, CLIENT)
        talk = Talk(trace)
        went = talk.say(0, b"question")
        trace.send(1, IP(src=ON_THE_WAY, dst=went.src) / ICMP(type=3, code=4) / bytes(went)[:28], talk.plain)

    both(errors, "", SOURCES["snat"][0], SOURCES["snat"][1])


def test_errors_about_what_has_another_destination():
    """But for those of a router on the way: the kernel has them come from the address that the client knows, too.

    RFC 5508 REQ-4 has such a router keep its own.
    """

    def errors(trace):
        for source in (SERVER, ON_THE_WAY):
            went = trace.send(0, IP(src=CLIENT, dst=VIRTUAL) / UDP(sport=4000, dport=53) / (b"x" * 30), {4000, 53})
            error = IP(src=source, dst=CLIENT) / ICMP(type=3, code=3) / bytes(went)
            back = trace.send(1, error, {4000, 53})
            assert back[UDPerror].dport == 53 and back[IPerror].dst == VIRTUAL
            if source == ON_THE_WAY:
                assert back.src == (ON_THE_WAY if isinstance(trace.path, Own) else VIRTUAL)
                trace.seen[-1][0] = "the router"

    both(errors, TO_SERVER[0], "", TO_SERVER[1])


# ------------------------------------------------------------------------------------------------ FTP
def ftp(server, commands):
    """Return a scenario: a control connection, and lines on it, each followed by the connection that it foretells."""

    def scenario(trace):
        talk = Talk(trace, CLIENT, server, dport=21, plain={20, 40001, 25610, 3333, 3334})
        talk.say(1, b"220 ready\r\n")
        talk.say(0, b"USER somebody\r\n")
        for side, line, (source, sport, destination, dport) in commands:
            went = talk.say(side, line)
            assert went[TCP].seq + len(bytes(went[TCP].payload)) == talk.arrived[1 - side]
            syn = IP(src=source, dst=destination) / TCP(sport=sport, dport=dport, flags="S", seq=1, window=8192)
            came = trace.send(1 - side, syn, talk.plain)
            answer = IP(src=came.dst, dst=came.src) / TCP(sport=dport, dport=came[TCP].sport, flags="SA", seq=1, ack=2)
            trace.send(side, answer, talk.plain)
            talk.say(1 - side, b"200 fine\r\n" if side == 0 else b"NOOP\r\n")
            talk.say(side, b"NOOP\r\n" if side == 0 else b"200 fine\r\n")
        talk.part()

    return scenario


ACTIVE = (0, b"PORT 10,0,0,1,156,65\r\n")
EXTENDED = (0, b"EPRT |1|10.0.0.1|40001|\r\n")
PASSIVE = (1, b"227 Entering Passive Mode (198,51,100,1,100,10).\r\n")
EXTENDED_PASSIVE = (1, b"229 Entering Extended Passive Mode (|||25610|)\r\n")


def test_ftp_behind_another_source():
    to_public = [(*line, (SERVER, 20, PUBLIC, 40001)) for line in (ACTIVE, EXTENDED)]
    passive = [(*line, (CLIENT, sport, SERVER, 25610)) for line, sport in ((PASSIVE, 3333), (EXTENDED_PASSIVE, 3334))]
    for commands in ([to_public[0], passive[0]], [passive[1], to_public[1]]):
        both(ftp(SERVER, commands), "", *SOURCES["snat"])


def test_ftp_behind_another_destination():
    active = [(*line, (SERVER, 20, CLIENT, 40001)) for line in (ACTIVE, EXTENDED)]
    to_virtual = [
        (*line, (CLIENT, sport, VIRTUAL, 25610)) for line, sport in ((PASSIVE, 3333), (EXTENDED_PASSIVE, 3334))
    ]
    for commands in ([active[0], to_virtual[0]], [to_virtual[1], active[1]]):
        both(ftp(VIRTUAL, commands), TO_SERVER[0], "", TO_SERVER[1])


# ------------------------------------------------------------------------------------------------ other helpers
def test_tftp():
    def scenario(trace):
        over = {4000, 69, 3000}
        asked = trace.send(0, IP(src=CLIENT, dst=SERVER) / UDP(sport=4000, dport=69) / b"\0\1file\0octet\0", over)
        block = IP(src=SERVER, dst=asked.src) / UDP(sport=3000, dport=asked[UDP].sport) / b"\0\3\0\1data"
        assert trace.send(1, block, over)[UDP].dport == 4000
        trace.send(0, IP(src=CLIENT, dst=SERVER) / UDP(sport=4000, dport=3000) / b"\0\4\0\1", over)

    both(scenario, "", *SOURCES["snat"])


def test_irc():
    def scenario(trace):
        talk = Talk(trace, dport=6667, plain={999, 5000})
        talk.say(0, b"PRIVMSG friend :\1DCC SEND file 167772161 5000 12345\1\r\n")
        talk.say(1, b":friend NOTICE\r\n")
        syn = TCP(sport=999, dport=5000, flags="S", seq=1, window=8192)
        trace.send(1, IP(src=SERVER, dst=PUBLIC) / syn, talk.plain)
        talk.say(0, b"PING\r\n")

    both(scenario, "", *SOURCES["snat"])


SESSION = (
    b"v=0\r\no=x 1 1 IN IP4 %b\r\ns=-\r\nc=IN IP4 %b\r\nt=0 0\r\nm=audio %d RTP/AVP 0 8\r\na=rtpmap:0 PCMU/8000\r\n"
)
HEADER = (
    b"%b\r\nVia: SIP/2.0/UDP %b:5060;branch=z9hG4bK1\r\nFrom: <sip:a@%b:5060>;tag=1\r\nTo: <sip:b@%b:5060>\r\n"
    b"Call-ID: 17@somewhere\r\nCSeq: 1 INVITE\r\nContact: <sip:%b:5060>\r\n"
    b"Content-Type: application/sdp\r\nContent-Length: %d\r\n\r\n"
)


def sip(first, caller, called, sender, port):
    """Return a message of a call, as its sender believes the two to be."""
    body = SESSION % (sender, sender, port)
    return HEADER % (first, caller, caller, called, sender, len(body)) + body


def test_sip():
    def scenario(trace):
        over = {5060, 30000, 30001, 40000}
        client, server = CLIENT.encode(), SERVER.encode()
        invite = sip(b"INVITE sip:b@%b:5060 SIP/2.0" % server, client, server, client, 30000)
        went = trace.send(0, IP(src=CLIENT, dst=SERVER) / UDP(sport=5060, dport=5060) / invite, over)
        answer = sip(b"SIP/2.0 200 OK", went.src.encode(), server, server, 40000)
        trace.send(1, IP(src=SERVER, dst=went.src) / UDP(sport=5060, dport=went[UDP].sport) / answer, over)
        for port in (30000, 30001):
            media = IP(src=SERVER, dst=went.src) / UDP(sport=40000, dport=port) / b"media"
            assert trace.send(1, media, over).dst == CLIENT
        trace.send(0, IP(src=CLIENT, dst=SERVER) / UDP(sport=30000, dport=40000) / b"media", over)

    both(scenario, "", *SOURCES["snat"])


SIZES = {row.message: row.size for row in ROWS}


def control(kind, *words):
    """Return a control message of PPTP whose body begins with these 16-bit numbers."""
    body = b"".join(struct.pack(">H", word) for word in words).ljust(SIZES[kind], b"\0")
    return struct.pack(">HHIHH", 12 + len(body), 1, 0x1A2B3C4D, kind, 0) + body


def tunnel(source, destination, call):
    """Return a packet of the tunnel, which names the call of its receiver."""
    header = b"\x30\x81\x88\x0b\x00\x04" + struct.pack(">H", call) + bytes(8)
    return IP(src=source, dst=destination, proto=GRE) / header


def test_pptp():
    def scenario(trace):
        hers, his = 100, 200
        talk = Talk(trace, sport=3000, dport=1723)
        talk.say(0, control(Message.START_REQUEST))
        talk.say(1, control(Message.START_REPLY, 0x0100, 1 << 8))
        asked = bytes(talk.say(0, control(Message.OUT_REQUEST, hers))[TCP].payload)
        known = int.from_bytes(asked[12:14], "big")
        talk.say(1, control(Message.OUT_REPLY, his, known, 1 << 8))
        trace.send(0, tunnel(CLIENT, SERVER, his), ())
        trace.send(1, tunnel(SERVER, PUBLIC, known), ())
        trace.send(0, tunnel(CLIENT, SERVER, his), ())

    both(scenario, "", *SOURCES["snat"])
