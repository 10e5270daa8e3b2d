"""Translated connections seen from both ends: what goes on, what comes back, and what ct_state says of it."""

from ipaddress import ip_address

import numpy as np
import pytest
import tables
from bursts import Bench, frames_of
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6PacketTooBig, IPerror6, IPv6
from scapy.layers.l2 import Ether
from zonetrack.kernels import burst, delete_list
from zonetrack.shm.layout import ACTION, UNLIMITED, VERDICT, CtState, Nat
from zonetrack.shm.reasons import Reason

CLIENT, SERVER, PUBLIC, INSIDE = "10.0.0.1", "198.51.100.1", "192.0.2.100", "10.0.0.80"
NEW, EST, REL, RPL = CtState.NEW, CtState.EST, CtState.REL, CtState.RPL
INV, TRK, SNAT, DNAT = CtState.INV, CtState.TRK, CtState.SNAT, CtState.DNAT


@pytest.fixture
def table():
    table = tables.small(300, extension_share=1000)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def bench(table):
    bench = Bench(table)
    yield bench
    settle(bench)


def settle(bench):
    """Run what is still on the delete list; then nothing is broken."""
    delete_list.run(bench.views)
    tables.assert_at_rest(bench.table)


def rule(nat=0, first=None, last=None, ports=(0, 0)):
    """Return ACTION[1]: the translation that a connection has, and ``nat`` for one that is made."""
    action = np.zeros(1, ACTION)
    action["nat"] = nat | Nat.APPLY
    if first is not None:
        action["nat_first"] = divmod(int(ip_address(first)), 1 << 64)
        action["nat_last"] = divmod(int(ip_address(last or first)), 1 << 64)
    action["nat_ports"] = ports
    return action


UNTRANSLATE = rule()


def send(bench, packet, action=UNTRANSLATE, zone=0, now_ms=1000):
    """Track one packet; returns its ct_state and what goes on."""
    frames, [buffer] = frames_of([Ether() / packet], zone)
    frames["action"] = 0 if action is None else action.ctypes.data
    verdict = np.zeros(1, VERDICT)
    arguments = (frames.ctypes.data, 1, now_ms, verdict.ctypes.data)
    burst.track_burst(bench.views, *map(np.uint64, arguments))
    went = Ether(buffer.tobytes())
    assert bytes(went) == bytes(Ether(bytes(fresh(went)))), "a checksum is wrong"
    return int(verdict["ct_state"][0]) & ~TRK, went.payload, Reason(int(verdict["reason"][0]))


def fresh(packet):
    """Return a packet whose checksums scapy will compute anew, but for those of a packet that it quotes."""
    packet = packet.copy()
    layer = packet
    while layer and not isinstance(layer, IPerror | IPerror6):
        if "chksum" in layer.fields:
            del layer.chksum
        if "cksum" in layer.fields:
            del layer.cksum
        layer = layer.payload
    return packet


def ends(packet):
    l4 = packet.payload
    return packet.src, getattr(l4, "sport", None), packet.dst, getattr(l4, "dport", None)


def tcp(src, sport, dst, dport, flags, seq=0, ack=0, data=b""):
    ip = IP(src=src, dst=dst) if ip_address(src).version == 4 else IPv6(src=src, dst=dst)
    return ip / TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack, window=8192) / data


# ------------------------------------------------------------------------------------------------ source
def test_a_conversation_through_another_source(bench):
    snat = rule(Nat.SOURCE, PUBLIC)
    state, went, _ = send(bench, tcp(CLIENT, 40000, SERVER, 80, "S", 100), snat)
    assert (state, ends(went)) == (NEW | SNAT, (PUBLIC, 40000, SERVER, 80))
    state, went, _ = send(bench, tcp(SERVER, 80, PUBLIC, 40000, "SA", 900, 101))
    assert (state, ends(went)) == (EST | RPL | DNAT, (SERVER, 80, CLIENT, 40000))
    state, went, _ = send(bench, tcp(CLIENT, 40000, SERVER, 80, "A", 101, 901))
    assert (state, ends(went)) == (EST | SNAT, (PUBLIC, 40000, SERVER, 80))
    state, went, _ = send(bench, tcp(SERVER, 80, PUBLIC, 40000, "PA", 901, 101, b"hello"))
    assert (state, ends(went), bytes(went[TCP].payload)) == (EST | RPL | DNAT, (SERVER, 80, CLIENT, 40000), b"hello")
    assert bench.count() == 1


