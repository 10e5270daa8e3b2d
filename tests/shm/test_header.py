"""Headers: written in one piece, read without a mapping, and judged one field after the other."""

import os

import numpy as np
import pytest
from zonetrack.shm import errors, header
from zonetrack.shm.layout import HEADER, HEADER_BYTES, Region, SegmentState
from zonetrack.shm.sizing import Geometry

SMALL = Geometry(1000, zones_in_use=4, extension_share=7)
READY = {SegmentState.READY}


@pytest.fixture
def file():
    """A file as long as a DUE segment, with the header of one that is READY."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, SMALL.region_bytes(Region.DUE))
    made = header.new(SMALL, Region.DUE, 5)
    made["state"] = SegmentState.READY
    header.write(descriptor, made)
    yield descriptor
    os.close(descriptor)


def test_a_new_header_is_of_this_program_and_boot_and_not_ready():
    made = header.new(SMALL, Region.DUE, 5)[0]
    assert header.is_ours(made)
    assert (made["region"], made["generation"], made["state"]) == (Region.DUE, 5, SegmentState.NEW)
    assert made["boot_id"].tobytes() == header.boot_id()
    assert made["size"] == SMALL.region_bytes(Region.DUE)


def test_generations_are_different_and_never_0():
    generations = {header.new_generation() for _ in range(100)}
    assert len(generations) == 100
    assert 0 not in generations


def test_what_was_written_is_read_and_its_page_is_zero(file):
    found = header.check("x", file, Region.DUE, READY)
    assert header.geometry("x", found) == SMALL
    assert not any(os.pread(file, HEADER_BYTES, HEADER.itemsize)[: HEADER_BYTES - HEADER.itemsize])


def test_the_state_is_written_alone(file):
    before = header.read(file)
    header.write_state(file, SegmentState.SEALED)
    after = header.read(file)
    assert [name for name in HEADER.names if np.any(before[name] != after[name])] == ["state"]
    with pytest.raises(errors.WrongState, match="x: wrong state: expected READY, found SEALED"):
        header.check("x", file, Region.DUE, READY)
    header.check("x", file, Region.DUE, {SegmentState.READY, SegmentState.SEALED})


def test_bytes_that_are_not_there_are_0(file):
    os.ftruncate(file, 8)
    found = header.read(file)
    assert found["magic"] != 0
    assert found["version"] == 0


def test_nothing_written_yet_is_new_and_a_part_of_a_header_is_truncated(file):
    os.ftruncate(file, HEADER_BYTES - 1)
    with pytest.raises(errors.WrongSize, match=f"expected at least {HEADER_BYTES}, found {HEADER_BYTES - 1}"):
        header.check("x", file, Region.DUE, READY)
    for size in (0, SMALL.region_bytes(Region.DUE)):
        os.ftruncate(file, 0)
        os.ftruncate(file, size)
        with pytest.raises(errors.WrongState, match="expected READY, found NEW"):
            header.check("x", file, Region.DUE, READY)


def test_the_first_fault_is_named(file):
    wrong = header.new(SMALL, Region.ENTRIES, 5)
    wrong["version"] = 7
    header.write(file, wrong)
    with pytest.raises(errors.WrongVersion):
        header.check("x", file, Region.DUE, READY)
    assert not header.is_ours(header.read(file))


def test_impossible_sizes_are_refused():
    wrong = header.new(SMALL, Region.DUE, 5)[0]
    wrong["extension_share"] = 1001
    with pytest.raises(errors.SegmentError, match="expected a possible capacity, found extension share must be"):
        header.geometry("x", wrong)


def test_names_of_states_and_of_none():
    assert header.names({SegmentState.SEALED, SegmentState.READY}) == "READY or SEALED"
    assert header.name_of(SegmentState, 2) == "READY"
    assert header.name_of(SegmentState, 77) == "77"
