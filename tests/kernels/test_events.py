"""Events of connections: which of them packets, sweeps, flushes and actions make, and that there are none unread."""

import bursts
import numpy as np
import pytest
import tables
from bursts import Bench, tcp, udp
from scapy.all import IP, UDP, Ether
from zonetrack.kernels import entries, events, walk
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.kernels.words import u64
from zonetrack.service import filters
from zonetrack.service.event_merge import Merger
from zonetrack.shm.events import EVERYTHING, Events
from zonetrack.shm.layout import ACTION, CONNECTION, EVENT_ROW, FILTER, ActionFlag, Change, End, EventKind, Status
from zonetrack.shm.reasons import Reason

NEW, UPDATE, DESTROY = EventKind.NEW, EventKind.UPDATE, EventKind.DESTROY
STATE, STATUS, MARK, LABEL = Change


@pytest.fixture
def bench():
    table = tables.small(300, zones=8)
    table.events = Events()
    table.events.want(EVERYTHING)
    made = Bench(table)
    made.merger = Merger(table)
    yield made
    made.settle()


def heard(bench):
    """Return the rows of what has happened."""
    batch, more = bench.merger.take()
    assert batch.lost == 0 and not more
    return batch.rows


def wanted(*readers):
    """Return the FILTERs of readers."""
    return [filters.read("filter", one).record for one in readers]


def shape(rows):
    return [(EventKind(int(row["kind"])), int(row["changes"]), int(row["state"]), End(int(row["end"]))) for row in rows]


def test_the_life_of_a_tcp_connection(bench):
    bench.track(tcp("S", 100), tcp("SA", 500, 101, reply=True), tcp("A", 101, 501), now_ms=1000)
    rows = heard(bench)
    assert shape(rows) == [
        (NEW, 0, Tcp.SYN_SENT, End.NONE),
        (UPDATE, STATE | STATUS, Tcp.SYN_RECV, End.NONE),
        (UPDATE, STATE | STATUS, Tcp.ESTABLISHED, End.NONE),
    ]
    assert rows["sequence"].tolist() == [1, 2, 3] and len(set(rows["id"].tolist())) == 1
    assert (rows["status"] & Status.ASSURED != 0).tolist() == [False, False, True]
    bench.track(tcp("A", 101, 501), tcp("A", 501, 101, reply=True), now_ms=1500)
    assert len(heard(bench)) == 0  # nothing has changed that anybody is told of
    bench.track(tcp("R", 101), now_ms=2000)
    assert shape(heard(bench)) == [(UPDATE, STATE, Tcp.CLOSE, End.NONE)]


def test_a_row_is_the_row_of_a_dump(bench):
    bench.track(udp(), udp(reply=True), zone=3, now_ms=1000)
    offset_ms = np.uint64(int(bench.table.header[0]["wall_offset_ms"]) % (1 << 64))
    dumped, cursor, wanted = np.zeros(1, CONNECTION), np.zeros(1, "u8"), np.zeros(1, FILTER).view(np.recarray)[0]
    addresses = [u64(one.ctypes.data) for one in (cursor, dumped)]
    records = u64(bench.table.geometry.records(0))
    assert walk.collect(bench.views, wanted, u64(1000), offset_ms, records, *addresses, u64(1)) == 1
    new, update = heard(bench)
    assert [update[name].tolist() for name in CONNECTION.names] == [
        dumped[0][name].tolist() for name in CONNECTION.names
    ]
    assert (new["packets"].tolist(), new["status"], new["zone"]) == ([1, 0], 0, 3)
    assert int(update["time_ms"]) == 1000 + int(bench.table.header[0]["wall_offset_ms"])


def test_a_connection_that_nobody_answers_is_closed_by_a_reset(bench):
    bench.track(tcp("S", 100), tcp("R", 101))
    assert shape(heard(bench)) == [(NEW, 0, Tcp.SYN_SENT, End.NONE), (DESTROY, 0, Tcp.CLOSE, End.CLOSED)]


def test_a_new_opening_replaces_what_has_ended(bench):
    bench.track(tcp("S", 100), tcp("SA", 500, 101, reply=True), tcp("A", 101, 501))
    bench.track(tcp("FA", 101, 501), tcp("FA", 501, 102, reply=True), tcp("A", 102, 502))
    heard(bench)
    bench.track(tcp("S", 90_000), now_ms=3000)
    rows = heard(bench)
    assert shape(rows) == [(DESTROY, 0, Tcp.TIME_WAIT, End.REPLACED), (NEW, 0, Tcp.SYN_SENT, End.NONE)]
    assert rows["id"][0] != rows["id"][1]


