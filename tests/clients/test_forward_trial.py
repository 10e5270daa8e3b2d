"""A row of each topology: every packet comes, or is counted as lost; what is tracked is there."""

import contextlib

import numpy as np
import pytest
import tables
import wires
from eventually import until
from zonetrack.clients import forward_trial
from zonetrack.clients.driver import CheckFailed
from zonetrack.clients.forward_ends import Ends
from zonetrack.clients.forward_trial import Row, Stage
from zonetrack.shm.layout import Life

SECONDS = 0.2


@pytest.fixture
def stage(request):
    if request.param != "vv":
        wires.need()
    with contextlib.ExitStack() as house:
        yield Stage(request.param, 64, house)


@pytest.mark.parametrize("stage", forward_trial.TOPOLOGIES, indirect=True)
def test_packets_go_through_and_are_tracked(stage):
    for batching in (True, False):
        figures = stage.run(Row(7, batching), SECONDS)
        assert figures["unaccounted"] == 0
        assert figures["received"] > 0
        if stage.topology not in ("p", "vn"):
            assert figures["min_us"] <= figures["avg_us"] <= figures["max_us"]
    if "packets_per_busy_second" in figures:  # a burst was measured: one in 64 is, and a run may have fewer
        assert figures["packets_per_busy_second"] * figures["ns_per_packet_busy"] == pytest.approx(1e9)
    live = int(np.count_nonzero(tables.entries(stage.table)["life"] & 0xFF == Life.LIVE))
    assert live == (14 if stage.topology == "pvp" else 7)


@pytest.mark.parametrize("port_kind", ["low", "xdp"])
def test_packets_go_through_wires_of_other_kinds(port_kind):
    wires.need()
    with contextlib.ExitStack() as house:
        stage = Stage("pp", 64, house, port_kind)
        figures = stage.run(Row(7, True), SECONDS)
        assert figures["received"] > 0 and figures["unaccounted"] == 0
        assert stage.queues.records["rx_packets"][0] > 0


def test_what_the_receiver_has_no_room_for_is_its_own_loss():
    """He takes nothing until his ring is full: what the gateway has sent then is lost, and it is not the gateway's."""
    wires.need()
    with contextlib.ExitStack() as house:
        stage = Stage("pp", 64, house, sink_mb=1)
        lost, control = stage.sink_queues.records["rx_dropped"], stage.control

        def sends_first(flows, seconds, rate):
            ends, gone, sent = Ends(stage, flows), stage.gone(), 0
            take, ends._take = ends._take, lambda: 0
            while not lost[0]:
                ends.send(seconds, rate)
                sent += int(control["sent"])
                ends.look()
            until(lambda: take() == 0 and (ends.look() or stage.gone() - gone >= sent))
            control["sent"], control["over"] = sent, 1

        stage.ends = sends_first
        figures = stage.run(Row(7, True), 0.01, rate=2_000.0)
        assert figures["sink_dropped"] > 0 and figures["unaccounted"] == 0
        assert figures["received"] + figures["sink_dropped"] + figures.get("rx_dropped", 0) == figures["sent"]


@pytest.mark.parametrize("stage", ["vv"], indirect=True)
def test_a_rate_is_kept(stage):
    figures = stage.run(Row(5, True), SECONDS, rate=400.0)
    assert 0 < figures["sent"] <= 400 * SECONDS
    assert figures["received"] == figures["sent"]


@pytest.mark.parametrize("stage", ["vv"], indirect=True)
def test_a_process_that_fails_ends_the_run(stage):
    stage.ends = lambda *_: 1 / 0
    with pytest.raises(CheckFailed, match="failed with exit code 1"):
        stage.run(Row(5, True), SECONDS)


def test_rows_stand_side_by_side_and_are_paced_alike():
    said = []
    rows = list(forward_trial.conduct("vv", 64, [3, 9], (True, False), 0.1, said.append))
    assert [(row["flows"], row["batching"]) for row in rows] == [(3, "on"), (3, "off"), (9, "on"), (9, "off")]
    assert all(row["packets_per_second"] > 0 and row["p50_us"] <= row["p99_us"] for row in rows)
    for pair in (rows[:2], rows[2:]):
        most = 0.5 * min(row["packets_per_second"] for row in pair)
        assert all(0 < row["paced_per_second"] <= most for row in pair)
        assert all(row["paced_unaccounted"] == 0 for row in pair)
    assert len(said) == 8


def test_frames_wait_as_long_as_is_asked_for():
    rows = list(forward_trial.conduct("vv", 64, [3], (True, False), 0.1, str, flush_intervals_us=(0, 200)))
    assert [(row["batching"], row["tx_flush_interval_us"]) for row in rows] == [("on", 0), ("on", 200), ("off", 0)]
