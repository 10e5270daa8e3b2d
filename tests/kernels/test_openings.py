"""Openings foretold: what the short way leaves is byte for byte what the whole way would have left, or nothing."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import raw
from bursts import frames_of
from foretold_pairs import NOTHING_ASKED, SACKS, TIMESTAMP, ZONE_NUMBER, Pair
from zonetrack.kernels import delete_list, openings, stages, zones
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.tcp_states import STEPS, Handling, Segment, Tcp, Trait
from zonetrack.kernels.timeouts import Timeout
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import (
    EVENT_RING,
    POLICY,
    QUOTA,
    VERDICT,
    ZONE,
    CtState,
    EventKind,
    Region,
    Setting,
    Status,
    VerdictFlag,
    Way,
)
from zonetrack.shm.reasons import Reason

CONVERSATIONS, PORTS = (1500 if JIT else 60), 150
COUNTED = (Reason.PACKETS, Reason.HIT, Reason.MISS, Reason.INVALID, Reason.BYTES)
SCALED, BOTH = bytes.fromhex("030307"), bytes.fromhex("0402 030307 0101")
SHAKE = (raw.tcp("S", 100), raw.tcp("SA", 500, 101, reply=True), raw.tcp("A", 101, 501))


@pytest.fixture
def pair():
    return Pair(openings.step_on)


def open_(pair, count=3):
    """Track the first packets of a connection."""
    for data in SHAKE[:count]:
        pair.track(data)


def step(new, handling, traits, timeout):
    return new | handling << 8 | traits << 16 | timeout << 24


def test_the_steps_are_those_that_are_done():
    answered = step(Tcp.SYN_RECV, Handling.FOLLOW, Trait.FIRST_OF_SIDE, Timeout.TCP_SYN_RECV)
    completed = step(Tcp.ESTABLISHED, Handling.FOLLOW, Trait.ASSURES | Trait.LIVE, Timeout.TCP_ESTABLISHED)
    reset = step(Tcp.CLOSE, Handling.RESET_LIVE, 0, Timeout.TCP_CLOSE)
    assert STEPS[Tcp.SYN_SENT, Way.REPLY, Segment.SYNACK] == answered
    assert STEPS[Tcp.SYN_RECV, Way.ORIG, Segment.ACK] == completed
    assert [STEPS[Tcp.ESTABLISHED, way, Segment.RST] for way in Way] == [reset, reset]


def test_a_handshake_and_its_reset_go_the_short_way(pair):
    assert not pair.is_taken(SHAKE[0])
    seen = []
    for data in (*SHAKE[1:], raw.tcp("RA", 101, 501)):
        taken = pair.taken
        verdict = pair.track(data)
        assert pair.taken == taken + 1
        seen.append(
            (int(verdict["ct_state"]), int(verdict["state"]), int(verdict["flags"]), int(verdict["timeout_ms"]))
        )
    established, assured = CtState.TRK | CtState.EST, VerdictFlag.COMMITTED | VerdictFlag.ASSURED
    assert seen == [
        (established | CtState.RPL, Tcp.SYN_RECV, VerdictFlag.COMMITTED, 60_000),
        (established, Tcp.ESTABLISHED, assured, 432_000_000),
        (established, Tcp.CLOSE, assured, 10_000),
    ]
    pair.short.settle()


@pytest.mark.parametrize("offered", [b"", SACKS, SCALED, BOTH, b"\1" * 4])
@pytest.mark.parametrize("answered", [b"", SACKS, SCALED, BOTH, TIMESTAMP])
def test_what_both_offer_is_learned(pair, offered, answered):
    pair.track(raw.tcp("S", 100, options=offered))
    assert pair.is_taken(raw.tcp("SA", 500, 101, reply=True, options=answered, win=0))
    assert pair.is_taken(raw.tcp("A", 101, 501, win=700))


def test_a_reset_of_the_answerer_too(pair):
    open_(pair)
    pair.track(raw.tcp("PA", 501, 101, reply=True, payload=b"abc"))
    pair.track(raw.tcp("A", 101, 504))
    assert pair.is_taken(raw.tcp("RA", 504, 101, reply=True))


@pytest.mark.parametrize(
    "data",
    [
        raw.tcp("SA", 500, 102, reply=True),
        raw.tcp("SA", 500, 101 - 70000, reply=True),
        raw.tcp("SAU", 500, 101, reply=True),
        raw.tcp("SA", 500, 101),
        raw.tcp("A", 500, 101, reply=True),
        raw.tcp("RA", 0, 101, reply=True),
        raw.tcp("S", 500, reply=True),
        # a SACK block beyond what is acknowledged
        raw.tcp("SA", 500, 100, reply=True, options=bytes.fromhex("0101050a 00000064 00000065")),
    ],
)
def test_other_answers_go_the_whole_way(pair, data):
    pair.track(raw.tcp("S", 100, options=SACKS))
    assert not pair.is_taken(data)


@pytest.mark.parametrize(
    "data",
    [raw.tcp("A", 500, 101, reply=True), raw.tcp("A", 101, 502), raw.tcp("FA", 101, 501), raw.tcp("RA", 101, 501)],
)
def test_what_else_follows_an_answer_does(pair, data):
    open_(pair, 2)
    assert not pair.is_taken(data)


@pytest.mark.parametrize(
    "data",
    [
        raw.tcp("RA", 100, 501),
        raw.tcp("RA", 102, 501),
        raw.tcp("RA", 101, 0),
        raw.tcp("RA", 101, 502),
        raw.tcp("R", 101),
        raw.tcp("RAU", 101, 501),
        raw.tcp("RA", 500, 101, reply=True),
    ],
)
def test_other_resets_do(pair, data):
    open_(pair)
    assert not pair.is_taken(data)


def test_a_reset_after_a_syn_that_was_let_by_does(pair):
    open_(pair)
    pair.track(raw.tcp("S", 9000))
    assert not pair.is_taken(raw.tcp("RA", 101, 501))


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("status", [Status.TORN, Status.HELPER, Status.FIXED_TIMEOUT, Status.RELATED])
def test_unusual_connections_do(pair, status, count):
    open_(pair, count)
    for bench in (pair.short, pair.whole):
        entries = pair.entries(bench)
        entries["status"][entries["packets"][:, 0] > 0] |= np.uint16(status)
    assert not pair.is_taken([*SHAKE, raw.tcp("RA", 101, 501)][count])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_expired_connections_do(pair, count):
    open_(pair, count)
    expiry = int(pair.entries(pair.short)["expiry_ms"].max())
    assert not pair.is_taken([*SHAKE, raw.tcp("RA", 101, 501)][count], expiry)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_changes_that_somebody_reads_do(pair, count):
    open_(pair, count)
    views = pair.short.views
    ring = np.zeros(1, EVENT_RING)
    ring["wanted"] = EventKind.UPDATE
    before = int(views["events"])
    assert pair.foresees([*SHAKE, raw.tcp("RA", 101, 501)][count])
    views["events"] = ring.ctypes.data
    assert not pair.foresees([*SHAKE, raw.tcp("RA", 101, 501)][count])
    views["events"] = before


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_lock_that_is_held_is_not_waited_for(pair, count):
    open_(pair, count)
    entries = pair.entries(pair.short)
    (record,) = np.flatnonzero(entries["packets"][:, 0])
    entries["lock"][record] = 200
    before = entries.tobytes()
    assert not pair.foresees([*SHAKE, raw.tcp("RA", 101, 501)][count])
    assert entries.tobytes() == before


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_is_followed_where_the_zone_changed(pair, count):
    open_(pair, count)
    views, first = pair.short.views, u64(pair.short.views["parsed"])
    frames, buffers = frames_of([[*SHAKE, raw.tcp("RA", 101, 501)][count]], ZONE_NUMBER)
    pair.look(frames)
    pair.short.table.array(Region.CONTROL, "zones", ZONE)["word"][ZONE_NUMBER] += np.uint64(1 << 32)
    verdicts = np.zeros(24, "u1")
    assert not openings.step_on(views, first, u64(1000), u64(verdicts.ctypes.data))
    del buffers


def test_lengths_of_a_policy_hold(pair):
    pair.set(Region.CONTROL, "policies", POLICY, "timeout_ms", (0, slice(None)), 77_000)
    open_(pair)
    assert pair.taken == 2
    assert pair.track(raw.tcp("RA", 101, 501))["timeout_ms"] == 77_000


def opening(random: np.random.Generator, port: int):
    """Yield (frame, milliseconds that pass before it): how a conversation opens, mostly as it should, and ends."""
    tcp = partial(raw.tcp, ports=(port, 80))
    start = [int(random.choice([100, 2**32 - 1, 2**31 - 1, 0])) for _ in range(2)]
    options = [b"", b"", SACKS, SCALED, BOTH, TIMESTAMP, bytes.fromhex("03030e"), b"\1" * 4]
    windows = [0, 1, 5000, 65535]

    def some(values):
        return values[int(random.integers(len(values)))]

    def number(right):
        if random.random() < 0.93:
            return right
        return right + int(random.choice([-1, 1, -66000, -66001, -70000, 8192, 65535, 2**31, 2**31 - 1, 2**31 + 1]))

    sent = [start[0] + 1, start[1] + 1]
    yield tcp("S", start[0], win=some(windows), options=some(options)), 0
    steps = [("SA", 1), ("A", 0), ("RA", int(random.integers(2)))]
    if random.random() < 0.4:
        steps.insert(2, ("A", int(random.integers(2))))
        steps.insert(3, ("A", 1 - steps[2][1]))
    if random.random() < 0.2:
        steps.insert(
            int(random.integers(len(steps))), (some(["S", "SA", "A", "R", "RA", "FA"]), int(random.integers(2)))
        )
    for flags, side in steps:
        seq = start[side] if "S" in flags else sent[side]
        payload = bytes(some([0, 0, 0, 0, 0, 7]))
        if flags == "A":
            sent[side] += len(payload)
        data = tcp(
            flags + some([*[""] * 9, "P", "E", "U"]),
            number(seq),
            number(sent[1 - side]) if random.random() < 0.97 else 0,
            reply=bool(side),
            win=some(windows),
            options=some(options if "S" in flags else [b"", b"", b"", b"", TIMESTAMP, SACKS]),
            payload=payload,
        )
        for _ in range(some([1, 1, 1, 1, 1, 2, 5])):
            yield data, some([0, 1, 1, 1000, 61_000])


def test_random_openings(pair):
    random = np.random.default_rng(11)
    now_ms = 5000
    usual = int(pair.short.table.array(Region.CONTROL, "zones", ZONE)["settings"][ZONE_NUMBER])
    for number in range(CONVERSATIONS):
        if number % PORTS == 0:
            now_ms += 500_000_000  # what is left of those before has expired
        settings = usual ^ int(random.choice([0, 0, 0, Setting.BE_LIBERAL, Setting.SEQ_CHECK, Setting.LOOSE]))
        pair.set(Region.CONTROL, "zones", ZONE, "settings", ZONE_NUMBER, settings)
        for data, passed_ms in opening(random, 1000 + number % PORTS):
            now_ms += passed_ms
            pair.track(data, now_ms)
        for bench in (pair.short, pair.whole):
            delete_list.run(bench.views)  # the whole way would do so when many wait, so records would differ
    assert pair.tried // 10 < pair.taken < pair.tried // 10 * 9
    for bench in (pair.short, pair.whole):
        bench.settle()


def test_the_burst_takes_the_short_way(pair):
    """The same bursts by either way: verdicts, records and counters are the same."""
    ports = range(2000, 2004)
    bursts = [[raw.tcp(*how, reply=reply, ports=(port, 80)) for port in ports] for how, reply in (
        (("S", 100), False), (("SA", 500, 101), True), (("A", 101, 501), False), (("RA", 101, 501), False)
    )]  # fmt: skip
    found = {}
    for bench, action in ((pair.short, None), (pair.whole, NOTHING_ASKED)):
        before = [bench.counter(reason) for reason in COUNTED]
        verdicts = [bench.track(*burst, now_ms=2000, zone=ZONE_NUMBER, action=action) for burst in bursts]
        counted = [bench.counter(reason) - n for reason, n in zip(COUNTED, before, strict=True)]
        found[action is None] = b"".join(one.tobytes() for one in verdicts), pair.entries(bench).tobytes(), counted
    assert found[True] == found[False]
    assert found[True][2] == [16, 12, 4, 0, 16 * 40]


def by_either_way(pair, *bursts, now_ms=2000):
    """Track bursts on both tables; returns the verdicts, the same on both, as records and counters are."""
    found = []
    for bench, action in ((pair.short, None), (pair.whole, NOTHING_ASKED)):
        before = [bench.counter(reason) for reason in COUNTED]
        verdicts = [bench.track(*burst, now_ms=now_ms, zone=ZONE_NUMBER, action=action) for burst in bursts]
        counted = [bench.counter(reason) - n for reason, n in zip(COUNTED, before, strict=True)]
        found.append((b"".join(one.tobytes() for one in verdicts), pair.entries(bench).tobytes(), counted))
    assert found[0] == found[1]
    return np.concatenate(verdicts)


def syn(port, **how):
    return raw.tcp("S", 100, ports=(port, 80), **how)


def open_first(pair, data, commit=True, nothing_made=False):
    """Have one SYN make its connection by the short way; returns whether it did."""
    frames, buffers = frames_of([data], ZONE_NUMBER, commit)
    pair.look(frames)
    views, zero, one = pair.short.views, u64(0), u64(1)
    if not openings.may_open(u64(views["parsed"])):
        return False
    verdict = np.zeros(1, VERDICT)
    made = openings.open_(views, u64(frames.ctypes.data), zero, one, nothing_made, u64(1000), u64(verdict.ctypes.data))
    zones.return_credit(views)
    del buffers
    return bool(made)


def test_a_syn_makes_its_connection_the_short_way(pair):
    assert open_first(pair, syn(7)) is False  # the zone has no index yet, so nothing could be seen to be absent
    open_(pair)
    assert open_first(pair, syn(7))
    assert open_first(pair, syn(8), nothing_made=True)
    assert pair.short.count(ZONE_NUMBER) == 3
    pair.short.settle()


def test_what_is_there_is_not_made_again(pair):
    open_(pair)
    assert open_first(pair, syn(7))
    assert not open_first(pair, syn(7))


def test_the_same_syn_in_one_burst_makes_one_connection(pair):
    open_(pair)
    verdicts = by_either_way(pair, [syn(9), syn(9), raw.tcp("SA", 1, 101, reply=True, ports=(9, 80)), syn(9)])
    assert len(set(verdicts["record"].tolist())) == 1


def test_what_appears_after_the_glance_is_seen(pair):
    open_(pair)
    frames, buffers = frames_of([syn(7), syn(7)], ZONE_NUMBER)
    views, verdicts = pair.short.views, np.zeros(2, VERDICT)
    for i in range(2):
        at = u64(views["parsed"]) + u64(i) * stages.PARSED_SIZE
        stages.parse(views, u64(frames[i:].ctypes.data), at)
        stages.locate(views, at)
        stages.glance(views, at)
    at = u64(frames.ctypes.data)
    made = [
        openings.open_(views, at, u64(i), u64(2), False, u64(1000), u64(verdicts[i:].ctypes.data)) for i in range(2)
    ]
    assert made == [True, False]
    zones.return_credit(views)
    del buffers


MORE = [Setting.HELPERS, Setting.ADAPTIVE, Setting.HALF_OPEN, Setting.SOURCES]


@pytest.mark.parametrize("setting", MORE)
def test_where_more_is_to_be_done_the_whole_way_does_it(pair, setting):
    open_(pair)
    pair.set(Region.CONTROL, "zones", ZONE, "settings", ZONE_NUMBER, setting)
    assert not open_first(pair, syn(7))


def test_what_is_foretold_or_may_not_be_made_is_not(pair):
    open_(pair)
    assert not open_first(pair, syn(7), commit=False)
    assert not open_first(pair, raw.tcp("SF", 100, ports=(7, 80)))
    pair.set(Region.CONTROL, "zones", ZONE, "expectations", ZONE_NUMBER, 1)
    assert not open_first(pair, syn(7))
    pair.set(Region.CONTROL, "zones", ZONE, "expectations", ZONE_NUMBER, 0)
    assert open_first(pair, syn(7))


def test_limits_hold(pair):
    open_(pair)
    usual = int(pair.short.table.array(Region.CONTROL, "zones", ZONE)["settings"][ZONE_NUMBER])
    pair.set(Region.CONTROL, "zones", ZONE, "settings", ZONE_NUMBER, usual & ~Setting.EARLY_DROP)
    for field in ("limit", "has_limit"):
        pair.set(Region.CONTROL, "quotas", QUOTA, field, ZONE_NUMBER, 5 if field == "limit" else 1)
    verdicts = by_either_way(pair, [syn(port) for port in range(10, 20)], [syn(11), syn(30)])
    assert verdicts["reason"].tolist() == [0] * 4 + [Reason.ZONE_FULL] * 6 + [0, Reason.ZONE_FULL]
    assert not open_first(pair, syn(40))
    pair.short.settle()


def test_over_a_limit_others_are_driven_out_either_way(pair):
    open_(pair)
    for field in ("limit", "has_limit"):
        pair.set(Region.CONTROL, "quotas", QUOTA, field, ZONE_NUMBER, 5 if field == "limit" else 1)
    verdicts = by_either_way(pair, [syn(port) for port in range(10, 14)], [syn(port) for port in range(20, 24)])
    assert not verdicts["reason"].any()
    assert pair.short.count(ZONE_NUMBER) <= 5
    pair.short.settle()
