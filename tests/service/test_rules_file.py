"""Rules in lines, TOML and JSON are the same rules."""

import json

import pytest
from zonetrack.service import rules_file
from zonetrack.service.rules import Names, RulesError

NAMES = Names({"lan": 1, "wan": 2})
TEXT = """
priority=100,tcp,in_port=lan,nw_src=10.0.0.0/8,tp_dst=80 actions=ct(commit,zone=5,exec(set_field:1->ct_mark),table=1)
table=1,priority=0,cookie=9 actions=ct_clear,output:wan
table=1,ct_state=-trk actions=drop
"""
TOML = """
[[rules]]
priority = 100
match = { tcp = true, udp = false, in_port = "lan", nw_src = "10.0.0.0/8", tp_dst = 80 }
actions = [{ ct = { commit = true, zone = 5, exec = ["set_field:1->ct_mark"], force = false, table = 1 } }]
[[rules]]
table = 1
priority = 0
cookie = 9
actions = ["ct_clear", { output = "wan" }]
[[rules]]
table = 1
match = { ct_state = "-trk" }
actions = ["drop"]
"""


def test_all_formats_say_the_same():
    rules = rules_file.read(TEXT, rules_file.TEXT, NAMES)
    assert rules_file.read(TOML, rules_file.TOML, NAMES) == rules
    told = {"rules": [rules_file.tree(rule, NAMES) for rule in rules]}
    assert rules_file.read(json.dumps(told), rules_file.JSON, NAMES) == rules
    assert told["rules"][1] == {
        "table": 1, "priority": 0, "cookie": 9, "match": {}, "actions": ["ct_clear", "output:wan"]
    }  # fmt: skip


def test_nested_arguments():
    tree = {"actions": [{"ct": {"commit": True, "nat": {"src": "10.0.0.1", "random": True}}}]}
    (rule,) = rules_file.read(json.dumps({"rules": [tree]}), rules_file.JSON, NAMES)
    (same,) = rules_file.read("actions=ct(commit,nat(src=10.0.0.1,random))", rules_file.TEXT, NAMES)
    assert rule == same


@pytest.mark.parametrize(
    ("path", "form"), [("a.toml", "toml"), ("a.JSON", "json"), ("flows.txt", "text"), ("toml", "text")]
)
def test_a_files_name_tells_its_format(path, form):
    assert rules_file.format_of(path) == form


@pytest.mark.parametrize(
    ("text", "form", "complaint"),
    [
        ("[[rules]", "toml", "not TOML"),
        ("{", "json", "not JSON"),
        ("[]", "json", "expected one list called rules"),
        ('{"rules": [], "more": 1}', "json", "expected one list called rules"),
        ('{"rules": [{"actions": "drop"}]}', "json", "rule 1: actions: expected a list"),
        ('{"rules": [{"actions": ["drop"], "prio": 1}]}', "json", "rule 1: unknown key 'prio'"),
        ('{"rules": [{"actions": [{"a": 1, "b": 2}]}]}', "json", "rule 1: an action is text, or a table with one key"),
        ('{"rules": [{"actions": ["drop"], "match": {"tcp": 1.5}}]}', "json", "expected text, a number or true"),
        ('{"rules": [{"actions": ["drop"], "match": [1]}]}', "json", "match: expected a table"),
        ('{"rules": [7]}', "json", "rule 1: expected a table"),
    ],
)
def test_what_is_no_file_of_rules_is_refused(text, form, complaint):
    with pytest.raises(RulesError) as caught:
        rules_file.read(text, form, NAMES)
    assert complaint in str(caught.value)
