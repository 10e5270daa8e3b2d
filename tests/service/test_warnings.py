"""Warnings before a limit: once for each mark that is passed, with some slack below it, and who has the most."""

import asyncio
import logging

import numpy as np
import pytest
import tables
from zonetrack.service.limits import Quotas
from zonetrack.service.runner import Runner
from zonetrack.service.stats import Stats
from zonetrack.service.summary import Summary
from zonetrack.service.warnings import ALL, Levels, Warnings

LIMIT = 1000


def passed(*counts):
    """Return at which of the counts, one after the other, a zone is warned of."""
    levels = Levels()
    return [count for count in counts if list(levels.look([(5, count, LIMIT)]))]


@pytest.mark.parametrize(
    ("counts", "warned"),
    [
        ((100, 749, 750, 751, 899, 900, 1000), [750, 900]),
        ((950, 950), [950]),
        ((750, 700, 750), [750]),
        ((750, 699, 750), [750, 750]),
        ((900, 850, 900), [900]),
        ((900, 849, 900), [900, 900]),
        ((900, 849, 760), [900]),
        ((900, 0, 760), [900, 760]),
    ],
)
def test_a_mark_is_told_once_until_it_is_left(counts, warned):
    assert passed(*counts) == warned


def test_zones_without_a_limit_or_with_none_let_in_are_not_warned_of():
    levels = Levels()
    assert list(levels.look([(1, 10**9, None), (2, 5, 0), (ALL, 10, 10)])) == [(ALL, 10, 10)]
    assert levels.marks == {ALL: 90}


def test_a_zone_that_is_gone_has_left_its_marks():
    levels = Levels()
    for _ in range(2):
        assert [fill.zone for fill in levels.look([(3, 80, 100)])] == [3]
        assert not list(levels.look([])) and not levels.marks


def key(low, high, zone):
    return np.array([0, low, 0, high, 1 << 48 | 2 << 32 | zone << 16 | 6 << 8 | 4], "u8")


@pytest.fixture
def table():
    return tables.small(3000, zones=400)


@pytest.fixture
def runner(table):
    runner = Runner(table, "walker")
    yield runner
    runner.close()


def test_a_warning_names_zone_count_limit_and_who_has_the_most(table, runner, caplog):
    me, stats = tables.Participant(table), Stats(table)
    for port in range(6):
        me.made(key(0xC0000201, 0xC6336401 + port, 5))
    for port in range(2):
        me.made(key(0xC0000209, 0xC6336401 + port, 5))
    me.made(key(0xC0000203, 0xC6336401, 6))
    Quotas(table).set_zone(5, 10)
    made = Warnings(stats.fills, Summary(table, runner, stats).get)
    with caplog.at_level(logging.WARNING, logger="zonetrack.control"):
        asyncio.run(made.look())
        asyncio.run(made.look())
    assert [record.getMessage() for record in caplog.records] == [
        "zone 5 is 80 % full: 8 of 10 connections; most from 192.0.2.1 6, 192.0.2.9 2"
    ]
    assert caplog.records[0].facts["limit"] == 10
    [told] = made.told()
    assert (told["zone"], told["count"], told["limit"], told["mark"]) == (5, 8, 10, 75)
    assert [one["connections"] for one in told["talkers"]] == [6, 2]
    Quotas(table).set_zone(5, 100)
    asyncio.run(made.look())
    assert made.told() == []


def test_the_whole_table(table, runner, caplog):
    me, stats = tables.Participant(table), Stats(table)
    me.made(tables.keys(9))
    tables.totals(table)["limit"] = 10
    made = Warnings(stats.fills, Summary(table, runner, stats).get)
    with caplog.at_level(logging.WARNING, logger="zonetrack.control"):
        asyncio.run(made.look())
    assert "the table is 90 % full: 9 of 10 connections" in caplog.text
    assert made.told()[0]["zone"] is ALL
