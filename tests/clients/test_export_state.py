"""What an exporter leaves to its successor: how far it came, what it told; and nothing that is another table's."""

import os
import threading

import numpy as np
import pytest
from export_marks import noted
from zonetrack.clients.errors import Exit
from zonetrack.clients.events import NOWHERE, Mark
from zonetrack.clients.export_state import State, StateError
from zonetrack.clients.flow_export import TOLD

ROWS = np.array([(5, (7, 1, 700, 50), 1_000), (9, (1, 0, 60, 0), 2_000)], TOLD)
TABLE = 77


@pytest.fixture
def path(tmp_path):
    return tmp_path / "default.ipfix"


@pytest.fixture
def left(path):
    """Leave something."""
    state = State(path)
    assert state.mark == NOWHERE and not len(state.rows_of(TABLE))
    state.note(Mark(3, 40))
    state.keep(ROWS)
    state.note(Mark(3, 41))
    state.close()


def test_a_successor_knows_what_was_told(left, path):
    state = State(path)
    assert state.mark == Mark(3, 41) and state.rows_of(TABLE).tobytes() == ROWS.tobytes()
    state.note(Mark(3, 50))
    state.close()
    again = State(path)
    assert again.mark == Mark(3, 50) and again.rows_of(TABLE).tobytes() == ROWS.tobytes()
    again.close()
    assert os.listdir(path.parent) == [path.name]


def test_how_far_one_is_can_be_seen_while_it_goes_on(path):
    assert noted(path) == NOWHERE
    state = State(path)
    assert noted(path) == NOWHERE
    state.note(Mark(3, 40))
    assert noted(path) == Mark(3, 40)
    state.note(Mark(3, 41))
    assert noted(path) == Mark(3, 41)
    state.close()


def test_what_is_of_another_table_is_not_taken_up(left, path):
    state = State(path)
    assert not len(state.rows_of(TABLE + 1))
    state.note(Mark(4, 1))
    state.close()
    again = State(path)
    assert again.mark == Mark(4, 1) and not len(again.rows_of(TABLE + 1))
    again.close()


def test_a_file_of_something_else_stays_as_it_is(path):
    path.write_text("dear diary")
    with pytest.raises(StateError, match="no state of an exporter"):
        State(path)
    assert path.read_text() == "dear diary"


@pytest.mark.parametrize("left_bytes", [-1, 20])
def test_one_that_was_cut_is_not_believed(left, path, left_bytes):
    os.truncate(path, left_bytes if left_bytes > 0 else path.stat().st_size + left_bytes)
    state = State(path)
    assert state.mark == NOWHERE and not len(state.rows_of(TABLE))
    state.note(Mark(1, 2))
    state.close()
    again = State(path)
    assert again.mark == Mark(1, 2)
    again.close()


def test_a_successor_waits(left, path):
    first, waits, found = State(path), threading.Event(), []
    thread = threading.Thread(target=lambda: found.append(State(path, waits.set)))
    thread.start()
    assert waits.wait(60)
    first.rows_of(TABLE)
    first.keep(ROWS[:1])
    first.note(Mark(3, 99))
    first.close()
    thread.join(60)
    assert found[0].mark == Mark(3, 99) and found[0].rows_of(TABLE).tobytes() == ROWS[:1].tobytes()
    found[0].close()


def test_where_no_file_can_be(tmp_path):
    with pytest.raises(StateError, match="No such file") as raised:
        State(tmp_path / "none" / "x")
    assert raised.value.exit_code == Exit.USAGE
    state = State(tmp_path / "x")
    (tmp_path / "x.new").mkdir()
    with pytest.raises(StateError, match="directory"):
        state.keep(ROWS)
    state.close()
