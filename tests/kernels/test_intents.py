"""What a participant says it is about to do stands in its line: step and what belongs to it in one word."""

import pytest
import tables
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels import intents
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm import roster
from zonetrack.shm.layout import BEFORE_BITS, INTENT, STEP_BITS, Step

COUNT = st.integers(0, 2**BEFORE_BITS - 1)
BARE, WITH_COUNTS, WITH_CURSOR, RECORD, SEGMENTS, ZONE, CREDIT, DONE = range(8)


@kernel
def say(views, what, step, a, b):
    if what == u64(BARE):
        intents.set_step(views, step)
    elif what == u64(WITH_COUNTS):
        intents.set_step_with_counts(views, step, a, b)
    elif what == u64(WITH_CURSOR):
        intents.set_step_with_cursor(views, step, a)
    elif what == u64(RECORD):
        intents.set_record(views, a, step)
    elif what == u64(SEGMENTS):
        intents.set_segments(views, a, b)
    elif what == u64(ZONE):
        intents.set_zone(views, a, b)
    elif what == u64(CREDIT):
        intents.set_field(views, intents.CREDIT, a)
    else:
        intents.done(views)


@pytest.fixture(scope="module")
def me():
    return tables.Participant(tables.small(300))


def said(me, what, step=0, a=0, b=0):
    """Say something on a line that was empty; returns the fields that are not 0."""
    me.place["intent"] = 0
    say(me.views, u64(what), u64(step), u64(a), u64(b))
    return {name: int(me.place["intent"][name]) for name in INTENT.names if me.place["intent"][name].any()}


@pytest.mark.parametrize("step", Step)
def test_a_bare_step(me, step):
    assert said(me, BARE, step) == ({"step": int(step)} if step else {})


@settings(deadline=None)
@given(st.sampled_from(Step), COUNT, COUNT)
def test_both_counts_and_the_step_are_one_word(me, step, zone_count, total):
    word = said(me, WITH_COUNTS, step, zone_count, total).get("step", 0)
    assert word & (1 << STEP_BITS) - 1 == step
    assert word >> STEP_BITS & (1 << BEFORE_BITS) - 1 == total
    assert word >> STEP_BITS + BEFORE_BITS == zone_count
    assert intents.step_of(u64(word)) == step
    assert tuple(map(int, intents.counts_of(u64(word)))) == (zone_count, total)


@settings(deadline=None)
@given(st.sampled_from(Step), st.integers(0, 2 ** (64 - STEP_BITS) - 1))
def test_a_cursor_and_the_step_are_one_word(me, step, cursor):
    word = said(me, WITH_CURSOR, step, cursor).get("step", 0)
    assert word & (1 << STEP_BITS) - 1 == step
    assert word >> STEP_BITS == cursor
    assert intents.step_of(u64(word)) == step and intents.cursor_of(u64(word)) == cursor


def test_records_and_segments_are_named_by_their_index_and_1(me):
    assert said(me, RECORD, Step.ALLOC, 0) == {"record": 1, "step": Step.ALLOC}
    assert said(me, RECORD, Step.MARK, 99) == {"record": 100, "step": Step.MARK}
    assert said(me, SEGMENTS, a=0, b=7) == {"segment_low": 1, "segment_high": 8}


def test_a_zone_is_named_with_the_word_it_had(me):
    assert said(me, ZONE, a=65535, b=2**64 - 1) == {"zone": 65535, "zone_word": 2**64 - 1}


def test_a_field_is_stored_alone(me):
    assert said(me, CREDIT, a=2**32 - 1) == {"credit": 2**32 - 1}


def test_done_takes_back_the_step_and_leaves_the_rest(me):
    me.place["intent"] = 0
    say(me.views, u64(RECORD), u64(Step.ALLOC), u64(4), u64(0))
    say(me.views, u64(DONE), u64(0), u64(0), u64(0))
    assert (me.step, int(me.place["intent"]["record"])) == (Step.NONE, 5)


def test_the_lines_of_others_are_left_alone(me):
    other = tables.Participant(me.table)
    before = roster.participants(me.table)[[index for index in range(256) if index != other.me - 1]].tobytes()
    say(other.views, u64(WITH_COUNTS), u64(Step.CREDIT_WRITING), u64(5), u64(6))
    after = roster.participants(me.table)[[index for index in range(256) if index != other.me - 1]].tobytes()
    assert after == before
    assert other.step is Step.CREDIT_WRITING
