"""Header prediction: what the short way leaves is byte for byte what the whole way would have left, or nothing."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import raw
from bursts import frames_of
from foretold_pairs import NOTHING_ASKED, SACKS, TIMESTAMP, ZONE_NUMBER, Pair
from zonetrack.kernels import burst, delete_list, predicted, stages
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.tcp_states import STEPS, Handling, Segment, Tcp, Trait
from zonetrack.kernels.timeouts import Timeout
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import (
    POLICY,
    VERDICT,
    ZONE,
    CtState,
    FrameFlag,
    Region,
    Setting,
    Status,
    VerdictFlag,
    Way,
)
from zonetrack.shm.reasons import Reason

CONVERSATIONS = 100 if JIT else 4
SEGMENTS = 60
COUNTED = (Reason.PACKETS, Reason.HIT, Reason.MISS, Reason.INVALID, Reason.BYTES)


@pytest.fixture
def pair():
    return Pair(predicted.follow)


def test_the_step_is_the_one_that_is_done():
    for way in Way:
        step = (
            Tcp.ESTABLISHED | Handling.FOLLOW << 8 | (Trait.ASSURES | Trait.LIVE) << 16 | Timeout.TCP_ESTABLISHED << 24
        )
        assert STEPS[Tcp.ESTABLISHED, way, Segment.ACK] == step


def test_data_and_acknowledgments_go_the_short_way(pair):
    pair.open()
    for packet in (
        raw.tcp("PA", 101, 501, payload=b"question"),
        raw.tcp("A", 501, 109, reply=True),
        raw.tcp("PA", 501, 109, reply=True, payload=b"answer"),
        raw.tcp("A", 109, 507, options=TIMESTAMP),
    ):
        assert pair.is_taken(packet)
    verdict = pair.track(raw.tcp("A", 507, 109, reply=True))
    assert verdict["ct_state"] == CtState.TRK | CtState.EST | CtState.RPL
    entry = pair.entries(pair.short)[verdict["record"]]
    assert entry["packets"].tolist() == [4, 5]
    pair.short.settle()


def test_what_opens_or_ends_does_not(pair):
    pair.open()
    for packet in (
        raw.tcp("S", 101),
        raw.tcp("FA", 101, 501),
        raw.tcp("A", 501, 102, reply=True),
        raw.tcp("RA", 102, 501),
    ):
        assert not pair.is_taken(packet)


def test_a_bound_that_breaks_is_decided_by_the_whole_way(pair):
    pair.open()
    far = 2**31 - 5
    for seq, ack in ((101 + 8193, 501), (101 - 70000, 501), (101, 502), (101, 501 - 70000), (101 + far, 501)):
        assert not pair.is_taken(raw.tcp("A", seq, ack))
    assert pair.is_taken(raw.tcp("A", 101 + 8192, 501))  # the last that the other side granted


@pytest.mark.parametrize(
    "status",
    [
        Status.TORN,
        Status.HELPER,
        Status.FIXED_TIMEOUT,
        Status.RELATED,
    ],
)
def test_unusual_connections_go_the_whole_way(pair, status):
    pair.open()
    for bench in (pair.short, pair.whole):
        entries = pair.entries(bench)
        entries["status"][entries["packets"][:, 0] > 0] |= np.uint16(status)
    assert not pair.is_taken(raw.tcp("A", 101, 501))


def test_an_expired_connection_is_not_followed(pair):
    pair.open()
    expiry = int(pair.entries(pair.short)["expiry_ms"].max())
    assert pair.is_taken(raw.tcp("A", 101, 501), expiry - 1)
    later = int(pair.entries(pair.short)["expiry_ms"].max())
    assert not pair.is_taken(raw.tcp("A", 101, 501), later)
    assert pair.short.counter(Reason.EXPIRED_ON_LOOKUP) == 1


def test_sack_blocks_go_the_whole_way(pair):
    pair.open(options=SACKS)
    blocks = bytes.fromhex("0101050a") + bytes.fromhex("00000065 00000070")
    assert not pair.is_taken(raw.tcp("A", 501, 101, reply=True, options=blocks))


def test_lengths_of_a_policy_hold(pair):
    pair.set(Region.CONTROL, "policies", POLICY, "timeout_ms", (0, slice(None)), 77_000)
    pair.open()
    assert pair.is_taken(raw.tcp("PA", 101, 501, payload=b"x"))
    assert pair.track(raw.tcp("A", 501, 102, reply=True))["timeout_ms"] == 77_000


def test_the_same_segment_again_and_again_cuts_the_timeout(pair):
    pair.open()
    same = raw.tcp("PA", 101, 501, payload=b"x")
    left = [int(pair.track(same)["timeout_ms"]) for _ in range(300)]
    assert left[0] == 300_000 and left[-1] == 300_000
    acked = [int(pair.track(raw.tcp("A", 501, 102, reply=True))["timeout_ms"]) for _ in range(6)]
    assert acked[0] == 432_000_000 and acked[-1] == 300_000
    assert pair.taken >= 300


def test_nothing_is_followed_where_the_zone_changed(pair):
    pair.open()
    data = raw.tcp("A", 101, 501)
    frames, buffers = frames_of([data], ZONE_NUMBER)
    views, first = pair.short.views, u64(pair.short.views["parsed"])
    for stage in (lambda: stages.parse(views, u64(frames.ctypes.data), first), lambda: stages.locate(views, first)):
        stage()
    stages.glance(views, first)
    pair.short.table.array(Region.CONTROL, "zones", ZONE)["word"][ZONE_NUMBER] += np.uint64(1 << 32)
    verdicts = np.zeros(1, VERDICT)
    assert not predicted.follow(views, first, u64(1000), u64(verdicts.ctypes.data))
    del buffers


def test_where_each_segment_is_one_too_many_the_whole_way_says_so(pair):
    pair.set(Region.CONTROL, "zones", ZONE, "max_retrans", ZONE_NUMBER, 0)
    pair.open()
    assert not pair.is_taken(raw.tcp("A", 101, 501))
    assert pair.track(raw.tcp("PA", 101, 501, payload=b"x"))["timeout_ms"] == 300_000


def test_a_lock_that_is_held_is_not_waited_for(pair):
    pair.open()
    data = raw.tcp("A", 101, 501)
    frames, buffers = frames_of([data], ZONE_NUMBER)
    views, first = pair.short.views, u64(pair.short.views["parsed"])
    stages.parse(views, u64(frames.ctypes.data), first)
    stages.locate(views, first)
    stages.glance(views, first)
    entries = pair.entries(pair.short)
    (record,) = np.flatnonzero(entries["packets"][:, 0])
    entries["lock"][record] = 200
    before = entries.tobytes()
    verdicts = np.zeros(1, VERDICT)
    assert not predicted.follow(views, first, u64(1000), u64(verdicts.ctypes.data))
    assert entries.tobytes() == before
    del buffers


def conversation(random: np.random.Generator, port: int):
    """Yield (frame, milliseconds that pass before it): segments of a conversation that mostly make sense."""
    start = [int(random.choice([100, 2**32 - 50, 2**31 - 20])) for _ in range(2)]
    options = [b"", SACKS, bytes.fromhex("030307"), bytes.fromhex("0402 030307 0101"), bytes.fromhex("03030e")]
    offered = [options[int(random.integers(len(options)))] for _ in range(2)]
    tcp = partial(raw.tcp, ports=(port, 80))
    yield tcp("S", start[0], win=int(random.choice([0, 5000, 65535])), options=offered[0]), 0
    yield tcp("SA", start[1], start[0] + 1, reply=True, win=int(random.integers(2**16)), options=offered[1]), 1
    yield tcp("A", start[0] + 1, start[1] + 1), 1
    sent = [start[0] + 1, start[1] + 1]
    last = None
    for _ in range(SEGMENTS):
        if last is not None and random.random() < 0.15:
            yield last, 3
            continue
        side = int(random.integers(2))
        payload = bytes(int(random.choice([0, 0, 1, 7, 100])))
        seq, ack = sent[side], sent[1 - side]
        odd = random.random()
        if odd < 0.05:
            seq += int(random.choice([-1, 1, -200, 8192, 65535, -70000, 2**31, 2**31 - 1, int(random.integers(2**32))]))
        elif odd < 0.1:
            ack += int(random.choice([-1, 1, -100, -66001, -70000, 2**31, int(random.integers(2**32))]))
        else:
            sent[side] += len(payload)
        flags = str(random.choice(["A"] * 140 + ["PA"] * 140 + ["AU"] * 9 + ["AEC", "P", "S", "SA", "FA", "R", "RA"]))
        extra = [b"", b"", b"", b"", TIMESTAMP, TIMESTAMP, b"\1" * 4]
        extra.append(
            bytes.fromhex("0101050a") + (ack + 5 & 0xFFFFFFFF).to_bytes(4) + (ack + 9 & 0xFFFFFFFF).to_bytes(4)
        )
        last = tcp(
            flags,
            seq,
            ack,
            reply=bool(side),
            win=int(random.choice([0, 1, 500, 8192, 65535])),
            options=extra[int(random.integers(len(extra)))],
            payload=payload,
        )
        yield last, int(random.choice([0, 0, 1, 1, 1000, 1000, 1000, 200_000]))


def test_random_conversations(pair):
    random = np.random.default_rng(7)
    now_ms = 5000
    usual = int(pair.short.table.array(Region.CONTROL, "zones", ZONE)["settings"][ZONE_NUMBER])
    for number in range(CONVERSATIONS):
        settings = usual ^ int(random.choice([0, 0, Setting.BE_LIBERAL, Setting.SEQ_CHECK, Setting.LOOSE]))
        pair.set(Region.CONTROL, "zones", ZONE, "settings", ZONE_NUMBER, settings)
        for data, passed_ms in conversation(random, 1000 + number):
            now_ms += passed_ms
            pair.track(data, now_ms)
        for bench in (pair.short, pair.whole):
            delete_list.run(bench.views)  # the whole way would do so when many wait, so records would differ
    assert pair.tried // 8 < pair.taken < pair.tried // 10 * 9
    for bench in (pair.short, pair.whole):
        bench.settle()


def test_the_burst_takes_the_short_way(pair):
    """A whole burst, by either way: verdicts, records and counters are the same."""
    pair.open()
    packets = [raw.tcp("PA", 101 + 3 * i, 501, payload=b"abc") for i in range(8)]
    packets += [raw.tcp("A", 501, 125, reply=True), raw.tcp("FA", 125, 501)]
    found, counted = [], []
    for bench, action in ((pair.short, None), (pair.whole, NOTHING_ASKED)):
        before = [bench.counter(reason) for reason in COUNTED]
        found.append(bench.track(*packets, now_ms=2000, zone=ZONE_NUMBER, action=action))
        counted.append([bench.counter(reason) - n for reason, n in zip(COUNTED, before, strict=True)])
    assert found[0].tobytes() == found[1].tobytes()
    assert np.array_equal(pair.entries(pair.short), pair.entries(pair.whole))
    assert counted[0] == counted[1] == [10, 10, 0, 0, sum(len(packet) - 14 for packet in packets)]


def unknown(pair, data, commit=False, action=0, expectations=0):
    """Return whether a packet that has no connection was turned away, and the verdict; an ordinary one if not."""
    short = pair.short
    short.table.array(Region.CONTROL, "zones", ZONE)["expectations"][ZONE_NUMBER] = expectations
    frames, buffers = frames_of([data], ZONE_NUMBER, commit)
    frames["action"] = action
    views, first = short.views, u64(short.views["parsed"])
    stages.parse(views, u64(frames.ctypes.data), first)
    stages.locate(views, first)
    stages.glance(views, first)
    verdicts = np.full(VERDICT.itemsize, 0xA5, "u1").view(VERDICT)
    before = pair.entries(short).tobytes()
    taken = predicted.turn_away(views, first, u64(verdicts.ctypes.data))
    assert pair.entries(short).tobytes() == before
    if not taken:
        assert verdicts.tobytes() == b"\xa5" * VERDICT.itemsize
    del buffers
    return bool(taken), verdicts[0]


def test_a_syn_that_may_make_no_connection_is_new_at_once(pair):
    pair.open()
    stranger = raw.tcp("S", 1, ports=(7, 80))
    taken, verdict = unknown(pair, stranger)
    assert taken
    assert verdict == pair.whole.track(stranger, zone=ZONE_NUMBER, commit=False, action=NOTHING_ASKED)[0]
    assert pair.short.track(stranger, zone=ZONE_NUMBER, commit=False)[0] == verdict
    assert pair.short.track(stranger, stranger, zone=ZONE_NUMBER)["flags"].tolist() == [2, 2]
    assert not unknown(pair, stranger)[0]  # it has a connection now


@pytest.mark.parametrize(
    ("flags", "how"),
    [
        ("A", {}),
        ("SA", {}),
        ("SF", {}),
        ("S", {"commit": True}),
        ("S", {"action": 4096}),
        ("S", {"expectations": 1}),
    ],
)
def test_what_else_is_unknown_goes_the_whole_way(pair, flags, how):
    pair.open()
    assert not unknown(pair, raw.tcp(flags, 1, ports=(7, 80)), **how)[0]


def test_what_a_burst_has_made_is_seen_by_what_may_make_nothing(pair):
    """Strangers behind a packet that makes their connection: by then the glance is out of date."""
    pair.open()
    packets = [raw.tcp("S", 1, ports=(7, 80)) for _ in range(3)]
    frames, buffers = frames_of(packets, ZONE_NUMBER, commit=False)
    frames["flags"][1] = FrameFlag.COMMIT
    verdicts = np.zeros(3, VERDICT)
    burst.track_burst(pair.short.views, u64(frames.ctypes.data), u64(3), u64(1000), u64(verdicts.ctypes.data))
    assert verdicts["flags"].tolist() == [0, VerdictFlag.COMMITTED, VerdictFlag.COMMITTED]
    assert verdicts["record"][1] == verdicts["record"][2] != verdicts["record"][0]
    del buffers
