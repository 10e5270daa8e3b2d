"""Made-up conversations: every frame as scapy reads it, tuples that never repeat, and the loop that sends them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from zonetrack.clients.sender import Sender
from zonetrack.clients.traffic import DATA, PACKETS, WIRE_BYTES, Packet, drive, write_burst
from zonetrack.shm import segment
from zonetrack.shm.layout import BURST_PACKETS_MAX, Way
from zonetrack.shm.sizing import Geometry

WORDS = st.integers(0, 2**64 - 1)
FIELDS = ("src", "sport", "dst", "dport")


def frames_of(sender, numbers, packet):
    """Return the frames of one packet of some connections, as bytes."""
    numbers = np.array(numbers, "u8")
    write_burst(sender.stream, np.uint64(numbers.ctypes.data), np.uint64(len(numbers)), np.uint64(packet))
    return [sender.slots[i, :WIRE_BYTES].tobytes() for i in range(len(numbers))]


def frame_of(sender, number, packet, sent_bytes=0):
    """Return the frame of one packet of one connection, read by scapy."""
    sender.set(sent_bytes=sent_bytes)
    return Ether(frames_of(sender, [number], packet)[0])


def tuple_of(frame):
    """Return source and destination of a frame, as (address, port) pairs."""
    return (frame[IP].src, frame[TCP].sport), (frame[IP].dst, frame[TCP].dport)


def checksums_are_right(frame):
    """Return whether scapy, asked to fill in both checksums, comes to those that stand in the frame."""
    again = frame.copy()
    del again[IP].chksum, again[TCP].chksum
    again = Ether(bytes(again))
    return again[IP].chksum == frame[IP].chksum and again[TCP].chksum == frame[TCP].chksum


@settings(deadline=None)  # the first example compiles
@given(seed=WORDS, number=WORDS, iteration=st.integers(0, 1000), packet=st.sampled_from(Packet))
def test_scapy_agrees_with_every_frame(seed, number, iteration, packet):
    sender = Sender(seed, 1)
    sender.set(iteration=iteration)
    frame = frame_of(sender, number, packet)
    row = PACKETS[packet]
    assert checksums_are_right(frame)
    assert int(frame[TCP].flags) == row.flags
    assert frame[IP].len == 40 + row.payload_bytes
    assert bytes(frame[TCP].payload)[: row.payload_bytes] == DATA[: row.payload_bytes]
    assert frame[IP].src.startswith(("10.", "198.18.", "198.19."))


def test_the_rows_stand_in_order():
    assert [row.packet for row in PACKETS] == list(Packet)


def test_a_conversation_adds_up():
    """Each side acknowledges exactly what the other has sent, from the SYN to the last ACK."""
    sender, n = Sender(7, 1), len(DATA)
    conversation = [
        *((packet, 0) for packet in (Packet.SYN, Packet.SYN_ACK, Packet.ACK)),
        *((Packet.DATA, 0), (Packet.DATA_ACK, n), (Packet.DATA, n), (Packet.DATA_ACK, 2 * n)),
        *((packet, 2 * n) for packet in (Packet.FIN, Packet.FIN_BACK, Packet.LAST_ACK)),
    ]
    following, forth, back = {}, None, None
    for packet, sent_bytes in conversation:
        frame = frame_of(sender, 12345, packet, sent_bytes)
        way, tcp = PACKETS[packet].way, frame[TCP]
        if packet == Packet.SYN:
            forth, back = tuple_of(frame), tuple_of(frame)[::-1]
            assert tcp.ack == 0
        assert tuple_of(frame) == (forth if way == Way.ORIG else back)
        assert tcp.seq == following.get(way, tcp.seq)
        assert packet == Packet.SYN or tcp.ack == following[1 - way]
        begins_or_ends = packet in (Packet.SYN, Packet.SYN_ACK, Packet.FIN, Packet.FIN_BACK)
        following[way] = (tcp.seq + PACKETS[packet].payload_bytes + begins_or_ends) % 2**32


def test_rounds_go_through_all_numbers_with_data_and_acknowledgment_in_turn():
    """Each call of ``drive`` has a budget of one packet here: which one it was stands in the frame."""
    table, sender, n = segment.anonymous(Geometry(64, 1, 0)), Sender(7, 1), len(DATA)
    sender.set(alone=1, budget=1, first=5, count=2, end=2)
    sender.send(Packet.DATA, rounds=4)
    seen = []
    while not sender.done:
        drive(table.views(1), sender.stream, np.uint64(1))
        seen.append(bytes(sender.slots[0]))
    asked = Sender(7, 1)
    rounds = ((Packet.DATA, 0), (Packet.DATA_ACK, n), (Packet.DATA, n), (Packet.DATA_ACK, 2 * n))
    wanted = []
    for packet, sent_bytes in rounds:
        for number in (5, 6):
            frame_of(asked, number, packet, sent_bytes)
            wanted.append(bytes(asked.slots[0]))
    assert seen == wanted
    assert sender.stream["finished"] == sender.stream["packets"] == 8


def test_a_reset_follows_the_handshake():
    sender = Sender(1, 1)
    ack, reset = frame_of(sender, 5, Packet.ACK)[TCP], frame_of(sender, 5, Packet.RST)[TCP]
    assert (reset.seq, reset.ack) == (ack.seq, ack.ack)


def test_data_of_either_side_is_what_was_acknowledged_before():
    """Either packet is DATA or ANSWER, but for acknowledging all that there was, and for its window."""
    sender = Sender(3, BURST_PACKETS_MAX)
    data, answer = (frame_of(sender, 9, packet) for packet in (Packet.DATA, Packet.ANSWER))
    acknowledged = frame_of(sender, 9, Packet.ANSWER_ACK)[TCP]
    windows, forth = set(), 0
    for i in range(100):
        sender.set(packets=i)
        frame = frame_of(sender, 9, Packet.EITHER)
        forth += tuple_of(frame) == tuple_of(data)
        like, ack = (data, acknowledged.ack) if tuple_of(frame) == tuple_of(data) else (answer, acknowledged.seq)
        assert (tuple_of(frame), frame[TCP].seq, frame[TCP].ack) == (tuple_of(like), like[TCP].seq, ack)
        assert 65535 - 1024 < frame[TCP].window <= 65535
        windows.add(frame[TCP].window)
        assert checksums_are_right(frame)
    assert 20 < forth < 80
    assert len(windows) > 50


@given(seed=WORDS, first=WORDS)
def test_no_two_numbers_share_a_tuple(seed, first):
    sender = Sender(seed, BURST_PACKETS_MAX)
    numbers = [(first + i) % 2**64 for i in range(BURST_PACKETS_MAX)]
    assert len({frame[26:38] for frame in frames_of(sender, numbers, Packet.SYN)}) == BURST_PACKETS_MAX


def test_tuples_follow_from_seed_and_number_alone():
    numbers = [0, 1, 2**63, 17]
    again = frames_of(Sender(1, 4), numbers, Packet.SYN)
    assert frames_of(Sender(1, 4), numbers, Packet.SYN) == again
    assert frames_of(Sender(1, 4), numbers[::-1], Packet.SYN) == again[::-1]
    assert not set(frames_of(Sender(2, 4), numbers, Packet.SYN)) & set(again)


def test_a_new_iterationhas_the_same_tuple_and_other_sequence_numbers():
    sender = Sender(1, 1)
    first = frame_of(sender, 8, Packet.SYN)
    sender.set(iteration=1)
    second = frame_of(sender, 8, Packet.SYN)
    assert tuple_of(first) == tuple_of(second)
    assert first[TCP].seq != second[TCP].seq


def test_connections_go_iterationthe_zones():
    sender = Sender(1, 8)
    sender.set(zones=5, zone_offset=3)
    frames_of(sender, range(8), Packet.SYN)
    assert sender.frames["zone"][:8].tolist() == [3, 4, 0, 1, 2, 3, 4, 0]
