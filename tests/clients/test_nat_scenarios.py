"""The scenarios of translated traffic on paper: their phases, stages and numbers."""

import pytest
from zonetrack.clients.nat_scenarios import NAT_SCENARIOS, NatCommits, NatPlan, Unnat
from zonetrack.clients.trips import Leg
from zonetrack.shm.layout import CtState, Nat


def test_nat_commits_and_then_answers():
    scenario = NatCommits(NatPlan(connections=10, addresses=3, ports=(1024, 2047)))
    commit, reply = scenario.phases(0)
    assert [phase.leg for phase in (commit, reply)] == [Leg.SYN, Leg.SYN_ACK]
    (stage,) = commit.stages
    assert stage.commit and stage.action["nat"] == Nat.APPLY | Nat.SOURCE
    assert stage.action["nat_last"][0][1] - stage.action["nat_first"][0][1] == 2
    assert stage.action["nat_ports"][0].tolist() == [1024, 2047]
    assert scenario.ports == 3 * 1024


def test_unnat_misses_four_times_and_translates_twice():
    scenario = Unnat(NatPlan(connections=10))
    *_, packet, miss = scenario.phases(0)
    found = [stage.zone for stage in packet.stages if stage.has_record]
    missing = [stage.zone for stage in packet.stages if not stage.has_record]
    assert (found, missing) == ([4, 5], [0, 1, 2, 3])
    assert [stage.zone for stage in miss.stages] == missing
    assert not any(stage.commit for stage in miss.stages)
    assert {stage.ct_state for stage in miss.stages} == {CtState.TRK | CtState.NEW}
    assert scenario.figures({"miss": 100.0}.__getitem__) == {"ns_per_miss_stage": 25.0}


@pytest.mark.parametrize("name", NAT_SCENARIOS)
def test_no_two_workers_and_no_two_zones_make_the_same_connection(name):
    scenario = NAT_SCENARIOS[name](NatPlan(threads=7, connections=100))
    made = []
    for index in range(7):
        for phase in scenario.phases(index):
            if phase.leg is Leg.SYN:
                made += [
                    (stage.zone, phase.first + i) for stage in phase.stages if stage.commit for i in range(phase.count)
                ]
    assert len(made) == len(set(made)) == scenario.held
    counts = [sum(zone == wanted for zone, _ in made) for wanted in range(len(scenario.zone_counts))]
    assert counts == scenario.zone_counts


def test_what_is_filled_is_a_part_of_all_ports():
    scenario = NatCommits(NatPlan(connections=50, addresses=2, ports=(1, 100), fill=99))
    assert (scenario.ports, scenario.filled, scenario.held) == (200, 198, 198)
