"""Bursts: what a packet gets depends on what came before it, in the same burst, in another, or from another participant."""

from __future__ import annotations

import numpy as np
import pytest
import tables
from bursts import CLIENT, ROUTER, SERVER, Bench, tcp, udp
from scapy.all import ICMP, IP, Ether, IPerror, UDPerror
from zonetrack.kernels.timeouts import Timeout
from zonetrack.shm import segment
from zonetrack.shm.layout import (
    ENTRY,
    GLOBAL,
    NO_RECORD,
    POLICY,
    QUOTA,
    ZONE,
    CtState,
    Region,
    Setting,
    VerdictFlag,
)
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry

NEW = CtState.TRK | CtState.NEW
EST = CtState.TRK | CtState.EST
REPLY = CtState.TRK | CtState.EST | CtState.RPL
INVALID = CtState.TRK | CtState.INV


@pytest.fixture
def bench():
    made = Bench(segment.anonymous(Geometry(2000, 16, 125)))
    yield made
    made.settle()


def states(verdicts: np.ndarray) -> list[int]:
    return verdicts["ct_state"].tolist()


def test_later_packets_of_a_burst_see_what_earlier_ones_did(bench):
    verdicts = bench.track(tcp("S", 100), tcp("SA", 500, 101, reply=True), tcp("A", 101, 501), udp(), udp(reply=True))
    assert states(verdicts) == [NEW, REPLY, EST, NEW, REPLY]
    assert len(set(verdicts["record"][:3].tolist())) == 1
    assert verdicts["flags"].tolist()[2] == VerdictFlag.COMMITTED | VerdictFlag.ASSURED
    assert bench.count() == 2


def test_the_same_new_key_twice_in_a_burst_makes_one_record(bench):
    verdicts = bench.track(udp(), udp(), udp())
    assert states(verdicts) == [NEW, NEW, NEW]
    assert len(set(verdicts["record"].tolist())) == 1
    assert bench.count() == 1


def test_a_lookup_without_commit_changes_nothing(bench):
    verdicts = bench.track(tcp("S", 100), udp(), commit=False)
    assert states(verdicts) == [NEW, NEW]
    assert set(verdicts["record"].tolist()) == {NO_RECORD}
    assert set(verdicts["flags"].tolist()) == {0}
    assert bench.count() == 0


def test_bytes_and_packets_are_counted_per_direction(bench):
    verdicts = bench.track(udp(), udp(reply=True), udp(reply=True))
    entry = bench.table.array(Region.ENTRIES, "entries", ENTRY)[verdicts["record"][0]]
    assert entry["packets"].tolist() == [1, 2]
    assert entry["bytes"].tolist() == [20 + 8 + 8, 2 * (20 + 8 + 6)]


def test_zones_are_apart(bench):
    bench.track(udp(), zone=1)
    assert states(bench.track(udp(reply=True), zone=2)) == [NEW]
    assert states(bench.track(udp(reply=True), zone=1)) == [REPLY]
    assert (bench.count(1), bench.count(2)) == (1, 1)


def test_an_expired_connection_is_never_found(bench):
    first = bench.track(udp(), udp(reply=True), now_ms=1000)
    again = bench.track(udp(reply=True), now_ms=1000 + 10_000_000)
    assert states(again) == [NEW]
    assert again["incarnation"][0] != first["incarnation"][0] or again["record"][0] != first["record"][0]
    assert bench.counter(Reason.EXPIRED_ON_LOOKUP) == 1
    bench.settle()
    assert bench.count() == 1


def test_one_way_traffic_lives_no_longer_than_it_may(bench):
    bench.table.array(Region.CONTROL, "policies", POLICY)["timeout_ms"][0, Timeout.UDP_ONE_WAY_MAX] = 50_000
    left = [int(bench.track(udp(), now_ms=now_ms)["timeout_ms"][0]) for now_ms in (1000, 26_000, 46_000, 51_000)]
    assert left == [30_000, 25_000, 5_000, 30_000]
    assert bench.counter(Reason.EXPIRED_ON_LOOKUP) == 1
    assert bench.track(udp(sport=2), udp(sport=2, reply=True), now_ms=60_000)["timeout_ms"].tolist() == [30_000, 30_000]
    assert bench.track(udp(sport=2), now_ms=89_000)["timeout_ms"].tolist() == [120_000]


def test_nothing_expires_where_expiry_is_off(bench):
    bench.table.array(Region.CONTROL, "zones", ZONE)["settings"] |= np.uint16(Setting.NO_EXPIRY)
    bench.track(udp(), udp(reply=True), now_ms=1000)
    assert states(bench.track(udp(), now_ms=10_000_000_000)) == [EST]


