"""Rows of another layout: fields by name, bits by name, what was renamed by its row."""

import numpy as np
import pytest
from zonetrack.service import saved_rows
from zonetrack.service.saved_rows import Renamed, converted
from zonetrack.shm import descriptions
from zonetrack.shm.layout import ENTRY, SCTP_ASSOCIATION, TCP_PEERS, Status

OURS = np.dtype([("a", "u8"), ("b", "u2", (3,)), ("pair", [("x", "u4"), ("y", "u4")], (2,))])


def test_fields_are_taken_over_by_their_names():
    theirs = np.dtype(
        [("b", "u4", (5,)), ("more", "u8"), ("pair", [("y", "u8"), ("z", "u1")], (1,)), ("a", "u4", (2,))]
    )
    rows = np.zeros(2, theirs)
    rows["b"], rows["more"], rows["pair"]["y"], rows["a"] = [1, 2, 3, 4, 5], 9, 8, 7
    found = converted("x", rows, OURS, 1, descriptions.numbers())
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
    assert converted("entries", rows, ENTRY, 1, descriptions.numbers()) is rows


def test_what_protocols_remember_is_taken_over_by_its_names():
    """Only of the connections that a protocol follows, and only where it was laid out in another way."""
    told = descriptions.protocols()
    fields = told["TCP_PEERS"]["fields"]
    theirs = np.dtype([(name, TCP_PEERS[name]) for name in reversed(list(fields))])
    told["TCP_PEERS"] = descriptions.described(theirs)
    rows = np.zeros(3, ENTRY)
    rows["key"][:, 4] = [6 << 8, 132 << 8, 17 << 8]
    peers = np.zeros(1, theirs)
    peers["last_win"], peers["peer"]["maxwin"] = 7, [5, 6]
    rows["protocol"] = 9
    rows["protocol"][0, : theirs.itemsize] = peers.view("u1")
    found = converted("entries", rows, ENTRY, 1, descriptions.numbers(), told)
    ours = found["protocol"][:1, : TCP_PEERS.itemsize].copy().view(TCP_PEERS)[0, 0]
    assert ours["last_win"] == 7 and ours["peer"]["maxwin"].tolist() == [5, 6]
    assert (found["protocol"][1:] == 9).all()
    told["SCTP_ASSOCIATION"] = {**descriptions.described(SCTP_ASSOCIATION), "bytes": 65}
    with pytest.raises(ValueError, match="SCTP_ASSOCIATION is longer than its place"):
        converted("entries", rows, ENTRY, 1, descriptions.numbers(), told)
