"""Budgets of half-open connections: set, shown, taken away; seats of zones lie apart."""

import pytest
import tables
from zonetrack.clients.errors import BadParameterError
from zonetrack.service.half_open import LIMIT_MAX, HalfOpen, figures
from zonetrack.service.zone_settings import ZoneSettings, changes
from zonetrack.shm.layout import SEATS_MAX, Setting
from zonetrack.shm.seats import Seats


@pytest.fixture
def table():
    made = tables.small()
    made.seats = Seats()
    return made


@pytest.fixture
def budgets(table):
    return HalfOpen(table)


def seats_of(table, zone):
    quota = tables.quotas(table)[zone]
    return range(int(quota["half_open_first"]), int(quota["half_open_first"] + quota["half_open_limit"]))


def test_seats_of_zones_lie_apart_and_what_is_free_is_used_again(table, budgets):
    for zone, wanted in ((1, 10), (2, 20), (3, 30)):
        budgets.set(zone, wanted)
    assert [seats_of(table, zone) for zone in (1, 2, 3)] == [range(10), range(10, 30), range(30, 60)]
    budgets.set(2, 0)
    budgets.set(4, 20)
    budgets.set(5, 1)
    assert (seats_of(table, 4), seats_of(table, 5)) == (range(10, 30), range(60, 61))
    budgets.set(1, 11)
    assert seats_of(table, 1) == range(61, 72)
    assert budgets.of(2) == {} and budgets.of(1) == {"half_open": 11}


def test_new_seats_are_free(table, budgets):
    table.seats.words[:40] = 1 << 32 | 1
    budgets.set(1, 10)
    assert not table.seats.words[:10].any() and table.seats.words[10:40].all()


def test_the_same_budget_leaves_who_sits_there(table, budgets):
    budgets.set(1, 10)
    table.seats.words[3] = 1 << 32 | 1
    budgets.set(1, 10)
    assert table.seats.words[3] == 1 << 32 | 1


def test_more_seats_than_there_are(table, budgets):
    for zone in range(1, SEATS_MAX // LIMIT_MAX + 1):
        budgets.set(zone, LIMIT_MAX)
    with pytest.raises(BadParameterError, match="seats there are not 1 in a row"):
        budgets.set(9, 1)
    assert budgets.of(9) == {}
    budgets.set(2, LIMIT_MAX - 1)
    budgets.set(9, 1)
    assert budgets.of(9) == {"half_open": 1}


def test_a_table_without_seats():
    settings = ZoneSettings(tables.small())
    with pytest.raises(BadParameterError, match="only the table of a service"):
        settings.set(1, {"half_open": 5, "loose": False})
    assert not settings.is_own(1) and settings.of(1)["loose"]


def test_a_zone_says_that_it_has_one(table, budgets):
    settings = ZoneSettings(table)
    settings.set(1, {"half_open": 5})
    assert settings.of(1)["half_open"] == 5 and int(tables.zones(table)["settings"][1]) & Setting.HALF_OPEN
    assert (figures(budgets, 1), figures(budgets, 2)) == ({"half_open_count": 0}, {})
    settings.set(1, {"loose": False})
    assert settings.of(1)["half_open"] == 5
    settings.unset(1)
    assert "half_open" not in settings.of(1) and not int(tables.zones(table)["settings"][1]) & Setting.HALF_OPEN


def test_budgets_as_they_come_over_the_wire():
    assert changes("settings", {"half_open": 0}) == {"half_open": 0}
    for value in (-1, LIMIT_MAX + 1, True, "5", None, [5]):
        with pytest.raises(BadParameterError):
            changes("settings", {"half_open": value})