def test_a_syn_after_the_end_makes_a_new_connection(bench):
    closed = (
        *(tcp("S", 100), tcp("SA", 500, 101, reply=True), tcp("A", 101, 501)),
        *(tcp("FA", 101, 501), tcp("FA", 501, 102, reply=True), tcp("A", 102, 502)),
    )
    before = bench.track(*closed)
    after = bench.track(tcp("S", 90000))
    assert states(after) == [NEW]
    assert (after["record"][0], after["incarnation"][0]) != (before["record"][-1], before["incarnation"][-1])
    bench.settle()
    assert bench.count() == 1


def test_an_icmp_error_is_related_and_refreshes_nothing(bench):
    made = bench.track(udp(), now_ms=1000)
    quoted = IPerror(src=CLIENT, dst=SERVER) / UDPerror(sport=1234, dport=53)
    error = Ether() / IP(src=ROUTER, dst=CLIENT) / ICMP(type=3, code=1) / quoted
    stranger = (
        Ether()
        / IP(src=ROUTER, dst=CLIENT)
        / ICMP(type=3, code=1)
        / (IPerror(src=CLIENT, dst=SERVER) / UDPerror(sport=999, dport=53))
    )
    verdicts = bench.track(error, stranger, now_ms=2000)
    assert states(verdicts) == [CtState.TRK | CtState.REL | CtState.RPL, INVALID]
    assert verdicts["reason"].tolist() == [Reason.NONE, Reason.ICMP_UNMATCHED]
    assert verdicts["record"][0] == made["record"][0]
    assert verdicts["timeout_ms"][0] == made["timeout_ms"][0] - 1000


def test_each_refusal_has_its_reason(bench):
    bad_checksum = bytearray(bytes(udp()))
    bad_checksum[-1] ^= 0xFF
    verdicts = bench.track(Ether(type=0x0806) / (b"\0" * 28), bytes(bad_checksum), tcp("SF", 1), bytes(udp())[:36])
    assert verdicts["reason"].tolist() == [
        Reason.NOIP,
        Reason.L4CSUM_ERR,
        Reason.INVALID_TCP_FLAGS,
        Reason.L3_HEADER,
    ]
    assert states(verdicts) == [0, INVALID, INVALID, INVALID]
    assert bench.counter(Reason.INVALID) == 3


def test_checksums_may_be_ignored_per_zone(bench):
    settings = bench.table.array(Region.CONTROL, "zones", ZONE)["settings"]
    settings[7] &= ~np.uint16(Setting.CHECKSUM)
    bad = bytearray(bytes(udp()))
    bad[-1] ^= 0xFF
    assert states(bench.track(bytes(bad), zone=7)) == [NEW]


@pytest.mark.parametrize(("where", "reason"), [("zone", Reason.ZONE_FULL), ("global", Reason.FULL)])
def test_a_limit_refuses_the_commit_and_names_itself(bench, where, reason):
    tables.refuse(bench.table)
    if where == "zone":
        quota = bench.table.array(Region.CONTROL, "quotas", QUOTA)[0:1]
        quota["limit"], quota["has_limit"] = 3, 1
    else:
        bench.table.array(Region.CONTROL, "globals", GLOBAL)["limit"] = 3
    verdicts = bench.track(*(udp(sport) for sport in range(1, 6)))
    assert states(verdicts) == [NEW] * 5
    assert verdicts["reason"].tolist() == [0, 0, 0, reason, reason]
    assert (verdicts["flags"] & VerdictFlag.COMMITTED).tolist() == [VerdictFlag.COMMITTED] * 3 + [0, 0]
    assert bench.count() == 3
    assert states(bench.track(udp(1, reply=True), udp(5, reply=True))) == [REPLY, NEW]


def test_credit_of_a_burst_over_many_zones_is_given_back(bench):
    for zone in range(8):
        bench.track(*(udp(sport) for sport in range(1, 9)), zone=zone)
    assert [bench.count(zone) for zone in range(8)] == [8] * 8
    assert bench.table.array(Region.CONTROL, "globals", GLOBAL)[0]["count"] == 64


def test_a_burst_of_many_deletes_runs_the_list_in_between(bench):
    opened = [tcp("S", 100, sport=sport) for sport in range(1, 201)]
    bench.track(*opened)
    assert bench.count() == 200
    refused = [tcp("RA", 0, 101, reply=True, sport=sport) for sport in range(1, 201)]
    verdicts = bench.track(*refused)
    assert set(states(verdicts)) == {REPLY}
    bench.settle()
    assert bench.count() == 0


def test_two_participants_share_connections(bench):
    other = Bench(bench.table)
    bench.track(udp())
    assert states(other.track(udp(reply=True))) == [REPLY]
    assert states(bench.track(udp())) == [EST]


