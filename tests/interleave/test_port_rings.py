"""Rings that the system shares: nothing lost, nothing twice, nobody out of step, whoever dies at whatever access."""

import pytest
from simulation import ACQUIRE, RELEASE, Broken
from zonetrack.kernels import port_frames
from zonetrack.kernels.words import u64
from zonetrack.service.ports import packet_rings, xdp_rings
from zonetrack.shm.layout import LEAVING

from ..sim.shrink import shrink_play
from .frame_ring import frame_ring
from .packet_ring import packet_ring
from .plays import SEEDS, is_found
from .xdp_rings import xdp_ring

SEEDS_MAX = 1000
RINGS = pytest.mark.parametrize("play", [packet_ring, frame_ring, xdp_ring])
FEW = {packet_ring: (3, 1, 5), frame_ring: (9,), xdp_ring: (9,)}
"""Packets of a run that is done once for each access."""


@RINGS
def test_in_every_order_and_whoever_dies(play):
    outcomes = [play(seed) for seed in range(round(60 * SEEDS))]
    assert sum(outcome.killed for outcome in outcomes) > len(outcomes) // 2


@RINGS
def test_a_death_at_every_access(play):
    died = 1
    life = 0
    while died:
        life += 1
        died = play(1, lives=[life], filled=FEW[play], weak=False).killed
    assert life > 100


@RINGS
@pytest.mark.parametrize("order", [RELEASE, ACQUIRE])
def test_plain_accesses_are_found(play, order):
    assert is_found(SEEDS_MAX, play, forget=[order])


@pytest.mark.parametrize(
    ("play", "room", "name"),
    [
        (packet_ring, packet_rings, "resume_receiving"),
        (packet_ring, packet_rings, "resume_sending"),
        (frame_ring, packet_rings, "resume_frames"),
        (frame_ring, packet_rings, "resume_sending"),
        (xdp_ring, xdp_rings, "resume_receiving"),
        (xdp_ring, xdp_rings, "resume_sending"),
    ],
)
def test_a_successor_that_looks_at_nothing_is_found(monkeypatch, play, room, name):
    monkeypatch.setattr(room, name, lambda record, memory: None)
    assert is_found(SEEDS_MAX, play)


def test_a_place_that_is_counted_before_it_is_given_back_is_found(monkeypatch):
    """As it was: who died between them left a place to be taken again, and his successor was one off for ever."""
    monkeypatch.setattr(port_frames, "_LEAVING", port_frames._TO_USER)
    assert is_found(SEEDS_MAX, frame_ring)
    seed, least, fault = shrink_play(frame_ring, 0)
    assert sum(least["filled"]) <= 9 and "lives" not in least and isinstance(fault, (AssertionError, Broken))
    with pytest.raises(type(fault)):
        frame_ring(seed, **least)
    monkeypatch.setattr(port_frames, "_LEAVING", u64(LEAVING))
    frame_ring(seed, **least)
