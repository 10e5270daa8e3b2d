"""Every operation killed at each of its stores, then repaired; and beside another participant, from seeds."""

import os
import random

import asked
import bursts
import foretelling
import helping
import interpreted
import kills
import numpy as np
import pytest
import tables
import tiny
from operations import Operation
from simulation import Mapped
from zonetrack.kernels import burst, locks, repair_index, repair_lists, zones
from zonetrack.kernels import repair as repairing
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.repair import repair
from zonetrack.shm import roster
from zonetrack.shm.layout import VERDICT, Helper, Nat, Status, Step
from zonetrack.shm.reasons import Reason

SEEDS = float(os.environ.get("ZONETRACK_SEEDS", "1"))
"""Multiple of the schedules, and of the pairs of kills, that these tests go through; what CI can afford is 1."""
SHORT, NOW = 5_000, 100_000
by_itself = pytest.mark.skipif(
    JIT, reason="kills at every store need the interpreter; a run of it is one of these tests"
)


@pytest.mark.skipif(not JIT, reason="this very process")
def test_kills_under_the_interpreter():
    rooms = ("repair", "repair_fragments", "repair_index", "repair_lists")
    interpreted.passes(*(f"tests/kernels/test_{room}.py" for room in rooms))


def test_one_who_was_at_rest_stays_at_rest():
    table = tables.small()
    one = tables.Participant(table)
    one.made(tables.keys(40))
    one.mark(tables.keys(3))
    assert repair(table.views(one.me))
    assert len(one.deletes) == 0 and (one.find(tables.keys(40)) != tables.NONE).sum() == 37
    tables.assert_at_rest(table)


def test_a_lock_that_another_holds_is_waited_for_by_another_call(monkeypatch):
    monkeypatch.setattr(locks, "YIELDS_MAX", 5)  # of the interpreter only
    table = tables.small()
    one, other = tables.Participant(table), tables.Participant(table)
    keys = tables.keys(2)
    one.made(keys)
    other.made(tables.keys(1, first=50))
    one.mark(keys)
    with tables.held(tables.segments(table)[tables.segment_of(table, 0, 0)]):
        assert not repair(table.views(one.me))
    assert repair(table.views(one.me))
    tables.assert_at_rest(table)


def test_who_died_over_a_record_leaves_it_torn_with_a_hint_that_is_not_late():
    table = tables.small()
    one = tables.Participant(table)
    (record,) = one.made(tables.keys(1))
    entry = tables.entries(table)[record]
    entry["lock"], one.place["intent"]["step"], entry["expiry_ms"] = one.me, Step.UPDATE, 1600
    assert repair(table.views(one.me))
    assert entry["status"] & Status.TORN and tables.due(table)[record] == entry["hint"] == 100
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ one operation
@pytest.fixture(autouse=True)
def few_zones():
    with kills.few_zones():
        yield


OTHERS = tables.keys(4, low=9)
REPLIES = tables.keys(8, low=40, first=900)


def stage(prepare=lambda one, other: None, **sizes):
    """Return a stage with a victim, another participant, and connections of the latter; saved."""
    made = tiny.Stage(2, **sizes)
    one, other = made.participants
    other.made(OTHERS)
    prepare(one, other)
    made.save()
    return made


def made_for_both(one, other, zone=0, expiry_ms=tables.LATER):
    one.made(tables.keys(2, zone), expiry_ms=expiry_ms)
    one.made(
        tables.keys(2, zone, first=20), REPLIES[4:6] + np.array([0, 0, 0, 0, zone << 16], "u8"), expiry_ms=expiry_ms
    )
    other.made(tables.keys(1, zone, first=30), expiry_ms=expiry_ms)


def flushed(one):
    word = one.detach(1)
    cursor = 0
    while word and cursor != tables.flush.DONE:
        cursor = one.reclaim(1, word, cursor, 2)


