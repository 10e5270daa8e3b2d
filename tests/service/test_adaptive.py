"""Marks of adaptive timeouts: as they are set, shown, and come over the wire."""

import pytest
import tables
from zonetrack.clients.errors import BadParameterError
from zonetrack.service.zone_settings import ZoneSettings, changes
from zonetrack.shm.layout import Setting

ZONE, OTHER = 3, 4
START, END = 100, 180


@pytest.fixture
def table():
    return tables.small()


@pytest.fixture
def settings(table):
    made = ZoneSettings(table)
    made.set(ZONE, {"adaptive": [START, END]})
    return made


def test_marks_are_shown_and_taken_away(table, settings):
    assert settings.of(ZONE)["adaptive"] == [START, END] and "adaptive" not in settings.of(OTHER)
    word = int(tables.zones(table)["settings"][ZONE])
    assert word & Setting.ADAPTIVE
    settings.set(ZONE, {"loose": False})
    assert settings.of(ZONE)["adaptive"] == [START, END]
    settings.set(ZONE, {"adaptive": []})
    assert "adaptive" not in settings.of(ZONE)
    assert not int(tables.zones(table)["settings"][ZONE]) & Setting.ADAPTIVE
    settings.set(ZONE, {"adaptive": [1, 2]})
    settings.unset(ZONE)
    assert "adaptive" not in settings.of(ZONE)
    assert not int(tables.zones(table)["settings"][ZONE]) & Setting.ADAPTIVE


def test_marks_as_they_come_over_the_wire():
    assert changes("settings", {"adaptive": [5, 9]}) == {"adaptive": [5, 9]}
    assert changes("settings", {"adaptive": 0}) == {"adaptive": []}
    for value in (5, [5], [9, 5], [5, 5], [5, 6, 7], [-1, 5], [True, 5], "5,9", None, [0, 1 << 40]):
        with pytest.raises(BadParameterError, match="two counts of connections"):
            changes("settings", {"adaptive": value})
