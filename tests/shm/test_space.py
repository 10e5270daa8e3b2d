"""Free bytes: of each kind of memory, and the scarcest of them in the error."""

import os

import private_shm
import pytest
from forked import Child
from zonetrack.shm import space
from zonetrack.shm.errors import NoSpace
from zonetrack.shm.space import Space


def test_dev_shm_is_asked_by_name_or_by_a_file_in_it():
    by_name = space.shared_memory()
    assert by_name.free >= 0
    assert by_name.where == "in /dev/shm"
    path = space.SHARED_MEMORY / f"test-space-{os.getpid()}"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        assert space.shared_memory(descriptor).total == by_name.total
    finally:
        os.close(descriptor)
        path.unlink()


@pytest.mark.parametrize(("options", "expected"), [("size=1m", "never"), ("size=1m,huge=within_size", "within_size")])
def test_the_option_for_huge_pages_is_that_of_the_mount_on_top(options, expected):
    def work(child):
        problem = private_shm.mount(options)
        child.say((problem, space.huge_option()))

    with Child(work) as child:
        problem, found = child.hear()
    if problem:
        pytest.skip(problem)
    assert found == expected


def test_the_machine_has_memory():
    machine = space.machine()
    assert 0 < machine.free <= machine.total


def test_control_groups_with_a_limit_are_listed():
    for group in space.groups():
        assert group.total > 0
        assert group.where.startswith("in control group /sys/fs/cgroup")


@pytest.fixture
def hierarchy(tmp_path):
    """Files as the kernel shows them of two nested control groups, of which the outer one has a limit."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (inner.parent / "memory.max").write_text("1000000\n")
    (inner.parent / "memory.current").write_text("600000\n")
    (inner.parent / "memory.stat").write_text("anon 1\ninactive_file 50000\nactive_file 7\n")
    (tmp_path / "own").write_text("1:name=systemd:/x\n0::/outer/inner\n")
    return tmp_path


def test_the_groups_above_count_too(hierarchy):
    assert list(space.groups(hierarchy / "own", hierarchy)) == [
        Space(f"in control group {hierarchy}/outer", 1000000, 450000)
    ]


def test_without_control_groups_version_2_there_is_nothing_to_list(hierarchy):
    (hierarchy / "own").write_text("4:memory:/x\n")
    assert list(space.groups(hierarchy / "own", hierarchy)) == []


def test_demand_names_the_scarcest():
    spaces = Space("a", 100, 50), Space("b", 100, 40), Space("without limit", 0, 0)
    space.demand("x", 40, *spaces)
    with pytest.raises(NoSpace, match="41 bytes needed, 40 bytes free b"):
        space.demand("x", 41, *spaces)


def test_less_than_nothing_free_is_nothing():
    with pytest.raises(NoSpace, match="1 bytes needed, 0 bytes free a"):
        space.demand("x", 1, Space("a", 100, -50))


def test_demand_without_limits_is_granted():
    space.demand("x", 1 << 60, Space("a", 0, 0))
