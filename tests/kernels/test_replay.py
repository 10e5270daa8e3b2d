"""The worker's loop: bursts, places of verdicts, shards that together say what one alone says."""

import conversations
import fragmented
import naive_fragments
import numpy as np
import pytest
import tables
from capture_files import Packet, Pcapng, pcap
from zonetrack.kernels import capture, replay
from zonetrack.kernels.capture import Fault
from zonetrack.kernels.clock import BEGIN_MS
from zonetrack.shm import roster
from zonetrack.shm.layout import (
    CAPTURE,
    CLOCK,
    FRAME,
    INTERFACE,
    INTERFACES_MAX,
    PARSED,
    REPLAY,
    REPLAY_BURST_PACKETS,
    VERDICT,
    CtState,
    FrameFlag,
    Kind,
)
from zonetrack.shm.reasons import Reason

ALL = 1 << 16


def record(dtype, count=1):
    return np.zeros(count, dtype).view(np.recarray)


class Worker:
    """One worker of a replay, in this process."""

    def __init__(self, table, file, verdicts, shard=0, shards=1):
        self.me = roster.join(table, Kind.WORKER)
        self.views = table.views(self.me)
        self.bytes = np.frombuffer(file, "u1")
        self.scratch = {
            "incoming": record(FRAME),
            "frames": record(FRAME, REPLAY_BURST_PACKETS),
            "places": np.zeros(REPLAY_BURST_PACKETS, "u8"),
            "verdicts": record(VERDICT, REPLAY_BURST_PACKETS),
            "parsed": record(PARSED),
        }
        self.clock, self.interfaces = record(CLOCK), np.zeros(INTERFACES_MAX, INTERFACE)
        self.state = record(REPLAY)
        for name, array in self.scratch.items():
            self.state[name] = array.ctypes.data
        self.state["results"], self.state["results_count"] = verdicts.ctypes.data, len(verdicts)
        self.state["shard"], self.state["shards"] = shard, shards
        self.capture = record(CAPTURE)[0]
        self.capture.address, self.capture.bytes = self.bytes.ctypes.data, self.bytes.size
        self.capture.interfaces, self.capture.frame_flags = self.interfaces.ctypes.data, FrameFlag.COMMIT
        assert capture.begin(self.capture) == Fault.NONE

    def run(self, records=ALL):
        return int(replay.run(self.views, self.capture, self.clock[0], self.state[0], np.uint64(records)))


@pytest.fixture
def table():
    return tables.small(zones=1)


@pytest.fixture(scope="module")
def packets():
    return conversations.captured(conversations.mixed(hosts=4))


def verdicts_of(table, file, count, shards=1, records=ALL):
    """Return all verdicts, and the workers."""
    verdicts = record(VERDICT, count)
    workers = [Worker(table, file, verdicts, shard, shards) for shard in range(shards)]
    for worker in workers:
        while worker.capture.fault == Fault.NONE:
            worker.run(records)
    return verdicts, workers


WHAT = ["ct_state", "reason", "direction", "flags", "protocol", "state", "timeout_ms"]


@pytest.mark.parametrize("records", [1, 7, 1000])
def test_what_a_call_holds_does_not_change_verdicts(packets, records):
    file, _ = pcap(packets)
    expected, _ = verdicts_of(tables.small(zones=1), file, len(packets))
    verdicts, (worker,) = verdicts_of(tables.small(zones=1), file, len(packets), records=records)
    assert verdicts[WHAT].tolist() == expected[WHAT].tolist()
    assert worker.state["packets"][0] == worker.state["tracked"][0] == len(packets)


@pytest.mark.parametrize("shards", [2, 3])
def test_shards_say_together_what_one_says(packets, shards):
    file, _ = pcap(packets)
    expected, _ = verdicts_of(tables.small(zones=1), file, len(packets))
    table = tables.small(zones=1)
    verdicts, workers = verdicts_of(table, file, len(packets), shards)
    assert verdicts[WHAT].tolist() == expected[WHAT].tolist()
    tracked = [int(worker.state["tracked"][0]) for worker in workers]
    assert sum(tracked) == len(packets) and all(tracked)
    assert len({int(worker.clock["now_ms"][0]) for worker in workers}) == 1


