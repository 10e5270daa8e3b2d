"""What is remembered of rules is what a lookup would say, for any packet, and after rules have changed."""

import numpy as np
import pytest
import reference_rules as reference
from zonetrack.kernels import classify, rule_cache
from zonetrack.kernels.words import u64
from zonetrack.service import rules_compile
from zonetrack.service.rules import Masked, Rule
from zonetrack.shm.layout import CACHED, CACHED_MAX, CACHED_WAYS, DIMENSIONS_MAX, LINE_BYTES
from zonetrack.shm.loop import on_a_line

ROWS = np.zeros(DIMENSIONS_MAX, "u8")


class Memory:
    """A worker's memory of rules."""

    def __init__(self):
        self.cache = on_a_line(CACHED, CACHED_MAX)

    @property
    def flows(self):
        """How many flows are remembered."""
        return int(np.count_nonzero(self.cache["what"]))

    def met(self, generation, fields, word=2, table=0):
        """Return the number of the rule that a packet meets, None when there is none."""
        cache, of_table = self.cache.ctypes.data, (generation.ctypes.data, table, fields.ctypes.data)
        numbers = set()
        for foreseen in (0, rule_cache.foresee(*map(u64, (cache, *of_table)))):  # once as it comes, once as in a burst
            numbers.add(int(rule_cache.find(*map(u64, (cache, word, *of_table, ROWS.ctypes.data, foreseen)))))
        (number,) = numbers
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


def test_where_rules_ask_for_more_than_a_line_holds_two_lines_are_a_place():
    every = (1 << 128) - 1
    match = {"dst": Masked(0, every), "ct_state": Masked(0, 1), "mark": Masked(0, 1), "sport": Masked(0, 1)}
    for label, lines in ((0, 1), (1, 2), (1 << 64 | 1, 2)):
        asked = match | {"label": Masked(0, label)}
        rules = [Rule(0, 100, 0, asked | {"src": Masked(i << 64 | i, every)}) for i in range(40)]
        generation, memory = rules_compile.compile_rules([*rules, Rule(0, 1, 0, {})]), Memory()
        hosts = (7, 39, 40, 0xFFFF)
        labels = (0, label, 0, label)  # of one that is not 0, the rules in the middle match nothing
        wanted = [number if number < 40 and not seen else 40 for number, seen in zip(hosts, labels, strict=True)]
        packets = [
            reference.fields({"src": number << 64 | number, "label": seen})
            for number, seen in zip(hosts, labels, strict=True)
        ]
        for _ in range(2):
            assert [memory.met(generation, packet) for packet in packets] == wanted
        assert memory.flows == len(packets) * lines


def test_flows_that_differ_in_what_the_second_line_has_are_two_and_share_their_places():
    """Also beside a part of one line, which writes where the second lines are."""
    every = (1 << 128) - 1
    match = {"dst": Masked(0, every), "ct_state": Masked(0, 1), "mark": Masked(0, 1), "sport": Masked(0, 1)}
    rules = [Rule(0, 100, 0, match | {"src": Masked(5, every), "label": Masked(i, every)}) for i in range(40)]
    few = [Rule(1, 100, 0, {"src": Masked(i, every)}) for i in range(40)]
    generation, memory = rules_compile.compile_rules([*rules, Rule(0, 1, 0, {}), *few, Rule(1, 1, 0, {})]), Memory()
    packets = [reference.fields({"src": 5, "label": label}) for label in range(60)]
    numbers = [min(label, 40) for label in range(60)]
    for _ in range(2):
        assert [memory.met(generation, packet) for packet in packets] == numbers
    assert memory.flows == CACHED_WAYS  # all in one set, two lines each
    at = map(u64, (memory.cache.ctypes.data, generation.ctypes.data, 0, packets[0].ctypes.data))
    set_ = (int(rule_cache.foresee(*at)) - memory.cache.ctypes.data) // CACHED.itemsize
    for way in range(CACHED_WAYS):  # the half of a place is none
        memory.cache[set_ + way] = np.zeros((), CACHED)
        assert [memory.met(generation, packet) for packet in packets[-2:]] == numbers[-2:]
        assert [memory.met(generation, packet) for packet in packets[:3]] == numbers[:3]
    others = [reference.fields({"src": number}) for number in range(200)]
    assert [memory.met(generation, other, table=1) for other in others] == [looked_up(generation, o, 1) for o in others]
    assert [memory.met(generation, packet) for packet in packets] == numbers


def in_one_set(generation, memory, count):
    """Return packets whose flows have the same places."""
    found = {}
    for number in range(1 << 24):
        packet = reference.fields({"src": number})
        at = map(u64, (memory.cache.ctypes.data, generation.ctypes.data, 0, packet.ctypes.data))
        alike = found.setdefault(int(rule_cache.foresee(*at)), [])
        alike.append(packet)
        if len(alike) == count:
            return alike
    raise AssertionError("a hash that parts all flows")


def test_flows_that_share_their_places_have_four_and_any_more_takes_one_of_theirs():
    hosts = [Rule(0, 100, 0, {"src": Masked((10 << 24) + i, (1 << 128) - 1)}) for i in range(40)]
    generation, memory = rules_compile.compile_rules([*hosts, Rule(0, 1, 0, {})]), Memory()
    # few sets make for few packets to be tried
    packets = in_one_set(generation, memory, CACHED_WAYS + 1)
    for packet in packets[:-1]:
        assert memory.met(generation, packet) == 40
    assert memory.flows == CACHED_WAYS
    first = rule_cache.foresee(*map(u64, (memory.cache.ctypes.data, generation.ctypes.data, 0, packets[0].ctypes.data)))
    assert (int(first) - memory.cache.ctypes.data) % LINE_BYTES == 0
    before = memory.cache["what"].copy()
    for packet in packets:
        assert memory.met(generation, packet) == 40
    assert memory.flows == CACHED_WAYS
    assert (memory.cache["what"] != 0).tolist() == (before != 0).tolist()
