"""The capture walk finds every packet up to the first fault, and never reads past the end."""

import struct

import numpy as np
import pytest
from capture_files import ETHERNET, KUZNETZOV, PCAP_NS, PCAP_US, RAW, Packet, Pcapng, pcap
from guard import PAGE, Guard
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgWriter, wrpcap
from zonetrack.kernels import capture as walk
from zonetrack.kernels.capture import FAULTS, Fault
from zonetrack.kernels.jit import kernel
from zonetrack.shm.layout import CAPTURE, FRAME, INTERFACE, INTERFACES_MAX, FrameFlag, Link

SECOND = 10**9
ZONE = 7


@kernel
def read_flags(address):
    return walk.frame_at(address).flags


class Walk:
    """A walk over bytes behind which nothing may be touched."""

    def __init__(self, file):
        self.memory = Guard(-(-len(file) // PAGE) * PAGE)
        self.bytes = file
        self.address = self.memory.place(file)
        self.interfaces = np.zeros(INTERFACES_MAX, INTERFACE)
        self.capture = np.zeros(1, CAPTURE).view(np.recarray)[0]
        self.capture.address, self.capture.bytes = self.address, len(file)
        self.capture.interfaces = self.interfaces.ctypes.data
        self.capture.zone, self.capture.frame_flags = ZONE, FrameFlag.COMMIT
        walk.begin(self.capture)

    @property
    def fault(self):
        return Fault(self.capture.fault), int(self.capture.position)

    def slice(self, count, records):
        """Return (data, time_ns, wire, link) of the next packets."""
        frames, times = np.zeros(count, FRAME), np.zeros(count, "u8")
        addresses = (np.uint64(frames.ctypes.data), np.uint64(times.ctypes.data))
        found = int(walk.next_frames(self.capture, *addresses, np.uint64(count), np.uint64(records)))
        packets = []
        for frame, time in zip(frames[:found], times[:found], strict=True):
            at, length = int(frame["address"]) - self.address, int(frame["captured_bytes"])
            assert at >= 0 and at + length <= len(self.bytes)
            assert (frame["zone"], frame["flags"]) == (ZONE, FrameFlag.COMMIT)
            packets.append((self.bytes[at : at + length], int(time), int(frame["wire_bytes"]), frame["link"]))
        return packets

    def all(self, count=64, records=1 << 16):
        packets = []
        while not self.capture.fault:
            packets += self.slice(count, records)
        return packets


def found(packets, link=Link.ETHERNET):
    """Return what a walk must find of ``packets``."""
    return [(p.data, p.time_ns, p.wire_bytes, link) for p in packets]


def some(n=5, unit=1000):
    return [Packet(bytes([i]) * (13 * i), 1_700_000_000 * SECOND + i * unit, 13 * i + i % 2) for i in range(n)]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("magic", [PCAP_US, PCAP_NS, KUZNETZOV])
def test_pcap_in_both_byte_orders(order, magic):
    packets = some(unit=1 if magic == PCAP_NS else 1000)
    file, _ = pcap(packets, order=order, magic=magic)
    reader = Walk(file)
    assert reader.all() == found(packets)
    assert reader.fault == (Fault.END, len(file))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("records", [1, 2, 100])
def test_a_walk_goes_on_where_it_stopped(count, records):
    packets = some(7)
    assert Walk(pcap(packets)[0]).all(count, records) == found(packets)


@pytest.mark.parametrize(
    ("version", "swapped"), [((2, 0), True), ((2, 2), True), ((2, 3), False), ((2, 4), False), ((2, 9), False)]
)
def test_old_writers_had_the_wire_length_first(version, swapped):
    packets = [Packet(b"x" * 20, SECOND, 60)]
    file, starts = pcap(packets, version=version)
    assert (file[starts[0] + 8] == 60) == swapped
    assert Walk(file).all() == found(packets)


def test_version_2_3_has_the_lengths_in_either_order():
    file, starts = pcap([Packet(b"x" * 20, SECOND, 60)], version=(2, 3))
    at = starts[0] + 8
    other = file[:at] + file[at + 4 : at + 8] + file[at : at + 4] + file[at + 8 :]
    assert Walk(other).all() == Walk(file).all() != []


def test_what_was_captured_was_on_the_wire():
    assert Walk(pcap([Packet(b"x" * 20, wire=10)])[0]).all() == [(b"x" * 20, 0, 20, Link.ETHERNET)]


@pytest.mark.parametrize(("linktype", "link"), [(101, Link.RAW_IP), (0x04000071, Link.COOKED), (147, Link.UNKNOWN)])
def test_link_types_and_the_frame_check_bits_above_them(linktype, link):
    assert Walk(pcap(some(2), linktype=linktype)[0]).all() == found(some(2), link)
    assert Walk(pcap(some(2), linktype=0xFFFF)[0]).all() == found(some(2), Link.UNKNOWN)


def test_a_fraction_of_more_than_a_second_runs_on():
    file, starts = pcap([Packet(b"x", 5 * SECOND)], magic=PCAP_NS)
    file = file[: starts[0] + 4] + struct.pack("<I", 3_000_000_000) + file[starts[0] + 8 :]
    assert Walk(file).all()[0][1] == 8 * SECOND


def section_of(packets, order="<"):
    """Return a pcapng file of one section and interface, and the offsets of all its blocks."""
    made = Pcapng(order).section().interface()
    for packet in packets:
        made.packet(packet, packet.time_ns // 1000)
    return made.file, made.starts


@pytest.mark.parametrize("make", [pcap, section_of])
@pytest.mark.parametrize("order", "<>")
def test_every_truncation_delivers_what_is_whole(make, order):
    packets = some(4)
    file, starts = make(packets, order=order)
    ends = [*starts[1:], len(file)][-len(packets) :]
    for length in range(1, len(file)):
        reader = Walk(file[:length])
        assert reader.all() == found(packets[: sum(end <= length for end in ends)])
        begun = max((start for start in starts if start <= length), default=0)
        if begun == length:
            assert reader.fault == (Fault.END, length)
        else:
            header = (make is pcap and begun == 0) or length < 4
            assert reader.fault == (Fault.HEADER if header else Fault.TRUNCATED, begun)


def test_a_length_beyond_all_reason_is_a_fault_even_if_the_file_is_long():
    file, starts = pcap([*some(2), Packet(b"x" * 300_000)])
    reader = Walk(file)
    assert reader.all() == found(some(2))
    assert reader.fault == (Fault.LENGTH, starts[2])


def test_a_file_may_announce_longer_packets():
    long = [Packet(b"x" * 300_000)]
    assert Walk(pcap(long, snaplen=0xFFFFFFFF)[0]).all() == found(long)
    assert Walk(pcap(some(3), snaplen=0)[0]).all() == found(some(3))


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        (b"", Fault.EMPTY),
        (b"\xd4\xc3\xb2", Fault.HEADER),
        (b"#!/bin/sh\n" * 4, Fault.MAGIC),
        (bytes(24), Fault.MAGIC),
        (pcap([])[0][:23], Fault.HEADER),
        (pcap([], version=(3, 0))[0], Fault.VERSION),
        (pcap([], version=(0, 4))[0], Fault.VERSION),
    ],
)
def test_what_is_no_capture_is_refused_at_its_beginning(file, fault):
    reader = Walk(file)
    assert reader.all() == []
    assert reader.fault == (fault, 0)


def test_fields_of_a_frame_win_over_attributes_of_numpy():
    """``flags`` is an attribute of every numpy scalar, which kernels under the interpreter must not be given."""
    frames = np.zeros(1, FRAME)
    frames["flags"] = 3
    assert read_flags(np.uint64(frames.ctypes.data)) == 3


def test_every_fault_has_its_words():
    assert set(Fault) - set(FAULTS) == {Fault.NONE, Fault.END}


def test_sections_in_both_orders_have_interfaces_of_their_own():
    made, packets = Pcapng(), some(6)
    for order, linktype, these in (("<", ETHERNET, packets[:3]), (">", RAW, packets[3:])):
        made.section(order).interface(147).interface(linktype)
        for packet in these:
            made.packet(packet, packet.time_ns // 1000, interface=1)
    reader = Walk(made.file)
    assert reader.all() == found(packets[:3]) + found(packets[3:], Link.RAW_IP)
    assert reader.fault == (Fault.END, len(made.file))


def test_an_interface_of_the_section_before_is_not_there():
    made = Pcapng().section().interface().packet(Packet(b"a"), 1).section().packet(Packet(b"b"), 1)
    reader = Walk(made.file)
    assert [data for data, *_ in reader.all()] == [b"a"]
    assert reader.fault == (Fault.INTERFACE, made.starts[-1])


@pytest.mark.parametrize("order", "<>")
def test_all_packet_blocks_and_others_between_them(order):
    made = Pcapng(order).section().interface().interface(RAW, snaplen=50)
    made.block(5, b"statistics").packet_old(Packet(b"a" * 9, wire=90), 3_000_000, interface=1)
    made.block(0xBAD, b"somebody's").packet_simple(Packet(b"b" * 7)).packet(Packet(b"c" * 8), 4_000_000)
    made.packet_simple(Packet(b"d" * 5))
    assert Walk(made.file).all() == [
        (b"a" * 9, 3 * SECOND, 90, Link.RAW_IP),
        (b"b" * 7, 3 * SECOND, 7, Link.ETHERNET),
        (b"c" * 8, 4 * SECOND, 8, Link.ETHERNET),
        (b"d" * 5, 4 * SECOND, 5, Link.ETHERNET),
    ]


def test_a_simple_packet_is_as_long_as_its_interface_captures():
    made = Pcapng().section().interface(snaplen=6).packet_simple(Packet(b"abcdef", wire=100))
    made.packet_simple(Packet(b"abcd"))
    assert Walk(made.file).all() == [(b"abcdef", 0, 100, Link.ETHERNET), (b"abcd", 0, 4, Link.ETHERNET)]
    unlimited = Pcapng().section().interface().packet_simple(Packet(b"abcdef", wire=100))
    assert Walk(unlimited.file).all() == [(b"abcdef\0\0", 0, 100, Link.ETHERNET)]


@pytest.mark.parametrize(
    ("resolution", "offset_s", "ticks", "time_ns"),
    [
        (None, None, 1_500_000, 1_500_000_000),
        (0, None, 3, 3 * SECOND),
        (3, None, 1_500, 1_500_000_000),
        (9, None, 1_500_000_001, 1_500_000_001),
        (12, None, 1_999, 1),
        (28, None, 10**19 - 1, 0),
        (28, None, 10**19, 1),
        (127, None, 2**64 - 1, 1),
        (0x80, None, 3, 3 * SECOND),
        (0x80 | 1, None, 3, 1_500_000_000),
        (0x80 | 32, None, 1 << 31, SECOND // 2),
        (0x80 | 63, None, 1 << 63, SECOND),
        (0x80 | 64, None, 1 << 63, SECOND // 2),
        (0x80 | 70, None, 1 << 63, SECOND // 128),
        (6, 1_000, 1, 1_000 * SECOND + 1_000),
        (6, -2, 5_000_000, 3 * SECOND),
        (6, -9, 5_000_000, 0),
        (6, -(2**63), 5_000_000, 0),
        (6, 2**62, 0, 2**64 - 1),
        (0, None, 2**63, 2**64 - 1),
        (0x80, None, 2**63, 2**64 - 1),
        (0x80 | 3, None, 2**63, 2**64 - 1),
        (6, None, 2**64 - 1, 2**64 - 1),
    ],
)
@pytest.mark.parametrize("order", "<>")
def test_time_resolutions_and_offsets(order, resolution, offset_s, ticks, time_ns):
    made = Pcapng(order).section().interface(resolution=resolution, offset_s=offset_s).packet(Packet(b"x"), ticks)
    assert Walk(made.file).all()[0][1] == time_ns


def test_options_of_other_kinds_and_sizes_are_passed_over():
    made = Pcapng().section()
    other = made.option(2, b"eth0\0") + made.option(9, b"\6\6") + made.option(14, b"\1") + made.option(9, b"\3")
    made.interface(options=other + made.option(0, b"") + made.option(9, b"\0")).packet(Packet(b"x"), 7)
    assert Walk(made.file).all()[0][1] == 7_000_000


BAD_BLOCKS = {
    "length not of whole words": (lambda p: p.block(5, b"abcd", length=17), Fault.BLOCK_LENGTH),
    "length below the frame": (lambda p: p.block(5, b"abcd", length=8), Fault.BLOCK_LENGTH),
    "length beyond the file": (lambda p: p.block(5, b"abcd", length=1 << 20), Fault.TRUNCATED),
    "lengths differ": (lambda p: p.block(5, b"abcd", trailer=20), Fault.BLOCK_TRAILER),
    "no byte order": (lambda p: p.section(magic=0x1A2B3C4E), Fault.BYTE_ORDER),
    "short section": (lambda p: p.block(0x0A0D0D0A, struct.pack("<IHH", 0x1A2B3C4D, 1, 0)), Fault.BLOCK_LENGTH),
    "another version": (lambda p: p.section(major=2), Fault.VERSION),
    "short interface": (lambda p: p.block(1, b"abcd"), Fault.BLOCK_LENGTH),
    "short packet": (lambda p: p.block(6, bytes(16)), Fault.BLOCK_LENGTH),
    "short simple packet": (lambda p: p.block(3, b""), Fault.BLOCK_LENGTH),
    "packet longer than its block": (lambda p: p.packet(Packet(b"abcd"), 1, captured=5), Fault.LENGTH),
    "unknown interface": (lambda p: p.packet(Packet(b"abcd"), 1, interface=1), Fault.INTERFACE),
    "unknown interface, old": (lambda p: p.packet_old(Packet(b"abcd"), 1, interface=1), Fault.INTERFACE),
    "option beyond its block": (lambda p: p.interface(options=struct.pack("<HH", 2, 9)), Fault.OPTIONS),
}


@pytest.mark.parametrize(("spoil", "fault"), BAD_BLOCKS.values(), ids=BAD_BLOCKS)
def test_a_bad_block_stops_the_walk_where_it_begins(spoil, fault):
    made = Pcapng().section().interface().packet(Packet(b"good"), 1)
    end = len(made.file)
    spoil(made)
    reader = Walk(made.file + b"\0" * 64)
    assert [data for data, *_ in reader.all()] == [b"good"]
    assert reader.fault == (fault, end)


def test_a_simple_packet_wants_an_interface():
    reader = Walk(Pcapng().section().packet_simple(Packet(b"abcd")).file)
    assert reader.all() == []
    assert reader.fault == (Fault.INTERFACE, 28)


def test_interfaces_are_bounded():
    one = Pcapng().section().interface(RAW)
    many = one.file + one.file[28:] * (INTERFACES_MAX - 1)
    last = Pcapng().packet(Packet(b"abcd"), 1, interface=INTERFACES_MAX - 1).file
    assert Walk(many + last).all() == [(b"abcd", 1000, 4, Link.RAW_IP)]
    reader = Walk(many + one.file[28:] + last)
    assert reader.all() == []
    assert reader.fault == (Fault.INTERFACES, len(many))


def scapy_packets():
    packets = [Ether() / IP(src="192.0.2.1", dst="198.51.100.1") / UDP(sport=1, dport=2) / bytes(n) for n in range(4)]
    for i, packet in enumerate(packets):
        packet.time = 1_700_000_000 + i / 4
    return packets


@pytest.mark.parametrize("options", [{}, {"nano": True}, {"endianness": ">"}])
def test_what_scapy_writes_as_pcap(tmp_path, options):
    path = tmp_path / "x.pcap"
    wrpcap(str(path), scapy_packets(), **options)
    times = [1_700_000_000 * SECOND + i * SECOND // 4 for i in range(4)]
    assert [(data, time) for data, time, *_ in Walk(path.read_bytes()).all()] == list(
        zip(map(bytes, scapy_packets()), times, strict=True)
    )


def test_what_scapy_writes_as_pcapng(tmp_path):
    path = tmp_path / "x.pcapng"
    writer = PcapNgWriter(str(path))
    for packet in scapy_packets():
        writer.write(packet)
    writer.close()
    times = [1_700_000_000 * SECOND + i * SECOND // 4 for i in range(4)]
    assert [(data, time) for data, time, *_ in Walk(path.read_bytes()).all()] == list(
        zip(map(bytes, scapy_packets()), times, strict=True)
    )


packets_drawn = st.lists(
    st.builds(
        Packet,
        st.binary(max_size=40),
        st.integers(0, 2**32 - 1).map(lambda us: us * 1000),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(packets_drawn, st.sampled_from("<>"), st.booleans(), st.data())
def test_a_spoiled_byte_never_leads_out_of_the_file(packets, order, as_pcapng, data):
    file = section_of(packets, order)[0] if as_pcapng else pcap(packets, order=order)[0]
    whole = Walk(file)
    assert whole.all() == found(packets)
    assert whole.fault == (Fault.END, len(file))
    spoiled = bytearray(file)
    spoiled[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    reader = Walk(bytes(spoiled))
    reader.all()  # each frame is looked at: it lies in the file
    fault, offset = reader.fault
    assert fault != Fault.NONE and offset <= len(file)
