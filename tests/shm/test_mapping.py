"""Mapped memory: aligned, shared, there at once, and gone with its last view."""

import gc
import os
import resource

import numpy as np
import pytest
from zonetrack.shm import mapping
from zonetrack.shm.layout import PAGE_BYTES


@pytest.fixture
def file():
    """A file of memory without pages, three huge pages and a small one long."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 3 * mapping.HUGE_BYTES + PAGE_BYTES)
    yield descriptor
    os.close(descriptor)


def test_begins_on_a_huge_page_and_is_as_long_as_asked(file):
    region = mapping.shared(file, os.fstat(file).st_size, reserve=True)
    assert region.ctypes.data % mapping.HUGE_BYTES == 0
    assert region.nbytes == 3 * mapping.HUGE_BYTES + PAGE_BYTES
    assert not region.any()


def test_reserving_takes_exactly_the_bytes_of_the_file(file):
    mapping.shared(file, os.fstat(file).st_size, reserve=True)
    assert os.fstat(file).st_blocks * 512 == os.fstat(file).st_size


def test_two_mappings_of_a_file_are_the_same_bytes(file):
    first = mapping.shared(file, os.fstat(file).st_size, reserve=True)
    second = mapping.shared(file, os.fstat(file).st_size, reserve=False)
    first[12345] = 7
    second[-1] = 9
    assert (second[12345], first[-1]) == (7, 9)


def test_a_page_touched_after_mapping_costs_no_fault(file):
    region = mapping.shared(file, os.fstat(file).st_size, reserve=True)
    region[0] = 1  # numpy's own first time
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    region[::PAGE_BYTES] = 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 3 * mapping.HUGE_BYTES // PAGE_BYTES // 2


def test_a_forked_child_populates_again_and_sees_the_same_bytes(file):
    region = mapping.shared(file, os.fstat(file).st_size, reserve=True)
    region[5] = 5
    child = os.fork()
    if child == 0:
        mapping.populate(region)
        region[6] = region[5] + 1
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert region[6] == 6


def test_the_mapping_lives_as_long_as_a_view_of_it(file):
    region = mapping.shared(file, os.fstat(file).st_size, reserve=True)
    address = region.ctypes.data
    view = np.frombuffer(region, "u4", 4, 64)
    del region
    gc.collect()
    view[:] = 3
    assert _mapped(address)
    del view
    gc.collect()
    assert not _mapped(address)


def _mapped(address):
    with open("/proc/self/maps") as lines:
        return any(line.startswith(f"{address:x}-") for line in lines)


def test_what_is_no_file_of_memory_is_an_error():
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="Permission denied"):
        mapping.shared(reader, PAGE_BYTES, reserve=False)
    os.close(reader)
    os.close(writer)


def test_huge_pages_are_counted_in_whole_ones_within_the_region(file):
    region = mapping.shared(file, os.fstat(file).st_size, reserve=True)
    assert mapping.huge_bytes(region) % mapping.HUGE_BYTES == 0
    assert mapping.huge_bytes(region) <= region.nbytes


def test_a_large_mapping_has_huge_pages_where_the_machine_gives_them(file):
    region = mapping.shared(file, os.fstat(file).st_size, reserve=True)
    assert mapping.huge_bytes(region) == (3 * mapping.HUGE_BYTES if mapping.gives_huge_pages() else 0)
