"""Rules as arrays: what they hold, how tables are parted, what is refused."""

import numpy as np
import pytest
from zonetrack.service import rules_compile, rules_text
from zonetrack.service.rules import Masked, Names, RulesError, Span
from zonetrack.shm.layout import ACTION, GENERATION, NO_TABLE, OP, RULE, SUBSET, Nat, OpKind, ZoneFrom

NAMES = Names({"lan": 1, "wan": 2})


def compiled(rules, **more):
    """Return the block of rules given as text, and its GENERATION."""
    block = rules_compile.compile_rules(rules_text.read(rules, NAMES), **more)
    return block, block[: GENERATION.itemsize].view(GENERATION)[0]


def array(block, dtype, place, count):
    """Return an array of a block."""
    return np.frombuffer(block, dtype, int(count), int(place))


def test_actions_become_ops():
    block, head = compiled(
        "priority=2,ip,actions=ct_clear,ct(commit,force,zone=9,exec(set_field:1/3->ct_mark,set_field:7->ct_label),timeout=4),"
        "output:wan,NORMAL,IN_PORT,ct(table=1,zone=port)\npriority=1,table=0,actions=goto_table:1\ntable=1,actions=drop"
    )
    rules = array(block, RULE, head["rules"], head["rule_count"])
    ops = array(block, OP, head["ops"], head["op_count"])
    assert rules["op_count"].tolist() == [6, 1, 0]
    assert ops["kind"].tolist() == [
        OpKind.CT_CLEAR, OpKind.CT, OpKind.OUTPUT, OpKind.NORMAL, OpKind.IN_PORT, OpKind.CT, OpKind.GOTO
    ]  # fmt: skip
    assert ops["argument"].tolist() == [0, 0, 2, 0, 0, 0, 1]
    assert ops["commit"].tolist() == [0, 1, 0, 0, 0, 0, 0]
    assert ops["zone"].tolist() == [0, 9, 0, 0, 0, 0, 0]
    assert ops["zone_from"].tolist() == [0, 0, 0, 0, 0, ZoneFrom.PORT, 0]
    assert ops["next_table"].tolist() == [NO_TABLE] * 5 + [1, NO_TABLE]
    asked = array(block, ACTION, ops["action"][1], 1)[0]
    assert (asked["flags"], asked["policy"], asked["mark"], asked["mark_mask"]) == (1, 5, 1, 3)
    assert asked["label"].tolist() == [0, 7]
    assert asked["label_mask"].tolist() == [(1 << 64) - 1] * 2
    assert np.count_nonzero(ops["action"]) == 1


def test_rules_that_do_the_same_share_their_ops():
    alike = "".join(f"tcp,tp_dst={port},actions=ct(commit,zone=9,mark=5,table=1)\n" for port in range(100))
    block, head = compiled(alike + "udp,actions=goto_table:1\nicmp,actions=output:1\ntable=1,actions=drop")
    rules = array(block, RULE, head["rules"], head["rule_count"])
    assert (head["op_count"], head["action_count"]) == (3, 1)  # a port and a table of one number are not the same
    assert rules["first_op"][:100].tolist() == [rules["first_op"][0]] * 100
    assert len(set(rules["first_op"][[0, 100, 101]])) == 3


def test_rules_stand_by_table_and_priority():
    block, head = compiled(
        "table=1,priority=5,actions=drop\npriority=1,tcp,tp_dst=1-9,actions=drop\npriority=7,tcp,tp_dst=80,actions=drop"
    )
    rules = array(block, RULE, head["rules"], head["rule_count"])
    assert rules["dport_low"].tolist() == [0, 1, 0]
    assert rules["dport_high"].tolist() == [0xFFFF, 9, 0xFFFF]