def test_what_is_translated_already_is_seen_and_left_alone(bench):
    """A packet that comes by again in its zone, as it went on: its connection is known, nothing is done to it."""
    _, went, _ = send(bench, tcp(CLIENT, 40000, SERVER, 80, "S", 100), rule(Nat.SOURCE, PUBLIC))
    again, same, _ = send(bench, went)
    assert (again, ends(same)) == (NEW | SNAT, (PUBLIC, 40000, SERVER, 80))
    _, back, _ = send(bench, tcp(SERVER, 80, PUBLIC, 40000, "SA", 900, 101))
    again, same, _ = send(bench, back)
    assert (again, ends(same)) == (EST | RPL | DNAT, (SERVER, 80, CLIENT, 40000))


def test_without_a_rule_nothing_is_translated(bench):
    send(bench, tcp(CLIENT, 40000, SERVER, 80, "S", 100), rule(Nat.SOURCE, PUBLIC))
    state, went, _ = send(bench, tcp(SERVER, 80, PUBLIC, 40000, "SA", 900, 101), None)
    assert (state, ends(went)) == (EST | RPL, (SERVER, 80, PUBLIC, 40000))


def test_two_openers_with_one_port_get_two(bench):
    snat = rule(Nat.SOURCE, PUBLIC)
    tuples = set()
    for host in range(1, 30):
        _, went, _ = send(bench, tcp(f"10.0.0.{host}", 40000, SERVER, 80, "S"), snat)
        tuples.add(ends(went))
        state, back, _ = send(bench, tcp(SERVER, 80, PUBLIC, went[TCP].sport, "SA", 5, 1))
        assert (state, back.dst, back[TCP].dport) == (EST | RPL | DNAT, f"10.0.0.{host}", 40000)
    assert len(tuples) == 29


def test_a_range_that_is_full_is_a_reason_and_no_connection(bench):
    snat = rule(Nat.SOURCE, PUBLIC, ports=(2000, 2003))
    for host in range(1, 5):
        state, went, _ = send(bench, tcp(f"10.0.0.{host}", 7, SERVER, 80, "S"), snat)
        assert state == NEW | SNAT and 2000 <= went[TCP].sport <= 2003
    state, went, reason = send(bench, tcp("10.0.0.9", 7, SERVER, 80, "S"), snat)
    assert (state, ends(went), reason) == (NEW, ("10.0.0.9", 7, SERVER, 80), Reason.NAT_EXHAUSTED)
    assert (bench.count(), bench.counter(Reason.NAT_EXHAUSTED)) == (4, 1)
    there, _, _ = send(bench, tcp("10.0.0.9", 7, "198.51.100.2", 80, "S"), snat)
    assert there == NEW | SNAT  # to another host the same ports are free


def test_without_an_extension_left_there_is_no_translation():
    table = tables.small(300, extension_share=0)
    bench = Bench(table)
    state, went, reason = send(bench, tcp(CLIENT, 7, SERVER, 80, "S"), rule(Nat.SOURCE, PUBLIC))
    assert (state, ends(went), reason) == (NEW, (CLIENT, 7, SERVER, 80), Reason.EXTENSION_FULL)
    assert bench.count() == 0
    settle(bench)


def test_an_address_that_is_kept_shows_that_a_rule_was_there(bench):
    """All-zero SNAT: nothing changes until the port is taken."""
    state, went, _ = send(bench, tcp(CLIENT, 40000, SERVER, 80, "S"), rule(Nat.SOURCE))
    assert (state, ends(went)) == (NEW | SNAT, (CLIENT, 40000, SERVER, 80))
    state, went, _ = send(bench, tcp(SERVER, 80, CLIENT, 40000, "SA", 5, 1))
    assert (state, ends(went)) == (EST | RPL | DNAT, (SERVER, 80, CLIENT, 40000))


