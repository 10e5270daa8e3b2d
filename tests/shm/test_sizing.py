"""Bytes of a table: bounds of what may be asked, and arrays that neither overlap nor leave their segment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.shm.layout import (
    BLOCK_RECORDS,
    CONNECTIONS_MAX,
    DEPTH_MAX,
    HEADER_BYTES,
    PAGE_BYTES,
    ROSTER_MAX,
    ZONE_OFFSET_BITS,
    ZONES_MAX,
    Region,
    Slab,
)
from zonetrack.shm.sizing import CONNECTIONS_DEFAULT, CONNECTIONS_PER_SEGMENT_MIN, Geometry

geometries = st.builds(
    Geometry,
    connections=st.integers(1, CONNECTIONS_MAX),
    zones_in_use=st.integers(1, ZONES_MAX),
    extension_share=st.integers(0, 1000),
)


@given(geometries)
def test_arrays_stand_behind_each_other_in_whole_pages(geometry):
    for region in Region:
        end = HEADER_BYTES
        for name, (count, size) in geometry.arrays(region).items():
            begin = geometry.offsets(region)[name]
            assert begin % 128 == 0
            assert end <= begin < end + 128
            end = begin + count * size
        assert end <= geometry.region_bytes(region) < end + 128 + PAGE_BYTES
        assert geometry.region_bytes(region) % PAGE_BYTES == 0
    assert geometry.total_bytes == sum(geometry.region_bytes(region) for region in Region)


@given(geometries)
def test_there_is_a_record_for_every_connection_and_an_extension_for_its_share(geometry):
    assert geometry.records(Slab.ENTRIES) >= geometry.connections
    assert geometry.records(Slab.EXTENSIONS) * 1000 >= geometry.connections * geometry.extension_share
    assert geometry.records(Slab.ENTRIES) < 1 << 32
    for slab in Slab:
        assert geometry.records(slab) == geometry.blocks(slab) * BLOCK_RECORDS
        assert geometry.pool_words(slab) >= geometry.blocks(slab) + 2 * ROSTER_MAX


@given(geometries)
def test_there_is_a_segment_for_every_so_many_keys_and_one_for_every_zone(geometry):
    keys = geometry.connections * (1000 + geometry.extension_share) // 1000
    assert (geometry.segments - geometry.zones_in_use) * CONNECTIONS_PER_SEGMENT_MIN >= keys


@given(geometries)
def test_directories_of_every_depth_stand_behind_each_other(geometry):
    first, offset = geometry.directory_first, geometry.directory_offset
    assert (first[0], offset[0] > 0) == (0, True)  # offset 0 means that a zone has none
    for depth in range(DEPTH_MAX + 1):
        count = geometry.directories(depth)
        assert first[depth + 1] - first[depth] == count
        assert offset[depth + 1] - offset[depth] == count << depth
    assert geometry.directories(0) == geometry.zones_in_use + 1


@given(geometries)
def test_the_zone_word_can_name_every_directory(geometry):
    assert geometry.directory_offset[-1] <= 1 << ZONE_OFFSET_BITS


def test_the_zone_word_can_name_every_directory_of_the_largest_table():
    largest = Geometry(CONNECTIONS_MAX, ZONES_MAX, extension_share=1000)
    assert largest.directory_offset[-1] <= 1 << ZONE_OFFSET_BITS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0,), "connections must be 1 to"),
        ((CONNECTIONS_MAX + 1,), "connections must be 1 to"),
        ((1, 0), "zones in use must be 1 to 65536, not 0"),
        ((1, ZONES_MAX + 1), "zones in use must be"),
        ((1, 1, -1), "extension share must be 0 to 1000"),
        ((1, 1, 1001), "extension share must be 0 to 1000 per thousand, not 1001"),
    ],
)
def test_what_is_out_of_range_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        Geometry(*arguments)


def test_a_million_connections_take_260_bytes_each_at_most():
    assert Geometry(1_000_000, zones_in_use=4096).total_bytes / 1_000_000 <= 260


def test_three_million_connections_take_240_bytes_each_at_most():
    assert Geometry(3_000_000).total_bytes / 3_000_000 <= 240


def test_the_default_fits_a_container():
    assert Geometry(CONNECTIONS_DEFAULT).total_bytes < 64 << 20
