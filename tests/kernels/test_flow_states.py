import itertools
import json
from pathlib import Path

import pytest
import segments
import tracker
from zonetrack.kernels.flow_states import (
    FLOWS,
    KINDS,
    TRANSITIONS,
    Flow,
    FlowKind,
    Transition,
    compile_transitions,
)
from zonetrack.kernels.timeouts import DEFAULTS_S, Timeout
from zonetrack.shm.layout import Way

OTHER = json.loads((Path(__file__).parents[1] / "data" / "netfilter-other-matrix.json").read_text())
CELLS = {(row.kind, row.old, way, settled): row for row in TRANSITIONS for way in row.ways for settled in row.settled}
UDP, UDP_LITE, GRE, SCTP, DCCP, ESP = 17, 136, 47, 132, 33, 50


@pytest.mark.parametrize(
    "row", TRANSITIONS, ids=lambda row: f"{row.kind.name}-{row.old.name}-{len(row.ways)}{row.ways[0].name}"
)
def test_row(row):
    for way, settled in itertools.product(row.ways, row.settled):
        step = int(FLOWS[row.kind, row.old, way, int(settled)])
        assert (Flow(step & 0xFF), Timeout(step >> 8 & 0xFF)) == (row.new, row.timeout)
        one_way = row.kind is FlowKind.DATAGRAM and row.new is Flow.UNREPLIED
        assert Timeout(step >> 16) == (Timeout.UDP_ONE_WAY_MAX if one_way else row.timeout)
    assert row.why


def test_a_flow_that_began_has_a_row_for_every_packet():
    for kind, way, settled in itertools.product(FlowKind, Way, (False, True)):
        reached = {row.new for row in TRANSITIONS if row.kind is kind}
        assert all((kind, state, way, settled) in CELLS for state in reached)
    assert not FLOWS[:, Flow.NONE, Way.REPLY].any()  # a reply opens nothing


def test_a_cell_has_one_row():
    twice = Transition(FlowKind.PLAIN, Flow.NONE, (Way.ORIG,), (True,), Flow.STREAM, Timeout.UDP, "again")
    with pytest.raises(AssertionError, match="two rows"):
        compile_transitions((*TRANSITIONS, twice))


def test_flows_are_read_only():
    for array in (FLOWS, KINDS):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_udp_as_the_live_kernel():
    world = tracker.Tracker()
    labels = {"NEW/orig": "N>", "ESTABLISHED/orig": "E>", "ESTABLISHED/reply": "E<"}
    for who, verdict, (entry,) in OTHER["udp"]:
        if who.startswith("c after"):
            world.now_ms += 2200
        seen = world.track(segments.flow(who[0], UDP))
        _, timeout_s, flags = entry
        assert (seen.label.rstrip("a"), seen.timeout_s) == (labels[verdict], timeout_s)
        assert (seen.assured, seen.unreplied) == ("ASSURED" in flags, "UNREPLIED" in flags)


def test_two_seconds_are_not_yet_a_conversation():
    world = tracker.Tracker()
    world.track(segments.flow("c"))
    world.track(segments.flow("s"))
    world.now_ms += 2000
    assert world.track(segments.flow("c"))[:4] == ("E>", "REPLIED", 30, False)
    world.now_ms += 1
    assert world.track(segments.flow("c"))[:4] == ("E>a", "STREAM", 120, True)


@pytest.mark.parametrize(("cap_s", "left_s"), [(0, [30] * 5), (70, [30, 30, 30, 10, 30]), (12, [12] * 5)])
@pytest.mark.parametrize("protocol", [UDP, UDP_LITE])
def test_one_way_traffic_keeps_an_entry_as_long_as_it_may(protocol, cap_s, left_s):
    world = tracker.Tracker()
    world.policy[0]["timeout_ms"][Timeout.UDP_ONE_WAY_MAX] = 1000 * cap_s
    for left in left_s:
        assert world.track(segments.flow("c", protocol))[:3] == ("N>", "UNREPLIED", left)
        world.now_ms += 20_000


def test_an_answer_ends_the_cap():
    world = tracker.Tracker()
    world.policy[0]["timeout_ms"][Timeout.UDP_ONE_WAY_MAX] = 12_000
    assert [world.track(segments.flow(side)).timeout_s for side in "csc"] == [12, 30, 30]


def test_a_late_answer_is_still_only_an_answer():
    world = tracker.Tracker()
    world.track(segments.flow("c"))
    world.now_ms += 10_000
    assert world.track(segments.flow("s"))[:4] == ("E<", "REPLIED", 30, False)
    assert world.track(segments.flow("s"))[:4] == ("E<a", "STREAM", 120, True)


@pytest.mark.parametrize(
    ("protocol", "timeouts_s", "assured"),
    [
        (UDP, (30, 30, 30, 30, 120), True),
        (UDP_LITE, (30, 30, 30, 30, 120), True),
        (GRE, (30, 30, 30, 180, 180), True),
        (SCTP, (600,) * 5, False),
        (DCCP, (600,) * 5, False),
        (ESP, (600,) * 5, False),
    ],
)
def test_protocols(protocol, timeouts_s, assured):
    world = tracker.Tracker()
    seen = [world.track(segments.flow(side, protocol)) for side in "ccsc"]
    world.now_ms += 2001
    seen.append(world.track(segments.flow("s", protocol)))
    assert [one.label.rstrip("a") for one in seen] == ["N>", "N>", "E<", "E>", "E<"]
    assert tuple(one.timeout_s for one in seen) == timeouts_s
    assert seen[-1].assured is assured


def test_every_other_protocol_as_the_live_kernel():
    probed = [(protocol, entries[0][1]) for protocol, verdict, entries in OTHER["ip_protos"] if verdict == "NEW/orig"]
    assert len(probed) > 100
    for protocol, timeout_s in probed:
        if protocol == SCTP:
            continue  # has states of its own there
        seen = tracker.Tracker().track(segments.flow("c", protocol))
        assert seen.label == "N>" and abs(seen.timeout_s - timeout_s) <= 1, protocol


def test_kinds():
    assert {protocol for protocol in range(256) if KINDS[protocol] != FlowKind.PLAIN} == {1, 17, 47, 58, 136}
    assert DEFAULTS_S[Timeout.GENERIC] == 600


def test_a_second_datagram_to_oneself_is_a_reply():
    world = tracker.Tracker()
    alone = segments.flow("c")
    alone[0]["can_reply"] = 0
    assert [world.track(alone).label for _ in range(3)] == ["N>", "E<", "E<"]
