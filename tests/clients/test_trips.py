"""Packets through stages: what they look like, how they come out, and what is said of those that do not."""

import numpy as np
import tables
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from zonetrack.clients import nat_scenarios, trips
from zonetrack.clients.trips import TUPLE, Leg, Stage, Traveller, travel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import CtState, Nat

NEW, EST = CtState.TRK | CtState.NEW, CtState.TRK | CtState.EST
NOW_MS = 1_000_000


def sent(traveller, me, now_ms=NOW_MS):
    """Send all there is to send; returns the calls that it took."""
    calls = 1
    while travel(me.views, traveller.address, u64(now_ms)):
        calls += 1
    return calls


def frame(traveller, i=0):
    """Return a frame, read; its checksums are right."""
    data = bytes(traveller.slots[i][: trips.WIRE_BYTES])
    packet = Ether(data)
    again = packet.copy()
    del again[IP].chksum, again[TCP].chksum
    assert bytes(again) == data
    return packet


def ends(packet):
    """Return who sends to whom."""
    return packet[IP].src, packet[TCP].sport, packet[IP].dst, packet[TCP].dport


def test_a_number_is_a_client_of_its_own():
    me = tables.Participant(tables.small())
    traveller = Traveller(7, 200)
    traveller.aim(Leg.SYN, (), 0, 200)
    sent(traveller, me)
    packets = [frame(traveller, i) for i in range(200)]
    assert len({ends(packet) for packet in packets}) == 200
    assert {(packet[IP].dst, packet[TCP].dport) for packet in packets} == {("198.18.0.1", 8192)}
    assert all(packet[IP].src.startswith("10.") and packet[TCP].sport >= 0x8000 for packet in packets)
    assert {str(packet[TCP].flags) for packet in packets} == {"S"}


def test_there_and_back_through_two_zones():
    """Destination in one zone, source in the other; the answer is made of what came out, and comes home."""
    table = tables.small(100, extension_share=1000)
    me = tables.Participant(table)
    tuples = np.zeros(5, TUPLE)
    traveller = Traveller(3, 32, tuples, 10)
    back, real = nat_scenarios.action(0), nat_scenarios.action(Nat.DESTINATION, 0xAC10000A, 1, (80, 80))
    outside = nat_scenarios.action(Nat.SOURCE, 0xCB007101, 1, (1024, 65535))

    def out(state):
        return (Stage(1, state | CtState.DNAT, True, True, real), Stage(2, state | CtState.SNAT, True, True, outside))

    traveller.aim(Leg.SYN, out(NEW), 10, 5)
    sent(traveller, me)
    assert traveller.complaint() is None and traveller["packets"] == 5
    src, sport, dst, dport = ends(frame(traveller))
    assert (src, dst, dport) == ("203.0.113.1", "172.16.0.10", 80) and sport >= 1024
    assert len(np.unique(tuples)) == 5
    rpl = EST | CtState.RPL
    home = (Stage(2, rpl | CtState.DNAT, True, False, back), Stage(1, rpl | CtState.SNAT, True, False, back))
    traveller.aim(Leg.SYN_ACK, home, 10, 5)
    sent(traveller, me)
    assert traveller.complaint() is None
    assert ends(frame(traveller))[:2] == ("198.18.0.1", 8192)
    traveller.aim(Leg.ACK, out(EST), 10, 5, 40, random=99)
    sent(traveller, me)
    assert traveller.complaint() is None and traveller["packets"] == 50


def test_an_answer_that_does_not_come_home_is_an_error():
    table = tables.small(100, extension_share=1000)
    me = tables.Participant(table)
    tuples = np.zeros(2, TUPLE)
    traveller = Traveller(3, 32, tuples)
    source = nat_scenarios.action(Nat.SOURCE, 0xCB007101, 1, (1024, 65535))
    traveller.aim(Leg.SYN, (Stage(0, NEW | CtState.SNAT, True, True, source),), 0, 2)
    sent(traveller, me)
    traveller.aim(Leg.SYN_ACK, (Stage(0, EST | CtState.RPL, True),), 0, 2)  # nothing asks for the way back
    sent(traveller, me)
    assert traveller["errors"] == 2
    assert traveller.complaint() == "2 packets went astray, the first of them SYN_ACK of connection 0"


def test_what_finds_no_port_is_counted_and_not_answered():
    table = tables.small(100, extension_share=1000)
    me = tables.Participant(table)
    tuples = np.zeros(10, TUPLE)
    traveller = Traveller(3, 32, tuples)
    source = nat_scenarios.action(Nat.SOURCE, 0xCB007101, 1, (2000, 2003))
    traveller.aim(Leg.SYN, (Stage(0, NEW | CtState.SNAT, True, True, source),), 0, 10)
    sent(traveller, me)
    assert traveller["exhausted"] == 6 and np.count_nonzero(tuples["addresses"]) == 4
    back = Stage(0, EST | CtState.RPL | CtState.DNAT, True, False, nat_scenarios.action(0))
    traveller.set(packets=0)
    traveller.aim(Leg.SYN_ACK, (back,), 0, 10)
    sent(traveller, me)
    assert traveller.complaint() is None
    assert (traveller["packets"], traveller["skipped"]) == (4, 6)


def test_a_wrong_verdict_is_named():
    me = tables.Participant(tables.small())
    traveller = Traveller(3, 32)
    traveller.aim(Leg.SYN, (Stage(4, EST, True, True),), 5, 2)
    sent(traveller, me)
    assert traveller.complaint() == (
        "2 packets with a wrong verdict, the first of them SYN of connection 5 in zone 4: expected est|trk, "
        "found new|trk (none)"
    )


def test_a_call_ends_with_its_budget_and_what_is_made_alone_is_not_tracked():
    table = tables.small(100)
    me = tables.Participant(table)
    traveller = Traveller(3, 4)
    traveller.aim(Leg.SYN, (Stage(0, NEW, True, True),), 0, 20)
    traveller.set(budget=8, alone=1)
    assert sent(traveller, me) == 3
    assert traveller["packets"] == 20
    assert tables.totals(table)["count"] == 0
