"""Every packet with a reason is counted once: in all, by zone, and as invalid or untracked where it is."""

import pytest
import tables
from bursts import Bench, tcp, udp
from scapy.all import ARP, Ether, ICMPv6ND_NS, IPv6, Raw
from zone_counts import counts, rows_of
from zonetrack.shm.reasons import Reason


@pytest.fixture
def bench():
    return Bench(tables.small(300))


def refused_by_limit(bench):
    quotas = tables.quotas(bench.table)
    quotas["limit"][4], quotas["has_limit"][4] = 0, 1
    bench.track(udp(), zone=4)


CASES = {
    Reason.NOIP: lambda bench: bench.track(Ether() / ARP(), zone=4),
    Reason.NOT_TRACKED: lambda bench: bench.track(Ether() / IPv6(hlim=255) / ICMPv6ND_NS(), zone=4),
    Reason.L4_HEADER: lambda bench: bench.track(Ether(bytes(tcp("S", 1))[:14] + bytes(tcp("", 1))[14:]), zone=4),
    Reason.TCP_NEW_REFUSED: lambda bench: bench.track(tcp("FA", 1, 1), zone=4),
    Reason.ZONE_FULL: refused_by_limit,
    Reason.TCP_SYN_CHALLENGE: lambda bench: bench.track(
        tcp("S", 1), tcp("SA", 5, 2, reply=True), tcp("A", 2, 6), tcp("S", 900), zone=4
    ),
}
CASES[Reason.INVALID_TCP_FLAGS] = CASES.pop(Reason.L4_HEADER)
"""By the reason that it gives to one packet."""
OTHERWISE = {Reason.NOT_TRACKED: Reason.UNTRACKED, Reason.NOIP: None, Reason.ZONE_FULL: None}
OTHERWISE[Reason.TCP_SYN_CHALLENGE] = None
"""The counter that goes with it, where it is not INVALID."""


@pytest.mark.parametrize("reason", CASES)
def test_one_packet_one_reason(bench, reason):
    CASES[reason](bench)
    verdict_reasons = [one for one in Reason if one < Reason.INSERT and bench.counter(one)]
    assert verdict_reasons == [reason] and bench.counter(reason) == 1
    also = OTHERWISE.get(reason, Reason.INVALID)
    assert [one for one in (Reason.INVALID, Reason.UNTRACKED) if bench.counter(one)] == ([also] if also else [])
    assert counts(rows_of(bench.table)[bench.me - 1]) == {(4, reason): 1}


def test_packets_without_reason_are_none_of_its_business(bench):
    bench.track(udp(), udp(reply=True), Ether() / Raw(b""))
    assert sum(counts(rows_of(bench.table)[bench.me - 1]).values()) == 1
    bench.track(udp(), udp(reply=True))
    assert sum(counts(rows_of(bench.table)[bench.me - 1]).values()) == 1
