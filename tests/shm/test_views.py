"""Addresses that kernels get, against what numpy says of the same memory."""

import gc

import numpy as np
import pytest
from zonetrack.shm import segment
from zonetrack.shm.layout import (
    BURST_PACKETS_MAX,
    DELETE_BYTES,
    DELETE_LIST_MAX,
    ENTRY,
    LINE_BYTES,
    PARTICIPANT,
    ROSTER_MAX,
    VIEWS,
    Region,
    Slab,
    offset,
)
from zonetrack.shm.sizing import Geometry
from zonetrack.shm.views import Table, address_of

GEOMETRY = Geometry(3000, zones_in_use=10)


@pytest.fixture(scope="module")
def table():
    return segment.anonymous(GEOMETRY)


def test_every_array_of_every_region_has_its_address(table):
    views = table.views(0)
    for region in Region:
        for name in GEOMETRY.arrays(region):
            expected = table.array(region, name, "u1").ctypes.data
            if name.startswith("pool_"):
                assert views["pool"][Slab[name.removeprefix("pool_").upper()]] == expected
            else:
                assert views[name] == expected
            assert expected == table.address(region, name)


def test_an_array_has_as_many_records_as_its_region_holds(table):
    for region in Region:
        for name, (count, size) in GEOMETRY.arrays(region).items():
            assert table.array(region, name, "u1").nbytes == count * size
    assert len(table.array(Region.CONTROL, "participants", PARTICIPANT)) == ROSTER_MAX
    assert len(table.array(Region.ENTRIES, "entries", ENTRY)) == GEOMETRY.records(Slab.ENTRIES)


def test_sizes_are_those_of_the_geometry(table):
    views = table.views(0)
    assert views["records"].tolist() == [GEOMETRY.records(slab) for slab in Slab]
    assert views["pool_words"].tolist() == [GEOMETRY.pool_words(slab) for slab in Slab]
    assert views["segment_count"] == GEOMETRY.segments
    assert views["directory_first"].tolist() == GEOMETRY.directory_first
    assert views["directory_offset"].tolist() == GEOMETRY.directory_offset
    assert views["secret"].tolist() == table.header[0]["secret"].tolist()


@pytest.mark.parametrize("me", [1, 2, ROSTER_MAX])
def test_a_participant_has_lines_of_its_own(table, me):
    views = table.views(me)
    place = table.array(Region.CONTROL, "participants", PARTICIPANT)[me - 1 : me]
    assert views["me"] == me
    assert views["intent"] == place.ctypes.data
    assert views["counters"] == place.ctypes.data + offset(PARTICIPANT, "counters")
    assert views["delete_list"] == views["delete_lists"] + (me - 1) * DELETE_LIST_MAX * DELETE_BYTES


def test_who_only_looks_has_none(table):
    views = table.views(0)
    assert (views["me"], views["intent"], views["counters"], views["delete_list"]) == (0, 0, 0, 0)


def test_scratch_is_private_to_each_view(table):
    first, second = table.views(1), table.views(1)
    assert abs(int(first["parsed"]) - int(second["parsed"])) >= BURST_PACKETS_MAX
    assert first["parsed"] % LINE_BYTES == 0
    assert first["intent"] == second["intent"]


def test_scratch_lives_as_long_as_its_view(table):
    views = table.views(1)
    gc.collect()
    owner = views
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    begin = owner.ctypes.data
    assert begin <= int(views["parsed"]) < begin + owner.nbytes
    assert VIEWS.itemsize < owner.nbytes


def test_a_table_may_stand_in_plain_arrays():
    regions = {region: np.zeros(GEOMETRY.region_bytes(region), "u1") for region in Region}
    table = Table(GEOMETRY, regions)
    assert table.control_file is None
    table.array(Region.ENTRIES, "entries", ENTRY)["mark"][0] = 5
    assert regions[Region.ENTRIES].any()
    assert (
        table.views(0)["entries"] == address_of(regions[Region.ENTRIES]) + GEOMETRY.offsets(Region.ENTRIES)["entries"]
    )
