"""Leaving a table with fragments in the hand."""

import pytest
from fragmented import HELD, Bench, cut, udp
from zonetrack.service import leaving
from zonetrack.shm import roster
from zonetrack.shm.errors import NotAtRest


def test_who_holds_fragments_gives_them_up_and_leaves():
    bench = Bench()
    assert bench.send(cut(udp(2000), 1400)[0]) == [HELD]
    with pytest.raises(NotAtRest, match="1 fragments"):
        roster.leave(bench.table, bench.me)
    leaving.leave(bench.table, bench.me, bench.views)
    assert roster.present(bench.table) == [] and bench.store["count"] == 0


def test_a_lock_that_nobody_gives_back_is_said(monkeypatch):
    monkeypatch.setattr(leaving, "TRIES_MAX", 1)
    bench = Bench()
    bench.send(cut(udp(2000), 1400)[0])
    bench.store["lock"] = 200
    with pytest.raises(NotAtRest):
        leaving.leave(bench.table, bench.me, bench.views)
    bench.store["lock"] = 0
    leaving.leave(bench.table, bench.me, bench.views)
