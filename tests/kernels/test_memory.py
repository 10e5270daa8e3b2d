"""Memory is read and written as asked: width, byte order, alignment, in place, and whole when two processes contend.

Each operation is compared with plain Python on the same bytes.  The suite runs jitted and with the JIT off, so what is
compiled and its interpreter twin are both held to one answer.
"""

import itertools
import mmap
import struct

import numpy as np
import pytest
from forked import Child
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels import memory
from zonetrack.kernels.jit import JIT, kernel
from zonetrack.kernels.words import ONE, ZERO, u64
from zonetrack.shm.layout import ENTRY, TCP_PEERS
from zonetrack.shm.views import address_of

needs_jit = pytest.mark.skipif(not JIT, reason="the twins' words are whole within one process only")
timeless = settings(deadline=None)
"""The first example compiles."""
PATIENCE = 10_000_000
"""Turns to wait for another process; only the death of one takes as many."""

# ------------------------------------------------------------------------------------------------ loads, stores
LOADS = ("byte", "le16", "le32", "le64", "be16", "be32", "be64", "read32", "read64", "acquire32", "acquire64")
STORES = (
    *("set_byte", "set_le16", "set_le32", "set_le64", "set_be16", "set_be32", "set_be64"),
    *("write32", "write64", "release32", "release64"),
)
FORMATS = {"byte": "<B", "le16": "<H", "le32": "<I", "le64": "<Q", "be16": ">H", "be32": ">I", "be64": ">Q"} | {
    f"{name}{8 * size}": form
    for name in ("read", "acquire", "write", "release")
    for size, form in ((4, "<I"), (8, "<Q"))
}
ATOMIC = ("acquire", "release", "read", "write")
BYTES = bytes(range(0x80, 0xA0))
VALUES = (0, 1, 0x7F, 0x80, 0x1234, 0x8000_0001, 0x1122_3344_5566_7788, 2**64 - 1)


@kernel
def load_all(address, out):
    out[0] = memory.byte(address)
    out[1] = memory.le16(address)
    out[2] = memory.le32(address)
    out[3] = memory.le64(address)
    out[4] = memory.be16(address)
    out[5] = memory.be32(address)
    out[6] = memory.be64(address)


@kernel
def load_words(address, out):
    out[0] = memory.read32(address)
    out[1] = memory.read64(address)
    out[2] = memory.acquire32(address)
    out[3] = memory.acquire64(address)


@kernel
def store(which, address, value):
    if which == u64(0):
        memory.set_byte(address, value)
    elif which == u64(1):
        memory.set_le16(address, value)
    elif which == u64(2):
        memory.set_le32(address, value)
    elif which == u64(3):
        memory.set_le64(address, value)
    elif which == u64(4):
        memory.set_be16(address, value)
    elif which == u64(5):
        memory.set_be32(address, value)
    elif which == u64(6):
        memory.set_be64(address, value)
    elif which == u64(7):
        memory.write32(address, value)
    elif which == u64(8):
        memory.write64(address, value)
    elif which == u64(9):
        memory.release32(address, value)
    else:
        memory.release64(address, value)


def buffer(content=BYTES):
    """Return an array of bytes on a cache line's boundary."""
    block = np.zeros(len(content) + 64, "u1")
    part = block[-block.ctypes.data % 64 :][: len(content)]
    part[:] = np.frombuffer(content, "u1")
    return part


def at(array, offset=0):
    return u64(array.ctypes.data + offset)


def size_of(name):
    return struct.calcsize(FORMATS[name.removeprefix("set_")])


@pytest.mark.parametrize("offset", range(9))
def test_bytes_are_loaded_in_either_order_at_any_alignment(offset):
    array, out = buffer(), np.zeros(7, "u8")
    load_all(at(array, offset), out)
    assert out.tolist() == [struct.unpack_from(FORMATS[name], BYTES, offset)[0] for name in LOADS[:7]]


def test_words_are_loaded_whole():
    array, out = buffer(), np.zeros(4, "u8")
    load_words(at(array, 8), out)
    assert out.tolist() == [struct.unpack_from(FORMATS[name], BYTES, 8)[0] for name in LOADS[7:]]


