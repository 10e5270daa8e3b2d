"""Rings and rules, in every order that weak memory allows: nothing lost or twice, none asleep, no rule half written."""

import pytest
from simulation import ACQUIRE, RELEASE
from zonetrack.kernels import memory, poll, ring, rulebook
from zonetrack.kernels.words import ONE

from . import rings
from .plays import SEEDS, is_found

SEEDS_MAX = 3000


@pytest.mark.parametrize(("play", "seeds"), [(rings.client_ring, 200), (rings.sleep, 60)])
def test_nothing_is_lost_or_seen_twice_and_nobody_sleeps_for_ever(play, seeds):
    slept = [play(seed).slept for seed in range(round(seeds * SEEDS))]
    assert sum(slept) > len(slept)


@pytest.mark.parametrize(
    ("play", "order"),
    [
        (rings.client_ring, RELEASE),
        (rings.client_ring, ACQUIRE),
        (rings.rules, RELEASE),
    ],  # of rules F2 sees to the rest
)
def test_plain_accesses_are_found(play, order):
    assert is_found(SEEDS_MAX, play, forget=[order])


@pytest.mark.parametrize("play", [rings.client_ring, rings.sleep, rings.rules])
def test_missing_fences_are_found(monkeypatch, play):
    """Each side stores, then looks at what the other stores: without fences both may miss it."""
    monkeypatch.setattr(memory, "fence_full", lambda: None)
    assert is_found(SEEDS_MAX, play)


def test_descriptors_that_are_handed_over_too_early_are_found(monkeypatch):
    right = ring.room
    monkeypatch.setattr(ring, "room", lambda end, wanted: right(end, wanted) + ONE)
    assert is_found(SEEDS_MAX, rings.client_ring)


def test_a_worker_that_sleeps_without_a_last_look_is_found(monkeypatch):
    monkeypatch.setattr(poll, "_is_quiet", lambda loop: True)
    assert is_found(SEEDS_MAX, rings.sleep)


def test_rules_stay_whole_while_anybody_goes_by_them():
    outcomes = [rings.rules(seed) for seed in range(round(60 * SEEDS))]
    assert sum(outcome.killed for outcome in outcomes) > len(outcomes) // 3


def test_rules_that_are_picked_up_without_a_second_look_are_found(monkeypatch):
    def follow(pipe):
        word = memory.acquire64(pipe.published)
        memory.release64(pipe.acknowledged, word)
        pipe.word, pipe.generation = word, pipe.slots + (word & ONE) * rulebook._SLOT_BYTES
        return True

    monkeypatch.setattr(rulebook, "_follow", follow)
    assert is_found(SEEDS_MAX, rings.rules)
