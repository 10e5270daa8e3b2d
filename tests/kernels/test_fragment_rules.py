"""Which fragments go together, by the rules of each profile; told as what a capture would show."""

import fragmented
import pytest
from fragmented import HELD, NEW, OVS, Bench, Piece, cut, refused, udp
from zonetrack.shm.reasons import Reason

OVERLAP, SMALL, LARGE = (refused(Reason[f"FRAGMENT_{name}"]) for name in ("OVERLAP", "TOO_SMALL", "TOO_LARGE"))
DATA = udp(3200)
"""Long enough that all pieces but the last can be 1,200 bytes and more."""
FAMILIES = (4, 6)


def piece(start, end, more=None, family=4, data=DATA):
    """A piece of DATA; the last one ends it."""
    data = udp(len(data), family=6) if family == 6 else data
    return Piece(
        data[start:end].ljust(end - start, b"\0"), start, end < len(data) if more is None else more, family=family
    )


def fates(bench, *pieces):
    """Send pieces one by one; what becomes of each in the end."""
    return bench.fates(*([one] for one in pieces))


ORDERS = {
    "in order": (0, 1, 2),
    "backwards": (2, 1, 0),
    "last first": (2, 0, 1),
    "first last": (1, 2, 0),
    "middle last": (0, 2, 1),
}