@pytest.mark.parametrize(("which", "name"), list(enumerate(STORES)))
def test_a_store_writes_its_bytes_and_no_more(which, name):
    shared = name.startswith(ATOMIC)
    size, form = size_of(name), FORMATS[name.removeprefix("set_")]
    for value, offset in itertools.product(VALUES, (8,) if shared else (8, 9, 11)):
        array = buffer()
        store(u64(which), at(array, offset), u64(value))
        expected = bytearray(BYTES)
        struct.pack_into(form, expected, offset, value % 2 ** (8 * size))
        assert array.tobytes() == bytes(expected), (value, offset)


@kernel
def replace(address, before, after):
    memory.replace64(address, before, after)


@pytest.mark.parametrize("after", VALUES)
def test_a_word_is_replaced_by_another_or_by_itself(after):
    for before in (5, after):
        array = buffer()
        array[8:16].view("u8")[0] = before
        replace(at(array, 8), u64(before), u64(after))
        assert array.tobytes() == BYTES[:8] + struct.pack("<Q", after) + BYTES[16:]


@kernel
def le32_apart(base, offset):
    return memory.le32_from(base, offset)


def test_a_load_from_base_and_offset():
    array = buffer()
    assert int(le32_apart(at(array), u64(5))) == struct.unpack_from("<I", BYTES, 5)[0]


@kernel
def sum_of(base, count):
    total = ZERO
    for i in range(count):
        total += memory.le32_from(base, u64(4 * i))
    return total


@timeless
@given(st.lists(st.integers(0, 2**32 - 1), max_size=70))
def test_a_walk_by_base_and_offset_sees_every_word(values):
    array = np.array([*values, 7], "u4")
    assert int(sum_of(at(array), u64(len(values)))) == sum(values)


# ------------------------------------------------------------------------------------------------ compare and exchange
@kernel
def swap(size, address, expected, desired):
    if size == u64(4):
        return memory.swap32(address, expected, desired)
    return memory.swap64(address, expected, desired)


@pytest.mark.parametrize("size", [4, 8])
def test_swap_changes_the_word_it_expected_and_no_other(size):
    word, beside = (1 << 8 * size) - 2, 0x55
    array = np.array([word, beside], f"u{size}")
    assert not swap(u64(size), at(array), u64(3), u64(9))
    assert array.tolist() == [word, beside]
    assert swap(u64(size), at(array), u64(word), u64(9))
    assert array.tolist() == [9, beside]


@kernel
def take_turns(lock, counter, rounds, me):
    """Add one ``rounds`` times to a plain counter, under a lock; returns the tries that failed."""
    failed = ZERO
    for _ in range(rounds):
        for _ in range(PATIENCE):
            if memory.swap32(lock, ZERO, me):
                break
            failed += ONE
            memory.pause()
            memory.relax()
        memory.set_le64(counter, memory.le64(counter) + ONE)
        memory.release32(lock, ZERO)
    return failed


@needs_jit
def test_two_processes_under_a_lock_lose_no_update():
    rounds = 50_000
    shared = mmap.mmap(-1, mmap.PAGESIZE)  # shared with who is forked
    words = np.frombuffer(shared, "u8")
    lock, counter = u64(address_of(shared)), u64(address_of(shared) + 64)
    take_turns(lock, counter, u64(0), u64(1))  # compiled before the fork

    def other(child):
        child.hear()
        take_turns(lock, counter, u64(rounds), u64(2))

    with Child(other) as child:
        child.say("go")
        take_turns(lock, counter, u64(rounds), u64(1))
        assert child.wait() == 0
    assert words[8] == 2 * rounds
    assert words[0] == 0


@kernel
def hand_over(mine, theirs, rounds, first):
    """Wait for a number and answer with the next, ``rounds`` times; the contents beside it come along."""
    wrong = ZERO
    for i in range(rounds):
        number = u64(2 * i) + first
        for _ in range(PATIENCE):
            if memory.acquire64(theirs) >= number:
                break
            memory.relax()
        if memory.read64(theirs + u64(8)) != memory.acquire64(theirs) * u64(3):
            wrong += ONE
        memory.write64(mine + u64(8), (number + ONE) * u64(3))
        memory.release64(mine, number + ONE)
    return wrong


