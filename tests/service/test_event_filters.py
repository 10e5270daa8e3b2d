"""Which rows of events a filter means: the same that a walk would."""

import bursts
import numpy as np
import pytest
import tables
from bursts import Bench, tcp, udp
from scapy.all import ICMP, IP, UDP, Ether, IPv6
from zonetrack.kernels import walk
from zonetrack.kernels.words import u64
from zonetrack.service import event_filters, filters
from zonetrack.service.event_merge import Merger
from zonetrack.shm.events import EVERYTHING, Events
from zonetrack.shm.layout import EventKind


@pytest.fixture(scope="module")
def bench():
    table = tables.small(300, zones=8)
    table.events = Events()
    table.events.want(EVERYTHING)
    made = Bench(table)
    made.merger = Merger(table)
    made.track(tcp("S", 1), tcp("SA", 5, 2, reply=True), tcp("A", 2, 6), tcp("S", 9, sport=41000))
    made.track(udp(), udp(5000), udp(5000, reply=True), zone=3)
    made.track(Ether() / IP(src=bursts.CLIENT, dst=bursts.SERVER) / ICMP(id=53), zone=3)
    made.track(Ether() / IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=1, dport=53), zone=3)
    made.rows = made.merger.take()[0].rows
    return made


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"zone": 3},
        {"zone": 4},
        {"proto": "udp"},
        {"proto": 1, "zone": 3},
        {"src": "192.0.2.0/24"},
        {"src": "2001:db8::/33"},
        {"dst": "198.51.100.1", "proto": "tcp"},
        {"reply_src": "198.51.100.1"},
        {"reply_dst": "10.0.0.0/8"},
        {"sport": 5000},
        {"dport": 53},
        {"mark": 0},
        {"mark": "1/1"},
        {"unreplied": True},
        {"state": "ESTABLISHED"},
        {"state": "SYN_SENT"},
    ],
    ids=str,
)
def test_the_last_row_of_each_connection_is_meant_as_a_walk_means_it(bench, wanted):
    wanted = filters.read("filter", wanted)
    found = bench.rows[event_filters.mask(bench.rows, EVERYTHING, wanted)]
    latest = {}
    for row in bench.rows:
        latest[int(row["id"])] = int(row["sequence"])
    last = [row for row in found if latest[int(row["id"])] == row["sequence"]]
    cursor = np.zeros(1, "u8")
    counted = walk.count(bench.views, wanted.record, u64(1000), u64(1 << 20), u64(cursor.ctypes.data))
    assert len(last) == int(counted)


@pytest.mark.parametrize(("kinds", "count"), [(EventKind.NEW, 6), (EventKind.UPDATE, 3), (EventKind.DESTROY, 0)])
def test_kinds(bench, kinds, count):
    assert event_filters.mask(bench.rows, kinds, filters.EVERYTHING).sum() == count
