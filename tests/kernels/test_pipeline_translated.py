"""Rules that translate, with helpers and fragments: what goes out of the other port is right, as long as it has to be."""

import pytest
from gateway import CLIENT, PUBLIC, SERVER, VIRTUAL, is_right
from ruled import Switch
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, UDPerror, fragment
from scapy.layers.l2 import Ether
from zonetrack.shm.layout import Helper
from zonetrack.shm.reasons import Reason

RULES = f"""
table=0,priority=9,in_port=a,tcp,tp_dst=21 actions=ct(commit,zone=1,alg=ftp,nat(src={PUBLIC})),output:b
table=0,priority=5,in_port=a,ip actions=ct(commit,zone=1,nat(src={PUBLIC})),output:b
table=0,in_port=b,ip actions=ct(commit,zone=1,nat,table=1)
table=1,ct_state=-inv actions=output:a
"""
MAC = "02:00:00:00:00:01"
DATA = bytes(i * 7 % 251 for i in range(3000))


@pytest.fixture
def switch():
    with Switch(2, extension_share=1000) as switch:
        switch.names.helpers = {"ftp": int(Helper.FTP)}
        switch.load(RULES)
        yield switch


def through(switch, name, *packets):
    """Send packets into a port; returns those that came out of the other."""
    _, came = switch.through(name, [bytes(Ether(src=MAC, dst=MAC) / packet) for packet in packets])
    assert came[name] == []
    return [Ether(frame)[IP] for frame in came["b" if name == "a" else "a"]]


def client(flags, seq, ack, data=b""):
    return IP(src=CLIENT, dst=SERVER) / TCP(sport=4000, dport=21, flags=flags, seq=seq, ack=ack, window=8192) / data


def server(flags, seq, ack, data=b""):
    return IP(src=SERVER, dst=PUBLIC) / TCP(sport=21, dport=4000, flags=flags, seq=seq, ack=ack, window=8192) / data


def test_a_longer_message_goes_out_whole(switch):
    through(switch, "a", client("S", 100, 0))
    through(switch, "b", server("SA", 900, 101))
    through(switch, "a", client("A", 101, 901), client("PA", 101, 901, b"USER x\r\n"))
    [went] = through(switch, "a", client("PA", 109, 901, b"PORT 10,0,0,1,156,65\r\n"))
    assert bytes(went[TCP].payload) == b"PORT 203,0,113,200,156,65\r\n" and is_right(went)
    [answer] = through(switch, "b", server("PA", 901, 109 + 27, b"200 fine\r\n"))
    assert answer[TCP].ack == 109 + 22 and is_right(answer)
    syn = IP(src=SERVER, dst=PUBLIC) / TCP(sport=20, dport=40001, flags="S", seq=1, window=8192)
    [opened] = through(switch, "b", syn)
    assert (opened.dst, opened[TCP].dport) == (CLIENT, 40001)
    assert switch.worker.counter(Reason.HELPER_REWRITTEN) == 1


def test_a_message_in_a_burst_with_what_follows_it(switch):
    through(switch, "a", client("S", 100, 0))
    through(switch, "b", server("SA", 900, 101))
    lines = (b"USER x\r\n", b"PORT 10,0,0,1,156,65\r\n", b"LIST\r\n")
    starts = (101, 109, 131)
    went = through(switch, "a", *(client("PA", seq, 901, line) for seq, line in zip(starts, lines, strict=True)))
    assert [one[TCP].seq for one in went] == [101, 109, 136] and all(map(is_right, went))


