"""Worlds from seeds, each with kills, repair beside the living, clock jumps and scarce pools: whole at every rest."""

import pytest
from zonetrack.kernels import openings, poll, port_frames, port_packet, port_xdp, predicted, ring, rulebook
from zonetrack.service.ports import packet_rings, xdp_rings

from ..interleave.frame_ring import frame_ring
from ..interleave.packet_ring import packet_ring
from ..interleave.plays import SEEDS, Fault
from ..interleave.rings import client_ring, rules, sleep
from ..interleave.xdp_rings import xdp_ring
from . import both, pairs  # noqa: F401 - they register the worlds and orders of some cases
from .found import FOUND
from .reach import Reach
from .rounds import ACCESSES_MIN, Actor, Case, Run
from .worlds import DRAWN, WORLDS

EACH = 40


@pytest.mark.parametrize("world", DRAWN)
def test_seeds(world):
    for seed in range(round(EACH * SEEDS)):
        assert Run(world, seed).drawn(1).accesses >= ACCESSES_MIN


def test_a_world_that_goes_on_for_many_rounds():
    run = Run("brimming", 1).drawn(30)
    assert len(run.case.rounds) == 31 and run.killed > 10  # and one more, in which it drains


@pytest.mark.parametrize("case", FOUND, ids=str)
def test_what_once_went_wrong(case):
    Run(case.world, case.seed).one(case)


def test_what_does_not_come_home_is_found(monkeypatch):
    """A case ends in a table in which nothing is left: connections, counts, segments, expectations."""
    monkeypatch.setattr(Actor, "prune", lambda self: None)
    with pytest.raises(Fault, match="expectations are left"):
        for seed in range(50):
            Run("foretold", seed).drawn(1)


def test_same_seed_same_run():
    one, other = (Run("bursts", 7, Reach()).drawn(2) for _ in range(2))
    assert (one.case, one.accesses, one.killed) == (other.case, other.accesses, other.killed)
    assert one.accesses == Run("bursts", 7).one(one.case).accesses


def test_every_operation_that_may_be_drawn_can_be_run():
    for name in DRAWN:
        for choice in dict.fromkeys(WORLDS[name]().choices):
            case = Case(name, 0, (((choice,), (), ()),), (((), (), (), ()),))
            assert Run(name, 0).one(case).killed == 0


def test_conversations_go_each_short_way(monkeypatch):
    """And now and then not: what a way says that was not taken is said of something that has changed."""
    said = set()

    def note(room, name):
        way = getattr(room, name)

        def noted(*about):
            answer = way(*about)
            said.add((name, bool(answer)))
            return answer

        monkeypatch.setattr(room, name, noted)

    ways = (
        (predicted, ("follow", "turn_away", "hold")),
        (openings, ("step_on", "open_", "_answer", "_is_exact", "hold")),
    )
    for room, names in ways:
        for name in names:
            note(room, name)
    wanted = {(name, True) for _, names in ways for name in names} | {("hold", False)}
    for seed in range(400):
        Run("conversations", seed).drawn(1)
        if wanted <= said:
            break
    assert wanted - said == set()


def test_branches_of_repair_are_reached():
    """A few hundred seeds reach nearly all; the report of a long run says which, and by how many."""
    reach = Reach()
    for seed in range(15 * len(DRAWN)):
        Run(DRAWN[seed % len(DRAWN)], seed, reach).drawn(1)
        reach.end_of_seed()
    assert len(reach.names) > 100 and len(reach.missed()) < 0.4 * len(reach.names)  # rings have worlds of their own
    assert sum(1 for count in reach.steps if count) > 8


def test_what_lies_beside_the_table_is_reached():
    """Each labelled access of rings and rules, and each arm of who goes on in a ring that the system shares."""
    reach = Reach([ring, poll, rulebook, port_packet, port_frames, port_xdp, packet_rings, xdp_rings])
    for seed in range(600):
        for play in (client_ring, sleep, rules, packet_ring, frame_ring, xdp_ring):
            play(seed)
        reach.end_of_seed()
        if not reach.missed():
            break
    assert len(reach.names) > 30 and reach.missed() == []