def packets_of(*packets, now_ms=NOW, zone=0, action=None):
    """Return an operation: a burst."""
    frames, buffers = bursts.frames_of(packets, zone, action=action)
    verdicts = np.zeros(len(buffers), VERDICT)

    def track(one):
        at = (
            np.uint64(frames.ctypes.data),
            np.uint64(len(buffers)),
            np.uint64(now_ms),
            np.uint64(verdicts.ctypes.data),
        )
        burst.track_burst(one.views, *at)
        assert len(frames) == len(buffers)

    return track


def talked(one, other):
    """A conversation that is over, and another that goes on."""
    for packet in (
        bursts.tcp("S", 100),
        bursts.tcp("SA", 900, 101, reply=True),
        bursts.tcp("A", 101, 901),
        bursts.tcp("R", 101, 901),
    ):
        packets_of(packet)(one)
    packets_of(bursts.udp(), bursts.udp(reply=True))(other)


def crowded(one, other):
    """A zone that has as many connections as it may, two of each, and drives them out."""
    for who, ports in ((one, (1, 2)), (other, (3, 4))):
        packets_of(*map(bursts.udp, ports), zone=1)(who)
    tables.set_limit(one.table, 1, 4)


LABELLED = asked.action(mark=5, mark_mask=7, label=1 << 100 | 3, label_mask=asked.ALL_128)


TRANSLATED = asked.action()
TRANSLATED["nat"], TRANSLATED["nat_ports"] = Nat.APPLY | Nat.SOURCE, (4000, 4003)
TRANSLATED["nat_first"] = TRANSLATED["nat_last"] = (0, 0xC0000263)
"""Another source, with one of a few ports."""


def translated(one, other, zone=0):
    """Translated connections of both, one of which is over."""
    for packet in (bursts.tcp("S", 100), bursts.tcp("R", 101)):
        packets_of(packet, zone=zone, action=TRANSLATED)(one)
    packets_of(bursts.udp(), zone=zone, action=TRANSLATED)(other)


def with_helper(one, other):
    foretelling.set_rules(one.table, (Helper.TFTP, 17, 0, 69))


def with_request(one, other):
    with_helper(one, other)
    packets_of(helping.request())(one)


def nothing(one, other):
    pass


OPERATIONS = {
    "insert": (nothing, lambda one: one.make(tables.keys(1))),
    "insert two keys": (nothing, lambda one: one.make(tables.keys(2), REPLIES[:2])),
    "create": (nothing, lambda one: one.make(tables.keys(1, zone=1))),
    "adopt": (lambda one, other: other.made(tables.keys(1)), lambda one: one.make(tables.keys(1))),
    "clash": (
        lambda one, other: other.made(REPLIES[:1]),
        lambda one: one.make(tables.keys(1), REPLIES[:1]),
    ),
    "zone full": (
        lambda one, other: tables.set_limit(one.table, 1, 1),
        lambda one: one.make(tables.keys(2, zone=1)),
    ),
    "credit of two zones": (
        nothing,
        lambda one: (one.many(Operation.MAKE, tables.keys(3), wanted=5), one.make(tables.keys(2, zone=1), wanted=2)),
    ),
    "mark": (made_for_both, lambda one: one.mark(tables.keys(2))),
    "delete": (made_for_both, lambda one: one.remove(tables.keys(2))),
    "delete two keys": (made_for_both, lambda one: one.remove(tables.keys(2, first=20))),
    "delete a list": (
        lambda one, other: (made_for_both(one, other), made_for_both(one, other, zone=1)),
        lambda one: (one.mark(tables.keys(2)), one.mark(tables.keys(2, zone=1, first=20)), one.run()),
    ),
    "flush": (
        lambda one, other: (made_for_both(one, other, zone=1), other.mark(tables.keys(1, zone=1, first=30))),
        flushed,
    ),
    "sweep": (lambda one, other: made_for_both(one, other, expiry_ms=SHORT), lambda one: one.sweep(NOW)),
    "update": (made_for_both, lambda one: one.refresh(tables.keys(2), expiry_ms=SHORT)),
    "update by packets": (talked, packets_of(bursts.udp(), bursts.udp(reply=True))),
    "open by packets": (nothing, packets_of(*(bursts.udp(sport) for sport in range(2000, 2004)))),
    "re-open": (talked, packets_of(bursts.tcp("S", 70_000), bursts.udp())),
    "label by packets": (talked, packets_of(bursts.udp(), bursts.udp(reply=True), action=LABELLED)),
    "open with a label": (nothing, packets_of(*(bursts.udp(sport) for sport in range(2000, 2003)), action=LABELLED)),
    "force": (talked, packets_of(bursts.udp(reply=True), bursts.udp(), action=asked.action(force=True))),
    "drive out": (
        crowded,
        packets_of(bursts.udp(77), bursts.udp(78), zone=1),
    ),
    "expire and open": (talked, packets_of(bursts.udp(), bursts.tcp("S", 90_000), now_ms=1 << 32)),
    "open translated": (nothing, packets_of(*(bursts.udp(sport) for sport in (2000, 2001)), action=TRANSLATED)),
    "re-open translated": (translated, packets_of(bursts.tcp("S", 70_000), bursts.udp(), action=TRANSLATED)),
    "flush what is translated": (lambda one, other: translated(one, other, zone=1), flushed),
    "foretell by packets": (with_helper, packets_of(helping.request())),
    "foretell again": (with_request, packets_of(helping.request())),
    "come as foretold": (with_request, packets_of(helping.answer(), helping.answer())),
    "delete a parent, and sweep": (
        with_request,
        lambda one: (one.sweep(NOW + 40_000), one.sweep(NOW + 40_000)),
    ),
}


