"""Worlds from seeds, each with kills, repair beside the living, clock jumps and scarce pools: whole at every rest."""

import pytest
from zonetrack.kernels import poll, port_packet, ring, rulebook
from zonetrack.service.ports import packet_rings

from ..interleave.packet_ring import packet_ring
from ..interleave.plays import SEEDS
from ..interleave.rings import client_ring, rules, sleep
from .found import FOUND, RARE
from .reach import Reach
from .rounds import ACCESSES_MIN, Case, Run
from .worlds import DRAWN, WORLDS

EACH = 40


@pytest.mark.parametrize("world", DRAWN)
def test_seeds(world):
    for seed in range(round(EACH * SEEDS)):
        assert Run(world, seed).drawn(1).accesses >= ACCESSES_MIN


def test_a_world_that_goes_on_for_many_rounds():
    run = Run("brimming", 1).drawn(30)
    assert len(run.case.rounds) == 30 and run.killed > 10


@pytest.mark.parametrize("case", FOUND, ids=str)
def test_what_once_went_wrong(case):
    Run(case.world, case.seed).one(case)


def test_repair_that_does_not_have_the_counts():
    """Only where two are dead at once: seeds do not come to it."""
    reach = Reach()
    for case in RARE:
        Run(case.world, case.seed, reach).one(case)
        reach.end_of_seed()
    assert [name for name in reach.missed() if name.startswith("repair._bring_home")] == []


def test_same_seed_same_run():
    one, other = (Run("bursts", 7, Reach()).drawn(2) for _ in range(2))
    assert (one.case, one.accesses, one.killed) == (other.case, other.accesses, other.killed)
    assert one.accesses == Run("bursts", 7).one(one.case).accesses


def test_every_operation_that_may_be_drawn_can_be_run():
    for name in DRAWN:
        for choice in WORLDS[name]().choices:
            case = Case(name, 0, (((choice,), (), ()),), (((), (), (), ()),))
            assert Run(name, 0).one(case).killed == 0


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
    reach = Reach([ring, poll, rulebook, port_packet, packet_rings])
    for seed in range(40):
        for play in (client_ring, sleep, rules, packet_ring):
            play(seed)
        reach.end_of_seed()
    assert len(reach.names) > 15 and reach.missed() == []
