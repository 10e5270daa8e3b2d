"""Two workers, each pair of operations, one killed at a share of its accesses; ``make sim-pairs`` goes through all."""

import re

import pytest
from zonetrack.kernels import repair

from ..interleave.plays import SEEDS
from .pairs import OPERATIONS, go_through
from .rounds import ORDERS, Case, Run
from .shrink import fails, tell

SHARES = {"flush": 0.003, "split": 0.006, "find": 0.2, "expire": 0.01}
SHARE = 0.02
CASE = re.compile(r"Case\(.*\)")


@pytest.mark.parametrize("first", OPERATIONS)
def test_each_pair(first):
    kills = sum(go_through(first, second, min(1.0, SHARES.get(first, SHARE) * SEEDS))[0] for second in OPERATIONS)
    assert kills > 0


def test_a_pair_whole():
    kills, accesses = go_through("insert", "find", 0.2)
    assert kills > 20 and accesses > 1_000


def test_what_goes_wrong_is_told_shrunk_and_can_be_run_again(monkeypatch, capsys):
    """A planted fault, found by the kills of one pair; the printed text is a case that shows it."""
    found = []
    with monkeypatch.context() as patch:
        patch.setattr(repair, "_settle_counts", lambda *_: True)
        go_through("insert", "delete", 0.3, lambda *what: found.append(what))
        assert found, "not found"
        tell(*found[0])
        words = capsys.readouterr().out
        cases = [eval(text, {"Case": Case}) for text in CASE.findall(words)]
        assert "again: python -m tests.sim" in words and len(cases) == 2
        assert all(fails(case) for case in cases)
    assert [fails(case) for case in cases] == [None, None]


@pytest.mark.parametrize("order", ["after", "any"])
def test_a_case_keeps_its_order(order):
    """Its text is all that there is to it: with the kill at a store the second begins when the first is dead."""
    case = Case("crossing", 3, (((("make", 4),), (("remove", 2),), ()),), (((-3,), (), (), ()),), order)
    one, other = Run("crossing", 3).one(case), Run("crossing", 3).one(eval(str(case), {"Case": Case}))
    assert one.killed == 1 and one.accesses == other.accesses
    assert (type(one.rounds[0]) is ORDERS["after"]) == (order == "after")
