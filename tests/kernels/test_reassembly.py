"""Datagrams put together from fragments: what is tracked in their stead, and what hostile ones come to."""

import random

import bursts
import fragmented
import numpy as np
import pytest
import tables
from fragmented import EST, HELD, NEW, OVS, REPLY, Bench, Piece, cut, refused, udp
from zonetrack.shm.layout import FRAGMENTS_MAX, Life, StoreFlag
from zonetrack.shm.reasons import Reason

FULL, LARGE, CHECKSUM = (refused(Reason[name]) for name in ("FRAGMENTS_FULL", "FRAGMENT_TOO_LARGE", "L4CSUM_ERR"))
HOP_BY_HOP, ROUTING, OPTIONS, AUTHENTICATION = 0, 43, 60, 51
PADDING = b"\x00\x01\x04" + bytes(4)
"""The rest of an extension header of 8 bytes that says nothing."""


def live(bench):
    """Return the connections, ENTRY[n]."""
    entries = tables.entries(bench.table)
    return entries[entries["life"] & np.uint64(0xFF) == Life.LIVE]


# ------------------------------------------------------------------------------------------------ one packet
@pytest.mark.parametrize("family", [4, 6])
def test_a_datagram_is_counted_once_with_all_its_bytes(family):
    bench = Bench()
    assert bench.fates(cut(udp(3000, family=family), 1400, 2800, family=family)) == [NEW] * 3
    (entry,) = live(bench)
    header = 20 if family == 4 else 40
    assert entry["packets"].tolist() == [1, 0] and entry["bytes"].tolist() == [3000 + header, 0]
    assert bench.counter(Reason.PACKETS) == 3 and bench.counter(Reason.BYTES) == 3000 + header
    bench.settle()


def test_fragments_belong_to_the_connection_of_their_ports():
    bench = Bench()
    whole = bursts.Ether() / bursts.IP(src="198.51.100.1", dst="192.0.2.1") / bursts.UDP(sport=53, dport=1000) / b"hi"
    assert bench.fates(cut(udp(3000), 1400, 2800)) == [NEW] * 3
    assert bench.send(whole) == [REPLY]
    assert bench.fates(cut(udp(3000), 1400, 2800, id=8)) == [EST] * 3
    back = {"source": fragmented.DESTINATION, "destination": fragmented.SOURCE}
    assert bench.fates(cut(udp(2000, sport=53, dport=1000), 1400, **back)) == [REPLY] * 2


def test_a_later_packet_of_the_burst_sees_the_datagram():
    bench = Bench()
    first, last = cut(udp(2000), 1400)
    (second,) = cut(udp(100))
    assert bench.send(second, first, last, second) == [NEW, HELD, NEW, NEW]
    assert live(bench)["packets"].tolist() == [[3, 0]]


def test_two_datagrams_of_one_burst():
    bench = Bench()
    mixed = [cut(udp(2000, sport=sport), 1400, id=sport) for sport in range(1, 9)]
    assert bench.fates([one for one, _ in mixed] + [two for _, two in mixed]) == [NEW] * 16
    assert len(live(bench)) == 8
    bench.settle()


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("bad", [False, True])
def test_the_checksum_of_the_whole_is_verified(family, bad):
    bench = Bench()
    data = udp(3000, checksum=None, family=family)
    if bad:
        data = data[:2000] + bytes([data[2000] ^ 1]) + data[2001:]
    assert bench.fates(cut(data, 1400, 2800, family=family)) == [CHECKSUM if bad else NEW] * 3
    assert len(live(bench)) == (0 if bad else 1)
    assert bench.counter(Reason.L4CSUM_ERR) == (3 if bad else 0)
    bench.settle()


def test_a_fragment_with_a_wrong_ip_checksum_is_refused_alone():
    bench = Bench()
    first, last = cut(udp(2000), 1400)
    frame = bytearray(first.frame)
    frame[24] ^= 1
    assert bench.send(bytes(frame), first, last) == [refused(Reason.L3CSUM_ERR), HELD, NEW]


def test_what_a_capture_has_cut_off_is_not_verified():
    bench = Bench()
    first, last = cut(udp(2000, checksum=None), 1400)
    assert bench.fates([first._replace(captured=60), last._replace(captured=40)]) == [NEW] * 2
    first, last = cut(udp(2000, checksum=None), 1400, id=8)
    assert bench.fates([first, last._replace(captured=30)]) == [HELD, refused(Reason.TRUNCATED)]


def test_padding_of_a_fragment_is_no_data():
    bench = Bench()
    first, last = cut(udp(1410, checksum=None), 1400)
    assert bench.fates([last.frame + bytes(16), first.frame]) == [NEW] * 2