@needs_jit
def test_what_is_written_before_a_release_is_seen_after_the_acquire():
    rounds = 2000
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    ping, pong = u64(address_of(shared)), u64(address_of(shared) + 64)
    hand_over(ping, pong, u64(0), ZERO)

    def other(child):
        child.say(int(hand_over(pong, ping, u64(rounds), ONE)))

    with Child(other) as child:
        assert int(hand_over(ping, pong, u64(rounds), ZERO)) == 0
        assert child.hear() == 0
        assert child.wait() == 0


@kernel
def fences(address):
    memory.prefetch(address)
    memory.fence_acquire()
    memory.fence_full()
    memory.pause()
    memory.relax()
    return memory.byte(address)


def test_fences_and_hints_change_nothing():
    array = buffer()
    assert int(fences(at(array))) == BYTES[0]
    assert array.tobytes() == BYTES


# ------------------------------------------------------------------------------------------------ bits, products
@kernel
def match(line, tag):
    return memory.match_line(line, tag)


TAGS = st.sampled_from((0, 1, 5, 2**31, 2**32 - 1))


@timeless
@given(st.lists(st.tuples(TAGS, TAGS), min_size=8, max_size=8), TAGS)
def test_match_line_has_a_bit_for_each_slot_with_the_tag(slots, tag):
    line = buffer(b"".join((high << 32 | low).to_bytes(8, "little") for high, low in slots))
    assert int(match(at(line), u64(tag))) == sum(1 << lane for lane, (high, _) in enumerate(slots) if high == tag)


@kernel
def lowest(mask):
    return memory.lowest_bit(mask)


@timeless
@given(st.integers(1, 2**64 - 1))
def test_lowest_bit(mask):
    assert mask >> int(lowest(u64(mask))) & 1 == 1
    assert mask & (1 << int(lowest(u64(mask)))) - 1 == 0


@kernel
def products(a, b, out):
    out[0] = memory.multiply_high(a, b)
    out[1] = memory.mix(a, b)


@timeless
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_products_keep_both_halves(a, b):
    out = np.zeros(2, "u8")
    products(u64(a), u64(b), out)
    assert out.tolist() == [a * b >> 64, (a * b >> 64) ^ (a * b % 2**64)]


WORDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from((0, 1, 2**32 - 1, 2**64 - 2, 2**64 - 1)))


@kernel
def carried(words, out):
    a, b, c, d, e = words[0], words[1], words[2], words[3], words[4]
    out[0] = memory.add_carrying_3(a, b, e)
    out[1] = memory.add_carrying_5(a, b, c, d, e)


@timeless
@given(st.lists(WORDS, min_size=4, max_size=4), st.integers(0, 2**63 - 1))
def test_what_is_carried_out_comes_in_at_the_bottom(words, last):
    out = np.zeros(2, "u8")
    carried(np.array([*words, last], "u8"), out)
    for total, summed in zip(out.tolist(), ([*words[:2], last], [*words, last]), strict=True):
        assert total % (2**64 - 1) == sum(summed) % (2**64 - 1) and bool(total) == any(summed)


@kernel
def differ(a, b, mask, out):
    wanted, other = memory.le64(b), memory.le64(b + u64(8))
    out[0] = memory.differs_16(a, mask[0], mask[1], wanted, other)
    out[1] = memory.differs_32(a, b)


