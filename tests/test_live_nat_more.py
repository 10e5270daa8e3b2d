"""The kernel's translation beside this one, over IPv6, and of datagrams in fragments: what comes out is the same."""

import kernel_nat
import pytest
from gateway import CLIENT6, PUBLIC6, SERVER6, VIRTUAL6, ip, rule
from scapy.layers.inet import UDP, defragment, fragment
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPerror6,
    IPv6ExtHdrFragment,
    defragment6,
    fragment6,
)
from side_by_side import CLIENT, ON_THE_WAY6, OTHER_CLIENT6, PUBLIC, SERVER, VIRTUAL, Talk, both
from zonetrack.shm.layout import Nat

MISSING = kernel_nat.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

SOURCE6 = (f"ip6 saddr fd00::/64 snat to {PUBLIC6}", rule(Nat.SOURCE, PUBLIC6))
TO_SERVER6 = (f"ip6 daddr {VIRTUAL6} dnat to {SERVER6}", rule(Nat.DESTINATION, SERVER6))
OVER = {4000, 53, 77}
DATA = bytes(i * 7 % 251 for i in range(3001))


# ------------------------------------------------------------------------------------------------ IPv6
def test_another_source():
    def conversations(trace):
        talks = [Talk(trace, client, SERVER6) for client in (CLIENT6, OTHER_CLIENT6)]
        for talk in talks:
            talk.say(0, b"question")
            talk.say(1, b"answer")
        for client in (CLIENT6, OTHER_CLIENT6):
            went = trace.send(0, ip(client, SERVER6) / UDP(sport=4000, dport=53) / b"question", OVER)
            answer = ip(went.dst, went.src) / UDP(sport=53, dport=went[UDP].sport) / b"answer"
            assert trace.send(1, answer, OVER)[UDP].dport == 4000
            went = trace.send(0, ip(client, SERVER6) / ICMPv6EchoRequest(id=77, data=b"ping"), OVER)
            answer = ip(went.dst, went.src) / ICMPv6EchoReply(id=went[ICMPv6EchoRequest].id, data=b"ping")
            assert trace.send(1, answer, OVER)[ICMPv6EchoReply].id == 77
        for talk in talks:
            talk.part()

    for chosen in both(conversations, "", *SOURCE6, version=6):
        assert len(chosen) == 3  # of the second client's


def test_another_destination():
    def service(trace):
        talk = Talk(trace, CLIENT6, VIRTUAL6)
        assert talk.ends[1] == (SERVER6, 80)
        talk.say(0, b"question")
        talk.say(1, b"answer")
        talk.part()

    both(service, TO_SERVER6[0], "", TO_SERVER6[1], version=6)


def test_errors():
    def errors(trace):
        for source, kind in (
            (SERVER6, ICMPv6DestUnreach(code=4)),
            (ON_THE_WAY6, ICMPv6TimeExceeded(code=0)),
            (ON_THE_WAY6, ICMPv6PacketTooBig(mtu=1280)),
        ):
            for l4 in (UDP(sport=4000, dport=53) / (b"x" * 30), ICMPv6EchoRequest(id=77, data=b"x" * 30)):
                went = trace.send(0, ip(CLIENT6, SERVER6) / l4, OVER)
                back = trace.send(1, ip(source, went.src) / kind / bytes(went), OVER)
                assert (back.src, back.dst, back[IPerror6].src) == (source, CLIENT6, CLIENT6)

    both(errors, "", *SOURCE6, version=6)


# ------------------------------------------------------------------------------------------------ fragments
def whole(fragments):
    """Return the datagram that fragments make, in whatever order they came, and offset and length of each."""
    v6 = IPv6ExtHdrFragment in fragments[0]
    fragments = sorted(fragments, key=lambda one: one[IPv6ExtHdrFragment].offset if v6 else one.frag)
    cuts = [(one[IPv6ExtHdrFragment].offset if v6 else one.frag, len(one.payload)) for one in fragments]
    made = defragment6(fragments) if v6 else defragment(fragments)[0]
    return made.__class__(bytes(made)), cuts


def parts(packet, size=1000):
    """Return the fragments of a packet."""
    if packet.version == 4:
        return fragment(packet, size)
    return fragment6(ip(packet.src, packet.dst) / IPv6ExtHdrFragment(id=99) / packet.payload, size)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("way", ["source", "destination"])
def test_datagrams_in_fragments(version, way):
    client, server, public, virtual = {
        4: (CLIENT, SERVER, PUBLIC, VIRTUAL),
        6: (CLIENT6, SERVER6, PUBLIC6, VIRTUAL6),
    }[version]
    family = {4: "ip", 6: "ip6"}[version]
    to = server if way == "source" else virtual

    def scenario(trace):
        for first in (True, False):
            sent = ip(client, to) / UDP(sport=4000, dport=53) / DATA
            came, cuts = whole(trace.path.send_parts(0, parts(sent)))
            answer = ip(came.dst, came.src) / UDP(sport=53, dport=came[UDP].sport) / DATA[::-1]
            back, back_cuts = whole(trace.path.send_parts(1, parts(answer)))
            assert (back.src, back.dst, back[UDP].dport) == (to, client, 4000)
            assert bytes(came[UDP].payload) == DATA and bytes(back[UDP].payload) == DATA[::-1]
            trace.seen.append([first, came.src, came.dst, came[UDP].sport, came[UDP].dport, came[UDP].chksum])
            trace.seen.append([cuts, back_cuts, back[UDP].chksum])

    if way == "source":
        both(scenario, "", f"{family} saddr {client} snat to {public}", rule(Nat.SOURCE, public), version)
    else:
        both(scenario, f"{family} daddr {virtual} dnat to {server}", "", rule(Nat.DESTINATION, server), version)
