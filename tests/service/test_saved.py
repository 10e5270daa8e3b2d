"""A saved table comes back as it was, with what is left of its lifetimes; what is not whole is refused whole."""

import contextlib
import itertools
import os

import foretelling
import numpy as np
import pytest
import tables
from foretelling import Wanted
from zonetrack.kernels import helpers, sources
from zonetrack.service import audit, saved, saved_file
from zonetrack.service.saved import SavedError
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm import descriptions, roster, segment
from zonetrack.shm.errors import Exists, InUse, Missing
from zonetrack.shm.layout import (
    ENTRY,
    EXPECTATION,
    EXTENSION,
    QUOTA,
    SEATS_MAX,
    ExpectationFlag,
    Helper,
    Kind,
    Life,
    Region,
    Setting,
    Status,
)
from zonetrack.shm.seats import Seats
from zonetrack.shm.sizing import Geometry
from zonetrack.shm.sources import Sources

_numbers = itertools.count(1)
REFUSED = r"not a saved table|cut short, or altered"
SAME = ("protocol", "packets", "bytes", "mark", "state", "policy")


@pytest.fixture
def name():
    made = f"test-saved-{os.getpid()}-{next(_numbers)}"
    yield made
    with contextlib.suppress(Missing):
        segment.discard(made)


def entries_of(table):
    """Return the connections of a table, in the order of their keys."""
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    live = entries[entries["life"] & np.uint64(0xFF) == Life.LIVE]
    return live[np.lexsort(live["key"].T)].copy()


def filled(name, count=100, left_ms=500_000):
    """Make a table with connections, and put it away; return its entries."""
    with segment.create(name, Geometry(1000, zones_in_use=4, extension_share=500)) as made:
        one = tables.Participant(made.table, Kind.TOOL)
        keys = tables.keys(count)
        keys[::2, 4] = keys[::2, 4] & ~np.uint64(0xFF00) | np.uint64(6 << 8)  # half of them TCP
        replies = keys.copy()
        replies[:, 1] ^= np.uint64(1 << 20)
        expiry_ms = saved.now_ms() + left_ms
        one.made(keys[:60], expiry_ms=expiry_ms)
        records = one.made(keys[60:], replies[60:], expiry_ms=expiry_ms)  # translated
        entries = made.table.array(Region.ENTRIES, "entries", ENTRY)
        extensions = made.table.array(Region.EXTENSIONS, "extensions", EXTENSION)
        extensions["label"][entries["extension"][records] - 1] = 7, 8
        entries["mark"][:] = np.arange(len(entries))
        entries["packets"][:] = 5, 6
        entries["parent"][records[-1]] = records[0] | entries["life"][records[0]] >> np.uint64(32) << np.uint64(32)
        made.table.array(Region.CONTROL, "quotas", QUOTA)["limit"][7] = 77
        one.run()
        roster.leave(made.table, one.me)
        made.seal()
        return entries_of(made.table), keys


def test_what_was_saved_is_restored(name, tmp_path):
    before, keys = filled(name)
    told = saved.save(name, tmp_path / "x")
    assert told["connections"] == 100 and told["bytes"] == os.path.getsize(tmp_path / "x")
    assert os.stat(tmp_path / "x").st_mode & 0o777 == 0o600
    segment.discard(name)
    assert saved.restore(name, tmp_path / "x")["connections"] == 100
    with segment.attach(name, claim=True) as held:
        assert audit.at_rest(held.table) is None
        after = entries_of(held.table)
        assert (after["key"] == before["key"]).all()
        for field in SAME:
            assert (after[field] == before[field]).all(), field
        extensions = held.table.array(Region.EXTENSIONS, "extensions", EXTENSION)
        more = extensions[after["extension"][after["extension"] != 0] - 1]
        assert len(more) == 40 and (more["label"] == (7, 8)).all() and (more["reply_key"][:, 4] != 0).all()
        (child,) = after[after["parent"] != 0]
        everybody = held.table.array(Region.ENTRIES, "entries", ENTRY)
        parent = everybody[int(child["parent"]) & 0xFFFFFFFF]
        assert (parent["key"] == keys[60]).all() and int(parent["life"]) >> 32 == int(child["parent"]) >> 32
        assert held.table.array(Region.CONTROL, "quotas", QUOTA)["limit"][7] == 77
        one = tables.Participant(held.table, Kind.TOOL)
        assert (one.find(keys) < tables.BUSY).all()
        one.run()


