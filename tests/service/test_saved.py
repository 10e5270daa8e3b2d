"""A saved table comes back as it was, with what is left of its lifetimes; what is not whole is refused whole."""

import contextlib
import itertools
import os

import numpy as np
import pytest
import tables
from zonetrack.service import audit, saved
from zonetrack.service.saved import SavedError
from zonetrack.shm import roster, segment
from zonetrack.shm.errors import Exists, InUse, Missing
from zonetrack.shm.layout import ENTRY, QUOTA, Kind, Region, Status
from zonetrack.shm.sizing import Geometry

_numbers = itertools.count(1)
REFUSED = r"not a saved table|cut short, or altered"
TIMES = ("expiry_ms", "created_ms", "hint", "status")


@pytest.fixture
def name():
    made = f"test-saved-{os.getpid()}-{next(_numbers)}"
    yield made
    with contextlib.suppress(Missing):
        segment.discard(made)


def filled(name, count=100, left_ms=500_000):
    """Make a table with connections, and put it away; return its entries."""
    with segment.create(name, Geometry(1000, zones_in_use=4)) as made:
        one = tables.Participant(made.table, Kind.TOOL)
        keys = tables.keys(count)
        keys[::2, 4] = keys[::2, 4] & ~np.uint64(0xFF00) | np.uint64(6 << 8)  # half of them TCP
        one.made(keys, expiry_ms=saved.now_ms() + left_ms)
        made.table.array(Region.CONTROL, "quotas", QUOTA)["limit"][7] = 77
        one.run()
        roster.leave(made.table, one.me)
        made.seal()
        return made.table.array(Region.ENTRIES, "entries", ENTRY).copy(), keys


def test_what_was_saved_is_restored(name, tmp_path):
    before, keys = filled(name)
    told = saved.save(name, tmp_path / "x")
    assert told["connections"] == 100 and told["bytes"] == os.path.getsize(tmp_path / "x")
    assert os.stat(tmp_path / "x").st_mode & 0o777 == 0o600
    segment.discard(name)
    assert saved.restore(name, tmp_path / "x")["connections"] == 100
    with segment.attach(name, claim=True) as held:
        assert audit.at_rest(held.table) is None
        after = held.table.array(Region.ENTRIES, "entries", ENTRY)
        for field in set(ENTRY.names) - set(TIMES):
            assert (after[field] == before[field]).all(), field
        assert held.table.array(Region.CONTROL, "quotas", QUOTA)["limit"][7] == 77
        one = tables.Participant(held.table, Kind.TOOL)
        assert (one.find(keys) < tables.BUSY).all()  # by the same hash
        one.run()


def test_lifetimes_go_on_and_windows_are_learned_again(name, tmp_path, monkeypatch):
    before, _ = filled(name)
    live = before["expiry_ms"] > 0
    saved.save(name, tmp_path / "x")
    segment.discard(name)
    real = saved.now_ms
    began_ms = real() // 2
    monkeypatch.setattr(saved, "now_ms", lambda: real() - began_ms)  # a clock that began later
    saved.restore(name, tmp_path / "x")
    with segment.attach(name, claim=True) as held:
        after = held.table.array(Region.ENTRIES, "entries", ENTRY)
        left = after["expiry_ms"][live].astype("i8") - saved.now_ms()
        assert ((left > 0) & (left <= 500_000)).all()
        due = held.table.array(Region.DUE, "due", "u4")
        assert (due[live] == after["expiry_ms"][live] // 16).all() and (after["hint"][live] == due[live]).all()
        tcp = before["key"][:, 4] >> np.uint64(8) & np.uint64(0xFF) == 6
        torn = after["status"] & Status.TORN != 0
        assert (torn == (live & tcp)).all() and torn.any()


@pytest.mark.parametrize("where", [0, 9, 14, 400, 100_000, -1])
def test_a_file_that_was_altered_is_refused(name, tmp_path, where):
    filled(name)
    saved.save(name, tmp_path / "x")
    segment.discard(name)
    whole = bytearray((tmp_path / "x").read_bytes())
    whole[where] ^= 1
    (tmp_path / "x").write_bytes(whole)
    with pytest.raises(SavedError, match=REFUSED):
        saved.restore(name, tmp_path / "x")
    with pytest.raises(Missing):
        segment.attach(name, sealed=True)


@pytest.mark.parametrize("length", [0, 5, 12, 100, 5_000, -1])
def test_a_file_that_is_cut_is_refused(name, tmp_path, length):
    filled(name)
    saved.save(name, tmp_path / "x")
    whole = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(whole[:length])
    with pytest.raises(SavedError, match=REFUSED):
        saved.restore(name, tmp_path / "x", replace=True)
    with segment.attach(name, sealed=True) as held:
        assert (held.table.array(Region.ENTRIES, "entries", ENTRY)["expiry_ms"] > 0).sum() == 100


def test_a_file_of_another_layout_is_refused_by_name(name, tmp_path, monkeypatch):
    filled(name)
    monkeypatch.setattr(saved, "digest", lambda: 7)
    saved.save(name, tmp_path / "x")
    monkeypatch.undo()
    with pytest.raises(SavedError, match="format 0000000000000007"):
        saved.restore(name, tmp_path / "x", replace=True)


def test_a_table_that_is_used_is_neither_saved_nor_replaced(name, tmp_path):
    filled(name)
    saved.save(name, tmp_path / "x")
    with pytest.raises(Exists):
        saved.restore(name, tmp_path / "x")
    with segment.attach(name, claim=True):
        with pytest.raises(InUse):
            saved.save(name, tmp_path / "y")
        with pytest.raises(InUse):
            saved.restore(name, tmp_path / "x", replace=True)
    assert not (tmp_path / "y").exists() and [path.name for path in tmp_path.iterdir()] == ["x"]
