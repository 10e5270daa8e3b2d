"""Sequence offsets: what each end has counted and what arrives, before a change, at it and after it."""

import ctypes

import numpy as np
import pytest
import tables
from bursts import Bench, tcp
from hypothesis import given
from hypothesis import strategies as st
from parsing import parsed_of
from scapy.layers.inet import IP, TCP
from zonetrack.kernels import entries, memory, sequences
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import ACTION, EXTENSION, PARSED, Nat, Region, Status

parsed_at = memory.record_at(PARSED)
TOP = 1 << 32


@kernel
def _hear(views, parsed, entry, way, is_sent):
    sequences.hear(views, parsed_at(parsed), entry, way, is_sent)


@kernel
def _forget(views, parsed):
    sequences.forget(views, parsed_at(parsed))


@kernel
def _send(parsed, extension, way, partial):
    sequences.send(parsed_at(parsed), extension, way, partial)


class Entry:
    """A translated connection of TCP."""

    def __init__(self):
        self.bench = Bench(tables.small(20, extension_share=1000))
        action = np.zeros(1, ACTION)
        action["nat"], action["nat_first"], action["nat_last"] = Nat.APPLY | Nat.SOURCE, (0, 9), (0, 9)
        [verdict] = self.bench.track(tcp("S", 100), action=action)
        self.record = int(verdict["record"])
        self.address = u64(entries.address(self.bench.views, u64(self.record)))
        link = int(tables.entries(self.bench.table)["extension"][self.record]) - 1
        self.fields = self.bench.table.array(Region.EXTENSIONS, "extensions", EXTENSION)[link]
        self.extension = u64(entries.extension_of(self.bench.views, self.address))

    def correct(self, way, seq, longer):
        sequences.correct(self.bench.views, self.address, u64(way), u64(seq % TOP), u64(longer % TOP))

    def set(self, way, place, before, after):
        self.fields["sequence_offset"][way] = np.array([place, before, after], "u4").view("i4")

    def sent(self, way, seq):
        return int(sequences.sent_as(self.extension, u64(way), u64(seq % TOP)))

    def known(self, way, seq):
        return int(sequences.known_as(self.extension, u64(way), u64(seq % TOP)))


@pytest.fixture(scope="module")
def entry():
    return Entry()


@given(st.integers(0, TOP - 1), st.integers(-500, 500), st.integers(1, 1000), st.integers(-1000, 1000))
def test_what_arrives_is_known_again(entry, place, before, size, longer):
    """A segment of ``size`` bytes at ``place`` has become longer by ``longer``; all but its inside goes both ways."""
    longer = max(longer, 1 - size)
    entry.set(0, place, before % TOP, (before + longer) % TOP)
    for seq in (place - 2000, place - 1, place):
        assert entry.sent(0, seq) == (seq + before) % TOP and entry.known(0, seq + before) == seq % TOP
    for seq in (place + size, place + size + 1, place + 5000):
        assert entry.sent(0, seq) == (seq + before + longer) % TOP
        assert entry.known(0, seq + before + longer) == seq % TOP
    for part in range(0, size + longer, 7):
        known = (entry.known(0, place + before + part) - place) % TOP
        assert known <= size + abs(longer)


def test_a_change_is_remembered_and_the_one_before(entry):
    entry.set(0, 0, 0, 0)
    entry.correct(0, 1000, 5)
    assert entry.fields["sequence_offset"][0].tolist() == [1000, 0, 5]
    assert tables.entries(entry.bench.table)["status"][entry.record] & Status.SEQUENCE_OFFSETS
    entry.correct(0, 1000, 5)  # sent again
    entry.correct(0, 900, 5)
    assert entry.fields["sequence_offset"][0].tolist() == [1000, 0, 5]
    entry.correct(0, 2000, -3)
    assert entry.fields["sequence_offset"][0].tolist() == [2000, 5, 2]
    assert [entry.sent(0, seq) for seq in (1500, 2000, 2001)] == [1505, 2005, 2003]
    entry.correct(1, TOP - 4, 7)
    assert entry.sent(1, TOP - 4) == TOP - 4 and entry.sent(1, 2) == 9 and entry.known(1, 9) == 2
    assert entry.fields["sequence_offset"][0].tolist() == [2000, 5, 2]


def test_what_its_last_owner_has_left_does_not_count():
    entry = Entry()
    entry.fields["sequence_offset"] = 77
    entry.correct(1, 1000, 5)
    assert entry.fields["sequence_offset"].tolist() == [[0, 0, 0], [1000, 0, 5]]


def segment(**fields):
    """Return the octets of a segment, and its PARSED, which points to them."""
    octets = np.frombuffer(bytes(IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2, **fields)), "u1").copy()
    parsed = parsed_of(octets.tobytes(), verify=False)
    parsed["l4"] = octets.ctypes.data + 20
    return octets, parsed, u64(parsed.ctypes.data)


SACK = [("NOP", None), ("SAck", (5005, 5105, 6005, 6105)), ("NOP", None)]


@pytest.fixture
def changed(entry):
    """A connection both of whose sides were changed."""
    entry.set(0, 100, 0, 10)
    entry.set(1, 4000, 0, 5)
    return entry


def test_a_segment_is_judged_by_what_its_peer_has_counted_and_keeps_its_bytes(changed):
    octets, parsed, at = segment(flags="A", seq=300, ack=4505, options=SACK)
    before = octets.copy()
    _hear(changed.bench.views, at, changed.address, u64(0), True)
    assert (int(parsed["seq"][0]), int(parsed["ack"][0])) == (300, 4500)
    header = bytes((ctypes.c_uint8 * 44).from_address(int(parsed["l4"][0])))
    assert dict(TCP(header).options)["SAck"] == (5000, 5100, 6000, 6100)
    _forget(changed.bench.views, at)
    assert int(parsed["ack"][0]) == 4505 and int(parsed["l4"][0]) == octets.ctypes.data + 20
    assert (octets == before).all()


def test_one_that_comes_by_again_is_judged_by_what_its_sender_has_counted(changed):
    _, parsed, at = segment(flags="A", seq=310, ack=4500)
    _hear(changed.bench.views, at, changed.address, u64(0), False)
    assert (int(parsed["seq"][0]), int(parsed["ack"][0])) == (300, 4500)


@pytest.mark.parametrize("flags", ["A", "R"])
@pytest.mark.parametrize("options", [[], SACK, [("Timestamp", (1, 2))], [("SAck", (5005, 5105))]])
def test_a_segment_goes_on_with_other_numbers_and_a_right_checksum(changed, flags, options):
    octets, _, at = segment(flags=flags, seq=300, ack=4505, options=options)
    _send(at, changed.extension, u64(0), False)
    went = IP(octets.tobytes())
    assert went[TCP].seq == 310 and went[TCP].ack == (4500 if flags == "A" else 4505)
    if flags == "A" and "SAck" in dict(options):
        assert dict(went[TCP].options)["SAck"][:2] == (5000, 5100)
    chksum = went[TCP].chksum
    del went[TCP].chksum
    assert IP(bytes(went))[TCP].chksum == chksum


def test_a_checksum_that_a_device_completes_stays(changed):
    octets, _, at = segment(flags="A", seq=300, ack=4505, chksum=0x1234)
    _send(at, changed.extension, u64(0), True)
    assert IP(octets.tobytes())[TCP].chksum == 0x1234
