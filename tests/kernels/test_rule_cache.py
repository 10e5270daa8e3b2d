"""What is remembered of rules is what a lookup would say, for any packet, and after rules have changed."""

import numpy as np
import pytest
import reference_rules as reference
from zonetrack.kernels import classify, rule_cache
from zonetrack.kernels.words import u64
from zonetrack.service import rules_compile
from zonetrack.service.rules import Masked, Rule
from zonetrack.shm.layout import CACHED, CACHED_MAX, DIMENSIONS_MAX

ROWS = np.zeros(DIMENSIONS_MAX, "u8")


class Memory:
    """A worker's memory of rules."""

    def __init__(self):
        self.cache = np.zeros(CACHED_MAX, CACHED)

    @property
    def flows(self):
        """How many flows are remembered."""
        return int(np.count_nonzero(self.cache["what"]))

    def met(self, generation, fields, word=2, table=0):
        """Return the number of the rule that a packet meets, None when there is none."""
        at = (self.cache.ctypes.data, word, generation.ctypes.data, table, fields.ctypes.data, ROWS.ctypes.data)
        number = int(rule_cache.find(*map(u64, at)))
        return None if number == int(classify.NO_RULE) else number


def looked_up(generation, fields, table=0):
    """Return the same without any memory."""
    at = (generation.ctypes.data, table, fields.ctypes.data, ROWS.ctypes.data)
    number = int(classify.classify(*map(u64, at)))
    return None if number == int(classify.NO_RULE) else number


@pytest.mark.parametrize("count", [3, 9, 65])
@pytest.mark.parametrize("seed", range(2))
def test_random_packets_meet_what_a_lookup_says_each_time(count, seed):
    random = np.random.default_rng(1000 * count + seed)
    few = reference.values(random)
    generation = rules_compile.compile_rules(reference.rules(random, few, count, tables=2, fields_max=3))
    packets = [reference.fields(reference.packet(random, few)) for _ in range(60)]
    memory = Memory()
    for _ in range(2):
        for table in (0, 1, 200):
            found = [memory.met(generation, packet, table=table) for packet in packets]
            assert found == [looked_up(generation, packet, table) for packet in packets]


def prefixes(count, first=0):
    """Return rules for a source network each, and one for all."""
    nets = [Rule(0, 100, 0, {"src": Masked((10 << 24) + (first + i << 8), (1 << 128) - 256)}) for i in range(count)]
    return [*nets, Rule(0, 1, 0, {})]


def test_a_flow_is_looked_up_once_and_what_is_not_asked_for_makes_no_other():
    generation, memory = rules_compile.compile_rules(prefixes(40)), Memory()
    for port in range(50):
        one = reference.fields({"src": (10 << 24) + (7 << 8) + port, "sport": port, "tcp_flags": port})
        assert memory.met(generation, one) == looked_up(generation, one)
    assert memory.flows == 1
    assert memory.met(generation, reference.fields({"src": 10 << 24})) == 0
    assert memory.flows == 2


def test_that_nothing_matches_is_remembered_too():
    generation, memory = rules_compile.compile_rules(prefixes(40)[:-1]), Memory()
    for _ in range(2):
        assert memory.met(generation, reference.fields({"src": 11 << 24})) is None
    assert memory.flows == 1


def test_other_rules_are_met_as_soon_as_they_hold():
    before, after = (rules_compile.compile_rules(prefixes(40, first)) for first in (0, 5))
    memory, packet = Memory(), reference.fields({"src": (10 << 24) + (6 << 8)})
    assert memory.met(before, packet, 2) == 6
    assert memory.met(after, packet, 5) == 1
    assert memory.met(before, packet, 6) == 6


def test_few_rules_are_not_remembered():
    generation, memory = rules_compile.compile_rules(prefixes(4)), Memory()
    assert memory.met(generation, reference.fields({"src": 10 << 24})) == 0
    assert memory.flows == 0
