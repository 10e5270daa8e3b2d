"""A trial of rules: the table it makes, and what it does not let pass."""

import numpy as np
import pytest
from zonetrack.clients import rules_trial
from zonetrack.clients.driver import CheckFailed, Driver
from zonetrack.clients.rules_trial import Ruled, RulesPlan, acl
from zonetrack.clients.scenarios import Hit, Plan
from zonetrack.clients.sender import Sender
from zonetrack.clients.traffic import Packet, write_burst
from zonetrack.clients.trial import new_table
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.service import rules_compile
from zonetrack.shm.layout import CtState

PLAN = RulesPlan(rules=200, connections=64, iterations=4 if JIT else 1)


def test_the_rules_are_as_many_as_asked_and_their_masks_differ():
    rules = acl(1000, 1)
    first = [rule for rule in rules if rule.table == 0]
    assert len(first) == 1000 and rules_compile.check(rules) == []
    masks = {tuple(sorted((name, getattr(one, "mask", None)) for name, one in rule.match.items())) for rule in first}
    assert len(masks) > 300


def test_a_trial_counts_every_packet_in_both_tables():
    ticks = []
    found = rules_trial.conduct(PLAN, ticks.append)
    assert found["packets"] == ticks[-1] == PLAN.packets_count
    names = {f"ns_per_{name}{count}" for name in ("packet", "new_packet") for count in ("", "_one_rule", "_10_rules")}
    assert {*names, "ns_per_packet_100_rules", "ratio_to_one_rule"} < set(found)


def test_a_verdict_that_is_not_the_wanted_one_fails():
    driver, sender = Driver(new_table(Hit(Plan(connections=8))), 1, 32), Sender(1, 8)
    sender.commits(False)
    numbers = np.arange(8, dtype="u8")
    write_burst(sender.stream, u64(numbers.ctypes.data), u64(8), u64(Packet.PROBE))
    Ruled(acl(9, 1)).send(driver, sender, 8, CtState.NEW)
    with pytest.raises(CheckFailed, match="8 of 8 packets were not EST"):
        Ruled(acl(9, 1)).send(driver, sender, 8, CtState.EST)
