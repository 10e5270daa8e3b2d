"""The rings of events: where each participant's stand, who wants them, and that they cost nothing while nobody does."""

import os

import numpy as np
import pytest
from zonetrack.shm import roster, segment
from zonetrack.shm.events import EVERYTHING, Events
from zonetrack.shm.layout import EVENT_BYTES, EVENT_FILTERS_MAX, EVENTS_MAX, FILTER, PAGE_BYTES, ROSTER_MAX, Kind
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def events():
    return Events()


def pages(events):
    """Return the bytes that its memory takes."""
    return os.fstat(events.descriptor).st_blocks * 512


def test_they_cost_nothing_while_nobody_wants_them(events):
    assert pages(events) <= 16 * PAGE_BYTES and events.sequence == 0
    assert not events.heads["wanted"].any()


def test_each_participant_has_a_ring_of_its_own(events):
    first = [events.ring_address(owner) for owner in range(1, ROSTER_MAX + 1)]
    assert set(np.diff(first).tolist()) == {EVENTS_MAX * EVENT_BYTES}
    filters = events.heads_address + ROSTER_MAX * events.heads.itemsize
    assert filters + events.filters.nbytes <= first[0] and first[0] % PAGE_BYTES == events.base % PAGE_BYTES == 0


def test_views_lead_to_the_own_ring(events):
    table = segment.anonymous(Geometry(100, 4, 0))
    me = roster.join(table, Kind.WORKER)
    without = table.views(me)
    assert without["event_slots"] == 0 and not np.ctypeslib.as_array(_words(int(without["events"]))).any()
    table.events = events
    events.heads[me - 1]["open"] = 1  # its predecessor died over an event
    views = table.views(me)
    assert views["events"] == events.heads_address + (me - 1) * events.heads.itemsize
    assert (views["event_slots"], views["event_sequence"]) == (events.ring_address(me), events.sequence_address)
    assert events.heads[me - 1]["open"] == 0 and events.heads[me - 1]["clock_ms"] > 0
    assert table.views(0)["event_slots"] == 0


def _words(address):
    import ctypes

    return (ctypes.c_uint64 * 16).from_address(address)


def test_who_wants_what(events):
    filters = np.zeros(EVENT_FILTERS_MAX + 1, FILTER)
    filters["mark"] = range(1, len(filters) + 1)
    events.want(EVERYTHING, filters[:2])
    assert set(events.heads["wanted"].tolist()) == {EVERYTHING} and set(events.heads["filters"].tolist()) == {0x102}
    assert events.filters["mark"][:2].tolist() == [1, 2]
    events.want(2)
    assert set(events.heads["wanted"].tolist()) == {2} and not events.heads["filters"].any()
    events.want(2, filters[2:3])
    assert set(events.heads["filters"].tolist()) == {0x201} and events.filters["mark"][0] == 3
    events.want(2, filters)  # more than there is room for
    assert not events.heads["filters"].any() and events.filters["mark"][0] == 3


def test_what_is_kept_is_written_whoever_else_wants_what(events):
    events._count[0] = 7
    events.keep(4)
    assert (events.kept, events.kept_since) == (4, 7) and set(events.heads["wanted"].tolist()) == {4}
    events.want(1, np.zeros(1, FILTER))
    assert set(events.heads["wanted"].tolist()) == {5} and not events.heads["filters"].any()
    events._count[0] = 9
    events.keep(6)
    assert events.kept_since == 7
    events.keep(0)
    events.want(1, np.zeros(1, FILTER))
    assert set(events.heads["wanted"].tolist()) == {1} and set(events.heads["filters"].tolist()) == {0x101}
    events.keep(4)
    assert not events.heads["filters"].any()


def test_numbers_are_of_one_life(events):
    assert Events(os.dup(events.descriptor)).life == events.life != Events().life


def test_the_memory_of_rings_is_given_back_and_heads_stay(events):
    before = pages(events)
    view = np.frombuffer(events.memory, "u1")
    first = events.ring_address(7) - events.base
    view[first : first + EVENTS_MAX * EVENT_BYTES] = 1
    events.heads[6]["written"] = 5
    assert pages(events) > before + EVENTS_MAX * EVENT_BYTES - PAGE_BYTES
    events.let_go()
    assert pages(events) <= before + PAGE_BYTES and events.heads[6]["written"] == 5
    assert not view[first : first + EVENT_BYTES].any()


def test_the_same_rings_by_their_descriptor(events):
    again = Events(os.dup(events.descriptor))
    events.want(1)
    assert again.heads["wanted"][0] == 1
