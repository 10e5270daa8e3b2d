"""A tally counts each connection once by its kinds, and finds those who have the most, however many there are."""

import numpy as np
import pytest
import tables
from tables import LATER, Participant
from zonetrack.kernels import tally
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import TALKER, TALKERS_BUCKETS, TALKERS_PLACES, TALLY, Kind, Life, Slab, Status

NOW = 10_000
MANY = 20_000 if JIT else 1_500


class Teller(Participant):
    """A participant that tallies."""

    def __init__(self, table):
        super().__init__(table, Kind.CONTROL)
        self.out, self.talkers = np.zeros(1, TALLY), np.zeros(TALKERS_BUCKETS * TALKERS_PLACES, TALKER)
        self.cursor = np.zeros(1, "u8")

    def count(self, slots=1 << 40, now_ms=NOW):
        """Go on with the walk; return the TALLY so far."""
        at = (u64(one.ctypes.data) for one in (self.cursor, self.out, self.talkers))
        self.visited = int(tally.count(self.views, u64(now_ms), u64(slots), *at))
        return self.out[0]

    def top(self, side=0):
        """Return (low word of the address, connections, others) of all talkers of a side, most connections first."""
        found = self.talkers[(self.talkers["who"] != 0) & (self.talkers["who"] >> 8 & 0xFF == side)]
        found = found[np.argsort(found["connections"], kind="stable")[::-1]]
        return [(int(one["address"][1]), int(one["connections"]), int(one["others"])) for one in found]


@pytest.fixture
def table():
    return tables.small(MANY + 1000, zones=16, extension_share=50)


@pytest.fixture
def me(table):
    return Participant(table)


@pytest.fixture
def teller(table):
    return Teller(table)


def key(low, high, zone=0, protocol=17, family=4):
    return np.array([0, low, 0, high, 1 << 48 | 2 << 32 | zone << 16 | protocol << 8 | family], "u8")


def test_kinds(table, me, teller):
    entries = tables.entries(table)
    made = [
        (key(1, 2, protocol=17), 0, 0),
        (key(1, 3, protocol=17, family=6), Status.SEEN_REPLY, 0),
        (key(1, 4, protocol=6), Status.SEEN_REPLY | Status.ASSURED, 3),
        (key(1, 5, protocol=6), Status.OVS | Status.RELATED, 2 | 4 << 4),
        (key(1, 6, protocol=132), Status.SOURCE_NAT, 4),
        (key(1, 7, protocol=6), Status.DESTINATION_NAT, 200),
    ]
    for each, status, state in made:
        record = int(me.made(each)[0])
        entries[record]["status"], entries[record]["state"] = status, state
    found = teller.count()
    names = ("connections", "expired", "unreplied", "assured", "related", "translated", "ipv6")
    assert [int(found[name]) for name in names] == [6, 0, 4, 1, 1, 2, 1]
    assert {n: int(found["protocols"][n]) for n in np.flatnonzero(found["protocols"])} == {6: 3, 17: 2, 132: 1}
    assert found["tcp"].tolist() == [0, 0, 0, 1] + [0] * 11 + [1]
    assert found["ovs"].tolist() == [0, 0, 0, 0, 1] + [0] * 11
    assert found["sctp"].tolist() == [0, 0, 0, 0, 1] + [0] * 11
    entries["state"] = entries["status"] = 0


def test_what_has_expired_is_told_with_how_long_ago(me, teller):
    me.made(tables.keys(3), expiry_ms=NOW + 1)
    me.made(tables.keys(2, first=50), expiry_ms=NOW)
    me.made(tables.keys(1, first=90), expiry_ms=NOW - 700)
    found = teller.count()
    assert (int(found["connections"]), int(found["expired"]), int(found["overdue_ms"])) == (6, 3, 700)


def test_records_without_a_connection_are_left_out(table, me, teller):
    me.made(tables.keys(9))
    me.remove(tables.keys(4))
    entries = tables.entries(table)
    record = int(me.find(tables.keys(1, first=9))[0])
    whole = int(entries[record]["life"])
    entries[record]["life"] = whole & ~0xFF | Life.DEAD
    assert int(teller.count()["connections"]) == 4
    entries[record]["life"] = whole


@pytest.mark.parametrize("slots", [1, 7, 1024])
def test_slices_are_one_walk(table, me, teller, slots):
    me.made(tables.keys(200))
    records = table.geometry.records(Slab.ENTRIES)
    visited = 0
    while int(teller.cursor[0]) < records:
        teller.count(slots)
        assert 0 < teller.visited <= slots
        visited += teller.visited
        if slots == 1 and visited == 300:
            teller.count()
            visited += teller.visited
    assert visited == records and int(teller.out[0]["connections"]) == 200
    teller.count()
    assert teller.visited == 0


def test_talkers_are_told_apart_by_side_and_zone(table, me, teller):
    entries = tables.entries(table)
    for zone in (1, 2):
        for high in range(10, 10 + 3 * zone):
            record = int(me.made(key(5, high, zone))[0])
            entries[record]["packets"], entries[record]["bytes"] = (1, 2), (10, 20)
            entries[record]["status"] = Status.ORIG_IS_HIGH if high == 10 else 0
    teller.count()
    assert teller.top(0)[:2] == [(5, 5, 0), (5, 2, 0)]  # it was called once in each zone
    assert {one for one in teller.top(0) if one[0] == 10} == {(10, 1, 0)}
    first = teller.talkers[np.argmax(teller.talkers["connections"])]
    assert (int(first["who"]), int(first["packets"]), int(first["bytes"])) == (2 << 16 | 4, 15, 150)
    assert {one[0]: one[1] for one in teller.top(1)} == {5: 1, 11: 1, 12: 1, 13: 1, 14: 1, 15: 1}
    entries["status"] = 0


def test_those_with_the_most_are_found_among_many(me, teller):
    """More addresses than places: counts are never too low, and what may be too much of them is told."""
    crowd = tables.keys(MANY, low=1)
    crowd[:, 1] = np.arange(1000, 1000 + MANY)
    crowd[:, 3] = 1 << 40
    me.made(crowd, expiry_ms=LATER)
    many = tables.keys(60, low=7)
    some = tables.keys(40, low=8)
    me.made(np.concatenate([many, some]))
    teller.count()
    by_address = {address: (connections, others) for address, connections, others in teller.top(0)}
    for address, true in ((7, 60), (8, 40)):
        connections, others = by_address[address]
        assert connections - others <= true <= connections
    assert [address for address, *_ in teller.top(0)[:2]] == [7, 8]
    assert teller.top(1)[0][:2] == (1 << 40, MANY)
    assert sum(connections for _, connections, _ in teller.top(0) + teller.top(1)) == 2 * (MANY + 100)