def test_every_verdict_shows_that_it_was_given(table):
    """A place that nobody wrote is all zero: a verdict must not be."""
    frames = [Packet(b""), Packet(b"\0" * 60), *conversations.captured(conversations.mixed(hosts=1))]
    verdicts, _ = verdicts_of(table, pcap(frames)[0], len(frames))
    assert not any(not verdict["ct_state"] and not verdict["flags"] for verdict in verdicts)


def test_a_burst_shares_a_moment_and_ends_with_it(table):
    """The time that is left shows at which moment a packet was tracked."""
    ping = next(iter(conversations.ping("192.0.2.1", "198.51.100.1", 7)))
    count = 2 * REPLAY_BURST_PACKETS + 5
    frames = conversations.captured([ping] * count, step_ns=conversations.MS // 10)
    verdicts, (worker,) = verdicts_of(table, pcap(frames)[0], count)
    left_ms = 30_000
    assert set(verdicts["timeout_ms"].tolist()) == {left_ms}
    assert worker.clock["now_ms"][0] == BEGIN_MS + (count - 1) // 10


def test_blocks_without_packets_use_up_the_budget(table):
    made = Pcapng().section().interface()
    for _ in range(5):
        made.block(5, b"statistics")
    (packet,) = conversations.captured(list(conversations.dns("192.0.2.1", "198.51.100.1", 9))[:1])
    made.packet(packet, packet.time_ns // 1000)
    verdicts = record(VERDICT, 1)
    worker = Worker(table, made.file, verdicts)
    assert worker.run(records=7) == 0
    assert worker.run(records=1) == BEGIN_MS
    assert verdicts["ct_state"][0] != 0


def test_no_verdict_goes_beyond_its_places(packets, table):
    file, _ = pcap(packets)
    verdicts = record(VERDICT, len(packets))
    worker = Worker(table, file, verdicts)
    worker.state["results_count"] = 5
    worker.run()
    assert all(verdicts["ct_state"][:5])
    assert not verdicts[5:].view("u1").any()
    assert worker.state["tracked"][0] == len(packets)


def test_count_reads_the_same_clock(packets, table):
    file, _ = pcap(packets)
    worker = Worker(table, file, record(VERDICT, 0))
    now_ms = worker.run()
    capture.begin(worker.capture)
    clock, frame, counted = record(CLOCK), record(FRAME), 0
    while worker.capture.fault == Fault.NONE:
        counted += int(replay.count(worker.capture, clock[0], frame[0], np.uint64(10)))
    assert (counted, int(clock["now_ms"][0])) == (len(packets), now_ms)


def test_reasons_are_counted_by_who_tracked(packets, table):
    _, workers = verdicts_of(table, pcap(packets)[0], len(packets), 2)
    counted = sum(int(roster.participants(table)[w.me - 1]["counters"][Reason.PACKETS]) for w in workers)
    assert counted == len(packets)


# ------------------------------------------------------------------------------------------------ fragments
def in_pieces(datagrams):
    """Return a capture of datagrams of two hosts each, cut in three, all first pieces before the second ones."""
    mixed = [
        fragmented.cut(fragmented.udp(3000, sport=n), 1400, 2800, id=n, source=bytes([192, 0, 2, n]))
        for n in range(1, datagrams + 1)
    ]
    pieces = [piece for turn in zip(*mixed, strict=True) for piece in turn]
    return pcap([Packet(piece.frame, 10**18 + 1000 * n) for n, piece in enumerate(pieces)])[0]


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_every_fragment_has_its_datagrams_verdict_in_its_place(table, shards):
    verdicts, workers = verdicts_of(table, in_pieces(40), 120, shards)
    assert set(verdicts["ct_state"].tolist()) == {CtState.TRK | CtState.NEW}
    records = verdicts["record"].reshape(3, 40)
    assert (records == records[0]).all() and len(set(records[0].tolist())) == 40
    assert {int(worker.state["tracked"][0]) for worker in workers} != {0}
    assert naive_fragments.faults(table) == []


def test_fragments_that_never_become_a_datagram(table):
    pieces = [fragmented.cut(fragmented.udp(3000), 1400, 2800)[0] for _ in range(2)]
    pieces[1] = pieces[1]._replace(id=9)
    times = [Packet(piece.frame, 10**18 + 40 * 10**9 * n) for n, piece in enumerate(pieces)]
    verdicts, _ = verdicts_of(table, pcap(times)[0], 2)
    assert [fragmented.fate(verdict) for verdict in verdicts] == [
        fragmented.refused(Reason.FRAGMENT_EXPIRED),
        fragmented.HELD,
    ]
