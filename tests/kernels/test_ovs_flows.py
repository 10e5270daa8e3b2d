import itertools
import json
from pathlib import Path

import pytest
import segments
import tracker
from zonetrack.kernels.ovs_flows import (
    FLOWS,
    IS_NEW,
    KINDS,
    TRANSITIONS,
    OvsFlow,
    OvsFlowKind,
    Transition,
    compile_transitions,
)
from zonetrack.kernels.timeouts import OVS, Timeout
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, Setting, Way

OTHER = json.loads((Path(__file__).parents[1] / "data" / "ovs-other-matrix.json").read_text())
SETTINGS = SETTINGS_WORD_DEFAULT | Setting.OVS
LISTED = {(row.kind, row.old, way): row for row in TRANSITIONS for way in row.ways}


@pytest.mark.parametrize(
    "row", TRANSITIONS, ids=lambda row: f"{row.kind.name}-{row.old.name}-{len(row.ways)}{row.ways[0].name}"
)
def test_row(row):
    for way in row.ways:
        step = int(FLOWS[row.kind, row.old, way])
        assert (OvsFlow(step & 0xFF), Timeout((step >> 8 & 0x7F) - OVS)) == (row.new, row.timeout)
        assert bool(step & IS_NEW) is row.is_new
    assert row.why


def test_a_flow_that_began_has_a_row_for_every_packet():
    for kind, way in itertools.product(OvsFlowKind, Way):
        reached = {row.new for row in TRANSITIONS if row.kind is kind}
        assert all((kind, state, way) in LISTED for state in reached)


def test_what_has_no_row_begins_anew():
    for cell in itertools.product(*map(range, FLOWS.shape)):
        assert cell in LISTED or FLOWS[cell] == FLOWS[cell[0], OvsFlow.NONE, Way.ORIG]


def test_a_cell_has_one_row():
    twice = Transition(OvsFlowKind.OTHER, OvsFlow.NONE, (Way.ORIG,), OvsFlow.BOTH, Timeout.UDP_FIRST, False, "again")
    with pytest.raises(AssertionError, match="two rows"):
        compile_transitions((*TRANSITIONS, twice))


def test_tables_are_read_only():
    for array in (FLOWS, KINDS):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_udp_as_live():
    """Each packet's ct_state and time to live in a live Open vSwitch 4.0.90."""
    for steps in OTHER["udp"]:
        world = tracker.Tracker(settings=SETTINGS)
        for step in steps:
            if step["do"].startswith("wait"):
                world.now_ms += round(1000 * float(step["do"].split()[1]))
                continue
            seen = world.track(segments.flow("c" if step["do"].startswith("client") else "s"))
            (row,) = step["table"]
            assert (tracker.OVS_LABELS[seen.label], seen.timeout_s) == (step["ct_state"], row["timeout"]), step["do"]


@pytest.mark.parametrize("protocol", [17, 132, 47, 2, 50])
def test_all_protocols_are_alike(protocol):
    world = tracker.Tracker(settings=SETTINGS)
    seen = [world.track(segments.flow(side, protocol)) for side in "cccscs"]
    assert [tracker.OVS_LABELS[one.label] for one in seen] == ["new", "new", "new", "est|rpl", "est", "est|rpl"]
    assert [one.timeout_s for one in seen] == [60, 60, 60, 30, 30, 30]


def test_queries():
    world = tracker.Tracker(settings=SETTINGS)
    seen = [world.track(segments.query(*packet)) for packet in (("c", 8), ("c", 8), ("s", 0), ("c", 8))]
    assert [tracker.OVS_LABELS[one.label] for one in seen] == ["new", "new", "est|rpl", "est"]
    assert [one.timeout_s for one in seen] == [60, 60, 30, 30]
    assert [one.state for one in seen] == ["FIRST", "FIRST", "BOTH", "BOTH"]


def test_a_datagram_to_oneself_is_no_reply():
    world = tracker.Tracker(settings=SETTINGS)
    alone = segments.flow("c")
    alone[0]["can_reply"] = 0
    assert [world.track(alone).label for _ in range(3)] == ["N>"] * 3
