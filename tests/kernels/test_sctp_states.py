"""Every row does what it says, nothing else does anything, and the table is the live kernel's."""

import itertools

import pytest
from zonetrack.kernels.sctp_states import (
    CHUNKS,
    NUMBERS,
    STEPS,
    TRANSITIONS,
    Chunk,
    Sctp,
    Transition,
    compile_transitions,
    expand,
)
from zonetrack.kernels.timeouts import Timeout
from zonetrack.shm.layout import Way

CELLS = expand(TRANSITIONS)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(part.name for part in cell))
def test_each_case_of_a_row(cell):
    step, row = int(STEPS[cell]), CELLS[cell]
    assert (Sctp(step & 0xFF), Timeout(step >> 8).name) == (row.new, f"SCTP_{row.new.name}")
    assert row.why


def test_everything_else_is_invalid():
    for state, way, chunk in itertools.product(range(STEPS.shape[0]), Way, range(STEPS.shape[2])):
        assert bool(STEPS[state, way, chunk]) == ((state, way, chunk) in CELLS)


def test_no_row_is_in_vain():
    used = set(CELLS.values())
    assert [row for row in TRANSITIONS if row not in used] == []


def test_a_reply_opens_nothing():
    assert not STEPS[Sctp.NONE, Way.REPLY].any()


def test_an_association_that_began_has_a_row_for_every_chunk():
    begun = [state for state in Sctp if state not in (Sctp.NONE, Sctp.HEARTBEAT_SENT)]
    for state, way, chunk in itertools.product(begun, Way, Chunk):
        assert STEPS[state, way, chunk]


def test_every_state_is_reached():
    assert {row.new for row in TRANSITIONS} == set(Sctp) - {Sctp.NONE}


def test_a_case_has_one_row():
    twice = Transition(Sctp.ESTABLISHED, (Way.REPLY,), (Chunk.ABORT,), Sctp.CLOSED, "again")
    with pytest.raises(AssertionError, match="two rows"):
        compile_transitions((*TRANSITIONS, twice))


def test_chunks_by_their_type():
    assert {number: Chunk(int(chunk)) for number, chunk in enumerate(CHUNKS) if chunk != Chunk.OTHER} == NUMBERS


def test_tables_are_read_only():
    for array in (STEPS, CHUNKS):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
