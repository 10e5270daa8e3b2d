"""Rows of another layout: fields by name, bits by name, what was renamed by its row."""

import numpy as np
import pytest
from zonetrack.service import saved_rows
from zonetrack.service.saved_rows import Renamed, converted, described, laid_out
from zonetrack.shm.layout import ENTRY, EXPECTATION, EXTENSION, POLICY, QUOTA, Status

OURS = np.dtype([("a", "u8"), ("b", "u2", (3,)), ("pair", [("x", "u4"), ("y", "u4")], (2,))])


@pytest.mark.parametrize(
    "dtype", [ENTRY, EXTENSION, EXPECTATION, POLICY, QUOTA, OURS, np.dtype("u8")], ids=lambda d: str(d)[:20]
)
def test_a_description_is_whole(dtype):
    assert laid_out(described(dtype)) == dtype


@pytest.mark.parametrize("told", [{}, {"of": 1}, {"fields": {"a": ["u4", 0]}}, 7, "x9"])
def test_what_is_no_description(told):
    with pytest.raises(ValueError, match="not a layout"):
        laid_out(told)


def test_fields_are_taken_over_by_their_names():
    theirs = np.dtype(
        [("b", "u4", (5,)), ("more", "u8"), ("pair", [("y", "u8"), ("z", "u1")], (1,)), ("a", "u4", (2,))]
    )
    rows = np.zeros(2, theirs)
    rows["b"], rows["more"], rows["pair"]["y"], rows["a"] = [1, 2, 3, 4, 5], 9, 8, 7
    found = converted("x", rows, OURS, 1, saved_rows.bits())
    assert (found["b"] == [1, 2, 3]).all()
    assert found["pair"]["y"].tolist() == [[8, 0], [8, 0]] and not found["pair"]["x"].any()
    assert not found["a"].any()  # theirs has another shape


def test_what_was_renamed(monkeypatch):
    rows = np.zeros(1, [("old", "u8")])
    rows["old"] = 5
    monkeypatch.setattr(saved_rows, "RENAMED", (Renamed("x", 3, "old", "a"),))
    assert converted("x", rows, OURS, 3, {})["a"] == 5
    assert converted("x", rows, OURS, 4, {})["a"] == 0 == converted("y", rows, OURS, 3, {})["a"]


def test_bits_are_taken_over_by_their_names():
    rows = np.zeros(2, ENTRY)
    rows["status"] = [1 << 5, 1 << 6 | 1 << 7]
    told = {"Status": {"ASSURED": 1 << 5, "HELPER": 1 << 7, "GONE": 1 << 6}}
    found = converted("entries", rows, ENTRY, 1, told)
    assert found["status"].tolist() == [Status.ASSURED, Status.HELPER]
    assert rows["status"][0] == 1 << 5
    assert converted("entries", rows, ENTRY, 1, saved_rows.bits()) is rows
