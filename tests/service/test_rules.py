"""Names in rules: ports, timeout policies, helpers; and what makes two rules the same."""

import pytest
from zonetrack.service.rules import Masked, Names, Rule, RulesError, name_of


def test_ports_by_name_and_number():
    names = Names({"lan": 1, "wan": 2})
    assert [names.port(text) for text in ("lan", "wan", "2")] == [1, 2, 2]
    assert [names.port_name(number) for number in (1, 7)] == ["lan", "7"]
    for text in ("dmz", "3"):
        with pytest.raises(ValueError, match=r"there is no port '?\w+'?: 1 is lan, 2 is wan"):
            names.port(text)


def test_away_from_its_service_any_port_will_do():
    names = Names(is_away=True)
    assert [names.port(text) for text in ("a", "b", "a", "9")] == [1, 2, 1, 9]
    assert names.policy("any") == 0
    with pytest.raises(ValueError, match="there is no timeout policy '64'"):
        names.policy("64")


def test_policies_and_helpers():
    names = Names(policies={"quick": 3}, helpers={"ftp": 1})
    assert [names.policy(text) for text in ("quick", "63")] == [3, 63]
    assert names.helper("ftp") == 1
    for wrong in ("slow", "64"):
        with pytest.raises(ValueError, match="there is no timeout policy"):
            names.policy(wrong)
    with pytest.raises(ValueError, match="there is no helper 'sip': ftp"):
        names.helper("sip")
    assert [name_of(number, names.policies) for number in (3, 4)] == ["quick", "4"]


def test_identity_is_what_a_packet_could_tell():
    rule = Rule(1, 5, 9, {"mark": Masked(1, 1), "zone": Masked(2, 0xFFFF)}, where="line 1")
    same = Rule(1, 5, 8, {"zone": Masked(2, 0xFFFF), "mark": Masked(1, 1)}, where="line 2")
    assert rule.identity == same.identity
    assert rule.identity != Rule(1, 6, 9, rule.match).identity


def test_complaints_are_lines():
    error = RulesError(iter(["one", "two"]))
    assert (str(error), error.complaints) == ("one\ntwo", ["one", "two"])
