"""Counts by source: shared by whoever has their descriptor, zero at first, four cells a connection."""

import os

import tables
from zonetrack.shm.sources import CELLS_PER_CONNECTION, Sources, cells_of


def test_counts_are_zero_and_take_no_memory_at_first():
    made = Sources(100_000)
    assert os.fstat(made.descriptor).st_blocks == 0 and not made.cells[::512].any()


def test_cells_are_a_power_of_two_and_enough():
    for connections in (1, 100, 1024, 1025, 131_072, 3_000_000):
        cells = cells_of(connections)
        assert cells & (cells - 1) == 0 and cells >= CELLS_PER_CONNECTION * connections
    assert cells_of(131_072) == 4 * 131_072


def test_who_has_the_descriptor_has_the_same_counts():
    made = Sources(100)
    again = Sources(100, os.dup(made.descriptor))
    made.cells[5] = 9
    assert again.cells[5] == 9 and again.base != made.base


def test_kernels_find_them_where_there_are_some():
    table = tables.small()
    assert table.views(0)["sources"] == table.views(0)["source_cells"] == 0
    table.sources = Sources(table.geometry.connections)
    views = table.views(0)
    assert (views["sources"], views["source_cells"]) == (table.sources.base, len(table.sources.cells))
