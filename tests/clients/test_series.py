"""What a trial looked like: rates are of what lies between two moments, and a table and its senders say how far they are."""

import numpy as np
import tables
from zonetrack.clients.series import Moment, Row, Series
from zonetrack.clients.traffic import STREAM
from zonetrack.shm import roster
from zonetrack.shm.reasons import Reason


def test_rates_are_of_what_lies_between():
    series = Series(
        [
            Moment(1.0, 100, 10, 0, 1_000),
            Moment(1.5, 300, 30, 5, 5_000),
            Moment(1.5, 300, 30, 5, 5_000),
            Moment(2.5, 300, 20, 15, 5_000),
        ]
    )
    assert series.rows() == [Row(1.5, 400.0, 30, 10.0, 20.0), Row(2.5, 0.0, 20, 10.0, None)]


def test_nothing_is_said_of_a_single_moment():
    assert Series([Moment(1.0, 100, 10, 0, 0)]).rows() == []


def test_a_moment_has_what_the_table_and_its_senders_say():
    table = tables.small(100)
    one = tables.Participant(table)
    one.made(tables.keys(5))
    one.made(tables.keys(3, first=50), expiry_ms=10)
    assert one.sweep(1_000) == 3
    watched = np.zeros(2, STREAM)
    watched["packets"], watched["calls_ns"] = [4, 5], [30, 60]
    series = Series()
    series.note(table, watched)
    moment = series.moments[0]
    assert moment[1:] == (9, 5, 3, 90) and moment.seconds >= 0
    counters = roster.participants(table)["counters"]
    counters[:, Reason.FLUSHED] += 1
    series.note(table, watched)
    assert series.moments[1].freed == 3 + len(counters)