# ------------------------------------------------------------------------------------------------ destination
def test_a_conversation_with_another_destination(bench):
    dnat = rule(Nat.DESTINATION, INSIDE, ports=(8080, 8080))
    state, went, _ = send(bench, tcp(SERVER, 40000, PUBLIC, 80, "S", 100), dnat)
    assert (state, ends(went)) == (NEW | DNAT, (SERVER, 40000, INSIDE, 8080))
    state, went, _ = send(bench, tcp(INSIDE, 8080, SERVER, 40000, "SA", 900, 101))
    assert (state, ends(went)) == (EST | RPL | SNAT, (PUBLIC, 80, SERVER, 40000))
    state, went, _ = send(bench, tcp(SERVER, 40000, PUBLIC, 80, "A", 101, 901))
    assert (state, ends(went)) == (EST | DNAT, (SERVER, 40000, INSIDE, 8080))


def test_destination_in_one_zone_and_source_in_another(bench):
    """A host inside that calls its neighbour by the public address, and is answered through the same gateway."""
    dnat, snat = rule(Nat.DESTINATION, INSIDE), rule(Nat.SOURCE, "10.0.0.254")
    _, went, _ = send(bench, tcp(CLIENT, 40000, PUBLIC, 80, "S", 100), dnat, zone=1)
    state, went, _ = send(bench, went, snat, zone=2)
    assert (state, ends(went)) == (NEW | SNAT, ("10.0.0.254", 40000, INSIDE, 80))
    state, back, _ = send(bench, tcp(INSIDE, 80, "10.0.0.254", 40000, "SA", 900, 101), zone=2)
    assert (state, ends(back)) == (EST | RPL | DNAT, (INSIDE, 80, CLIENT, 40000))
    state, back, _ = send(bench, back, zone=1)
    assert (state, ends(back)) == (EST | RPL | SNAT, (PUBLIC, 80, CLIENT, 40000))


def test_a_closed_connection_opened_again_has_the_same_tuple(bench):
    snat = rule(Nat.SOURCE, PUBLIC, "192.0.2.163", ports=(1024, 65535))
    _, first, _ = send(bench, tcp(CLIENT, 40000, SERVER, 80, "S", 100), snat)
    public, port = first.src, first[TCP].sport
    for packet in (
        tcp(SERVER, 80, public, port, "SA", 900, 101),
        tcp(CLIENT, 40000, SERVER, 80, "A", 101, 901),
        tcp(CLIENT, 40000, SERVER, 80, "FA", 101, 901),
        tcp(SERVER, 80, public, port, "FA", 901, 102),
        tcp(CLIENT, 40000, SERVER, 80, "A", 102, 902),
    ):
        send(bench, packet)
    state, again, _ = send(bench, tcp(CLIENT, 40000, SERVER, 80, "S", 70000), snat)
    assert (state, ends(again)) == (NEW | SNAT, ends(first))
    assert bench.count() <= 2  # the old record may still be on its way home


# ------------------------------------------------------------------------------------------------ other protocols
def test_an_echo(bench):
    snat = rule(Nat.SOURCE, PUBLIC)
    identifiers = []
    for host in (1, 2):
        state, went, _ = send(bench, IP(src=f"10.0.0.{host}", dst=SERVER) / ICMP(type=8, id=7, seq=1) / b"ping", snat)
        assert (state, went.src) == (NEW | SNAT, PUBLIC)
        identifiers.append(went[ICMP].id)
        state, back, _ = send(bench, IP(src=SERVER, dst=PUBLIC) / ICMP(type=0, id=went[ICMP].id, seq=1) / b"ping")
        assert (state, back.dst, back[ICMP].id) == (EST | RPL | DNAT, f"10.0.0.{host}", 7)
    assert identifiers[0] == 7 != identifiers[1]


