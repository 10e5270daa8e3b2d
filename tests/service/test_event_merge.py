"""Events of several participants as one sequence: in order, none twice, and what is lost is counted."""

import numpy as np
import pytest
import tables
from zonetrack.service.event_merge import Merger, history
from zonetrack.shm.events import EVERYTHING, Events
from zonetrack.shm.layout import EVENT, EVENTS_MAX, End, EventKind
from zonetrack.shm.roster import participants

NEW, DESTROY = EventKind.NEW, EventKind.DESTROY


@pytest.fixture
def table():
    made = tables.small(300, zones=4)
    made.events = Events()
    made.events.want(EVERYTHING)
    return made


def taken(merger):
    batch, _ = merger.take()
    return batch


def test_events_of_one_connection_come_in_their_order_whoever_wrote_them(table):
    first, second = tables.Participant(table), tables.Participant(table)
    merger = Merger(table)
    keys = tables.keys(3)
    second.made(keys[:1])
    records = first.made(keys[1:])
    second.mark(keys[1:2])
    first.mark(keys[:1])
    batch = taken(merger)
    ids = (np.uint64(1) << np.uint64(32) | records).tolist()
    assert (batch.lost, batch.sequence) == (0, 5)
    assert batch.rows["sequence"].tolist() == [1, 2, 3, 4, 5]
    assert batch.rows["kind"].tolist() == [NEW, NEW, NEW, DESTROY, DESTROY]
    assert batch.rows["id"][1:4].tolist() == [*ids, ids[0]]
    assert batch.rows["end"].tolist() == [End.NONE] * 3 + [End.DELETED] * 2
    batch = taken(merger)
    assert (batch.lost, len(batch.rows), batch.sequence) == (0, 0, 5)
    first.run(), second.run()


def test_it_begins_with_what_happens_from_then_on(table):
    me = tables.Participant(table)
    me.made(tables.keys(2))
    merger = Merger(table)
    me.made(tables.keys(1, first=9))
    assert taken(merger).rows["sequence"].tolist() == [3]


def test_what_is_being_written_is_waited_for(table):
    one, other = tables.Participant(table), tables.Participant(table)
    merger = Merger(table)
    other.made(tables.keys(1))
    head = table.events.heads[one.me - 1]
    head["open"] = 1  # it has taken number 2, and stands
    table.events._count[0] += 1
    other.made(tables.keys(2, first=5))
    batch = taken(merger)
    assert (batch.rows["sequence"].tolist(), batch.lost, batch.sequence) == ([1], 0, 1)
    batch = taken(merger)
    assert (batch.rows["sequence"].tolist(), batch.lost) == ([], 0)
    slot = whole(table, one, 2)
    slot["kind"] = EventKind.UPDATE
    head["written"], head["open"] = 1, 0
    batch = taken(merger)
    assert (batch.rows["sequence"].tolist(), batch.lost, batch.sequence) == ([2, 3, 4], 0, 4)


def whole(table, participant, sequence):
    """Return the next slot of a participant's ring, as an event with this number."""
    first = table.events.ring_address(participant.me) - table.events.base
    slots = np.frombuffer(table.events.memory, EVENT, EVENTS_MAX, first)
    slots[0]["number"], slots[0]["sequence"] = 2, sequence
    return slots[0]


def test_what_a_writer_was_writing_when_it_died_is_lost_and_counted(table):
    one, other = tables.Participant(table), tables.Participant(table)
    merger = Merger(table)
    table.events.heads[one.me - 1]["open"] = 1
    table.events._count[0] += 1
    other.made(tables.keys(2))
    assert taken(merger).rows["sequence"].tolist() == []
    participants(table)[one.me - 1]["attendance"] = 0  # buried
    batch = taken(merger)
    assert (batch.lost, batch.rows["sequence"].tolist(), batch.sequence) == (1, [2, 3], 3)
    participants(table)[one.me - 1]["attendance"] = 2


def test_who_stops_in_the_middle_is_not_waited_for_for_ever(table, monkeypatch):
    one, other = tables.Participant(table), tables.Participant(table)
    merger = Merger(table)
    table.events.heads[one.me - 1]["open"] = 1
    table.events._count[0] += 1
    other.made(tables.keys(1))
    assert taken(merger).rows["sequence"].tolist() == []
    monkeypatch.setattr("zonetrack.service.event_merge.PATIENCE_S", -1.0)
    batch = taken(merger)
    assert (batch.lost, batch.rows["sequence"].tolist()) == (1, [2])
    slot = whole(table, one, 1)  # it was not dead: nobody is told the same number twice
    table.events.heads[one.me - 1]["written"], table.events.heads[one.me - 1]["open"] = 1, 0
    assert slot["number"] == 2 and taken(merger).rows["sequence"].tolist() == []


def test_a_ring_that_goes_round_loses_what_it_had_and_no_more(table):
    me = tables.Participant(table)
    merger = Merger(table)
    keys = tables.keys(2)
    me.made(keys[:1])
    head = table.events.heads[me.me - 1]
    head["written"] += EVENTS_MAX  # as if it had gone round, all of it written over but the latest
    table.events._count[0] += EVENTS_MAX
    me.made(keys[1:])
    batches = [merger.take() for _ in range(8)]
    rows = np.concatenate([batch.rows for batch, _ in batches])
    assert sum(batch.lost for batch, _ in batches) == EVENTS_MAX + 1 and len(rows) == 1
    assert rows["sequence"].tolist() == [EVENTS_MAX + 2] == [batches[-1][0].sequence]
    assert not batches[-1][1]


def test_what_has_happened_since_a_number_is_told_as_far_as_it_is_there(table):
    me, other = tables.Participant(table), tables.Participant(table)
    me.made(tables.keys(2))
    table.events.let_go()
    other.made(tables.keys(3, first=5))
    me.made(tables.keys(2, first=9))
    told = list(history(table, 1, 6))
    assert [(batch.lost, batch.rows["sequence"].tolist(), batch.sequence) for batch in told] == [(1, [3, 4, 5, 6], 6)]
    assert [batch.rows["sequence"].tolist() for batch in history(table, 5, 7)] == [[6, 7]]
    assert list(history(table, 7, 7)) == []


def test_more_than_is_read_at_once(table, monkeypatch):
    monkeypatch.setattr("zonetrack.service.event_merge.RING_ROWS_MAX", 4)
    me = tables.Participant(table)
    me.made(tables.keys(10))
    told = list(history(table, 0, 10))
    assert [batch.sequence for batch in told] == [4, 8, 10] and not any(batch.lost for batch in told)