@pytest.mark.parametrize("offset", [0, 3])
def test_every_bit_that_differs_is_seen_and_none_outside_of_the_mask(offset):
    mask, out = np.array([0xFF00FF3F, 1 << 63], "u8"), np.zeros(2, "?")
    wanted = mask.tobytes() + bytes(16)
    one, same = buffer(bytes(3) + BYTES + bytes(5)), buffer(bytes(3) + BYTES + bytes(5))
    differ(at(one, offset), at(same, 3), mask, out)
    assert out.tolist() == ([False, False] if offset == 3 else [True, True])
    for bit in range(8 * len(BYTES)):
        same[3 + bit // 8] ^= 1 << bit % 8
        differ(at(one, 3), at(same, 3), mask, out)
        assert out.tolist() == [wanted[bit // 8] >> bit % 8 & 1 == 1, True]
        same[3 + bit // 8] ^= 1 << bit % 8


# ------------------------------------------------------------------------------------------------ ranges
@kernel
def copy_and_fill(destination, source, size, filled, value):
    memory.copy(destination, source, size)
    memory.set_bytes(filled, value, size)


@pytest.mark.parametrize("size", [0, 1, 7, 24])
def test_ranges_are_copied_and_filled_to_the_byte(size):
    source, destination, filled = buffer(), buffer(bytes(32)), buffer(bytes(32))
    copy_and_fill(at(destination, 3), at(source, 1), u64(size), at(filled, 2), u64(0x1AB))
    assert destination.tobytes() == bytes(3) + BYTES[1 : 1 + size] + bytes(29 - size)
    assert filled.tobytes() == bytes(2) + b"\xab" * size + bytes(30 - size)
    assert source.tobytes() == BYTES


# ------------------------------------------------------------------------------------------------ records
entry_at = memory.record_at(ENTRY)
peers_at = memory.record_at(TCP_PEERS)


@kernel
def write_record(address):
    entry = entry_at(address)
    entry.mark = u64(0x1_0000_0005)  # what does not fit is cut off
    entry.status = u64(entry.status) | u64(4)
    entry.key[2] = u64(2**64 - 1)
    entry.packets[1] += ONE
    peers = peers_at(address + u64(64))
    peer = peers.peer[1]
    peer.end = u64(0xFFFFFFFF)
    peer.flags = u64(peer.scale) + ONE
    peers.last_seq = u64(peer.end) - ONE
    return u64(entry.expiry_ms)


def test_a_record_is_read_and_written_in_place():
    records = np.zeros(3, ENTRY)
    records["expiry_ms"], records["status"], records["packets"][1] = 77, 3, (8, 9)
    records["protocol"][1] = np.frombuffer(bytes(60) + b"\x01\x02\x03\x04", "u1")
    peers = records["protocol"].view(TCP_PEERS)[:, 0]
    peers["peer"]["scale"][1, 1] = 6
    before = records.copy()
    assert int(write_record(at(records[1:]))) == 77

    expected = before.copy()
    expected["mark"][1], expected["status"][1], expected["packets"][1] = 5, 7, (8, 10)
    expected["key"][1, 2] = 2**64 - 1
    wanted = expected["protocol"].view(TCP_PEERS)[:, 0]
    wanted["peer"]["end"][1, 1], wanted["peer"]["flags"][1, 1] = 2**32 - 1, 7
    wanted["last_seq"][1] = 2**32 - 2
    assert records.tobytes() == expected.tobytes()


@pytest.mark.skipif(JIT, reason="the twins' world is the interpreter's")
def test_every_shared_access_of_the_twins_goes_through_the_world():
    seen = []

    class Watched(memory.World):
        def load(self, address, size, order):
            seen.append(("load", size, order))
            return super().load(address, size, order)

        def store(self, address, size, value, order):
            seen.append(("store", size, order))
            super().store(address, size, value, order)

        def swap(self, address, size, expected, desired):
            seen.append(("swap", size))
            return super().swap(address, size, expected, desired)

        def fence(self, full):
            seen.append(("fence", full))

        def relax(self):
            seen.append(("relax",))

    array, out = buffer(), np.zeros(7, "u8")
    memory.world = Watched()
    try:
        load_words(at(array, 8), out[:4])
        for which in range(7, 11):
            store(u64(which), at(array, 8), ZERO)
        swap(u64(8), at(array), ZERO, ONE)
        match(at(array), ZERO)
        fences(at(array))
        shared, seen[:] = list(seen), []
        load_all(at(array), out)  # frames and private memory
        write_record(at(np.zeros(1, ENTRY)))
        private = list(seen)
    finally:
        memory.world = memory.World()
    assert shared == [
        *(("load", 4, "plain"), ("load", 8, "plain"), ("load", 4, "acquire"), ("load", 8, "acquire")),
        *(("store", 4, "plain"), ("store", 8, "plain"), ("store", 4, "release"), ("store", 8, "release")),
        ("swap", 8),
        *[("load", 8, "plain")] * 8,
        *(("fence", False), ("fence", True), ("relax",), ("relax",)),
    ]
    assert private == []