def test_ipv6(bench):
    client, server, public = "2001:db8::1", "2001:db8:9::9", "2001:db8:1::100"
    snat = rule(Nat.SOURCE, public)
    state, went, _ = send(bench, IPv6(src=client, dst=server) / ICMPv6EchoRequest(id=7, data=b"ping"), snat)
    assert (state, went.src) == (NEW | SNAT, public)
    state, back, _ = send(bench, IPv6(src=server, dst=public) / ICMPv6EchoReply(id=7, data=b"ping"))
    assert (state, back.dst) == (EST | RPL | DNAT, client)
    state, went, _ = send(bench, tcp(client, 40000, server, 443, "S"), snat)
    state, back, _ = send(bench, tcp(server, 443, public, 40000, "SA", 5, 1))
    assert (state, ends(back)) == (EST | RPL | DNAT, (server, 443, client, 40000))


# ------------------------------------------------------------------------------------------------ ICMP errors
def test_an_error_from_a_router_outside_reaches_who_sent_the_packet(bench):
    _, went, _ = send(bench, IP(src=CLIENT, dst=SERVER) / UDP(sport=5000, dport=53) / b"q", rule(Nat.SOURCE, PUBLIC))
    error = IP(src="203.0.113.9", dst=PUBLIC) / ICMP(type=11) / bytes(went)[:28]
    state, back, _ = send(bench, error)
    assert (state, back.src, back.dst) == (REL | RPL | DNAT, "203.0.113.9", CLIENT)
    quoted = IP(bytes(back[ICMP].payload))
    assert ends(quoted) == (CLIENT, 5000, SERVER, 53)
    assert bench.counter(Reason.INVALID) == 0


def test_an_error_from_the_host_inside_speaks_with_its_public_address(bench):
    _, went, _ = send(
        bench, IP(src=SERVER, dst=PUBLIC) / UDP(sport=5000, dport=53) / b"q", rule(Nat.DESTINATION, INSIDE)
    )
    error = IP(src=INSIDE, dst=SERVER) / ICMP(type=3, code=3) / bytes(went)
    state, back, _ = send(bench, error)
    assert (state, back.src, back.dst) == (REL | RPL | SNAT, PUBLIC, SERVER)
    assert ends(IP(bytes(back[ICMP].payload))) == (SERVER, 5000, PUBLIC, 53)


def test_an_error_from_inside_about_a_reply_reaches_the_replier(bench):
    send(bench, IP(src=CLIENT, dst=SERVER) / UDP(sport=5000, dport=53) / b"q", rule(Nat.SOURCE, PUBLIC))
    state, back, _ = send(bench, IP(src=SERVER, dst=PUBLIC) / UDP(sport=53, dport=5000) / b"a")
    assert state == EST | RPL | DNAT
    error = IP(src=CLIENT, dst=SERVER) / ICMP(type=3, code=3) / bytes(back)
    state, went, _ = send(bench, error)
    assert (state, went.src, went.dst) == (REL | SNAT, PUBLIC, SERVER)
    assert ends(IP(bytes(went[ICMP].payload))) == (SERVER, 53, PUBLIC, 5000)


def test_packet_too_big(bench):
    client, server, public = "2001:db8::1", "2001:db8:9::9", "2001:db8:1::100"
    _, went, _ = send(bench, tcp(client, 40000, server, 443, "S", data=b""), rule(Nat.SOURCE, public))
    error = IPv6(src="2001:db8:5::5", dst=public) / ICMPv6PacketTooBig(mtu=1280) / bytes(went)
    state, back, _ = send(bench, error)
    assert (state, back.src, back.dst) == (REL | RPL | DNAT, "2001:db8:5::5", client)
    assert ends(IPv6(bytes(back.payload.payload))) == (client, 40000, server, 443)


# ------------------------------------------------------------------------------------------------ invalid
def test_a_packet_that_is_no_part_of_it_is_not_translated(bench):
    send(bench, tcp(CLIENT, 40000, SERVER, 80, "S", 100), rule(Nat.SOURCE, PUBLIC))
    state, went, reason = send(bench, tcp(SERVER, 80, PUBLIC, 40000, "SA", 900, 5000))
    assert (state, ends(went)) == (INV, (SERVER, 80, PUBLIC, 40000)) and reason is not Reason.NONE