def looked_at(stand):
    """Return a check: whom the dead did not touch is found, and the successor can work."""
    one, other = stand.participants

    def check():
        assert (other.find(OTHERS) != tables.NONE).all()
        fresh = tables.keys(2, low=60)
        one.made(fresh)
        one.remove(fresh)
        other.run()
        one.run()

    return check


@by_itself
@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_each_store(name, record_property):
    prepare, act = OPERATIONS[name]
    stand = stage(prepare)
    count = kills.each_kill(stand, act, looked_at(stand))
    record_property("kills", count)
    assert count > 3


@by_itself
@pytest.mark.parametrize(
    ("name", "share"),
    [("insert", 0.2), ("insert two keys", 0.05), ("create", 0.05), ("delete", 0.03), ("flush", 0.004)],
)
def test_the_repairer_killed_at_each_store(name, share, record_property):
    prepare, act = OPERATIONS[name]
    pairs = kills.each_kill_of_the_repairer(stage(prepare), act, share * SEEDS)
    record_property("kills", pairs)
    assert pairs > 20


# ------------------------------------------------------------------------------------------------ beside another
def full(one, other):
    """Half of the connections in one pair of lines, so that an insert there splits the segment."""
    one.made(tiny.aimed(8))
    other.made(tiny.aimed(8, skip=8))


def flush_all(one):
    """Flush zone 0; where another holds a lock it has to be tried again, and some time it is given up."""
    word = one.detach(0)
    cursor = 0
    for _ in range(20):
        if word in (0, tables.flush.DONE) or cursor == tables.flush.DONE:
            return
        cursor = one.reclaim(0, word, cursor)


PAIRS = {
    "insert": lambda one, i: one.make(tables.keys(2, first=70 + i)),
    "insert the same": lambda one, i: one.make(tables.keys(2, first=75)),
    "split": lambda one, i: one.make(tiny.aimed(2, skip=20 + i)),
    "delete": lambda one, i: one.remove(tiny.aimed(3)),
    "flush": lambda one, i: flush_all(one),
    "find": lambda one, i: one.find(tiny.aimed(3, skip=i)),
}


def played(stand, mapped, seed, first, second):
    """Play two operations, the first of which is killed, from a seed; returns whether it was."""
    one, other = stand.participants
    stand.restore()
    play = kills.Massacre(mapped, seed, 1_500)
    play.run(play.mortal(one, lambda one: PAIRS[first](one, 0)), lambda: PAIRS[second](other, 5))
    one.run()
    kills.whole(stand, f"{first} beside {second}, seed {seed}")
    return play.killed


