"""A packet socket's rings: nothing lost, nothing twice, whoever dies at whatever access."""

import pytest
from simulation import ACQUIRE, RELEASE, Broken
from zonetrack.service.ports import packet_rings

from .packet_ring import packet_ring
from .plays import SEEDS

SEEDS_MAX = 1000


def is_found(**how):
    """Return whether some seed shows a fault."""
    for seed in range(SEEDS_MAX):
        try:
            packet_ring(seed, **how)
        except (AssertionError, Broken):
            return True
    return False


def test_in_every_order_and_whoever_dies():
    outcomes = [packet_ring(seed) for seed in range(round(60 * SEEDS))]
    assert sum(outcome.killed for outcome in outcomes) > len(outcomes) // 2


def test_a_death_at_every_access():
    died = 1
    life = 0
    while died:
        life += 1
        died = packet_ring(1, lives=[life], filled=(3, 1, 5), weak=False).killed
    assert life > 100


@pytest.mark.parametrize("order", [RELEASE, ACQUIRE])
def test_plain_accesses_are_found(order):
    assert is_found(forget=[order])


@pytest.mark.parametrize("name", ["resume_receiving", "resume_sending"])
def test_a_successor_that_looks_at_nothing_is_found(monkeypatch, name):
    monkeypatch.setattr(packet_rings, name, lambda record, memory: None)
    assert is_found()
