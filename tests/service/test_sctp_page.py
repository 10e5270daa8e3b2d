"""The page of SCTP states is current, and shows every transition."""

import checkout
from zonetrack.kernels.sctp_states import STEPS, TRANSITIONS, Chunk, Sctp
from zonetrack.service import sctp_page
from zonetrack.shm.layout import Way


def test_page_is_current():
    assert checkout.page("sctp-states.md") == sctp_page.page(), "run `make docs`"


def test_every_transition_has_its_row():
    lines = sctp_page.page().splitlines()
    for row in TRANSITIONS:
        assert "| " + " | ".join(sctp_page.cells(row)) + " |" in lines


def test_matrices_are_what_the_kernel_indexes():
    for way in Way:
        rows = [line.strip("|").split("|") for line in sctp_page.matrix(way) if line][2:]
        for state, row in zip(Sctp, rows, strict=True):
            names = [cell.strip() for cell in row]
            steps = [int(STEPS[state, way, chunk]) & 0xFF for chunk in Chunk]
            assert names == [state.name, *(Sctp(step).name if step else "" for step in steps)]


def test_diagram_has_each_change_of_state_once():
    changes = {(row.old, row.new) for row in TRANSITIONS if row.old is not row.new}
    assert len([line for line in sctp_page.diagram() if "-->" in line]) == len(changes)
