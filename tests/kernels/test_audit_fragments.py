"""The store of fragments under audit, with fragments in every state; faults are planted in test_audit."""

import fragmented
import numpy as np
import tables
from fragmented import HELD, Bench, collect, cut, udp
from zonetrack.shm.layout import DATAGRAM, FRAGMENT, Assembly, Region, Wait


def test_a_store_in_use_has_no_finding():
    one = Bench()
    other = Bench(one.table)
    assert one.send(cut(udp(2000), 1400, id=1)[0]) == [HELD]
    one.send(*cut(udp(2000), 1400, id=2))
    assert collect(one.views, np.uint64(1000)) == 1
    other.send(cut(udp(2000), 1400, id=3)[0])
    one.send(cut(udp(2000), 1400, id=3)[1])
    states = {Wait(int(word) & 0xFF) for word in one.table.array(Region.FRAGMENTS, "fragments", FRAGMENT)["word"]}
    assert states == set(Wait)
    assert tables.at_rest(one.table) is None


def test_a_datagram_that_failed_has_no_finding():
    bench = Bench(settings=fragmented.OVS)
    bench.store["bytes_min"] = 0
    pieces = cut(bytes(65528), *range(1480, 65528, 1480), protocol=fragmented.ICMP)
    bench.fates(*([piece] for piece in pieces))
    assert Assembly.FAILED in bench.table.array(Region.FRAGMENTS, "datagrams", DATAGRAM)["state"]
    assert tables.at_rest(bench.table) is None