def test_all_fragments_of_a_datagram_go_out_translated(switch):
    packet = IP(src=CLIENT, dst=SERVER, id=77) / UDP(sport=4000, dport=53) / DATA
    went = through(switch, "a", *fragment(packet, 1200)[::-1])
    assert len(went) == 3 and {one.src for one in went} == {PUBLIC}
    whole = b"".join(bytes(one.payload) for one in sorted(went, key=lambda one: one.frag))
    whole = IP(bytes(IP(src=PUBLIC, dst=SERVER, id=77, proto=17) / whole))
    assert bytes(whole[UDP].payload) == DATA and is_right(whole)
    back = IP(src=SERVER, dst=PUBLIC, id=78) / UDP(sport=53, dport=whole[UDP].sport) / DATA
    came = through(switch, "b", *fragment(back, 1200))
    assert len(came) == 3 and {one.dst for one in came} == {CLIENT}
    first = next(one for one in came if one.frag == 0)
    assert first[UDP].dport == 4000
    assert switch.worker.counter(Reason.FRAGMENTS_TRANSLATED) == 6


# ------------------------------------------------------------------------------------------------ back to where it came from
def hairpin(real):
    """Return rules by which hosts at a port reach a service at the same port by the address that it has elsewhere."""
    return f"""
    table=0,ip,nw_dst={VIRTUAL} actions=ct(commit,zone=1,nat(dst={real}:8080),table=1)
    table=1,ip actions=ct(commit,zone=2,nat(src={PUBLIC}:5000-5999)),IN_PORT
    table=0,ip,nw_dst={PUBLIC} actions=ct(zone=2,nat,table=2)
    table=2 actions=ct(zone=1,nat),IN_PORT
    """


def turned(switch, *packets):
    """Send packets into port a; returns those that came back out of it."""
    _, came = switch.through("a", [bytes(Ether(src=MAC, dst=MAC) / packet) for packet in packets])
    assert came["b"] == []
    found = [Ether(frame)[IP] for frame in came["a"]]
    assert all(map(is_right, found))
    return found


@pytest.mark.parametrize("real", ["10.0.0.77", CLIENT])
def test_a_service_is_reached_from_its_own_side_even_by_itself(real):
    """Two zones, of which one turns to the service and the other has its answers come back here."""
    with Switch(2, hairpin(real), extension_share=1000) as switch:
        [went] = turned(switch, IP(src=CLIENT, dst=VIRTUAL) / TCP(sport=4000, dport=80, flags="S", seq=1, window=9000))
        assert (went.src, went.dst, went[TCP].dport) == (PUBLIC, real, 8080)
        port = went[TCP].sport
        assert 5000 <= port <= 5999
        answer = TCP(sport=8080, dport=port, flags="SA", seq=7, ack=2, window=9000)
        [back] = turned(switch, IP(src=real, dst=PUBLIC) / answer)
        assert (back.src, back.dst, back[TCP].sport, back[TCP].dport) == (VIRTUAL, CLIENT, 80, 4000)
        there = IP(src=CLIENT, dst=VIRTUAL) / TCP(sport=4000, dport=80, flags="PA", seq=2, ack=8, window=9000) / b"one"
        here = IP(src=real, dst=PUBLIC) / TCP(sport=8080, dport=port, flags="PA", seq=8, ack=5, window=9000) / b"two"
        ends = [(one.src, one.dst, bytes(one[TCP].payload)) for one in turned(switch, there, here)]
        assert ends == [(PUBLIC, real, b"one"), (VIRTUAL, CLIENT, b"two")]


def test_an_error_about_what_was_turned_back_goes_to_who_sent_it():
    with Switch(2, hairpin("10.0.0.77"), extension_share=1000) as switch:
        [went] = turned(switch, IP(src=CLIENT, dst=VIRTUAL) / UDP(sport=4000, dport=53) / b"question")
        error = IP(src="10.0.0.77", dst=PUBLIC) / ICMP(type=3, code=3) / bytes(went)
        [back] = turned(switch, error)
        assert (back.src, back.dst) == (VIRTUAL, CLIENT)
        quoted = (back[IPerror].src, back[IPerror].dst, back[UDPerror].sport, back[UDPerror].dport)
        assert quoted == (CLIENT, VIRTUAL, 4000, 53)