def test_what_expires_is_found_by_a_packet_or_by_the_sweep(bench):
    bench.track(udp(), udp(4321), now_ms=1000)
    heard(bench)
    bench.track(udp(), now_ms=100_000)
    assert shape(heard(bench))[0][::3] == (DESTROY, End.EXPIRED)
    tables.sweep.sweep(bench.views, u64(110_000), u64(1 << 20))
    rows = heard(bench)
    assert shape(rows)[0][::3] == (DESTROY, End.EXPIRED) and rows["sport"].tolist() == [4321]
    assert rows["timeout_ms"].tolist() == [0]


def test_a_flush_tells_of_each_once(bench):
    bench.track(*(udp(port) for port in range(2000, 2010)), zone=5)
    me = tables.Participant(bench.table)
    rows = heard(bench)
    me.mark(np.zeros((0, 5), "u8"))
    # one of them is another's to destroy when the zone is flushed
    marked = tables.delete_list.delete(bench.views, u64(int(rows["id"][0]) & 0xFFFFFFFF), u64(0), u64(1))
    assert marked
    me.flush(5)
    ends = shape(heard(bench))
    assert [end for *_, end in ends] == [End.DELETED] + [End.FLUSHED] * 9 and {kind for kind, *_ in ends} == {DESTROY}


def test_marks_and_labels_are_told_when_they_change(bench):
    action = np.zeros(1, ACTION)
    action["mark"], action["mark_mask"] = 5, 0xFF
    bench.track(udp(), action=action)
    assert shape(heard(bench)) == [(NEW, 0, 1, End.NONE)]
    bench.track(udp(), action=action)
    assert len(heard(bench)) == 0
    action["mark"], action["label"], action["label_mask"] = 6, (1, 2), (0xFF, 0xFF)
    bench.track(udp(), action=action)
    (row,) = heard(bench)
    assert (row["kind"], row["changes"], row["mark"], row["label"].tolist()) == (UPDATE, MARK | LABEL, 6, [1, 2])


def test_a_forced_commit_replaces_the_connection_that_it_answers(bench):
    bench.track(udp())
    heard(bench)
    action = np.zeros(1, ACTION)
    action["flags"] = ActionFlag.FORCE
    bench.track(udp(reply=True), action=action)
    first, second = shape(heard(bench))
    assert (first[0], first[3], second[0]) == (DESTROY, End.REPLACED, NEW)


def test_what_nobody_wants_is_not_written(bench):
    bench.table.events.want(DESTROY)
    bench.track(udp(), udp(reply=True))
    assert bench.table.events.sequence == 0
    bench.table.events.want(EVERYTHING, wanted({"zone": 7, "sport": 79}, {"src": "10.0.0.0/8"}))
    bench.track(udp(79), udp(78), zone=6)
    bench.track(udp(78), udp(79), zone=7)
    bench.track(Ether() / IP(src="10.0.0.9", dst=bursts.SERVER) / UDP(sport=5, dport=53), zone=6)
    bench.track(Ether() / IP(src=bursts.SERVER, dst="10.0.0.9") / UDP(sport=5, dport=54), zone=6)
    assert heard(bench)[["zone", "sport"]].tolist() == [(7, 79), (6, 5)] and bench.table.events.sequence == 2
    bench.table.events.want(0)
    bench.track(udp(80), zone=7)
    assert bench.table.events.sequence == 2


@kernel
def _is_read(views, said, record):
    return events._is_read(views, entries.address(views, record), said)


def test_what_is_looked_at_while_filters_are_said_anew_is_written(bench):
    bench.track(udp(79))
    record = u64(heard(bench)["id"][0] & np.uint64(0xFFFFFFFF))
    bench.table.events.want(EVERYTHING, wanted({"sport": 80}))
    said = u64(bench.table.events.heads["filters"][0])
    assert not _is_read(bench.views, said, record)
    for again in (wanted({"sport": 80}), wanted({"sport": 81}, {"sport": 82}), ()):
        bench.table.events.want(EVERYTHING, again)
        assert _is_read(bench.views, said, record)


def test_a_table_without_events_has_none():
    bench = Bench(tables.small(300))
    bench.track(udp(), udp(reply=True), tcp("S", 1))
    assert bench.counter(Reason.INSERT) == 2
    bench.settle()


def test_packets_that_are_refused_make_no_event(bench):
    bench.track(tcp("S", 100), tcp("SA", 500, 101, reply=True), tcp("A", 101, 501))
    heard(bench)
    bench.track(tcp("A", 9_000_000, 501), IP())
    assert len(heard(bench)) == 0 and EVENT_ROW.itemsize == 192
