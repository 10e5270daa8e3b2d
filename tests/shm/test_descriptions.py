"""What a table says of its layout is whole, is where every version looks for it, and is never read by half."""

import numpy as np
import pytest
from zonetrack.shm import descriptions, header, segment
from zonetrack.shm.descriptions import described, laid_out
from zonetrack.shm.layout import ENTRY, EXPECTATION, EXTENSION, HEADER, HEADER_BYTES, POLICY, QUOTA, Region, Status
from zonetrack.shm.sizing import Geometry

OURS = np.dtype([("a", "u8"), ("b", "u2", (3,)), ("pair", [("x", "u4"), ("y", "u4")], (2,))])
SMALL = Geometry(500, 5)


@pytest.mark.parametrize(
    "dtype", [ENTRY, EXTENSION, EXPECTATION, POLICY, QUOTA, OURS, np.dtype("u8")], ids=lambda d: str(d)[:20]
)
def test_a_description_is_whole(dtype):
    assert laid_out(described(dtype)) == dtype


@pytest.mark.parametrize(
    "told", [{}, {"of": 1}, {"fields": {"a": ["u4", 0]}}, 7, "x9", "O", "<M8[s]", {"bytes": 8, "fields": {"a": ["u4"]}}]
)
def test_what_is_no_description(told):
    with pytest.raises(ValueError, match="not a layout"):
        laid_out(told)


def page():
    """Return the first page of a table's CONTROL region."""
    return segment.anonymous(SMALL).regions[Region.CONTROL][:HEADER_BYTES].tobytes()


def test_a_table_describes_itself():
    told = descriptions.read(page())
    assert told == descriptions.of(SMALL)
    assert laid_out(told["rows"]["entries"]) == ENTRY and told["numbers"]["Status"]["TORN"] == Status.TORN
    region, first, count = told["places"]["entries"]
    assert (region, first) == ("entries", SMALL.offsets(Region.ENTRIES)["entries"])
    assert count == SMALL.arrays(Region.ENTRIES)["entries"][0]


def test_a_description_of_the_largest_table_has_room():
    assert len(descriptions.packed(descriptions.of(Geometry(1 << 28, 65536, 1000)))) < descriptions.TEXT_BYTES_MAX


@pytest.mark.parametrize("at", [0, 4, 8, 100])
def test_one_that_is_not_whole_is_none(at):
    whole = bytearray(page())
    whole[descriptions.OFFSET + at] ^= 1
    assert descriptions.read(bytes(whole)) is None
    assert descriptions.read(bytes(whole)[:-1]) is None


def test_versions_know_each_other_by_what_never_moves():
    """A digest that changes with these would be read from elsewhere by an earlier version."""
    places = {name: int(HEADER.fields[name][1]) for name in ("magic", "version", "region", "digest", "generation")}
    assert places == {"magic": 0, "version": 8, "region": 12, "digest": 16, "generation": 24}
    assert [int(HEADER.fields[name][1]) for name in ("boot_id", "size", "state")] == [32, 48, 56]
    assert HEADER.itemsize <= descriptions.OFFSET == 1024
    assert not header.blank(1, 1, 4096).tobytes()[HEADER.itemsize :].strip(b"\0")
