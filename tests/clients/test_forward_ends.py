"""Both ends in one process: what is sent is taken, sent back where it is to be, and has a processor of its own."""

import contextlib
import os

import pytest
from zonetrack.clients import forward_ends
from zonetrack.clients.forward_ends import Ends
from zonetrack.clients.forward_trial import SLOTS, Row, Stage
from zonetrack.service import crew


@pytest.fixture
def stage():
    with contextlib.ExitStack() as house:
        yield Stage("vv", 64, house)


def test_so_many_are_sent_as_there_is_room_for_and_time(stage, monkeypatch):
    monkeypatch.setattr(forward_ends, "SETTLE_S", 0.05)
    ends, sent = Ends(stage, 3), 0
    for _ in range(SLOTS):
        ends.send(0.05, 0.0)  # nobody takes them
        assert stage.control["elapsed_ns"] >= 50_000_000
        if not stage.control["sent"]:
            break
        sent += int(stage.control["sent"])
    assert sent == SLOTS


def test_what_is_lost_is_not_waited_for_for_long(stage, monkeypatch):
    monkeypatch.setattr(forward_ends, "SETTLE_S", 0.05)
    ends = Ends(stage, 3)
    ends.run(0.05, 1_000.0)
    assert 0 < stage.control["sent"] <= 50 and stage.control["over"] == 1


def test_the_gateway_has_a_processor_of_its_own_where_there_are_two(stage):
    kept = crew.shared(forward_ends.np.dtype("u8"), 2)
    run_gateway, run_ends = stage.gateway, stage.ends

    def note(place, run):
        def noted(*given):
            run(*given)
            kept[place] = sum(1 << one for one in os.sched_getaffinity(0))

        return noted

    stage.gateway, stage.ends = note(0, run_gateway), note(1, run_ends)
    assert stage.run(Row(3, True), 0.05)["unaccounted"] == 0
    everywhere = os.sched_getaffinity(0)
    assert int(kept[0]) | int(kept[1]) == sum(1 << one for one in everywhere)
    assert len(everywhere) == 1 or int(kept[0]) & int(kept[1]) == 0
