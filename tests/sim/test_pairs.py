"""Two workers, each pair of operations, one killed at a share of its accesses; ``make sim-pairs`` goes through all."""

import pytest

from ..interleave.plays import SEEDS
from .pairs import OPERATIONS, go_through

SHARES = {"flush": 0.003, "split": 0.006, "find": 0.2, "expire": 0.01}
SHARE = 0.02


@pytest.mark.parametrize("first", OPERATIONS)
def test_each_pair(first):
    kills = sum(go_through(first, second, min(1.0, SHARES.get(first, SHARE) * SEEDS))[0] for second in OPERATIONS)
    assert kills > 0


def test_a_pair_whole():
    kills, accesses = go_through("insert", "find", 0.2)
    assert kills > 20 and accesses > 1_000
