"""Rules, a line each: what is written can be read again, and each complaint names its line."""

import numpy as np
import pytest
import reference_rules
from zonetrack.service import rules_text
from zonetrack.service.rules import Masked, Names, Output, Rule, RulesError

NAMES = Names({"lan": 1, "wan": 2})
TEXT = """\
cookie=0x7,table=0,priority=100,tcp,nw_src=10.0.0.0/8 actions=ct(table=1,zone=5)
table=1,priority=0 actions=drop
"""


def test_what_is_written_is_read_again():
    rules = rules_text.read(TEXT, NAMES)
    assert [(rule.table, rule.priority, rule.cookie) for rule in rules] == [(0, 100, 7), (1, 0, 0)]
    assert rules_text.write(rules, NAMES) == TEXT


def test_comments_and_what_a_dump_adds_are_nothing():
    text = "# all\n\n cookie=0x0, duration=1.5s, table=0, n_packets=3, n_bytes=180, in_port=1 actions=output:2 # why\n"
    assert rules_text.read(text, NAMES) == [Rule(match={"in_port": Masked(1, 0xFFFF)}, actions=(Output(2),))]


def test_every_complaint_names_its_line():
    text = "ip,actions=drop\nipp,actions=drop\n\ntable=300,actions=drop\nactions=flood\nip\npriority=x,actions=drop\n"
    with pytest.raises(RulesError) as caught:
        rules_text.read(text, NAMES)
    assert caught.value.complaints == [
        "line 2: unknown field 'ipp': nearest is 'ip'",
        "line 4: expected a number up to 0xfe, found 300",
        "line 5: unknown action 'flood'",
        "line 6: no actions=",
        "line 7: expected a number, found 'x'",
    ]


def test_counters_stand_behind_the_table():
    (rule, _) = rules_text.read(TEXT, NAMES)
    assert rules_text.line(rule, NAMES, "n_packets=1").startswith("cookie=0x7,table=0,n_packets=1,priority=100,tcp")


@pytest.mark.parametrize("seed", range(5))
def test_random_matches_survive(seed):
    """Those that a person could write: with what must be said beside each."""
    random = np.random.default_rng(seed)
    few = reference_rules.values(random)
    rules = []
    for rule in reference_rules.rules(random, few, 60):
        match = {name: one for name, one in rule.match.items() if name in ("mark", "label", "zone", "ct_state", "vlan")}
        match |= {"eth_type": Masked(0x86DD, 0xFFFF), "protocol": Masked(17, 0xFF)}
        match |= {name: one for name, one in rule.match.items() if name in ("src", "dst", "sport", "dport")}
        rules.append(Rule(rule.table, rule.priority, 0, match))
    assert rules_text.read(rules_text.write(rules, NAMES), NAMES) == rules
