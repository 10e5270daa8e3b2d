"""A file checked by itself: figures, or every complaint with the file's name."""

import pytest
from zonetrack.service import rules_check
from zonetrack.service.rules import RulesError


def test_figures(tmp_path):
    file = tmp_path / "flows.txt"
    file.write_text("in_port=lan,actions=ct(table=1,zone=port)\ntable=1,actions=output:wan\n")
    told = rules_check.check_file(str(file))
    assert (told["rules"], told["tables"]) == (2, 2)
    assert told["bytes"] > 0


def test_complaints(tmp_path):
    file = tmp_path / "flows.toml"
    file.write_text('[[rules]]\nactions = ["ct(table=9)"]\n')
    with pytest.raises(RulesError) as caught:
        rules_check.check_file(str(file))
    assert caught.value.complaints == [f"{file}: rule 1: goes to table 9, which has no rules"]
    with pytest.raises(RulesError, match="cannot be read"):
        rules_check.check_file(str(tmp_path / "none"))
