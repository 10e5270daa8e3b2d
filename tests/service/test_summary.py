"""A summary is of a whole walk, in plain values; who asks too soon is told the same again, who asks first waits."""

import asyncio

import msgpack
import numpy as np
import pytest
import tables
from zonetrack.service import summary
from zonetrack.service.limits import Quotas
from zonetrack.service.runner import Runner
from zonetrack.service.stats import Stats
from zonetrack.service.summary import Summary
from zonetrack.shm.layout import Status


@pytest.fixture
def table():
    return tables.small(3000, zones=400)


@pytest.fixture
def runner(table):
    runner = Runner(table, "walker")
    yield runner
    runner.close()


@pytest.fixture
def made(table, runner):
    return Summary(table, runner, Stats(table))


def key(low, high, zone, protocol=6, family=4):
    return np.array([0, low, 0, high, 1 << 48 | 2 << 32 | zone << 16 | protocol << 8 | family], "u8")


def test_all_of_it(table, made):
    me = tables.Participant(table)
    entries = tables.entries(table)
    for low, high, zone, family in ((0xC0000201, 0xC6336401, 5, 4), (0xC0000201, 0xC6336402, 5, 4), (1, 2, 7, 6)):
        record = int(me.made(key(low, high, zone, family=family))[0])
        entries[record]["state"], entries[record]["status"] = 3, Status.SEEN_REPLY
    me.made(key(8, 9, 7, protocol=99))
    Quotas(table).set_zone(7, 4)
    found = asyncio.run(made.get())
    assert msgpack.unpackb(msgpack.packb(found))
    assert (found["connections"], found["unreplied"], found["ipv6"]) == (4, 1, 1)
    assert found["protocols"] == {"tcp": 3, "99": 1}
    assert found["states"] == {"tcp": {"ESTABLISHED": 3}, "ovs": {}, "sctp": {}}
    assert found["sources"][0] == {
        "address": "192.0.2.1", "zone": 5, "connections": 2, "others": 0, "packets": 0, "bytes": 0,
    }  # fmt: skip
    assert {one["address"] for one in found["destinations"]} == {"198.51.100.1", "198.51.100.2", "::2", "0.0.0.9"}
    assert found["zones"] == [{"zone": 7, "count": 2, "limit": 4}, {"zone": 5, "count": 2, "limit": None}]
    entries["state"] = entries["status"] = 0


def test_who_asks_too_soon_is_told_the_same(table, made, monkeypatch):
    monkeypatch.setattr(summary, "SHARE", 1e-9)
    me = tables.Participant(table)

    async def twice():
        first = await made.get()
        me.made(tables.keys(3))
        return first, await made.get()

    first, second = asyncio.run(twice())
    assert first["connections"] == second["connections"] == 0 and second["age_s"] >= first["age_s"]
    assert second["zones"] == [{"zone": 0, "count": 3, "limit": None}]  # these are of now


def test_many_who_ask_at_once_wait_for_one_walk(made):
    async def all_at_once():
        return await asyncio.gather(*(made.get() for _ in range(20)))

    assert len({one["time"] for one in asyncio.run(all_at_once())}) == 1


def test_a_walk_is_cut_into_turns_between_which_others_have_theirs(table, made, runner, monkeypatch):
    monkeypatch.setattr(summary, "TURN_S", 0.0)
    monkeypatch.setattr(summary, "SLICE_SLOTS", np.uint64(256))
    tables.Participant(table).made(tables.keys(30))

    async def beside():
        asked = asyncio.create_task(made.get())
        await asyncio.sleep(0)  # now its first turn waits for the runner
        was_under_way = await runner.do(lambda _: made._last is None)
        return was_under_way, await asked

    was_under_way, found = asyncio.run(beside())
    assert was_under_way and found["connections"] == 30


def test_zones_nearest_to_their_limit_are_there_however_small(table, made, monkeypatch):
    monkeypatch.setattr(summary, "ZONES_SHOWN", 2)
    me = tables.Participant(table)
    for zone, count in ((1, 50), (2, 40), (3, 2), (4, 1)):
        me.made(tables.keys(count, zone=zone))
    Quotas(table).set_zone(3, 2)
    Quotas(table).set_zone(2, 10_000)
    assert [one["zone"] for one in made.zones()] == [1, 2, 3]
