"""The memory of the index: what is in use is marked, what is locked is left alone."""

import numpy as np
import pytest
import tables
from tables import Participant
from zonetrack.shm.layout import LINE_SLOTS, UNLIMITED, USED

PAIR = 2 * LINE_SLOTS


@pytest.fixture
def table():
    table = tables.small(2000, extension_share=500)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def me(table):
    return Participant(table)


def test_each_zone_begins_to_look_for_a_directory_at_a_place_of_its_own(table, me):
    zones = range(5)
    me.made(np.concatenate([tables.keys(1, zone=zone) for zone in zones]))
    assert [tables.directory_number(table, zone) for zone in zones] == list(zones)
    count = table.geometry.directories(0)
    me.made(tables.keys(1, zone=count))
    assert tables.directory_number(table, count) == len(zones)  # its place is taken, and those behind it
    tables.assert_at_rest(table)


def test_segments_and_directories_in_use_are_marked(table, me):
    me.made(tables.keys(600, zone=1))
    named = tables.directory_of(table, 1).astype("i8") - 1
    assert set(tables.segments(table)["owner"][named].tolist()) == {USED}
    assert tables.directory_owners(table)[tables.directory_number(table, 1)] == USED
    assert tables.used(table) == (len(set(named.tolist())), 1)  # smaller directories went back
