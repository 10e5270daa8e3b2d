"""Dumps of a full table: figures of each way, and each check that can fail does."""

import numpy as np
import pytest
from zonetrack.clients import dump_trial
from zonetrack.clients.driver import CheckFailed
from zonetrack.clients.dump_trial import TEXTS, TURNS, DumpPlan
from zonetrack.kernels.jit import JIT

PLAN = DumpPlan(connections=20_000 if JIT else 200, rounds=2)


class Client:
    """One whose table has a few connections."""

    def dump(self):
        return np.zeros(3)

    def pages(self):
        return iter(())


def test_a_trial_has_all_figures():
    found = dump_trial.conduct(PLAN, lambda packets: None)
    assert found.keys() >= {"dump_s", "dump_beside_s", "count_ms_p50", "count_ms_p99", "packets_per_second"}
    assert all(found[f"{form}_lines_per_second"] > 0 for form in TEXTS)
    assert found["count_ms_p50"] <= found["count_ms_p99"] and found["counts"] >= 1
    assert all(found[f"packet_rate_fall_percent_{turn}"] <= 100 for turn in TURNS[1:])


def test_turns_go_round():
    assert {dump_trial.turns(number) for number in range(6)} == {
        ("idle", "busy", "dump"),
        ("busy", "dump", "idle"),
        ("dump", "idle", "busy"),
    }


def test_a_dump_that_is_not_whole_is_a_failure():
    assert dump_trial._dump(Client(), 3) > 0
    with pytest.raises(CheckFailed, match="a dump has 3 connections, expected 4"):
        dump_trial._dump(Client(), 4)
    with pytest.raises(CheckFailed, match="ovs: 0 lines, expected 4"):
        dump_trial._write(Client(), "ovs", 4)


def test_a_fall_is_told_beside_the_rate_of_its_own_round():
    result = np.zeros(
        1,
        [
            ("dump_ns", "u8"),
            ("conntrack_ns", "u8"),
            ("ovs_ns", "u8"),
            ("beside_ns", "u8", (3,)),
            ("rates", "f8", (3, 3)),
        ],
    )[0]
    result["dump_ns"] = result["conntrack_ns"] = result["ovs_ns"] = 500_000_000
    result["rates"] = [[100, 98, 96], [50, 50, 48], [200, 180, 190]]
    counts = np.zeros(1, dump_trial.COUNTS)[0]
    counts["count"] = 100
    counts["ns"][:100] = np.arange(100) * 1_000_000
    found = dump_trial.figures(DumpPlan(connections=1_000, rounds=3), result, counts)
    assert found["conntrack_lines_per_second"] == 2_000 and found["packets_per_second"] == 100
    assert (found["packet_rate_fall_percent_busy"], found["packet_rate_fall_percent_dump"]) == pytest.approx((2, 4))
    assert found["count_ms_p99"] == pytest.approx(98.01)
    counts["count"] = 0
    with pytest.raises(CheckFailed, match="before anything was counted"):
        dump_trial.figures(DumpPlan(connections=1_000, rounds=3), result, counts)
