"""Planted faults: each must be found, or the interleavings prove nothing."""

import random

import pytest
from simulation import ACQUIRE, RELEASE, Broken
from zonetrack.kernels import delete_list, index, locks, memory

from . import test_table
from .plays import Fault

SEEDS_MAX = 4000


def is_found(play, programs_of, **how):
    """Return whether some seed shows a fault."""
    for seed in range(SEEDS_MAX):
        try:
            play.run(seed, programs_of(random.Random(seed)), **how)
        except (Fault, Broken):
            return True
    return False


def splitting(rng):
    """One splits a segment, two look for a connection that moves."""

    def looks(worker):
        for _ in range(4):
            worker.find(3)

    return [lambda worker: worker.make(4, 5), looks, looks]


def flushing(rng):
    """One deletes a connection that another flushes, and whose record is used anew."""

    def deletes(worker):
        worker.mark(0)
        worker.run_list()

    def flushes(worker):
        worker.flush()
        worker.make(2, 3)

    return [deletes, flushes]


def racing(rng):
    """All make the same connection."""
    return [lambda worker: worker.make(4)] * 3


def test_nothing_is_found_where_nothing_is_planted():
    for programs_of, play in (
        (splitting, test_table.brimming()),
        (flushing, test_table.roomy()),
        (racing, test_table.brimming()),
    ):
        play.run_seeds(200, programs_of)


@pytest.mark.parametrize("order", [RELEASE, ACQUIRE])
def test_plain_accesses_are_found(order):
    assert is_found(test_table.brimming(), splitting, forget=[order])


def test_missing_fence_is_found(monkeypatch):
    monkeypatch.setattr(memory, "fence_acquire", lambda: None)
    assert is_found(test_table.brimming(), splitting)


def test_lock_that_does_not_exclude_is_found(monkeypatch):
    monkeypatch.setattr(locks, "take", lambda word, me: True)
    assert is_found(test_table.brimming(), racing)


def test_missing_look_for_the_duplicate_is_found(monkeypatch):
    monkeypatch.setattr(index, "_has_live", lambda *arguments: False)
    assert is_found(test_table.brimming(), racing)


def test_line_without_incarnation_is_found(monkeypatch):
    monkeypatch.setattr(delete_list, "_is_mine", lambda *arguments: True)
    assert is_found(test_table.roomy(), flushing)