def test_a_tuple_may_be_used_again_and_again_before_the_dead_leave_the_index(bench):
    again = [packet for _ in range(40) for packet in (tcp("S", 100), tcp("RA", 0, 101, reply=True))]
    verdicts = bench.track(*again)
    assert states(verdicts) == [NEW, REPLY] * 40
    assert set(verdicts["reason"].tolist()) == {Reason.NONE}
    assert bench.counter(Reason.SPLIT) == 0
    bench.settle()
    assert bench.count() == 0


# ------------------------------------------------------------------------------------------------ the other profile
@pytest.fixture
def ovs():
    """A bench where Open vSwitch's rules hold."""
    made = Bench(segment.anonymous(Geometry(2000, 16, 125)))
    made.table.array(Region.CONTROL, "zones", ZONE)["settings"] |= np.uint16(Setting.OVS)
    return made


OPENED = (tcp("S", 100), tcp("SA", 500, 101, reply=True), tcp("A", 101, 501))


def test_a_connection_of_the_ovs_profile(ovs):
    verdicts = ovs.track(*OPENED, tcp("A", 101 + (1 << 20), 501), udp(), udp(), udp(reply=True))
    assert states(verdicts) == [NEW, REPLY, EST, EST, NEW, NEW, REPLY]
    assert verdicts["timeout_ms"].tolist() == [30_000, 30_000, 86_400_000, 86_400_000, 60_000, 60_000, 30_000]
    assert verdicts["state"].tolist()[:4] == [0x02, 0x24, 0x44, 0x44]
    assert set(verdicts["flags"].tolist()) == {VerdictFlag.COMMITTED}


def test_in_the_ovs_profile_a_syn_opens_anew_what_is_over(ovs):
    before = ovs.track(*OPENED, tcp("R", 101), now_ms=1000)
    after = ovs.track(tcp("S", 9000), tcp("SA", 700, 9001, reply=True), now_ms=2000)
    assert states(after) == [NEW, REPLY]
    assert after["incarnation"][0] != before["incarnation"][0] or after["record"][0] != before["record"][0]
    ovs.settle()
    assert ovs.count() == 1


def test_in_the_ovs_profile_a_syn_without_commit_ends_what_is_over(ovs):
    ovs.track(*OPENED, tcp("R", 101))
    assert states(ovs.track(tcp("S", 9000), commit=False)) == [NEW]
    ovs.settle()
    assert ovs.count() == 0


def test_in_the_ovs_profile_nothing_but_the_lengths_decides_when_a_connection_is_gone(ovs):
    ovs.track(*OPENED, now_ms=1000)
    assert states(ovs.track(tcp("S", 77), now_ms=86_400_999)) == [EST]
    assert states(ovs.track(tcp("S", 77), now_ms=2 * 86_401_000)) == [NEW]
    assert ovs.counter(Reason.EXPIRED_ON_LOOKUP) == 1


def test_in_the_ovs_profile_what_is_refused_has_its_reason(ovs):
    verdicts = ovs.track(
        *OPENED, tcp("PA", 101 + (1 << 20), 501) / b"far", tcp("SA", 1, 2, sport=4), tcp("SF", 1, sport=5)
    )
    assert states(verdicts)[3:] == [INVALID] * 3
    assert verdicts["reason"].tolist()[3:] == [
        Reason.TCP_SEQ_CHK_FAILED,
        Reason.TCP_NEW_REFUSED,
        Reason.INVALID_TCP_FLAGS,
    ]
    assert ovs.counter(Reason.INVALID) == 3


def test_in_the_ovs_profile_a_limit_leaves_a_packet_new(ovs):
    quota = ovs.table.array(Region.CONTROL, "quotas", QUOTA)
    quota["has_limit"][0], quota["limit"][0] = 1, 1
    tables.refuse(ovs.table)  # as that profile does
    verdicts = ovs.track(udp(), udp(sport=2))
    assert states(verdicts) == [NEW, NEW]
    assert verdicts["reason"].tolist() == [Reason.NONE, Reason.ZONE_FULL]


def test_what_needs_no_seq_check_says_so(ovs):
    ovs.table.array(Region.CONTROL, "zones", ZONE)["settings"] &= np.uint16(0xFFFF & ~Setting.SEQ_CHECK)
    verdicts = ovs.track(*OPENED, tcp("PA", 101 + (1 << 20), 501) / b"far")
    assert (states(verdicts)[3], verdicts["reason"][3]) == (EST, Reason.TCP_SEQ_CHK_BYPASS)
    assert (ovs.counter(Reason.TCP_SEQ_CHK_BYPASS), ovs.counter(Reason.INVALID)) == (1, 0)