def test_lifetimes_go_on_and_windows_are_learned_again(name, tmp_path, monkeypatch):
    before, _ = filled(name)
    saved.save(name, tmp_path / "x")
    segment.discard(name)
    real = saved.now_ms
    began_ms = real() // 2
    monkeypatch.setattr(saved, "now_ms", lambda: real() - began_ms)  # a clock that began later
    saved.restore(name, tmp_path / "x")
    with segment.attach(name, claim=True) as held:
        after = entries_of(held.table)
        left = after["expiry_ms"].astype("i8") - saved.now_ms()
        assert ((left > 0) & (left <= 500_000)).all()
        due = held.table.array(Region.DUE, "due", "u4")
        assert sorted(due[due != 0]) == sorted(after["expiry_ms"] // 16) and (after["hint"] != 0).all()
        tcp = before["key"][:, 4] >> np.uint64(8) & np.uint64(0xFF) == 6
        torn = after["status"] & Status.TORN != 0
        assert (torn == tcp).all() and torn.any()


def test_a_table_that_is_in_use_is_saved_and_gets_what_was_saved(name, tmp_path):
    before, keys = filled(name)
    saved.save(name, tmp_path / "x")
    with segment.attach(name, claim=True) as held:
        one = tables.Participant(held.table, Kind.WORKER)
        one.remove(keys[:30])
        one.run()
        assert saved.save(name, tmp_path / "y")["connections"] == 70
        told = saved.restore(name, tmp_path / "x")
        assert (told["connections"], told["there"], told["no_room"], told["expired"]) == (30, 70, 0, 0)
        assert (one.find(keys) < tables.BUSY).all()
        assert len(entries_of(held.table)) == len(before)
        assert audit.live(held.table, one.me) is None


def test_what_was_foretold_is_foretold_again(name, tmp_path):
    with segment.create(name, Geometry(1000, zones_in_use=4)) as made:
        one = tables.Participant(made.table, Kind.TOOL)
        record = int(one.made(tables.keys(1), expiry_ms=saved.now_ms() + 500_000)[0])
        life = int(made.table.array(Region.ENTRIES, "entries", ENTRY)["life"][record])
        wanted = Wanted(port=7, zone=0, mark=3)
        foretelling.add(one, life >> 32 << 32 | record, wanted, most=2)
        one.run()
        roster.leave(made.table, one.me)
        made.seal()
    saved.save(name, tmp_path / "x")
    segment.discard(name)
    assert saved.restore(name, tmp_path / "x")["expectations"] == 1
    with segment.attach(name, claim=True) as held:
        assert audit.at_rest(held.table) is None
        one = tables.Participant(held.table, Kind.TOOL)
        foretold = held.table.array(Region.CONTROL, "expectations", EXPECTATION)
        (found,) = foretold[foretold["flags"] & np.uint32(ExpectationFlag.IN_USE) != 0]
        assert (found["mark"], found["last"]) == (3, wanted.last)
        assert foretelling.claim(one, wanted) == found["parent"]


def test_budgets_hold_again(name, tmp_path):
    """Seats of zones lie apart again, and connections that were counted at their sources are counted by the next start."""
    wanted = {0: {"half_open": 30, "per_source": 200}, 3: {"half_open": 20}}
    with segment.create(name, Geometry(1000, zones_in_use=4)) as made:
        made.table.seats, made.table.sources = Seats(), Sources(1000)
        one = tables.Participant(made.table, Kind.TOOL)
        records = one.made(tables.keys(50), expiry_ms=saved.now_ms() + 500_000)
        tables.entries(made.table)["status"][records] |= np.uint16(Status.SOURCE_COUNTED)
        for zone, budgets in reversed(wanted.items()):
            ZoneSettings(made.table).set(zone, budgets)
        roster.leave(made.table, one.me)
        made.seal()
    saved.save(name, tmp_path / "x")
    segment.discard(name)
    saved.restore(name, tmp_path / "x")
    with segment.attach(name, claim=True) as held:
        held.table.seats, held.table.sources = Seats(), Sources(1000)
        for zone, budgets in wanted.items():
            assert ZoneSettings(held.table).of(zone).items() >= budgets.items()
        quotas = tables.quotas(held.table)
        assert sorted(quotas["half_open_first"][[0, 3]].tolist()) in ([0, 20], [0, 30])
        assert int(sources.recount(held.table.views(0))) == 50
        assert int((held.table.sources.cells & np.uint64(0xFFFFFF)).sum()) == 50


def test_helpers_follow_again(name, tmp_path):
    with segment.create(name, Geometry(1000, zones_in_use=4)) as made:
        ZoneSettings(made.table).set(3, {"ftp": [21, 2121]})
        made.seal()
    saved.save(name, tmp_path / "x")
    saved.restore(name, tmp_path / "x", replace=True)
    with segment.attach(name, claim=True) as held:
        assert ZoneSettings(held.table).of(3)["ftp"] == [21, 2121]
        assert tables.zones(held.table)["settings"][3] & np.uint16(Setting.HELPERS)
        one = tables.Participant(held.table, Kind.TOOL)
        assert int(helpers.rule_for(one.views, np.uint64(3), np.uint64(6), np.uint64(21))) == Helper.FTP


def test_a_budget_without_seats_is_none(name, tmp_path):
    filled(name)
    with segment.attach(name, claim=True) as held:
        tables.quotas(held.table)["half_open_limit"][[1, 2]] = [SEATS_MAX, 5]
        tables.zones(held.table)["settings"][[1, 2]] |= np.uint16(Setting.HALF_OPEN)
        held.seal()
    saved.save(name, tmp_path / "x")
    saved.restore(name, tmp_path / "x", replace=True)
    with segment.attach(name, claim=True) as held:
        assert tables.quotas(held.table)["half_open_limit"][[1, 2]].tolist() == [SEATS_MAX, 0]
        is_on = tables.zones(held.table)["settings"][[1, 2]] & np.uint16(Setting.HALF_OPEN) != 0
        assert is_on.tolist() == [True, False]


def test_who_has_expired_and_who_has_no_room_stays_out(name, tmp_path, monkeypatch):
    filled(name)
    saved.save(name, tmp_path / "x")
    segment.discard(name)
    monkeypatch.setattr(saved, "_geometry", lambda whole: Geometry(50, zones_in_use=4, extension_share=500))
    told = saved.restore(name, tmp_path / "x")
    assert told["connections"] + told["no_room"] == 100 and told["connections"] == 50
    segment.discard(name)
    monkeypatch.setattr(saved, "_later", lambda moments, by_ms: moments - np.uint64(600_000))
    assert saved.restore(name, tmp_path / "x")["expired"] == 100


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


def older(path, tmp_path, version=1):
    """Write a file as another layout has it: fields in another order, wider or missing, other bits of one name."""
    whole = saved.read(path)
    told = dict(whole.description, format=version)
    theirs = np.dtype([
        ("new_field", "u4"), ("life", "u8"), ("next", "u8"), ("extension", "u4"), ("key", "u8", (5,)), ("mark", "u8"),
        ("status", "u4"), ("state", "u1"), ("protocol", "u1", (48,)), ("parent", "u8"), ("expiry_ms", "u8"),
        ("created_ms", "u8"), ("packets", "u8", (2,)),
    ])  # fmt: skip
    told["rows"] = dict(told["rows"], entries=descriptions.described(theirs))
    told["bits"] = dict(told["bits"], Status={name: bit << 1 for name, bit in told["bits"]["Status"].items()})
    made = tmp_path / "older"
    with saved_file.written(made, told) as writer:
        for part in whole.parts():
            data = part.data
            if part.name == "entries":
                rows = data.view(ENTRY)
                other = np.zeros(len(rows), theirs)
                for field in set(theirs.names) & set(ENTRY.names) - {"protocol", "status"}:
                    other[field] = rows[field]
                other["status"] = rows["status"].astype("u4") << 1
                other["protocol"] = rows["protocol"][:, :48]
                data = other
            writer.part(part.name, data)
        writer.finish()
    return made


def test_a_file_of_another_layout_is_read_by_the_names_of_its_fields(name, tmp_path):
    before, _ = filled(name)
    saved.save(name, tmp_path / "x")
    segment.discard(name)
    assert saved.restore(name, older(tmp_path / "x", tmp_path))["connections"] == 100
    with segment.attach(name, claim=True) as held:
        assert audit.at_rest(held.table) is None
        after = entries_of(held.table)
        for field in ("key", "mark", "packets", "state"):
            assert (after[field] == before[field]).all(), field
        assert (after["status"] & ~np.uint16(Status.TORN) == before["status"]).all()
        assert (after["bytes"] == 0).all()


def test_a_file_of_a_version_that_does_not_say_what_its_rows_are(name, tmp_path, monkeypatch):
    filled(name)
    monkeypatch.setattr(saved, "VERSION", 1)
    saved.save(name, tmp_path / "x")
    monkeypatch.undo()
    with pytest.raises(SavedError, match="saved in another way"):
        saved.restore(name, tmp_path / "x", replace=True)


def test_a_table_that_somebody_owns_is_not_replaced(name, tmp_path):
    filled(name)
    saved.save(name, tmp_path / "x")
    with pytest.raises(Exists):
        saved.restore(name, tmp_path / "x")
    with segment.attach(name, claim=True), pytest.raises(InUse):
        saved.restore(name, tmp_path / "x", replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
