"""Seats: shared by whoever has their descriptor, free at first, and in no memory before somebody sits down."""

import os

import numpy as np
import pytest
import tables
from zonetrack.shm.layout import SEATS_MAX
from zonetrack.shm.seats import Seats


def test_seats_are_free_and_take_no_memory_at_first():
    made = Seats()
    assert os.fstat(made.descriptor).st_blocks == 0 and len(made.words) == SEATS_MAX
    made.words[-1] = 7
    assert 0 < os.fstat(made.descriptor).st_blocks * 512 <= 4096
    assert np.flatnonzero(made.words).tolist() == [SEATS_MAX - 1]


def test_who_has_the_descriptor_has_the_same_seats():
    made = Seats()
    again = Seats(os.dup(made.descriptor))
    made.words[5] = 9
    assert again.words[5] == 9 and again.base != made.base
    del made
    assert again.words[5] == 9


def test_the_descriptor_goes_with_them():
    made = Seats()
    descriptor = made.descriptor
    del made
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_kernels_find_them_where_there_are_some():
    table = tables.small()
    assert table.views(0)["seats"] == 0
    table.seats = Seats()
    assert table.views(0)["seats"] == table.seats.base
