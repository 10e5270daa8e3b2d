import random

import numpy as np
import pytest
import segments
import tracker
from hypothesis import given, settings
from hypothesis import strategies as st
from segments import tcp
from zonetrack.kernels import memory, tcp_window
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.tcp_window import PeerFlag
from zonetrack.shm.layout import PARSED
from zonetrack.shm.reasons import Reason

parsed_at = memory.record_at(PARSED)


@kernel
def offers(parsed):
    return tcp_window.offers(parsed_at(parsed))


@kernel
def highest_sack(parsed):
    return tcp_window.highest_sack(parsed_at(parsed))


@kernel
def end_of(parsed):
    return tcp_window.end_of(parsed_at(parsed))


def with_options(wire, ack=0, behind=b""):
    """Return a segment whose options are ``wire``; ``behind`` are the bytes after the header."""
    parsed = tcp("c", "A", 0, ack)
    parsed.header = np.frombuffer(bytes(20) + wire + behind, "u1").copy()
    parsed[0]["l4"] = parsed.header.ctypes.data
    parsed[0]["options_bytes"] = len(wire)
    return parsed


# ---------------------------------------------------------------------------------------------------- options
def naive_options(wire):
    """Yield (kind, body) of each whole option, as RFC 9293 3.1 has them."""
    while wire:
        kind = wire[0]
        if kind == 0:
            return
        if kind == 1:
            wire = wire[1:]
            continue
        if len(wire) < 2 or not 2 <= wire[1] <= len(wire):
            return
        yield kind, wire[2 : wire[1]]
        wire = wire[wire[1] :]


def naive_offers(wire):
    scale, flags = 0, 0
    for kind, body in naive_options(wire):
        if kind == 4 and not body:
            flags |= PeerFlag.SACKS
        if kind == 3 and len(body) == 1:
            flags |= PeerFlag.SCALES
            scale = min(body[0], 14)
    return scale | flags << 8


def naive_sack(wire, ack):
    for kind, body in naive_options(wire):
        if kind == 5 and body and len(body) % 8 == 0:
            for i in range(0, len(body), 8):
                edge = int.from_bytes(body[i + 4 : i + 8], "big")
                if 0 < (edge - ack) % 2**32 < 2**31:
                    ack = edge
            return ack
    return ack


option = st.one_of(
    st.just(b"\x01"),
    st.just(b"\x04\x02"),
    st.builds(lambda scale: bytes((3, 3, scale)), st.integers(0, 255)),
    st.builds(lambda body: bytes((5, 2 + len(body))) + body, st.binary(max_size=33)),
    st.builds(lambda kind, body: bytes((kind, 2 + len(body))) + body, st.integers(0, 255), st.binary(max_size=10)),
    st.binary(max_size=4),
)
options = st.lists(option, max_size=12).map(lambda parts: b"".join(parts)[:40])


@settings(max_examples=300, deadline=None)
@given(options, st.integers(0, 2**32 - 1), st.binary(min_size=8, max_size=8))
def test_options_as_in_the_naive_twin_whatever_lies_behind(wire, ack, behind):
    """What stands behind the options has no say: nothing is read beyond them."""
    parsed = with_options(wire, ack, behind)
    assert offers(tracker.at(parsed)) == naive_offers(wire)
    assert highest_sack(tracker.at(parsed)) == naive_sack(wire, ack)


@pytest.mark.parametrize("scale", [0, 1, 13, 14, 15, 255])
def test_scale_is_14_at_most(scale):
    assert int(offers(tracker.at(with_options(bytes((3, 3, scale)))))) & 0xFF == min(scale, 14)


@pytest.mark.parametrize(
    "wire",
    [b"\x03", b"\x03\x03", b"\x03\x00\x07", b"\x03\x01\x07", b"\x03\x04\x07", b"\x00\x03\x03\x07", b"\x04\x03\x00"],
    ids=bytes.hex,
)
def test_broken_options_offer_nothing(wire):
    assert offers(tracker.at(with_options(wire, behind=b"\x07\x07"))) == 0


def test_sack_blocks_wrap():
    wire = segments.options_bytes("nop nop sack4294967290-5")
    assert highest_sack(tracker.at(with_options(wire, 4294967280))) == 5
    assert highest_sack(tracker.at(with_options(wire, 9))) == 9


@pytest.mark.parametrize(
    ("flags", "length", "end"),
    [("A", 0, 4294967295), ("A", 1, 0), ("S", 0, 0), ("FA", 0, 0), ("FA", 5, 5), ("S", 3, 3), ("R", 0, 4294967295)],
)
def test_end_counts_syn_fin_and_data(flags, length, end):
    assert end_of(tracker.at(tcp("c", flags, 4294967295, length=length))) == end


