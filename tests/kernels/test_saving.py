"""Records are copied out and put in whole: one by one, under limits, as any new connection is published."""

import numpy as np
import tables
from zonetrack.kernels import saving
from zonetrack.kernels.words import u64
from zonetrack.service import audit
from zonetrack.shm import segment
from zonetrack.shm.layout import ENTRY, EXTENSION, UNLIMITED, Life, Step
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry

NOW = 100_000


def at(array):
    return u64(array.ctypes.data)


def collect(one, budget=1 << 20, most=100, now_ms=NOW):
    """Walk to the end; returns entries and extensions."""
    cursor, out, more = np.zeros(1, "u8"), np.zeros(most, ENTRY), np.zeros(most, EXTENSION)
    entries, extensions = [], []
    while cursor[0] < int(one.views["records"][0]):
        n = int(saving.collect(one.views, u64(now_ms), u64(budget), at(cursor), at(out), at(more), u64(most)))
        entries.append(out[:n].copy())
        extensions.append(more[:n].copy())
        assert one.step is Step.NONE
    return np.concatenate(entries), np.concatenate(extensions)


def put(one, entries, extensions):
    """Put them in; returns the outcomes."""
    outcomes = np.zeros(len(entries), "u8")
    made = saving.put(one.views, at(entries), at(extensions), u64(len(entries)), at(outcomes))
    assert int(made) == (outcomes >> np.uint64(32) != 0).sum() and one.step is Step.NONE
    return outcomes


def table(**sizes):
    made = segment.anonymous(Geometry(1000, **sizes))
    return made, tables.Participant(made)


def test_out_and_in_again():
    _, one = table(extension_share=500)
    keys, replies = tables.keys(90), tables.keys(90)
    replies[:, 1] ^= np.uint64(1 << 20)
    one.made(keys[:50])
    one.made(keys[50:], replies[50:])
    one.mark(keys[:5])
    entries, extensions = collect(one, budget=7, most=10)
    assert {tuple(key) for key in entries["key"]} == {tuple(key) for key in keys[5:]}
    other, two = table(extension_share=500)
    outcomes = put(two, entries, extensions)
    records = (outcomes & np.uint64(0xFFFFFFFF)).astype("i8")
    assert (tables.entries(other)["life"][records] >> np.uint64(32) == outcomes >> np.uint64(32)).all()
    assert (two.find(keys[5:]) < tables.BUSY).all() and (two.find(replies[50:]) < tables.BUSY).all()
    two.run()
    again, more = collect(two)
    order, before = np.lexsort(again["key"].T), np.lexsort(entries["key"].T)
    for field in set(ENTRY.names) - {"life", "next", "extension", "hint", "lock"}:
        assert (again[field][order] == entries[field][before]).all(), field
    has = again["extension"][order] != 0
    assert (more["reply_key"][order][has] == extensions["reply_key"][before][has]).all() and has.sum() == 40
    assert audit.at_rest(other) is None


def test_who_has_expired_is_left_out():
    _, one = table()
    one.made(tables.keys(4), expiry_ms=NOW)
    assert len(collect(one, now_ms=NOW - 1)[0]) == 4
    assert len(collect(one, now_ms=NOW)[0]) == 0


def test_what_is_there_already_and_what_has_no_room():
    made, one = table(extension_share=0)
    keys = tables.keys(20)
    one.made(keys[:10])
    entries, extensions = collect(one)
    assert set(put(one, entries, extensions)) == {Reason.ADOPTED}
    entries["key"] = keys[10:]
    tables.set_limit(made, 0, 13)
    tables.refuse(made)
    assert sorted(put(one, entries, extensions))[:7] == [Reason.ZONE_FULL] * 7
    tables.set_limit(made, 0, UNLIMITED)
    entries["key"] = tables.keys(30)[20:]
    entries["extension"] = 1
    assert set(put(one, entries, extensions)) == {Reason.EXTENSION_FULL}
    one.run()
    assert (tables.entries(made)["life"] & np.uint64(0xFF) == Life.LIVE).sum() == 13
    assert audit.at_rest(made) is None


def test_a_record_that_a_dead_one_holds_is_torn():
    made, one = table()
    record = int(one.made(tables.keys(1))[0])
    tables.entries(made)["lock"][record] = 77
    entries, _ = collect(one)
    assert len(entries) == 1 and entries["status"][0] & 8
