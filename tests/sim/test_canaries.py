"""Planted faults: each must be found from a few hundred seeds, shrunk, and found again in what is left."""

import pytest
from zonetrack.kernels import delete_list, flush, index, locks, repair, repair_index, repair_lists, zones

from .rounds import Run
from .shrink import fails, shrink

SEEDS_MAX = 1000
TRIES_MAX = 60
"""Of making it smaller: enough to see that it gets smaller."""


def nothing(*_):
    return True


def forgets(module, name):
    return lambda patch: patch.setattr(module, name, nothing)


def counts_anew(patch):
    """Counts are put right without their locks."""
    patch.setattr(zones, "lock_counts", nothing)


PLANTED = {
    "repair forgets counts": (forgets(repair, "_settle_counts"), "limited"),
    "repair forgets zones": (forgets(repair, "_settle_zones"), "brimming"),
    "repair forgets the record": (forgets(repair, "_settle_record"), "roomy"),
    "repair forgets slots": (forgets(repair, "_settle_slots"), "brimming"),
    "repair forgets the flush": (forgets(repair, "_finish_flush"), "roomy"),
    "repair forgets the list": (forgets(repair, "_finish_list"), "roomy"),
    "repair forgets pools": (forgets(repair_index, "_hand_over"), "brimming"),
    "repair forgets free lists": (forgets(repair_lists, "mend"), "few_records"),
    "counts without locks": (counts_anew, "roomy"),
    "a lock that does not exclude": (forgets(locks, "take"), "brimming"),
    "no look for the duplicate": (lambda patch: patch.setattr(index, "_has_live", lambda *_: False), "brimming"),
    "repair forgets a segment's record": (forgets(repair, "_settle_record"), "conversations"),
    "a line without incarnation": (forgets(delete_list, "_is_mine"), "roomy"),
    "a flush that does not look again": (lambda patch: patch.setattr(flush, "_occupant", lambda *_: 0), "roomy"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_is_found_and_shrinks(name, monkeypatch):
    plant, world = PLANTED[name]
    with monkeypatch.context() as patch:
        plant(patch)
        case = next((run.case for run in (wrong(world, seed) for seed in range(SEEDS_MAX)) if run), None)
        assert case is not None, "not found"
        small, _ = shrink(case, TRIES_MAX)
        assert sum(len(p) for round_ in small.rounds for p in round_) <= sum(len(p) for r in case.rounds for p in r)
        assert fails(small)
    assert fails(small) is None, "what the shrunken case shows is not what was planted"


def wrong(world, seed):
    """Return the run of a seed if it went wrong."""
    run = Run(world, seed)
    try:
        run.drawn(1)
    except Exception:
        return run
    return None