# ---------------------------------------------------------------------------------------------------- windows
def conversation(seed, packets):
    """Yield the segments of two hosts that lose, repeat, reorder and sometimes lie: side, flags, seq, ack, win, length.

    Numbers are relative to each side's initial sequence number.
    """
    choose = random.Random(seed)
    sent = {"c": 1, "s": 1}
    yield "c", "S", 0, None, choose.choice((0, 1000, 65535)), 0
    yield "s", "SA", 0, 1, choose.choice((0, 1000, 65535)), 0
    yield "c", "A", 1, 1, 1000, 0
    for _ in range(packets):
        side = choose.choice("cs")
        other = "s" if side == "c" else "c"
        length = choose.choice((0, 0, 1, 100, 1460, 9000))
        seq = sent[side] + choose.choice((0, 0, 0, 0, -1, -length, -3000, 1, 2000, -(10**6), 10**8, 2**31))
        ack = sent[other] + choose.choice((0, 0, 0, 0, -1, -1460, -70000, 1, 10**7, -(10**9)))
        flags = choose.choice(("A", "A", "A", "PA", "PA", "FA"))
        yield side, flags, seq, ack, choose.choice((0, 500, 1000, 65535)), length
        sent[side] = max(sent[side], seq + length) if abs(seq - sent[side]) < 10**5 else sent[side]


def play(seed, first, scales, packets=40):
    """Play a conversation with given initial sequence numbers; return what was seen of each segment."""
    world = tracker.Tracker()
    seen = []
    for side, flags, seq, ack, win, length in conversation(seed, packets):
        other = "s" if side == "c" else "c"
        options = f"sackok ws{scales[side]}" if "S" in flags else ""
        ack = 0 if ack is None else first[other] + ack
        seen.append(world.track(tcp(side, flags, first[side] + seq, ack, win, length, options)))
    return seen


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from((2**32 - 1, 2**32 - 5000, 2**31 - 3, 2**31, 77)),
    st.sampled_from((2**32 - 1, 2**32 - 200, 2**31 - 1, 12345)),
    st.integers(0, 14),
)
def test_only_differences_of_sequence_numbers_count(seed, client, server, scale):
    """RFC 9293 3.4: shift all numbers of a side, and every verdict stays what it was."""
    scales = {"c": scale, "s": 14 - scale}
    plain = play(seed, {"c": 1_000_000_000, "s": 2_000_000_000}, scales)
    assert play(seed, {"c": client, "s": server}, scales) == plain


def test_conversations_are_worth_playing():
    """The conversations above meet every reason there is for a sequence number."""
    reasons = {seen.reason for seed in range(40) for seen in play(seed, {"c": 10**9, "s": 2 * 10**9}, {"c": 2, "s": 3})}
    assert reasons >= {
        Reason.NONE,
        Reason.TCP_SEQ_ABOVE,
        Reason.TCP_SEQ_BELOW,
        Reason.TCP_ACK_ABOVE,
        Reason.TCP_ACK_BELOW,
    }


def test_a_window_in_a_syn_is_not_scaled():
    world = tracker.Tracker()
    world.track(tcp("c", "S", 1000, win=1000, options="ws7"))
    world.track(tcp("s", "SA", 5000, 1001, 1000, options="ws7"))
    (connection,) = world.table.values()
    assert connection.peers["peer"]["maxwin"].tolist() == [1000, 1000]
    assert connection.peers["peer"]["maxend"].tolist() == [1001 + 1000, 5001]
    world.track(tcp("c", "A", 1001, 5001, 1000))
    assert connection.peers["peer"]["maxwin"].tolist() == [128000, 1000]
    assert connection.peers["peer"]["maxend"].tolist() == [1001 + 1000, 5001 + 128000]


def test_a_window_of_none_grants_one_byte():
    """A probe of a closed window is part of the connection (RFC 9293 3.8.6.1)."""
    world = tracker.Tracker()
    world.track(tcp("c", "S", 1000, win=1000))
    world.track(tcp("s", "SA", 5000, 1001, 0))
    world.track(tcp("c", "A", 1001, 5001, 1000))
    assert world.track(tcp("c", "A", 1001, 5001, 1000, 1)).label == "E>a"
    assert world.track(tcp("c", "A", 1003, 5001, 1000, 1)).reason is Reason.TCP_SEQ_ABOVE
