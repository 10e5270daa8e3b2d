"""The page of TCP states is current, and shows every transition."""

import checkout
from zonetrack.kernels.tcp_states import TRANSITIONS, Segment, Tcp
from zonetrack.service import pages


def test_page_is_current():
    assert checkout.page("tcp-states.md") == pages.page(), "run `make docs`"


def test_every_transition_has_its_row():
    lines = pages.page().splitlines()
    for row in TRANSITIONS:
        cells = (*(cell.name for cell in row[:-1]), row.why)
        assert "| " + " | ".join(cells) + " |" in lines


def test_matrix_is_empty_where_no_row_leads():
    rows = [line.strip("|").split("|") for line in pages.matrix() if line]
    cells = [cell.strip() for row in rows[2:] for cell in row[1:]]
    assert len(cells) == len(Tcp) * 2 * (len(Segment) - 1)
    assert len([cell for cell in cells if cell]) == len(TRANSITIONS)


def test_diagram_has_each_change_of_state_once():
    changes = {(row.old, row.new) for row in TRANSITIONS if row.old is not row.new}
    assert len([line for line in pages.diagram() if "-->" in line]) == len(changes)
