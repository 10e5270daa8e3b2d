"""The memory of an instance: made, found again, refused, and taken away."""

import os

import numpy as np
from zonetrack.shm import segment
from zonetrack.shm.layout import ENTRY, Region, offset
from zonetrack.shm.sizing import Geometry


def test_an_anonymous_table_is_shared_with_forked_children():
    table = segment.anonymous(Geometry(1000))
    child = os.fork()
    if child == 0:
        table.array(Region.ENTRIES, "entries", ENTRY)["mark"][7] = 42
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert table.array(Region.ENTRIES, "entries", ENTRY)["mark"][7] == 42


def test_an_anonymous_table_gives_kernels_their_views():
    table = segment.anonymous(Geometry(1000))
    views = table.views(0)
    word = np.uint64(views["entries"]) + offset(ENTRY, "mark")
    assert int(word) == table.array(Region.ENTRIES, "entries", ENTRY)["mark"].ctypes.data


def test_an_anonymous_table_leaves_no_descriptor_behind():
    before = len(os.listdir("/proc/self/fd"))
    table = segment.anonymous(Geometry(1))
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del table
    assert len(os.listdir("/proc/self/fd")) == before