@by_itself
@pytest.mark.parametrize("first", ["insert", "insert the same", "split", "delete", "flush"])
def test_killed_beside_another(first):
    stand = stage(full)
    mapped = Mapped(stand.table)
    for second in PAIRS:
        killed = [played(stand, mapped, seed, first, second) for seed in range(int(20 * SEEDS))]
        assert sum(killed) > len(killed) / 4, f"{first} beside {second}: killed too seldom"


@by_itself
@pytest.mark.parametrize("first", ["insert", "split", "delete", "flush"])
def test_two_dead_at_once(first, monkeypatch):
    """The second died while the first held what it held; it is repaired first, and waits for the repair of the other."""
    monkeypatch.setattr(locks, "YIELDS_MAX", 2)
    stand = stage(full)
    one, other = stand.participants
    chance = random.Random(first)
    both = 0
    for second in ("insert", "split", "delete", "flush"):
        for _ in range(int(20 * SEEDS)):
            stand.restore()
            at, then = int(300 ** chance.random()), int(300 ** chance.random())
            killed = kills.is_killed(at, lambda: PAIRS[first](one, 0))
            both += kills.is_killed(then, lambda: PAIRS[second](other, 5)) and killed  # noqa: B023 - called at once
            left = [other, one]
            for _ in range(roster.REPAIR_ROUNDS_MAX):
                left = [dead for dead in left if not repair(stand.table.views(dead.me))]
            assert left == []
            kills.whole(stand, f"{first} at store {at}, {second} at store {then}")
    assert both > 20


def forgets(*_):
    return True


def segments_taken_between(stand, monkeypatch):
    """Kill a flush at each store; before it is repaired another participant takes the segment, if it is free by then."""
    monkeypatch.setattr(locks, "YIELDS_MAX", 2)
    one, other = stand.participants
    segment = tables.segment_of(stand.table, 1, 0)
    taken = 0
    at = 0
    while True:
        at += 1
        stand.restore()
        if not kills.is_killed(at, lambda: flushed(one)):
            return taken
        other.place["segment_hint"] = segment
        made = other.make_one(tables.keys(1, zone=2)) == Reason.NONE
        taken += made and tables.segment_of(stand.table, 2, 0) == segment
        kills.repaired(one)
        kills.whole(stand, f"killed at store {at}")
        assert (other.find(tables.keys(1, zone=2)) != tables.NONE).all() == made


@by_itself
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_segment_that_a_flush_gave_back_is_not_given_back_again(forgotten, monkeypatch):
    stand = stage(lambda one, other: one.made(tables.keys(2, zone=1)))
    if not forgotten:
        assert segments_taken_between(stand, monkeypatch) > 0
        return
    monkeypatch.setattr(repairing, "_settle_freed_segment", forgets)
    with pytest.raises(AssertionError):
        segments_taken_between(stand, monkeypatch)


# ------------------------------------------------------------------------------------------------ canaries
FLAWS = {
    "counts that are written": (repairing, "_settle_counts", "credit of two zones"),
    "zones": (repairing, "_settle_zones", "create"),
    "the record's lock": (repairing, "_settle_record", "update"),
    "slots": (repairing, "_settle_slots", "insert"),
    "the record": (repairing, "_bring_home", "insert"),
    "a flush": (repairing, "_finish_flush", "flush"),
    "the list": (repairing, "_finish_list", "delete"),
    "a marked record": (repairing, "_enlist", "mark"),
    "credit": (zones, "return_credit", "open by packets"),
    "the pools": (repair_index, "_hand_over", "create"),
    "free lists": (repair_lists, "mend", "insert"),
}


@by_itself
@pytest.mark.parametrize("name", FLAWS)
def test_a_repair_that_forgets_something_is_found_out(name, monkeypatch):
    module, part, operation = FLAWS[name]
    prepare, act = OPERATIONS[operation]
    stand = stage(prepare)
    untouched = getattr(module, part)
    repair_whole = kills.repaired

    def flawed(participant):
        monkeypatch.setattr(module, part, forgets)
        try:
            repair_whole(participant)
        finally:
            monkeypatch.setattr(module, part, untouched)

    monkeypatch.setattr(kills, "repaired", flawed)
    with pytest.raises(AssertionError):
        kills.each_kill(stand, act)