def test_rules_for_new_connections_are_not_met_by_established_ones():
    text = "".join(f"ct_state=+trk+new,tcp,tp_dst={port},actions=drop\n" for port in range(100))
    block, head = compiled(text + "ct_state=+trk+est,actions=NORMAL\nct_state=-trk,actions=ct(table=0)")
    tables = array(block, "u4", head["tables"], 256)
    by_state = array(block, "u2", tables[0], 256)
    subsets = array(block, SUBSET, head["subsets"], head["subset_count"])
    assert {state: int(subsets["count"][by_state[state] - 1]) for state in (0, 0x21, 0x22, 0x2A)} == {
        0: 1, 0x21: 100, 0x22: 1, 0x2A: 1
    }  # fmt: skip
    assert by_state[0x30] == 0


def test_a_table_that_would_be_parted_into_copies_of_itself_is_not():
    text = "".join(f"tcp,tp_dst={port},actions=drop\n" for port in range(50))
    text += "".join(
        f"priority={bit + 1},ct_state=+{flag},actions=drop\n" for bit, flag in enumerate(("new", "est", "rpl", "inv"))
    )
    _, head = compiled(text)
    assert head["subset_count"] == 1


def test_counters_begin_at_zero_for_each_worker():
    block, head = compiled("actions=drop\npriority=1,actions=NORMAL", workers=3, text="shown")
    assert array(block, "u8", head["hits"], 3 * 2 * 2).tolist() == [0] * 12
    assert head["bytes"] == len(block)
    assert block[head["text"] : head["text"] + head["text_bytes"]].tobytes() == b"shown"


@pytest.mark.parametrize(
    ("wanted", "bits", "found"),
    [
        (None, 16, (0, 0xFFFF)),
        (Span(5, 9), 16, (5, 9)),
        (Masked(0x1200, 0xFF00), 16, (0x1200, 0x12FF)),
        (Masked(7, 0xFFFF), 16, (7, 7)),
        (Masked(0x0012, 0x00FF), 16, (0, 0xFFFF)),
    ],
)
def test_intervals(wanted, bits, found):
    dimension = rules_compile.Dimension("sport", 0, 2, 0, bits)
    assert rules_compile.interval(wanted, dimension) == found


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("actions=ct(table=3)", "line 1: goes to table 3, which has no rules"),
        ("ip,actions=drop\ntcp,actions=drop\nip,actions=NORMAL",
         "line 3: never met, for line 1 asks for the same with the same priority"),
        ("ipv6,actions=ct(commit,nat(src=10.0.0.1))",
         "line 1: nat to an address of IPv4 needs ip, tcp or the like beside it"),
        ("actions=ct(commit,nat(dst=fd00::1))", "line 1: nat to an address of IPv6 needs ipv6, tcp6 or the like beside it"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(text, complaint):
    with pytest.raises(RulesError) as caught:
        compiled(text)
    assert caught.value.complaints == [complaint]


def test_more_rules_than_there_may_be_are_refused():
    text = "".join(f"tcp,nw_src=10.{one >> 8}.{one & 255}.0/24,actions=drop\n" for one in range(4097))
    with pytest.raises(RulesError, match=r"4,097 rules, at most 4,096"):
        compiled(text)


def test_translations_become_actions():
    block, head = compiled(
        "priority=2,ip,actions=ct(commit,nat(src=10.0.0.1-10.0.0.9:1024-2047,random,persistent))\n"
        "priority=1,ipv6,actions=ct(commit,nat(dst=[fd00::1]:80))\npriority=0,actions=ct(nat)"
    )
    asked = array(block, ACTION, head["actions"], head["action_count"])
    assert asked["nat"].tolist() == [
        Nat.APPLY | Nat.SOURCE | Nat.RANDOM | Nat.PERSISTENT,
        Nat.APPLY | Nat.DESTINATION,
        Nat.APPLY,
    ]
    assert asked["nat_ports"].tolist() == [[1024, 2047], [80, 80], [0, 0]]
    assert asked["nat_first"].tolist() == [[0, 0x0A000001], [0xFD00 << 48, 1], [0, 0]]
    assert asked["nat_last"].tolist() == [[0, 0x0A000009], [0xFD00 << 48, 1], [0, 0]]
