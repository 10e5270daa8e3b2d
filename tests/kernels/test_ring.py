"""Rings: what is put in comes out once and in order, and an end that lies is counted and not followed."""

import numpy as np
import pytest
from zonetrack.kernels import ring
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import DESCRIPTOR, END, FRAME, FRAME_SLOT_BYTES, RING, TIMESPEC

SLOTS = 8
NONSENSE = [SLOTS + 1, 1 << 32, (1 << 63) + 5, (1 << 64) - 1]


class Ring:
    """A ring in private memory, and both its ends."""

    def __init__(self, cursor=0):
        self.words = np.zeros(1, RING)
        self.descriptors = np.zeros(SLOTS, DESCRIPTOR)
        self.frames = np.zeros((SLOTS, FRAME_SLOT_BYTES), "u1")
        self.words["produced"] = self.words["consumed"] = cursor
        self.producer, self.consumer = (np.zeros(1, END).view(np.recarray)[0] for _ in range(2))
        for end in (self.producer, self.consumer):
            end["ring"], end["descriptors"], end["frames"] = (
                array.ctypes.data for array in (self.words, self.descriptors, self.frames)
            )
            end["slots"], end["cursor"], end["peer"] = SLOTS, cursor, cursor
        self.until = np.zeros(1, TIMESPEC)

    def put(self, packets, tag=0):
        """Put packets in; returns how many went."""
        self.data = [np.frombuffer(packet, "u1") for packet in packets]
        frames = np.zeros(len(packets), FRAME)
        frames["address"] = [data.ctypes.data for data in self.data]
        frames["captured_bytes"] = frames["wire_bytes"] = [len(packet) for packet in packets]
        frames["link"] = 3
        return int(ring.put(self.producer, u64(frames.ctypes.data), u64(len(packets)), u64(tag)))

    def take(self, count=SLOTS, with_frames=True):
        """Take out what there is: pairs of tag and bytes."""
        answers, frames = np.zeros(count, DESCRIPTOR), np.zeros((count, FRAME_SLOT_BYTES), "u1")
        into = u64(frames.ctypes.data if with_frames else 0)
        came = int(ring.take(self.consumer, u64(answers.ctypes.data), into, u64(count)))
        return [
            (int(answer["tag"]), bytes(frame[: answer["captured_bytes"]]))
            for answer, frame in zip(answers[:came], frames, strict=False)
        ]

    def rest(self, spins=1):
        """Wait until a moment that has passed."""
        return int(ring.rest(self.consumer, u64(spins), u64(self.until.ctypes.data)))


@pytest.mark.parametrize("cursor", [0, 5, 1 << 32, (1 << 64) - 20])
def test_what_goes_in_comes_out_in_order(cursor):
    one, expected, tag = Ring(cursor), [], 0
    for count in (1, 3, 8, 5, 8, 2):
        packets = [bytes([tag + i]) * (i + 1) for i in range(count)]
        assert one.put(packets, tag) == count
        expected = [(tag + i, packet) for i, packet in enumerate(packets)]
        assert one.take(count) == expected
        tag += count
    assert one.take() == []


def test_full_ring_takes_no_more_until_places_are_given_back():
    one = Ring()
    assert one.put([b"a"] * 6) == 6
    assert one.put([b"b"] * 6, 6) == 2
    assert one.put([b"c"]) == 0
    assert [tag for tag, _ in one.take(3)] == [0, 1, 2]
    assert one.put([b"d"] * 6, 8) == 3
    assert [tag for tag, _ in one.take()] == list(range(3, 11))


def test_descriptor_says_what_the_frame_was():
    one = Ring()
    one.put([b"abc"], 77)
    first = one.descriptors[0]
    assert (first["tag"], first["slot"], first["captured_bytes"], first["wire_bytes"], first["link"]) == (
        77,
        0,
        3,
        3,
        3,
    )


def test_frame_that_is_longer_than_a_slot_is_cut_off_and_says_so():
    one = Ring()
    long = bytes(range(256)) * 10
    assert one.put([long, b"x"]) == 2
    assert (one.descriptors[0]["captured_bytes"], one.descriptors[0]["wire_bytes"]) == (FRAME_SLOT_BYTES, 2560)
    assert one.take() == [(0, long[:FRAME_SLOT_BYTES]), (1, b"x")]


def test_descriptors_alone_may_be_taken():
    one = Ring()
    one.put([b"abc", b"d"], 5)
    assert one.take(with_frames=False) == [(5, b"\0\0\0"), (6, b"\0")]


@pytest.mark.parametrize("produced", NONSENSE)
def test_producer_that_lies_is_counted_once_and_not_followed(produced):
    one = Ring()
    one.put([b"a", b"b"])
    one.words["produced"] = produced
    for _ in range(3):
        assert one.take() == []
    assert one.consumer["bad_cursors"] == 1
    one.words["produced"] = 2
    assert [tag for tag, _ in one.take()] == [0, 1]
    one.words["produced"] = 1  # behind what was taken
    assert one.take() == []
    assert one.consumer["bad_cursors"] == 2


@pytest.mark.parametrize("consumed", NONSENSE)
def test_consumer_that_lies_is_counted_once_and_not_followed(consumed):
    one = Ring()
    assert one.put([b"a"] * SLOTS) == SLOTS
    one.words["consumed"] = consumed
    for _ in range(3):
        assert one.put([b"b"]) == 0
    assert one.producer["bad_cursors"] == 1
    one.words["consumed"] = 1
    assert one.put([b"b"] * 2, 8) == 1


def test_who_sees_a_lie_says_again_where_it_stands():
    one = Ring(100)
    one.words["produced"], one.words["consumed"] = 5, 7
    one.take()
    assert one.words["consumed"][0] == 100
    one.words["consumed"] = 7
    one.put([b"a"] * SLOTS)
    one.put([b"a"])
    assert one.words["produced"][0] == 108


def test_slot_that_there_is_not_is_never_read():
    one = Ring()
    one.put([b"abc"])
    one.descriptors[0]["slot"], one.descriptors[0]["captured_bytes"] = 0xFFFFFFF9, 0xFFFFFFFF
    answers, frames = np.zeros(2, DESCRIPTOR), np.full((2, FRAME_SLOT_BYTES), 9, "u1")
    one.frames[1] = 7
    assert ring.take(one.consumer, u64(answers.ctypes.data), u64(frames.ctypes.data), u64(2)) == 1
    assert set(frames[0].tolist()) == {7}  # slot modulo the ring, and no byte more than a slot has
    assert set(frames[1].tolist()) == {9}


@pytest.mark.parametrize("waiting", [1, 77, 0xFFFFFFFF])
def test_who_is_said_to_wait_is_woken_once(waiting):
    one = Ring()
    one.words["waiting"] = waiting
    assert ring.wake(one.producer) == 1
    assert one.words["waiting"][0] == 0
    assert ring.wake(one.producer) == 0


def test_put_wakes():
    one = Ring()
    one.words["waiting"] = 1
    one.put([b"a"])
    assert one.words["waiting"][0] == 0


def test_rest_ends_at_once_when_there_is_something():
    one = Ring()
    one.put([b"a", b"b"])
    one.until["seconds"] = 1 << 40  # or this test would not end
    assert one.rest() == 2
    assert one.rest(spins=0) == 2


def test_rest_ends_when_the_moment_has_passed():
    one = Ring()
    assert one.rest() == 0
    assert one.words["waiting"][0] == 0
