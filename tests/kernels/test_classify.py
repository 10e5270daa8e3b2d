"""Which rule a packet meets: as a plain reading of the rules has it, for few rules and for many, whatever their masks."""

import numpy as np
import pytest
import reference_rules as reference
from zonetrack.kernels import classify
from zonetrack.kernels.words import u64
from zonetrack.service import rules_compile
from zonetrack.service.rules import Masked, Rule, Span
from zonetrack.shm.layout import DIMENSIONS_MAX

ROWS = np.zeros(DIMENSIONS_MAX, "u8")


def met(generation, table, fields):
    """Return the number of the rule that a packet meets, None when there is none."""
    base, at = u64(generation.ctypes.data), u64(fields.ctypes.data)
    number = int(classify.classify(base, u64(table), at, u64(ROWS.ctypes.data)))
    return None if number == int(classify.NO_RULE) else number


def expected(rules, table, packet):
    """Return the same by the reference."""
    found = reference.met(rules, table, packet)
    return None if found is None else rules_compile.ordered(rules).index(found)


@pytest.mark.parametrize("count", [1, 3, 8, 9, 20, 64, 65, 200])
@pytest.mark.parametrize("seed", range(3))
def test_random_packets_meet_what_the_reference_says(count, seed):
    random = np.random.default_rng(1000 * count + seed)
    few = reference.values(random)
    rules = reference.rules(random, few, count, tables=2 if count > 4 else 1, fields_max=3)
    generation = rules_compile.compile_rules(rules)
    packets = [reference.packet(random, few) for _ in range(60)]
    found = [[met(generation, table, reference.fields(packet)) for packet in packets] for table in (0, 1, 254)]
    assert found == [[expected(rules, table, packet) for packet in packets] for table in (0, 1, 254)]
    assert len({number for row in found for number in row}) > 1


@pytest.mark.parametrize("count", [4, 40])
def test_one_changed_bit_of_a_packet_is_seen(count):
    """A packet made to match a rule exactly meets it, and with any bit of what is asked for changed it does not."""
    random = np.random.default_rng(count)
    few = reference.values(random)
    rules = [one for one in reference.rules(random, few, count) if one.match]
    generation = rules_compile.compile_rules(rules)
    for rule in rules:
        for field, wanted in rule.match.items():
            packet = {name: one[0] for name, one in rule.match.items()}
            changed = packet | {
                field: wanted.high + 1 if isinstance(wanted, Span) else wanted[0] ^ (wanted.mask & -wanted.mask)
            }
            for one in (packet, changed):
                if one.get("sport", 0) <= 0xFFFF and one.get("dport", 0) <= 0xFFFF:
                    assert met(generation, rule.table, reference.fields(one)) == expected(rules, rule.table, one)


@pytest.mark.parametrize("many", [0, 100])
def test_of_equal_priority_the_first_wins_and_the_stronger_before_any(many):
    filling = [Rule(0, 500, 0, {"dport": Masked(port, 0xFFFF)}) for port in range(1000, 1000 + many)]
    first, second = Rule(0, 100, 0, {"sport": Masked(5, 0xFFFF)}), Rule(0, 100, 0, {"dport": Masked(6, 0xFFFF)})
    strong = Rule(0, 101, 0, {"sport": Masked(5, 0xFFFF), "dport": Masked(7, 0xFFFF)})
    rules = [*filling, first, second, strong]
    generation = rules_compile.compile_rules(rules)
    order = rules_compile.ordered(rules)
    for sport, dport, wanted in [(5, 6, first), (4, 6, second), (5, 7, strong), (5, 8, first)]:
        assert order[met(generation, 0, rules_compile.fields(sport=sport, dport=dport))] is wanted
    assert met(generation, 0, rules_compile.fields(sport=4, dport=7)) is None


def test_no_rules_are_met_by_nothing():
    generation = rules_compile.compile_rules([])
    assert met(generation, 0, rules_compile.fields(src=1)) is None


def test_a_thousand_masks():
    """Each rule with a mask of its own: prefixes of both addresses, and a range of ports."""
    random = np.random.default_rng(7)
    rules = []
    for number in range(1000):
        src, dst = 8 + number % 25, 8 + number // 25 % 25
        masks = [(1 << 32) - (1 << 32 - length) for length in (src, dst)]
        low = int(random.integers(0, 65_000))
        match = {
            "eth_type": Masked(0x800, 0xFFFF),
            "src": Masked(int(random.integers(0, 1 << 32)) & masks[0], masks[0] | ((1 << 96) - 1) << 32),
            "dst": Masked(int(random.integers(0, 1 << 32)) & masks[1], masks[1] | ((1 << 96) - 1) << 32),
            "dport": Span(low, low + 500),
        }
        rules.append(Rule(0, int(random.integers(0, 1000)), number, match))
    generation = rules_compile.compile_rules(rules)
    order = rules_compile.ordered(rules)
    for rule in [order[place] for place in random.integers(0, 1000, 40)]:
        packet = {"eth_type": 0x800, "src": rule.match["src"].value, "dst": rule.match["dst"].value}
        packet["dport"] = rule.match["dport"].high
        assert met(generation, 0, reference.fields(packet)) == expected(rules, 0, packet)
