"""The common frame, read in wide loads: the same as the parser finds, or nothing at all."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
import raw
from bursts import Bench, frames_of
from zonetrack.kernels import packet, plain, stages, tuples
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.shm import segment
from zonetrack.shm.layout import PARSED, SETTINGS_WORD_DEFAULT, FrameFlag, Link, Setting
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry

EXAMPLES = 6000 if JIT else 600
ROW = PARSED.itemsize
TIMESTAMP = bytes.fromhex("0101080a 00000001 00000002")
BURST_FIELDS = tuple(name for name in PARSED.names[PARSED.names.index("plain") + 1 :])
ALL_PARSED = [name for name in PARSED.names if name not in ("inner_key", "plain", *BURST_FIELDS)]


@pytest.fixture(scope="module")
def bench():
    return Bench(segment.anonymous(Geometry(300, 4, 125)))


def both(bench, data: bytes, settings: int = SETTINGS_WORD_DEFAULT, zone: int = 3, flags: int = 0, **changed):
    """Return whether it is the common frame, and PARSED as the short way and as the parser fill it."""
    frames, buffers = frames_of([data], zone)
    frames["flags"] = flags
    for name, value in changed.items():
        frames[name] = value
    rows = np.full((2, ROW), 0xA5, np.uint8)
    ours, theirs = (u64(row.ctypes.data) for row in rows)
    frame = stages.frame_at(u64(frames.ctypes.data)) if not JIT else frames.view(np.recarray)[0]
    read = plain.read(bench.views, frame, u64(zone), u64(settings), ours)
    parsed = stages.parsed_at(theirs) if not JIT else rows[1].view(PARSED).view(np.recarray)[0]
    packet.parse(frame, u64(zone), u64(settings), parsed)
    if rows[1].view(PARSED)["reason"][0] == Reason.NONE:
        rows[1].view(PARSED)["hash"] = tuples.hash_key(bench.views, theirs + tuples.PARSED_KEY)
    del buffers
    return bool(read), rows[0].view(PARSED)[0], rows[1].view(PARSED)[0]


def holds(bench, data: bytes, **how) -> bool:
    """Assert that both say the same, and return whether the short way was taken."""
    read, ours, theirs = both(bench, data, **how)
    if not read:
        return False
    for name in ALL_PARSED:
        assert np.array_equal(ours[name], theirs[name]), name
    return True


@pytest.mark.parametrize("reply", [False, True])
@pytest.mark.parametrize("options", [b"", TIMESTAMP, bytes(40), b"\1" * 12])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 63, 64, 65, 1459])
def test_the_common_frame_is_read_as_the_parser_reads_it(bench, size, options, reply):
    data = raw.tcp("PA", 2**32 - 3, 77, reply=reply, options=options, payload=(bytes(range(1, 256)) * 6)[:size])
    assert holds(bench, data)
    assert holds(bench, data + b"padding")  # what follows the packet is padding


def test_random_frames(bench):
    random = np.random.default_rng(1)
    taken = 0
    for _ in range(EXAMPLES):
        size, ends = int(random.integers(0, 80)), random.integers(0, 256, (2, 4), "u1")
        data = bytearray(
            raw.tcp(
                "".join(flag for flag in "FSRPAUEC" if random.random() < 0.4),
                int(random.integers(2**32)),
                int(random.integers(2**32)),
                win=int(random.integers(2**16)),
                options=random.bytes(int(random.integers(0, 11)) * 4),
                payload=random.bytes(size),
                ports=(int(random.integers(3)), int(random.integers(3))),
                addresses=(bytes(ends[0]), bytes(ends[int(random.random() < 0.8)])),
            )
        )
        trusted = random.random() < 0.5
        if random.random() < 0.5:  # damage, mostly in the headers
            for _ in range(int(random.integers(1, 3))):
                data[int(random.integers(12, min(len(data), 60)))] ^= 1 << int(random.integers(8))
        cut = int(random.integers(14, len(data) + 1)) if random.random() < 0.2 else len(data)
        settings = int(random.choice([SETTINGS_WORD_DEFAULT, Setting.CHECKSUM, 0]))
        flags = FrameFlag.CHECKSUM_TRUSTED if trusted else 0
        taken += holds(bench, bytes(data[:cut]), settings=settings, zone=int(random.integers(2**16)), flags=flags)
    assert taken > EXAMPLES // 4


@pytest.mark.parametrize(
    "how",
    [
        {"link": Link.RAW_IP},
        {"captured_bytes": 53},
        {"settings": SETTINGS_WORD_DEFAULT | Setting.OVS},
    ],
)
def test_other_frames_and_zones_are_left_to_the_parser(bench, how):
    assert not holds(bench, raw.tcp("A", 1, 1), **how)


def test_what_the_parser_refuses_is_not_read(bench):
    good = raw.tcp("PA", 1, 1, payload=b"abcdef")
    assert holds(bench, good)
    for at in (*range(14, 34), *range(34, len(good))):
        bad = bytearray(good)
        bad[at] ^= 0x10
        assert not holds(bench, bytes(bad))
    same = raw.tcp("A", 1, 1, ports=(9, 9), addresses=(bytes(4), bytes(4)))
    assert not holds(bench, same)  # nothing tells which way it goes


@pytest.mark.parametrize(
    ("flags", "options", "settings", "is_plain"),
    [
        ("A", b"", 0, True),
        ("PA", TIMESTAMP, 0, True),
        ("AUEC", b"", 0, True),
        ("A", b"\1" * 12, 0, False),
        ("A", b"\1\1\5\12" + bytes(8), 0, False),
        ("A", b"\1" * 4, 0, False),
        ("S", b"", 0, False),
        ("SA", b"", 0, False),
        ("FA", b"", 0, False),
        ("RA", b"", 0, False),
        ("RA", TIMESTAMP, 0, False),
        ("SA", TIMESTAMP, 0, False),
        ("P", b"", 0, False),
        ("A", b"", Setting.ADAPTIVE, False),
    ],
)
def test_plain_is_a_segment_that_tells_nothing_but_its_numbers(bench, flags, options, settings, is_plain):
    data = raw.tcp(flags, 1, 1, options=options)
    read, ours, _ = both(bench, data, settings=SETTINGS_WORD_DEFAULT | settings)
    assert read and bool(ours["plain"] & plain.FOLLOWS) == is_plain


def test_a_frame_of_which_something_is_asked_is_not_plain(bench):
    read, ours, _ = both(bench, raw.tcp("A", 1, 1), action=4096)
    assert read and not ours["plain"]


def test_nothing_is_read_beyond_the_frame(bench):
    """The last page of a mapping, and frames that end with it."""
    block = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    for size in range(12):
        data = raw.tcp("PA", 5, 6, payload=bytes(size))
        start = mmap.PAGESIZE - len(data)
        block[start : mmap.PAGESIZE] = data
        frames, _ = frames_of([data])
        frames["address"] = address + start
        frame = stages.frame_at(u64(frames.ctypes.data)) if not JIT else frames.view(np.recarray)[0]
        row = np.zeros(ROW, np.uint8)
        assert plain.read(bench.views, frame, u64(0), u64(SETTINGS_WORD_DEFAULT), u64(row.ctypes.data))
