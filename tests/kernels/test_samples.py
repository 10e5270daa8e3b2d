"""Samples: what a packet was, what it was compared with, and that a half written one is never read."""

import numpy as np
import pytest
import tables
from bursts import CLIENT, ROUTER, SERVER, Bench, tcp, udp
from scapy.all import ICMP, IP, TCP, Ether, IPerror, Raw, UDPerror
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.service.samples import Samples, zone_of
from zonetrack.shm.layout import (
    ENTRY,
    PARTICIPANT,
    SAMPLE,
    SAMPLES_MAX,
    SETTINGS_WORD_DEFAULT,
    TCP_PEERS,
    CtState,
    PacketKind,
    Region,
    SampleFlag,
    Way,
)
from zonetrack.shm.reasons import Reason

INVALID = CtState.TRK | CtState.INV


@pytest.fixture
def bench():
    made = Bench(tables.small(300))
    yield made
    made.settle()


def taken(bench):
    return Samples(bench.table).of(bench.me)


def handshake():
    return tcp("S", 100), tcp("SA", 500, 101, reply=True), tcp("A", 101, 501)


def test_a_packet_beyond_the_window(bench):
    made = bench.track(*handshake(), zone=7)
    bench.track(tcp("PA", 9_000_000, 501) / Raw(b"late"), zone=7, now_ms=2000)
    (sample,) = taken(bench)
    entry = bench.table.array(Region.ENTRIES, "entries", ENTRY)[made["record"][0]]
    assert sample["key"].tolist() == entry["key"].tolist() and zone_of(sample) == 7
    assert sample["contents"].tolist() == entry["protocol"].tolist()
    peers = sample["contents"].view(TCP_PEERS)[0]["peer"]
    assert (peers["end"].tolist(), peers["maxend"].tolist()) == ([101, 501], [101 + 8192, 501 + 8192])
    assert (sample["record"], sample["incarnation"]) == (made["record"][0], made["incarnation"][0])
    assert (sample["seq"], sample["ack"], sample["sack"], sample["payload_bytes"]) == (9_000_000, 501, 501, 4)
    assert (sample["ip_bytes"], sample["win"], sample["tcp_flags"]) == (44, 8192, 0x18)
    assert (sample["reason"], sample["ct_state"], sample["way"]) == (Reason.TCP_SEQ_ABOVE, INVALID, Way.ORIG)
    assert (sample["kind"], sample["state"]) == (PacketKind.TCP, Tcp.ESTABLISHED)
    assert (sample["now_ms"], sample["packet"], sample["settings"]) == (2000, 4, SETTINGS_WORD_DEFAULT)
    assert sample["flags"] & SampleFlag.FOUND and sample["status"] == entry["status"]
    assert bench.counter(Reason.SAMPLED) == 1


def test_the_highest_byte_that_is_acknowledged(bench):
    options = [("NOP", None), ("NOP", None), ("SAck", (700, 900))]
    first, second, third = handshake()
    first[TCP].options = second[TCP].options = [("SAckOK", "")]
    bench.track(first, second, third)
    ahead = tcp("A", 101, 600)
    ahead[TCP].options = options
    bench.track(ahead)
    (sample,) = taken(bench)
    assert (sample["reason"], sample["ack"], sample["sack"]) == (Reason.TCP_ACK_ABOVE, 600, 900)


def test_a_packet_without_connection_is_kept_from_its_ip_header_on(bench):
    packet = tcp("FA", 1, 1, reply=True)
    bench.track(udp(), packet)
    (sample,) = taken(bench)
    bytes_ = bytes(packet)[14:]
    assert sample["contents"].tobytes()[: len(bytes_)] == bytes_ and sample["captured_bytes"] == len(bytes_)
    assert (sample["reason"], sample["packet"]) == (Reason.TCP_NEW_REFUSED, 2)
    assert not sample["flags"] & SampleFlag.FOUND and sample["status"] == 0
    assert sample["flags"] & SampleFlag.HIGH_IS_SOURCE  # 198.51.100.1 comes after 192.0.2.1


def test_a_packet_that_cannot_be_read_says_what_is_known(bench):
    packet = tcp("S", 1)
    packet[IP].chksum = 1
    bench.track(packet, zone=9)
    (sample,) = taken(bench)
    assert sample["reason"] == Reason.L3CSUM_ERR
    assert sample["key"].tolist() == [0, 0, 0, 0, 9 << 16 | 6 << 8 | 4]
    assert sample["contents"].tobytes()[:40] == bytes(packet)[14:54]


def test_an_error_is_looked_up_by_what_it_quotes(bench):
    quoted = IPerror(src=CLIENT, dst=SERVER) / UDPerror(sport=9, dport=53) / b"12345678"
    bench.track(Ether() / IP(src=ROUTER, dst=CLIENT) / ICMP(type=3, code=1) / quoted)
    (sample,) = taken(bench)
    assert (sample["reason"], sample["kind"]) == (Reason.ICMP_UNMATCHED, PacketKind.ICMP_ERROR)
    assert sample["flags"] == SampleFlag.QUOTED
    assert sample["key"].tolist()[1::2] == [0xC0000201, 0xC6336401] and int(sample["key"][4]) >> 32 == 9 << 16 | 53
    assert sample["icmp_word"] >> 16 == 3 << 8 | 1


def test_a_refused_commit_and_a_segment_that_is_let_by_are_sampled(bench):
    tables.quotas(bench.table)["limit"][0], tables.quotas(bench.table)["has_limit"][0] = 0, 1
    bench.track(udp())
    tables.quotas(bench.table)["has_limit"][0] = 0
    bench.track(*handshake())
    bench.track(tcp("S", 900))
    assert taken(bench)["reason"].tolist() == [Reason.ZONE_FULL, Reason.TCP_SYN_CHALLENGE]
    assert [state & CtState.INV for state in taken(bench)["ct_state"].tolist()] == [0, 0]


def test_what_is_no_ip_is_not_sampled(bench):
    bench.track(Ether(type=0x0806) / Raw(bytes(28)))
    assert len(taken(bench)) == 0 and bench.counter(Reason.NOIP) == 1


def test_the_latest_stay(bench):
    for n in range(3 * SAMPLES_MAX + 1):
        bench.track(*(tcp("FA", n, 1, sport=port) for port in range(1, 2 + n % 3)), now_ms=n)
    found = taken(bench)
    assert len(found) == SAMPLES_MAX == len(set(found["number"].tolist()))
    assert np.all(np.diff(found["number"].astype(int)) == 2)
    last = int(found["number"][-1])
    assert last == 2 * bench.counter(Reason.SAMPLED)
    assert taken(bench)["number"].tolist() == found["number"].tolist()
    assert Samples(bench.table).of(bench.me, last).tolist() == []


def test_one_that_its_writer_died_over_is_written_again(bench):
    bench.track(tcp("FA", 1, 1))
    rings = bench.table.array(Region.CONTROL, "samples", SAMPLE)
    own = rings[(bench.me - 1) * SAMPLES_MAX :][:SAMPLES_MAX]
    own[1]["number"], own[1]["record"], own[1]["seq"] = 3, 5, 77  # begun, and left
    assert taken(bench)["seq"].tolist() == [1]
    bench.track(tcp("FA", 2, 1))
    found = taken(bench)
    assert (found["number"].tolist(), found["seq"].tolist()) == ([2, 4], [1, 2])
    places = bench.table.array(Region.CONTROL, "participants", PARTICIPANT)
    assert places[bench.me - 1]["samples"] == 2
