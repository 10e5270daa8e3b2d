import itertools

import pytest
from zonetrack.kernels import ovs_tcp_states, timeouts
from zonetrack.kernels.ovs_tcp_states import (
    HANDLINGS,
    ILLEGAL,
    LIFETIMES,
    LOOSE,
    MOVES,
    OPENINGS,
    SEGMENTS,
    STEPS,
    Handling,
    Mark,
    Peer,
    Side,
)
from zonetrack.kernels.tcp_states import Flag
from zonetrack.kernels.timeouts import Timeout
from zonetrack.kernels.words import u64

PAIRS = list(itertools.product(Peer, Peer))
ALL_MARKS = range(8)
C, S, E, K, F, T = Peer


def after(sender, receiver, marks):
    """Return both states after a segment, and the name of the timeout."""
    step = int(STEPS[sender, receiver, marks])
    return Peer(step & 0xF), Peer(step >> 4 & 0xF), Timeout((step >> 8 & 0xFF) - timeouts.OVS).name


@pytest.mark.parametrize("row", MOVES, ids=lambda row: f"{row.side.name}-{row.mark}-{row.old.name}")
def test_move(row):
    for other in Peer:
        states = (row.old, other) if row.side is Side.SENDER else (other, row.old)
        assert after(*states, row.mark or 0)[row.side] is row.new
    assert row.why


def test_what_no_row_mentions_moves_nobody():
    for sender, receiver in PAIRS:
        for marks in ALL_MARKS:
            new = after(sender, receiver, marks)
            for side, old in ((Side.SENDER, sender), (Side.RECEIVER, receiver)):
                moves = [row for row in MOVES if row.side is side and (row.mark is None or marks & row.mark)]
                if not any(row.old is old for row in moves):
                    assert new[side] is old


@pytest.mark.parametrize("marks", [marks for marks in ALL_MARKS if marks & Mark.RST])
def test_a_reset_ends_both_sides_whatever_else_it_has(marks):
    assert {after(*pair, marks) for pair in PAIRS} == {(T, T, "TCP_CLOSE")}


@pytest.mark.parametrize(
    ("pair", "timeout"),
    [
        ((S, C), "TCP_SYN_RECV"),
        ((E, S), "TCP_SYN_RECV"),
        ((K, S), "TCP_SYN_RECV"),
        ((E, E), "TCP_ESTABLISHED"),
        ((K, E), "TCP_FIN_WAIT"),
        ((F, E), "TCP_FIN_WAIT"),
        ((K, K), "TCP_TIME_WAIT"),
        ((F, K), "TCP_TIME_WAIT"),
        ((F, F), "TCP_CLOSE"),
        ((T, T), "TCP_CLOSE"),
    ],
)
def test_lifetime_follows_from_both_states(pair, timeout):
    for states in (pair, pair[::-1]):
        assert ovs_tcp_states.lifetime(*states).name == timeout
    if pair[0] is not C and pair[1] is not C:
        assert after(*pair, 0) == (*pair, timeout)


def test_every_lifetime_is_used():
    assert {ovs_tcp_states.lifetime(*pair) for pair in PAIRS} == {row.timeout for row in LIFETIMES}
    assert all(row.why for row in (*LIFETIMES, *OPENINGS, *ILLEGAL))


def test_numbers_are_believed_loosely_while_a_side_is_unknown_or_done():
    for sender, receiver in PAIRS:
        loose = receiver is C or sender >= F or receiver >= F
        assert all(bool(STEPS[sender, receiver, marks] & LOOSE) is loose for marks in ALL_MARKS)


def test_a_syn_reopens_what_is_over_and_repeats_what_has_hardly_begun():
    for sender, receiver in PAIRS:
        expected = Handling.FOLLOW
        if sender >= F and receiver >= F:
            expected = Handling.REOPEN
        elif sender <= S:
            expected = Handling.AGAIN
        assert HANDLINGS[sender, receiver] == expected


def test_segments():
    for flags in range(256):
        marks = int(SEGMENTS[flags])
        for name in ("FIN", "ACK", "RST", "SYN"):
            assert bool(marks & Mark[name]) is bool(flags & Flag[name])
        syn, ack, rst = (bool(flags & flag) for flag in (Flag.SYN, Flag.ACK, Flag.RST))
        assert bool(marks & Mark.OPENING) is (syn and not ack)
        illegal = (
            (syn and (rst or flags & Flag.FIN))
            or not (syn or ack or rst)
            or (not ack and flags & (Flag.FIN | Flag.PSH | Flag.URG))
        )
        assert bool(marks & Mark.ILLEGAL) is bool(illegal)


def test_tables_are_read_only():
    for array in (STEPS, HANDLINGS, SEGMENTS):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.parametrize("way", [0, 1])
def test_both_states_stand_in_one_byte(way):
    for sender, receiver in PAIRS:
        state = u64(int(ovs_tcp_states.both(u64(sender), u64(receiver), u64(way))))
        assert state < 256
        assert ovs_tcp_states.sender_of(state, u64(way)) == sender
        assert ovs_tcp_states.sender_of(state, u64(1 - way)) == receiver
