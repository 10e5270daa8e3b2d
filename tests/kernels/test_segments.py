"""The memory of the index: what is in use is marked, what is locked is left alone."""

import numpy as np
import pytest
import tables
from tables import Participant
from zonetrack.kernels import segments
from zonetrack.shm.layout import LINE_SLOTS, UNLIMITED, USED
from zonetrack.shm.reasons import Reason

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


def test_a_free_segment_is_found_wherever_it_is(table):
    """Looks are short only for who has looked at all in vain."""
    table = tables.small(300_000)
    owners = tables.segments(table)["owner"]
    assert len(owners) > segments.LOOKS_MAX + 1
    me = Participant(table)
    owners[:-1] = USED
    me.made(tables.keys(1))
    assert owners[-1] == USED and tables.directory_of(table, 0)[0] == len(owners)
    assert me.place["segments_in_vain"] == 0
    assert me.make(tables.keys(1, zone=1))[0][0] == Reason.INDEX_FULL
    assert me.place["segments_in_vain"] == len(owners)
