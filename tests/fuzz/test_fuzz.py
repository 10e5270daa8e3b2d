"""A little of everything that ``make fuzz`` gives the tracker, in every run of the tests; and what a finding looks like."""

import faulthandler
import os
import random
import signal
import time

import pytest
from forked import Child
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels.jit import JIT
from zonetrack.service import rules_file
from zonetrack.service.rules import RulesError
from zonetrack.shm.reasons import Reason

from . import captures, frames, mutation, rules, runs, seeds
from .runs import Target
from .targets import TARGETS

CASES = {"frames": 20_000, "captures": 400, "rules": 400, "messages": 1_000, "rings": 300, "saved": 40}
compiled = pytest.mark.skipif(not JIT, reason="nonsense in such numbers needs compiled kernels")


@compiled
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_nothing_is_found(name, record_property):
    report = runs.run(TARGETS[name], CASES[name], seed=7)
    record_property("told", report.told)
    assert report.findings == []
    assert report.cases == CASES[name]


@pytest.mark.parametrize("snapped", [False, True])
def test_every_frame_cut_at_every_byte_is_read_no_further(snapped):
    """Interpreted, of each the first bytes behind its headers."""

    def track(child):
        faulthandler.disable()
        made = frames.World(1)
        for seed in seeds.frames():
            most = len(seed.data) if JIT else min(len(seed.data), seed.l4 + 8)
            for first in range(0 if JIT else seed.l3, most + 1, frames.BURST):
                made.cut(seed, snapped, range(first, min(first + frames.BURST, most + 1)))
        made.settle()
        child.say((int(made.fuzz["strange"]), made.reasons()))

    with Child(track) as child:
        strange, reasons = child.hear()
        assert child.wait() == 0
    assert strange == 0
    assert {Reason.NONE, Reason.TRUNCATED if snapped else Reason.L3_HEADER} <= reasons.keys()


def test_every_target_is_run_here():
    assert CASES.keys() == TARGETS.keys()


# ------------------------------------------------------------------------------------------------ from hypothesis
@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_no_bytes_are_more_than_a_capture_can_say(data):
    """The reader refuses them, or reads what there is."""
    made = captures.World()
    made.read(data)
    made.read(captures.files()[0][:24] + data)


@given(st.text(max_size=200), st.sampled_from(rules_file.FORMATS))
@settings(max_examples=200, deadline=None)
def test_no_text_is_more_than_a_file_of_rules_can_say(text, form):
    try:
        rules_file.read(text, form, rules.NAMES)
    except RulesError as error:
        assert error.complaints


# ------------------------------------------------------------------------------------------------ findings
def crash(seed, cases, tick):
    """A world that is killed at its third case."""
    faulthandler.disable()
    tick(2)
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""


def raises(seed, cases, tick):
    """A world whose parser lets an exception out."""
    tick()
    raise ZeroDivisionError("as asked")


KEPT = []


def leaks(seed, cases, tick):
    """A world that keeps what it should let go of."""
    for _ in range(cases):
        KEPT.append(bytearray(os.urandom(1 << 20)))
        tick()
    return ""


def hangs(seed, cases, tick):
    """A world whose second case never ends."""
    tick()
    while True:
        time.sleep(1)


@pytest.mark.parametrize(
    ("world", "cases", "finding"),
    [
        (crash, 9, "seed 5, after 2 cases: ended with -11"),
        (raises, 9, "ZeroDivisionError: as asked"),
        (leaks, 90, "its memory grew by"),
    ],
)
def test_a_finding_says_what_and_how_to_see_it_again(world, cases, finding, capsys):
    report = runs.run(Target("some", world, cases), cases, seed=5)
    (told,) = report.findings
    assert finding in told and told in capsys.readouterr().out
    assert f"again: python -m tests.fuzz some {cases} 5" in told


def test_a_world_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(runs, "HANG_S", 1.0)
    (told,) = runs.run(Target("some", hangs, 9), 9, seed=5).findings
    assert "after 1 cases: hangs" in told


def test_a_seed_goes_the_same_way_again():
    first, second = (mutation.octets(random.Random(3), bytes(64)) for _ in range(2))
    assert first == second
    made = [frames.World(3) for _ in range(2)]
    for one in made:
        one.go(frames.BURST)
    assert made[0].reasons() == made[1].reasons()
    assert made[0].fuzz["chance"] == made[1].fuzz["chance"]
