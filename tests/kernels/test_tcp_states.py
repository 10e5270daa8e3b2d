import itertools

import numpy as np
import pytest
import tracker
from segments import tcp
from zonetrack.kernels import tcp_states
from zonetrack.kernels.outcome import Outcome, kind_of, reason_of
from zonetrack.kernels.tcp_states import (
    SEGMENTS,
    STEPS,
    TRANSITIONS,
    Flag,
    Handling,
    Segment,
    Tcp,
    Trait,
    Transition,
    compile_transitions,
)
from zonetrack.kernels.timeouts import Timeout
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import ENTRY, SETTINGS_WORD_DEFAULT, Way
from zonetrack.shm.reasons import Reason

FLAGS = {
    Segment.NONE: "",
    Segment.SYN: "S",
    Segment.SYNACK: "SA",
    Segment.FIN: "FA",
    Segment.ACK: "A",
    Segment.RST: "R",
}
LISTED = {row[:3] for row in TRANSITIONS}
UNLISTED = [cell for cell in itertools.product(Tcp, Way, Segment) if cell not in LISTED]


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row.old.name}-{row.way.name}-{row.segment.name}")
def test_row(row):
    step = int(STEPS[row.old, row.way, row.segment])
    assert step & 0xFF == row.new
    assert step >> 8 & 0xFF == row.handling
    assert Timeout(step >> 24).name == f"TCP_{row.new.name}"
    assert row.why


@pytest.mark.parametrize("cell", UNLISTED, ids=lambda cell: "-".join(part.name for part in cell))
def test_what_no_row_mentions_is_invalid_and_changes_nothing(cell):
    state, way, segment = cell
    assert STEPS[cell] == 0
    if (state, way) == (Tcp.NONE, Way.ORIG):
        opener = tcp("c", FLAGS[segment], 1000, 2000)
        assert tracker.opens(tracker.at(opener), u64(int(SETTINGS_WORD_DEFAULT))) != Reason.NONE
    world = tracker.Tracker()
    record = np.zeros(1, ENTRY)
    record[0]["state"] = state
    before = record.tobytes()
    parsed = tcp("c" if way is Way.ORIG else "s", FLAGS[segment], 1000, 2000)
    word = u64(
        tracker.update(
            tracker.at(record),
            u64(way),
            tracker.at(parsed),
            u64(int(SETTINGS_WORD_DEFAULT)),
            u64(0),
            tracker.at(world.verdict),
        )
    )
    assert kind_of(word) == Outcome.INVALID
    assert reason_of(word) == (Reason.INVALID_TCP_FLAGS if segment is Segment.NONE else Reason.TCP_STATE)
    assert record.tobytes() == before


def test_every_cell_beyond_the_states_is_invalid():
    known = np.zeros(STEPS.shape, bool)
    for row in TRANSITIONS:
        known[row[:3]] = True
    assert not STEPS[~known].any() and STEPS[known].all()
    assert Handling.INVALID == 0


def test_steps_are_read_only():
    for array in (STEPS, SEGMENTS):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_cell_has_one_row():
    twice = Transition(Tcp.NONE, Way.ORIG, Segment.SYN, Tcp.CLOSE, Handling.FOLLOW, "again")
    with pytest.raises(AssertionError, match="two rows"):
        compile_transitions((*TRANSITIONS, twice))


@pytest.mark.parametrize("state", [state for state in Tcp if state is not Tcp.NONE])
@pytest.mark.parametrize("way", Way)
def test_a_reset_closes_every_connection(state, way):
    assert STEPS[state, way, Segment.RST] & 0xFF == Tcp.CLOSE


def test_every_state_is_reached_and_left():
    reached = {row.new for row in TRANSITIONS}
    assert reached == set(Tcp) - {Tcp.NONE}
    assert {row.old for row in TRANSITIONS if row.new != row.old} == set(Tcp)


def flags_of(segment):
    """Return every set of flags that counts as a segment."""
    return {flags for flags in range(256) if SEGMENTS[flags] == segment}


def test_flags():
    aside = [Flag.PSH, Flag.ECE, Flag.CWR]
    indifferent = {sum(some) for n in range(4) for some in itertools.combinations(aside, n)}

    def sets(*cores):
        return {core | extra for core in cores for extra in indifferent}

    assert flags_of(Segment.SYN) == sets(Flag.SYN, Flag.SYN | Flag.URG)
    assert flags_of(Segment.SYNACK) == sets(Flag.SYN | Flag.ACK)
    assert flags_of(Segment.FIN) == sets(Flag.FIN | Flag.ACK, Flag.FIN | Flag.ACK | Flag.URG)
    assert flags_of(Segment.ACK) == sets(Flag.ACK, Flag.ACK | Flag.URG)
    assert flags_of(Segment.RST) == sets(Flag.RST, Flag.RST | Flag.ACK)
    assert sum(len(flags_of(segment)) for segment in Segment) == 256


def with_trait(trait):
    """Return the cells of the rows that have a trait."""
    return {row[:3] for row in TRANSITIONS if tcp_states.traits(row) & trait}


def test_traits():
    orig, reply = Way
    assert with_trait(Trait.SYN_ANSWERED) == {(Tcp.SYN_SENT, reply, Segment.RST)}
    assert with_trait(Trait.EXPIRY_STAYS) == {(Tcp.SYN_SENT, way, Segment.SYN) for way in Way}
    assert with_trait(Trait.CLOSE_BEGUN) == {
        (state, way, Segment.FIN) for state in (Tcp.SYN_RECV, Tcp.ESTABLISHED) for way in Way
    }
    assert with_trait(Trait.FIRST_OF_SIDE) == {
        (Tcp.SYN_SENT, orig, Segment.SYN),
        (Tcp.SYN_SENT, reply, Segment.SYN),
        (Tcp.SYN_SENT, reply, Segment.SYNACK),
        (Tcp.SYN_RECV, orig, Segment.SYN),
        (Tcp.SYN_RECV, orig, Segment.SYNACK),
        (Tcp.SYN_RECV, reply, Segment.SYNACK),
    }
    live = with_trait(Trait.LIVE)
    assert with_trait(Trait.ASSURES) <= live
    assert {(old, segment) for old, _, segment in with_trait(Trait.ASSURES)} >= {
        (Tcp.SYN_RECV, Segment.ACK),
        (Tcp.ESTABLISHED, Segment.ACK),
    }