@pytest.mark.parametrize("tags", [b"\x81\x00\x00\x05", b"\x88\xa8\x00\x05\x81\x00\x00\x06"], ids=["vlan", "qinq"])
@pytest.mark.parametrize("settings", [None, OVS], ids=["netfilter", "ovs"])
def test_behind_vlan_tags(tags, settings):
    bench = Bench(settings=settings)
    assert bench.fates(cut(udp(3000), 1400, 2800, link=b"\x02" * 12 + tags)) == [NEW] * 3


CHAINS = {
    "hop by hop": ((HOP_BY_HOP, PADDING),),
    "several": ((HOP_BY_HOP, PADDING), (OPTIONS, PADDING), (ROUTING, bytes(7))),
    "authentication": ((AUTHENTICATION, b"\x04" + bytes(22)),),
    "a fragment header before that is none": ((44, bytes(7)),),
}


@pytest.mark.parametrize("settings", [None, OVS], ids=["netfilter", "ovs"])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("extensions", CHAINS.values(), ids=CHAINS)
def test_ipv6_with_extension_headers_before_the_fragment_header(extensions, order, settings):
    bench = Bench(settings=settings)
    pieces = cut(udp(3000, checksum=None, family=6), 1400, 2800, family=6, extensions=extensions)
    assert bench.fates(*([piece] for piece in pieces[::order])) == [NEW] * 3
    (entry,) = live(bench)
    assert int(entry["key"][4]) >> 8 & 0xFF == fragmented.UDP


@pytest.mark.parametrize("order", [1, -1])
def test_ipv6_with_extension_headers_behind_it(order):
    bench = Bench()
    data = bytes([fragmented.UDP]) + PADDING + udp(3000, checksum=None, family=6)
    pieces = cut(data, 1400, 2800, family=6, protocol=OPTIONS)
    assert bench.fates(*([piece] for piece in pieces[::order])) == [NEW] * 3
    assert int(live(bench)[0]["key"][4]) >> 8 & 0xFF == fragmented.UDP


def test_an_atomic_fragment_does_not_wait():
    bench = Bench()
    assert bench.send(Piece(udp(100, family=6), family=6)) == [NEW]
    assert bench.store["count"] == 0


def test_without_commit_nothing_is_made():
    bench = Bench()
    frames, buffers = bursts.frames_of([piece.frame for piece in cut(udp(2000), 1400)], commit=False)
    assert len(frames) == len(buffers) == 2
    verdicts = bench.track(*buffers, commit=False)
    assert fragmented.fate(verdicts[1]) == NEW and len(live(bench)) == 0


# ------------------------------------------------------------------------------------------------ limits and settings
def test_no_more_wait_than_may():
    bench = Bench()
    bench.store["count_max"] = 3
    firsts = [cut(udp(2000), 1400, id=number)[0] for number in range(5)]
    assert bench.send(*firsts) == [HELD] * 3 + [FULL] * 2
    assert bench.send(cut(udp(2000), 1400, id=0)[1]) == [FULL]
    assert len(bench.late(now_ms=31_000)) == 3
    assert bench.counter(Reason.FRAGMENTS_FULL) == 3 and bench.counter(Reason.FRAGMENTS_EXPIRED) == 3
    assert bench.fates(cut(udp(2000), 1400)) == [NEW] * 2
    bench.settle()


def test_as_many_wait_as_there_is_room_for():
    bench = Bench()
    bench.store["count_max"] = FRAGMENTS_MAX
    pieces = [cut(udp(1500), 1400, id=number)[0] for number in range(FRAGMENTS_MAX + 2)]
    said = [fate for at in range(0, len(pieces), 171) for fate in bench.send(*pieces[at : at + 171])]
    assert said == [HELD] * FRAGMENTS_MAX + [FULL] * 2
    assert len(bench.late(now_ms=31_000)) == FRAGMENTS_MAX
    bench.settle()


@pytest.mark.parametrize(("on", "family", "works"), [("IPV4", 4, True), ("IPV4", 6, False), ("IPV6", 6, True)])
def test_of_a_family_that_is_off_every_fragment_is_refused(on, family, works):
    bench = Bench()
    bench.store["flags"] = StoreFlag[on]
    fate = NEW if works else refused(Reason.FRAGMENT)
    assert bench.fates(cut(udp(2000, family=family), 1400, family=family)) == [fate] * 2


def test_the_least_size_can_be_chosen():
    bench = Bench(settings=OVS)
    bench.store["bytes_min"] = 400
    assert bench.fates(cut(udp(2000), 384)) == [NEW] * 2
    assert bench.fates(cut(udp(2000), 376, id=9)) == [refused(Reason.FRAGMENT_TOO_SMALL), HELD]


