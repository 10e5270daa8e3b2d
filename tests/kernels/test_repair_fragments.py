"""Whoever is at the store of fragments killed at each store that he makes, and what the living make of it."""

import os

import fragmented
import kills
import naive_fragments
import pytest
import tiny
from fragmented import NEW, Piece, cut, udp
from zonetrack.kernels import late
from zonetrack.kernels.jit import JIT
from zonetrack.shm.reasons import Reason

SEEDS = float(os.environ.get("ZONETRACK_SEEDS", "1"))
EXPIRED = fragmented.refused(Reason.FRAGMENT_EXPIRED)
LATER_MS = 10**7
"""When everything has expired and nobody waits for anybody."""
interpreted = pytest.mark.skipif(
    JIT, reason="kills at every store need the interpreter; tests/kernels/test_repair runs it"
)


class Hand(fragmented.Bench):
    """A participant of a stage that sends fragments."""

    def __init__(self, participant):
        self.table, self.me, self.views, self.sent = participant.table, participant.me, participant.views, 0


FIRST, MIDDLE, LAST = cut(udp(3200), 1480, 2960)
OVERLAPPING = Piece(bytes(1480), 1472, True)


def nothing(one, other):
    pass


def burst_of(*pieces, now_ms=1000):
    def act(one):
        one.send(*pieces, now_ms=now_ms)

    return act


def expired(one):
    one.late(LATER_MS)


OPERATIONS = {  # what happened before, and what is killed
    "wait": (nothing, burst_of(FIRST)),
    "wait beside another's": (lambda one, other: other.send(FIRST, LAST._replace(id=9)), burst_of(LAST)),
    "complete": (nothing, burst_of(LAST, FIRST, MIDDLE)),
    "complete what others hold": (lambda one, other: other.send(FIRST, LAST), burst_of(MIDDLE)),
    "refuse what others hold": (lambda one, other: (other.send(LAST, FIRST), one.send(FIRST)), burst_of(OVERLAPPING)),
    "collect": (lambda one, other: (one.send(FIRST, LAST), other.send(MIDDLE)), lambda one: one.late()),
    "expire": (lambda one, other: (one.send(FIRST), other.send(LAST)), expired),
    "leave": (lambda one, other: (one.send(FIRST), other.send(LAST)), lambda one: late.abandon(one.views)),
}


def stage(prepare):
    made = tiny.Stage(2)
    kills.cut_store(made.table)
    one, other = made.participants
    prepare(Hand(one), Hand(other))
    made.save()
    return made


def forget(*participants):
    """What a process had in private memory dies with it."""
    for participant in participants:
        scratch = naive_fragments.scratch(participant.views)
        scratch["whole_count"] = scratch["late_count"] = 0


def killed(act):
    """Return an operation for one who has nothing in mind."""

    def operation(one):
        forget(one)
        act(Hand(one))

    return operation


def looked_at(stand):
    """Return a check: the living hears of all that it holds, the dead holds nothing, and both can go on."""
    one, other = map(Hand, stand.participants)

    def check():
        forget(*stand.participants)
        other.late(LATER_MS)
        assert other.store["count"] == 0, "somebody holds a fragment for ever"
        for hand in (one, other):
            assert hand.fates([FIRST, LAST], [MIDDLE], now_ms=LATER_MS) == [NEW] * 3
            hand.late(LATER_MS)
        assert other.store["count"] == 0
        stand.participants[0].run()

    return check


@pytest.fixture(autouse=True)
def few():
    with kills.few_zones(), kills.few_fragments():
        yield


@interpreted
@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_each_store(name, record_property):
    prepare, act = OPERATIONS[name]
    stand = stage(prepare)
    count = kills.each_kill(stand, killed(act), looked_at(stand))
    record_property("kills", count)
    assert count > 3


@interpreted
@pytest.mark.parametrize(("name", "share"), [("complete what others hold", 0.02), ("expire", 0.02), ("leave", 0.02)])
def test_the_repairer_killed_at_each_store(name, share, record_property):
    prepare, act = OPERATIONS[name]
    pairs = kills.each_kill_of_the_repairer(stage(prepare), killed(act), share * SEEDS)
    record_property("kills", pairs)
    assert pairs > 10