@pytest.mark.parametrize("settings", [None, OVS], ids=["netfilter", "ovs"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_datagram_is_whole_in_any_order(order, family, settings):
    bench = Bench(settings=settings)
    pieces = [piece(0, 1480, family=family), piece(1480, 2960, family=family), piece(2960, 3200, family=family)]
    assert fates(bench, *(pieces[n] for n in order)) == [NEW] * 3
    assert bench.counter(Reason.FRAGMENTS_COMPLETED) == bench.counter(Reason.FRAGMENTS_ACCEPTED) == 3
    bench.settle()


# fmt: off
NETFILTER = {  #                       pieces                                              what becomes of each
    "one byte overlaps":              ([(0, 1480), (1479 // 8 * 8, 2960), (2960, 3200)],   [OVERLAP, OVERLAP, HELD]),
    "one overlaps, out of order":     ([(2960, 3200), (1472, 2960), (0, 1480)],            [OVERLAP, OVERLAP, OVERLAP]),
    "one encloses another":           ([(16, 1480), (0, 2000)],                            [OVERLAP, OVERLAP]),
    "the same again":                 ([(0, 1480), (0, 1480), (1480, 3200)],               [NEW, OVERLAP, NEW]),
    "inside what came in order":      ([(0, 1480), (1480, 2960), (1472, 1488), (2960, 3200)], [NEW, NEW, OVERLAP, NEW]),
    "across what did not":            ([(1480, 2960), (0, 1480), (1472, 1488), (2960, 3200)],
                                       [OVERLAP, OVERLAP, OVERLAP, HELD]),
    "another end":                    ([(0, 1480), (2960, 3200), (3000, 3160, False)],     [OVERLAP, OVERLAP, OVERLAP]),
    "more behind the end":            ([(0, 1480), (2960, 3200), (3200, 4000, True)],      [OVERLAP, OVERLAP, OVERLAP]),
    "the end before what is there":   ([(2960, 3200, True), (1480, 2000, False)],          [OVERLAP, OVERLAP]),
    "no data":                        ([(0, 1480), (1480, 1480, True)],                    [SMALL, SMALL]),
    "tiny ones":                      ([(0, 8), (8, 1480), (1480, 3200)],                  [NEW, NEW, NEW]),
}
NETFILTER6 = {
    "one byte overlaps":              ([(0, 1480), (1472, 2960), (2960, 3200)],            [OVERLAP, OVERLAP, HELD]),
    "the same again":                 ([(0, 1480), (0, 1480), (1480, 3200)],               [NEW, OVERLAP, NEW]),
    "another end":                    ([(0, 1480), (2960, 3200), (3000, 3160, False), (1480, 2960)],
                                       [NEW, NEW, OVERLAP, NEW]),
    "more behind the end":            ([(0, 1480), (1480, 3200), (3200, 4000, True)],      [NEW, NEW, HELD]),
    "no data":                        ([(0, 1480), (1480, 1480, True), (1480, 3200)],      [NEW, SMALL, NEW]),
    "not of eights":                  ([(0, 1480), (1480, 2955, True)],                    [refused(Reason.FRAGMENT)] * 2),
    "tiny ones":                      ([(0, 8), (8, 1480), (1480, 3200)],                  [NEW, NEW, NEW]),
}
RULES_OVS = {
    "by one octet":                   ([(0, 1481), (1480, 3200)],                          [HELD, OVERLAP]),
    "by one octet, out of order":     ([(1480, 3200), (0, 1481)],                          [HELD, OVERLAP]),
    "one byte overlaps":              ([(0, 1480), (1472, 2960), (1480, 3200)],            [NEW, OVERLAP, NEW]),
    "one overlaps, out of order":     ([(2960, 3200), (1472, 2968), (0, 1480), (1480, 2960)], [NEW, OVERLAP, NEW, NEW]),
    "the same again":                 ([(0, 1480), (0, 1480), (1480, 3200)],               [NEW, OVERLAP, NEW]),
    "one encloses another":           ([(400, 1600), (0, 2000), (1600, 3200)],             [HELD, HELD, OVERLAP]),
    "too small":                      ([(0, 1176), (1176, 3200)],                          [SMALL, HELD]),
    "just not too small":             ([(0, 1184), (1184, 3200)],                          [NEW, NEW]),
    "a small last one":               ([(0, 1480), (1480, 2960), (2960, 3200)],            [NEW, NEW, NEW]),
}
# fmt: on


@pytest.mark.parametrize(("pieces", "expected"), NETFILTER.values(), ids=NETFILTER)
def test_netfilter(pieces, expected):
    bench = Bench()
    assert fates(bench, *(piece(*one) for one in pieces)) == expected
    bench.late(now_ms=1000 + 30_000)
    bench.settle()


@pytest.mark.parametrize(("pieces", "expected"), NETFILTER6.values(), ids=NETFILTER6)
def test_netfilter_of_ipv6(pieces, expected):
    bench = Bench()
    assert fates(bench, *(piece(*one, family=6) for one in pieces)) == expected
    bench.late(now_ms=1000 + 60_000)
    bench.settle()


@pytest.mark.parametrize(("pieces", "expected"), RULES_OVS.values(), ids=RULES_OVS)
def test_ovs(pieces, expected):
    bench = Bench(settings=OVS)
    assert fates(bench, *(piece(*one) for one in pieces)) == expected
    assert bench.counter(Reason.FRAGMENTS_OVERLAPPED) == expected.count(OVERLAP)
    assert bench.counter(Reason.FRAGMENTS_TOO_SMALL) == expected.count(SMALL)
    bench.late(now_ms=1000 + 15_000)
    bench.settle()


def test_ovs_wants_more_of_ipv6():
    bench = Bench(settings=OVS)
    small, enough = 1280 - 48 - 8, 1280 - 48
    assert fates(bench, piece(0, small, family=6), piece(0, enough, family=6)) == [SMALL, HELD]


def test_each_piece_of_a_refused_datagram_is_counted_by_who_holds_it():
    bench = Bench()
    fates(bench, piece(0, 1480), piece(1472, 2960))
    assert bench.counter(Reason.FRAGMENT_OVERLAP) == bench.counter(Reason.INVALID) == 2
    assert bench.counter(Reason.FRAGMENTS_OVERLAPPED) == 1


def test_a_datagram_after_an_overlap_begins_anew():
    bench = Bench()
    assert fates(bench, piece(0, 1480), piece(1472, 2960)) == [OVERLAP] * 2
    assert fates(bench, *cut(DATA, 1480)) == [NEW] * 2
    bench.settle()


def test_what_linux_cuts_off_is_not_looked_at():
    """A fragment with more behind it whose data do not end on a multiple of eight."""
    bench = Bench()
    odd = Piece(DATA[:1485], 0, True)
    assert fates(bench, odd, piece(1480, 3200)) == [NEW, NEW]


def test_fragments_of_one_number_and_other_hosts_protocols_or_zones_are_others():
    bench = Bench()
    first, last = cut(DATA, 1480)
    others = [
        last._replace(id=8),
        last._replace(protocol=fragmented.TCP),
        last._replace(source=bytes([192, 0, 2, 9])),
        last._replace(destination=bytes([192, 0, 2, 9])),
    ]
    assert bench.send(first, *others) == [HELD] * 5
    assert bench.send(last, zone=1) == [HELD]
    assert bench.send(last) == [NEW]
    assert bench.store["count"] == 5 + 1
