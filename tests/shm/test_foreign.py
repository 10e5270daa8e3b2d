"""A table of another layout is read as it describes itself, owned meanwhile, and not written."""

import os

import numpy as np
import pytest
from zonetrack.shm import descriptions, segment
from zonetrack.shm.errors import InUse, Missing, NotOurs, Undescribed, WrongBoot, WrongGeneration, WrongSize, WrongState
from zonetrack.shm.foreign import Foreign
from zonetrack.shm.layout import ENTRY, HEADER, Region, SegmentState
from zonetrack.shm.sizing import Geometry

SMALL = Geometry(500, 5)


@pytest.fixture
def left(instance):
    """A table that nobody owns, of a layout that only its description tells."""
    with segment.create(instance, SMALL) as made:
        made.table.header["digest"] += np.uint64(1)
        made.table.array(Region.ENTRIES, "entries", ENTRY)["mark"][3] = 77
    return made.table


def path(instance, region=Region.CONTROL):
    return f"/dev/shm{segment.segment_name(instance, region)}"


def header_of(instance, region, field, value):
    with open(path(instance, region), "r+b") as file:
        np.memmap(file, HEADER, "r+", shape=(1,))[field] = value


def test_it_is_read_by_its_own_names(instance, left):
    with Foreign(instance) as old:
        assert old.digest == left.header[0]["digest"]
        assert old.array("entries")["mark"][3] == 77
        assert len(old.array("entries")) == SMALL.arrays(Region.ENTRIES)["entries"][0]
        with pytest.raises(ValueError, match="read-only"):
            old.array("entries")["mark"] = 5
        with pytest.raises(Undescribed, match="the array fish"):
            old.array("fish")


def test_it_is_owned_meanwhile(instance, left):
    with Foreign(instance), pytest.raises(InUse, match=f"process {os.getpid()}"):
        Foreign(instance)
    with Foreign(instance):
        pass


@pytest.mark.parametrize(
    ("region", "field", "value", "kind"),
    [
        (Region.CONTROL, "boot_id", 1, WrongBoot),
        (Region.CONTROL, "state", SegmentState.NEW, WrongState),
        (Region.ENTRIES, "generation", 5, WrongGeneration),
        (Region.EXTENSIONS, "size", 5, WrongSize),
    ],
)
def test_what_cannot_be_right_is_refused_and_let_go(instance, left, region, field, value, kind):
    header_of(instance, region, field, value)
    for _ in range(2):
        with pytest.raises(kind):
            Foreign(instance)


def test_who_says_nothing_is_refused(instance, left):
    left.regions[Region.CONTROL][descriptions.OFFSET] += 1
    with pytest.raises(Undescribed, match="a description of its layout"):
        Foreign(instance)


def test_what_others_can_write_is_refused(instance, left):
    os.chmod(path(instance, Region.ENTRIES), 0o666)
    with pytest.raises(NotOurs):
        Foreign(instance)


def test_a_part_that_is_missing(instance, left):
    os.unlink(path(instance, Region.ENTRIES))
    with pytest.raises(Missing):
        Foreign(instance)
