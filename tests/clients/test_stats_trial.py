"""Statistics on and off in turn: packets flow both ways either way, in pairs; an interval holds."""

import contextlib

import pytest
from zonetrack.clients import stats_trial
from zonetrack.clients.driver import CheckFailed
from zonetrack.clients.stats_trial import Bench, interval

SECONDS = 0.1


@pytest.mark.parametrize("rules", stats_trial.RULES)
def test_pairs_are_of_packets_that_go_both_ways(rules):
    with contextlib.ExitStack() as house:
        bench = Bench(rules, 20, 64, house)
        pairs = bench.pairs(2, SECONDS)
        assert len(pairs) == 2 and all(one > 0 and other > 0 for one, other in pairs)
        taken = bench.queues.records["rx"]["cursor"]
        assert (taken > 0).all()
        assert 0 < bench.queues.records["rx_packets"].sum() < taken.sum()  # those of the spells without are not counted
        sent = bench.queues.records["tx"]["cursor"]
        assert (sent > 0).all() if rules == "forward" else True


def test_a_process_that_fails_ends_it():
    with contextlib.ExitStack() as house:
        bench = Bench("drop", 5, 64, house)
        bench.worker = lambda number: 1 / 0
        with pytest.raises(CheckFailed, match="failed with exit code 1"):
            bench.pairs(2, SECONDS)


def test_the_interval_of_ratios():
    """Of 60 pairs the median lies between the 23rd and the 38th with 95 % (order statistics of a binomial)."""
    found = interval([(number, 1.0) for number in range(60, 0, -1)])
    assert found == {"ratio": 30.5, "low": 23, "high": 38}
    assert interval([(2.0, 1.0), (3.0, 1.0)]) == {"ratio": 2.5, "low": 2.0, "high": 3.0}
