"""Rules as a plain reading of them has it: dicts, a sort, and a loop; and random rules and packets that often meet.

A packet is a dict of the fields of FIELDS, addresses and labels as numbers of 128 bits; what is missing is 0.
"""

from __future__ import annotations

import numpy as np
from zonetrack.service import rules_compile
from zonetrack.service.rules import BITS, Masked, Rule, Span

IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806


def matches(rule, packet):
    """Return whether a packet is as a rule wants it."""
    for field, wanted in rule.match.items():
        value = packet.get(field, 0)
        if isinstance(wanted, Span):
            if not wanted.low <= value <= wanted.high:
                return False
        elif value & wanted.mask != wanted.value:
            return False
    return True


def met(rules, table, packet):
    """Return the rule that a packet meets in a table; None where it meets none."""
    fit = [rule for rule in rules if rule.table == table and matches(rule, packet)]
    return max(fit, key=lambda rule: rule.priority, default=None)  # the first of the strongest


def fields(packet):
    """Return a packet as FIELDS[1]."""
    return rules_compile.fields(**packet)


# ------------------------------------------------------------------------------------------------ random ones
def _prefix(random, bits, values):
    value = int(random.choice(values))
    length = int(random.integers(0, bits + 1))
    mask = ((1 << length) - 1) << (bits - length)
    return Masked(value & mask, mask)


def _scattered(random, bits, values):
    mask = int(random.integers(1, 1 << min(bits, 32))) & int(random.integers(1, 1 << min(bits, 32)))
    return Masked(int(random.choice(values)) & mask, mask)


def values(random):
    """Return, by field, a few values that rules and packets are made of."""
    few = {field: [int(random.integers(0, 1 << min(bits, 32))) for _ in range(6)] for field, bits in BITS.items()}
    few |= {"eth_type": [IPV4, IPV6, ARP], "protocol": [1, 6, 17, 58], "in_port": [1, 2, 3], "frag": [0, 1, 3]}
    few["src"] += [one << 96 | one for one in few["src"][:3]]
    few["dst"] += [one << 64 for one in few["dst"][:3]]
    few["label"] += [one << 100 | one for one in few["label"][:3]]
    few["ct_state"] = [0, 0x21, 0x22, 0x2A, 0x30, 0x26]
    few["vlan"] = [0, 0x1005, 0x1006, 0x1000]
    return few


def rule(random, few, table=0, fields_max=5):
    """Return a random rule without actions."""
    match = {}
    for field in random.choice(list(BITS), int(random.integers(0, fields_max + 1)), replace=False).tolist():
        bits = BITS[field]
        if field in ("sport", "dport") and random.random() < 0.5:
            low, high = sorted(int(random.choice(few[field])) & 0xFFFF for _ in range(2))
            match[field] = Span(low, high)
        elif random.random() < 0.6:
            match[field] = _prefix(random, bits, [one & (1 << bits) - 1 for one in few[field]])
        else:
            match[field] = _scattered(random, bits, few[field])
    match = {field: one for field, one in match.items() if isinstance(one, Span) or one.mask}
    return Rule(table, int(random.integers(0, 8)) * 100, 0, match)


def rules(random, few, count, tables=1, fields_max=5):
    """Return random rules, no two of which ask for the same with the same priority."""
    made = {}
    while len(made) < count:
        one = rule(random, few, int(random.integers(0, tables)), fields_max)
        made.setdefault(one.identity, one)
    return list(made.values())


def packet(random, few):
    """Return a random packet."""
    return {field: int(random.choice(np.array(few[field], object))) & (1 << bits) - 1 for field, bits in BITS.items()}
