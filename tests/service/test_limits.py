"""Limits are set with one store, shown beside counts, and refused where they cannot be."""

import pytest
import tables
from tables import Participant
from zonetrack.clients.errors import BadParameterError
from zonetrack.service.limits import Quotas
from zonetrack.shm.layout import UNLIMITED
from zonetrack.shm.reasons import Reason


@pytest.fixture
def table():
    return tables.small(500)


@pytest.fixture
def quotas(table):
    return Quotas(table)


def test_a_new_table_has_the_limit_it_was_made_for(quotas):
    assert quotas.get() == {"global": {"limit": 500, "count": 0}, "default": None, "zones": []}


def test_limits_hold_and_are_shown_beside_counts(table, quotas):
    me = Participant(table)
    me.made(tables.keys(3, zone=5))
    quotas.set_zone(5, 4)
    quotas.set_zone(6, 0)
    quotas.set_zone(7, None)
    quotas.set_default(2)
    quotas.set_total(100)
    assert quotas.get() == {
        "global": {"limit": 100, "count": 3},
        "default": 2,
        "zones": [
            {"zone": 5, "limit": 4, "count": 3, "own": True},
            {"zone": 6, "limit": 0, "count": 0, "own": True},
            {"zone": 7, "limit": None, "count": 0, "own": True},
        ],
    }
    assert quotas.get(8)["zones"] == [{"zone": 8, "limit": 2, "count": 0, "own": False}]
    more = [me.make_one(key) for key in tables.keys(2, zone=5, low=2)]
    assert more == [Reason.NONE, Reason.ZONE_FULL]
    assert me.make_one(tables.keys(1, zone=6)) is Reason.ZONE_FULL
    assert [me.make_one(key) for key in tables.keys(3, zone=8)] == [Reason.NONE, Reason.NONE, Reason.ZONE_FULL]


def test_a_limit_below_the_count_takes_nothing_away(table, quotas):
    me = Participant(table)
    me.made(tables.keys(10, zone=1))
    quotas.set_total(5)
    assert me.make_one(tables.keys(1, zone=2)) is Reason.FULL
    assert quotas.get()["global"] == {"limit": 5, "count": 10}


def test_a_limit_that_is_unset_follows_the_default(table, quotas):
    quotas.set_zone(5, 4)
    assert quotas.unset_zone(5)
    assert not quotas.unset_zone(5)
    assert quotas.get()["zones"] == []
    quotas.set_default(9)
    assert quotas.get(5)["zones"][0]["limit"] == 9
    quotas.set_default(None)
    assert tables.totals(table)["zone_limit_default"] == UNLIMITED


def test_the_whole_table_has_no_more_than_it_was_made_for(quotas):
    with pytest.raises(BadParameterError, match="made for 500 connections") as refused:
        quotas.set_total(501)
    assert refused.value.detail == {"parameter": "global", "most": 500}
    quotas.set_total(7)
    quotas.set_total(None)
    assert quotas.get()["global"]["limit"] == 500
