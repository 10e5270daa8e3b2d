"""Copies of events: whole ones only, whatever their writer does meanwhile."""

import numpy as np
import pytest
import tables
from zonetrack.kernels import event_reader
from zonetrack.kernels.words import u64
from zonetrack.shm.events import EVERYTHING, RING_BYTES, Events
from zonetrack.shm.layout import EVENT, EVENT_ROW, EVENTS_MAX, ROSTER_MAX, EventKind


@pytest.fixture
def table():
    made = tables.small(300, zones=4)
    made.events = Events()
    made.events.want(EVERYTHING)
    return made


def slots(table, me):
    first = table.events.ring_address(me.me) - table.events.base
    return np.frombuffer(table.events.memory, EVENT, RING_BYTES // EVENT.itemsize, first)


def gather(table, me, first, end, most=100):
    rows, scratch = np.zeros(most, EVENT_ROW), np.zeros(1, EVENT)
    result = int(
        event_reader.gather(
            *map(u64, (table.events.ring_address(me.me), first, end, 1_000_000)),
            *map(u64, (scratch.ctypes.data, rows.ctypes.data, most)),
        )
    )
    return result >> 32, rows[: result & 0xFFFFFFFF]


def test_a_survey_tells_what_is_taken_open_and_written(table):
    one, other = tables.Participant(table), tables.Participant(table)
    one.made(tables.keys(2))
    other.made(tables.keys(1, first=7))
    table.events.heads["open"][other.me - 1] = 1
    seen = np.zeros((ROSTER_MAX, 2), "u8")
    addresses = (table.events.sequence_address, table.events.heads_address, seen.ctypes.data)
    assert event_reader.survey(*map(u64, addresses)) == 3
    assert seen[one.me - 1].tolist() == [0, 2] and seen[other.me - 1].tolist() == [1, 1]
    assert seen.sum() == 4


def test_rows_say_what_happened_and_when(table):
    me = tables.Participant(table)
    table.events.heads["clock_ms"][me.me - 1] = 500
    keys = tables.keys(2, zone=3)
    records = me.made(keys)
    me.mark(keys[:1])
    done, rows = gather(table, me, 0, 3)
    assert done == 3 and rows["sequence"].tolist() == [1, 2, 3]
    assert rows["time_ms"].tolist() == [1_000_500] * 3
    assert rows["kind"].tolist() == [EventKind.NEW, EventKind.NEW, EventKind.DESTROY]
    assert (rows["id"] & np.uint64(0xFFFFFFFF)).tolist() == [*records.tolist(), records[0]]
    assert rows["zone"].tolist() == [3, 3, 3] and rows["protocol"].tolist() == [17] * 3
    me.run()


def test_a_reply_tuple_is_shown(table):
    me = tables.Participant(table)
    me.made(tables.keys(1), tables.keys(1, first=99, low=5))
    _, (row,) = gather(table, me, 0, 1)
    assert row["reply_src"].tolist() != row["dst"].tolist()


def test_one_that_is_being_written_is_left_out(table):
    me = tables.Participant(table)
    me.made(tables.keys(3))
    slots(table, me)["number"][1] += 1
    done, rows = gather(table, me, 0, 3)
    assert done == 3 and rows["sequence"].tolist() == [1, 3]


def test_what_was_written_over_is_left_out(table):
    me = tables.Participant(table)
    me.made(tables.keys(2))
    done, rows = gather(table, me, 0, EVENTS_MAX + 2, EVENTS_MAX)
    assert done == EVENTS_MAX + 2 and len(rows) == 0  # 0 and 1 stand where EVENTS_MAX and its follower should


def test_it_stops_when_there_is_no_more_room(table):
    me = tables.Participant(table)
    me.made(tables.keys(5))
    done, rows = gather(table, me, 1, 5, 2)
    assert done == 2 and rows["sequence"].tolist() == [2, 3]
