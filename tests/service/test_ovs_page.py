"""The page of the `ovs` profile is current, and shows every row; its table of new states is what was measured."""

import json
from pathlib import Path

import checkout
from zonetrack.kernels.ovs_flows import TRANSITIONS
from zonetrack.kernels.ovs_tcp_states import ILLEGAL, LIFETIMES, MOVES, OPENINGS, Mark, Peer
from zonetrack.service import ovs_page
from zonetrack.shm.layout import Way

MATRIX = json.loads((Path(__file__).parents[1] / "data" / "ovs-tcp-matrix.json").read_text())


def test_page_is_current():
    assert checkout.page("ovs-states.md") == ovs_page.page(), "run `make docs`"


def test_every_row_is_there():
    text = ovs_page.page()
    for row in (*MOVES, *OPENINGS, *LIFETIMES, *ILLEGAL, *TRANSITIONS):
        assert f" | {row.why} |" in text


def test_every_pair_of_states_that_was_measured_is_reached():
    measured = {
        (cell[when]["state_orig"], cell[when]["state_reply"])
        for cell in MATRIX
        for when in ("before", "after")
        if cell[when]
    }
    assert measured <= {(orig.name, reply.name) for orig, reply in ovs_page.reached()}


def test_new_states():
    established, closing = (Peer.ESTABLISHED, Peer.ESTABLISHED), (Peer.ESTABLISHED, Peer.CLOSING)
    assert ovs_page.after(established, Way.REPLY, Mark.FIN | Mark.ACK) == closing
    assert ovs_page.after(closing, Way.ORIG, Mark.ACK) == (Peer.ESTABLISHED, Peer.FIN_WAIT_2)
    assert ovs_page.after_syn(established, Way.ORIG) == "ESTABLISHED/ESTABLISHED"
    assert ovs_page.after_syn((Peer.SYN_SENT, Peer.CLOSED), Way.REPLY) == "new, SYN_SENT/SYN_SENT"
    assert ovs_page.after_syn((Peer.TIME_WAIT, Peer.TIME_WAIT), Way.REPLY) == "another"
    rows = [line for line in ovs_page.matrix() if line.startswith("| ")][2:]
    assert len(rows) == len(ovs_page.reached())