def test_a_frame_longer_than_a_buffer_cannot_wait():
    bench = Bench()
    assert bench.fates(cut(udp(4000), 2400)) == [LARGE, HELD]


# ------------------------------------------------------------------------------------------------ hostile ones
@pytest.mark.parametrize("order", [1, -1])
def test_ping_of_death(order):
    """RFC 791 allows an offset and a length that end beyond the longest datagram."""
    bench = Bench()
    data = bytes(65528 + 1000)
    cuts = [*range(1480, 65528, 1480), 65528]
    pieces = cut(data, *cuts, protocol=fragmented.ICMP)[::order]
    assert set(bench.fates(*([piece] for piece in pieces))) == {LARGE}
    assert len(live(bench)) == 0 and bench.store["count"] == 0
    bench.settle()


def test_ovs_refuses_the_rest_of_a_datagram_that_was_too_long_until_it_would_have_expired():
    bench = Bench(settings=OVS)
    bench.store["bytes_min"] = 0
    data = bytes(65528)
    pieces = cut(data, *range(1480, 65528, 1480), protocol=fragmented.ICMP)
    assert set(bench.fates(*([piece] for piece in pieces))) == {LARGE}
    assert bench.send(pieces[0]) == [LARGE]
    assert bench.send(pieces[0], now_ms=1000 + 15_000) == [HELD]


@pytest.mark.parametrize("family", [4, 6])
def test_the_longest_datagram_there_can_be(family):
    bench = Bench()
    longest = 65535 - (20 if family == 4 else 0)
    data = udp(longest, checksum=None, family=family)
    pieces = cut(data, *range(1400, longest, 1400), family=family)
    assert set(bench.fates(*([piece] for piece in pieces))) == {NEW}
    assert live(bench)["bytes"].tolist() == [[longest + (20 if family == 4 else 40), 0]]


def test_ipv6_beyond_the_longest():
    bench = Bench()
    beyond = Piece(bytes(1400), 64800, False, family=6)
    assert bench.send(beyond) == [LARGE] and bench.store["count"] == 0
    bench.settle()


def test_teardrop():
    """Two fragments, the second of which lies within the first one."""
    bench = Bench()
    teardrop = [Piece(bytes(36), 0, True), Piece(bytes(4), 24, False)]
    assert set(bench.fates(*([piece] for piece in teardrop))) == {refused(Reason.FRAGMENT_OVERLAP)}
    bench.settle()


def test_a_header_in_pieces_is_read_from_the_whole():
    """RFC 1858: what hides ports or flags from a filter that looks at first fragments only."""
    bench = Bench()
    syn, christmas_tree = (bytes(bursts.tcp(flags, 100))[34:] for flags in ("S", "FSRPAU"))
    there = {"protocol": fragmented.TCP, "source": bytes([192, 0, 2, 1]), "destination": bytes([198, 51, 100, 1])}
    assert bench.fates(cut(syn, 8, 16, **there)) == [NEW] * 3
    assert set(bench.fates(cut(christmas_tree, 8, 16, id=8, **there))) == {refused(Reason.INVALID_TCP_FLAGS)}


@pytest.mark.parametrize("seed", range(30))
def test_random_fragments_are_survived(seed):
    """Whatever comes: no more wait than may, everything gets a verdict, and the store is sound."""
    chance = random.Random(seed)
    bench = Bench(settings=chance.choice([None, OVS]))
    bench.store["count_max"], bench.store["bytes_min"], bench.store["bytes6_min"] = 20, 100, 100
    waiting, now_ms = set(), 1000
    for _ in range(40):
        pieces = []
        for _ in range(chance.randint(1, 5)):
            size = chance.choice([0, 8, 16, 104, 200, chance.randint(1, 1500)])
            offset = 8 * chance.choice([0, 1, 2, 13, 26, chance.randint(0, 8191)])
            family = chance.choice([4, 6])
            pieces.append(Piece(bytes(size), offset, chance.random() < 0.6, id=chance.randint(0, 4), family=family))
        first = bench.sent
        for n, fate in enumerate(bench.send(*pieces, now_ms=now_ms), first):
            if fate == HELD:
                waiting.add(n)
        assert bench.store["count"] <= 20 + len(pieces)
        for ticket, fate in bench.late(now_ms).items():
            assert fate != HELD
            waiting.remove(ticket)
        assert bench.store["count"] == len(waiting) <= 20
        now_ms += chance.choice([0, 10, 5_000])
    assert fragmented.naive_fragments.faults(bench.table) == []
    waiting -= set(bench.late(now_ms + 61_000))
    assert not waiting
    bench.settle()
