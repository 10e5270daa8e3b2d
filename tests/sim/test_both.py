"""Two dead at once, the one with locks that the other's repair wants; ``make sim-pairs`` goes through all pairs of kills."""

import random

from zonetrack.kernels import repair

from . import both
from .reach import Reach

ARMS = ("repair._leave_source", "repair._uncount", "repair._bring_home")


def test_repair_comes_back_for_what_it_did_not_have():
    """In an order by chance, until each arm of bringing a record home was reached."""
    reach = Reach([repair])
    cases = both.cases()
    random.Random(1).shuffle(cases)
    died = 0
    for case in cases:
        held, *_ = both.killed(case, reach)
        died += len(held) == 2
        if not any(name.startswith(ARMS) for name in reach.missed()):
            break
    assert died > 10 and [name for name in reach.missed() if name.startswith(ARMS)] == []
